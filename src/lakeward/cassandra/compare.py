"""Compare a table with its copy in another cluster, and write the change set that would repair the copy.

The rows of ranges that differ are staged in files, so that they are compared as they were when they were read. Rows
that differ are read again after a pause, and only these count in the next round.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from lakeward import schemas as S
from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.budget_server import BudgetServer
from lakeward.cassandra.clusters import LiveTable, limits_for
from lakeward.cassandra.connection import connected, with_nodes
from lakeward.cassandra.diff import diff_options, remedy_for_types
from lakeward.cassandra.digests import differing, fitted_frame, look, shared, widened
from lakeward.cassandra.export_folder import StagedRows, seconds_to_next_minute, table_folder
from lakeward.cassandra.range_files import RangeGroup, is_group_file, read_groups, task_folder
from lakeward.cassandra.read_plan import ReadPlan, grouped, page_rows, partitioner_of, ring_ranges
from lakeward.cassandra.schema import differences, read_table_schema
from lakeward.cassandra.snapshots import LIVE, shown_like_cql, snapshot_struct
from lakeward.diffing.comparison import ComparisonRequest, SideComparison, run_comparison
from lakeward.diffing.stored.addresses import Side, absolute
from lakeward.diffing.stored.applying import change_set_folder
from lakeward.errors import ConfigurationError
from lakeward.storage.claims import remove_files
from lakeward.storage.filesystem import open_filesystem
from lakeward.text import count
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.read_plan import TokenRange
    from lakeward.cassandra.schema import TableSchema
    from lakeward.config import Config
    from lakeward.diffing.comparison import DiffResult
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.storage.filesystem import FileSystem


@dataclass(frozen=True)
class StagingFolder:
    """The folder in which the rows of live tables are staged, and how many tasks read them."""

    spark: SparkSession
    store: FileSystem
    folder: str
    tasks: int

    def remove(self) -> None:
        """Remove the staged files."""
        present = self.store.files(self.folder)
        remove_files(self.store, self.folder, [path for path in present if is_group_file(path)])

    def side(self, plan: ReadPlan, shown: TableSchema, ranges: Sequence[TokenRange], name: str) -> Side:
        """Read ranges of a table into a subfolder, and return them as a side of a comparison.

        ``shown`` is the table with the types in which its values are compared.

        Raises:
            RetriableError: the cluster did not answer.
        """
        started = datetime.now(UTC)
        folder = f"{self.folder}/{name}"
        groups = [RangeGroup(number, part) for number, part in enumerate(grouped(ranges, self.tasks))]
        read = read_groups(self.spark, plan, task_folder(self.store, folder), groups, tasks=self.tasks)
        staged = StagedRows(self.store, folder, tuple(read), snapshot_struct(plan.schema), plan.schema.primary_key)
        identity = live_identity(replace(plan, schema=shown), started, datetime.now(UTC))
        frame = fitted_frame(staged.read(self.spark), shown)
        return Side(str(identity["location"]), frame, plan.schema.primary_key, rows=staged.rows, identity=identity)


@contextmanager
def open_staging_folder(
    spark: SparkSession, config: Config, place: str | None, tasks: int | None
) -> Iterator[StagingFolder]:
    """Yield a staging folder below ``place``, by default a temporary one; it is removed afterwards.

    Raises:
        ConfigurationError: no place is named, and Spark runs on more than this machine.
    """
    if place is None and not str(spark.sparkContext.master).startswith("local"):
        msg = "Spark runs on other machines too, and no staging folder is named that all of them can reach"
        raise ConfigurationError(msg, hint="--staging URI")
    with tempfile.TemporaryDirectory(prefix="lakeward-compare-", ignore_cleanup_errors=True) as temporary:
        folder = f"{absolute(place or temporary)}/.compare-{uuid.uuid4().hex[:12]}"
        parallelism = tasks or max(spark.sparkContext.defaultParallelism, 1)
        stage = StagingFolder(spark, open_filesystem(spark, config, folder), folder, parallelism)
        try:
            yield stage
        finally:
            stage.remove()


def live_identity(plan: ReadPlan, started: datetime, ended: datetime) -> dict[str, Any]:
    """Return the identity of a side: a table of a cluster at a time, with what applying its rows elsewhere needs."""
    name = plan.schema.name
    return {
        "kind": LIVE,
        "location": f"{plan.address.name}/{name}",
        "table": str(name),
        "created": started.isoformat(),
        "cassandra": {
            "cluster": plan.address.name,
            "keyspace": name.keyspace,
            "table": name.table,
            "schema": plan.schema.to_dict(),
            "started": started.isoformat(),
            "ended": ended.isoformat(),
            "consistency": plan.address.settings.consistency,
            "writetime": False,
            "ttl": False,
            "where": None,
            "columns": [],
        },
    }


_KEY = f"{S.PREFIX}key_"


@dataclass(frozen=True)
class Suspects:
    """The keys of rows that differ, kept in files."""

    keys: DataFrame
    count: int

    @classmethod
    def of(cls, sides: Sequence[Side], options: DiffOptions, stage: StagingFolder, look: int) -> Suspects | None:
        """Return the keys at which two sides differ; None where there are none."""
        names = sides[0].primary_key
        path = stage.store.for_spark(f"{stage.folder}/look-{look}/keys")
        with SideComparison(sides[0], sides[1], names, options) as comparison, comparison.translated_errors():
            keys = comparison.frame.select(*columns(names)).toDF(*_renamed(names))
            keys.write.options(**stage.store.options).parquet(path)
            differs = not comparison.summary().is_same
        if not differs:
            return None
        found = stage.spark.read.options(**stage.store.options).schema(keys.schema).parquet(path)
        return cls(found, found.count())

    def only(self, side: Side) -> Side:
        """Return the rows of a side that are suspect."""
        pairs = zip(side.primary_key, _renamed(side.primary_key), strict=True)
        same = reduce(and_, [column(name).eqNullSafe(column(renamed)) for name, renamed in pairs])
        frame = side.frame.join(self.keys, same, "left_semi")
        return replace(side, frame=frame, rows=frame.count())


def _renamed(names: Sequence[str]) -> list[str]:
    return [f"{_KEY}{at}" for at in range(len(names))]


# More ranges leave less to read again where something differs.
_RANGES_PER_TASK = 16


@dataclass(frozen=True)
class CompareRequest:
    """The tables to compare: ``table`` is correct, ``copy`` is what a change set would repair.

    to: folder of exports below which the change set is written; None: none is written.
    rechecks: how often rows that differ are read again, each time after ``pause`` seconds: writes that had not yet
        reached one of the clusters have then arrived.
    ranges: into how many ranges the ring is cut; None: depends on the number of tasks.
    """

    table: LiveTable
    copy: LiveTable
    to: str | None = None
    rechecks: int = 1
    pause: float = 3.0
    limits: RateLimits = field(default_factory=RateLimits)
    ranges: int | None = None
    limit: int = 5
    max_delete_share: float | None = None


@dataclass(frozen=True)
class ComparisonReport:
    """The result of a comparison. Rows are those of the first look; ``result`` is None where no range differs.

    ``lacking`` are columns of the table that the copy does not have.
    """

    table: str
    copy: str
    rows: tuple[int, int]
    ranges: int
    differing: int
    looks: int
    schema_differences: tuple[str, ...]
    result: DiffResult | None
    seconds: float
    lacking: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether the copy holds what the table does."""
        return not self.lacking and self.has_same_rows

    @property
    def has_same_rows(self) -> bool:
        """Whether all rows are equal, in the columns that both have."""
        return self.result is None or self.result.summary.is_same

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows that are missing in the copy, differ, or are only in the copy."""
        found = self.result.summary if self.result is not None else None
        words = {"missing": "inserted", "different": "changed", "surplus": "deleted"}
        return {name: getattr(found, word) if found is not None else 0 for name, word in words.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        detail = self.result.to_dict() if self.result is not None else {}
        return {
            "table": self.table,
            "copy": self.copy,
            "same": self.is_same,
            "rows": {"table": self.rows[0], "copy": self.rows[1]},
            **self.counts,
            "ranges": {"all": self.ranges, "differing": self.differing},
            "looks": self.looks,
            "schema_differences": list(self.schema_differences),
            "columns": {
                name: number for name, number in detail.get("summary", {}).get("columns", {}).items() if number
            },
            "examples": detail.get("examples", []),
            "change_set": detail.get("change_set"),
            "seconds": round(self.seconds, 3),
        }


def compare_tables(
    spark: SparkSession,
    config: Config,
    request: CompareRequest,
    stage: StagingFolder,
    *,
    on_progress: Callable[[str], None] | None = None,
) -> ComparisonReport:
    """Compare two tables by token ranges, and write the change set that repairs the copy if requested.

    First every range of both is read for a digest of its rows. Only the rows of ranges that differ are then staged and
    compared one by one, and those that differ are read again.

    Raises:
        ConfigurationError: a table does not exist, or the two have different keys.
        RefusedInputError: the change set would delete too much, or the minute has one already.
        RetriableError: a cluster did not answer.
    """
    began, on_progress = time.monotonic(), on_progress or (lambda _: None)
    pair = _Pair.of(request, request.ranges or _RANGES_PER_TASK * stage.tasks)
    with _budgets(spark, request, on_progress) as budgets:
        plans = [
            ReadPlan(address, schema, budget=budget.address, page_rows=page_rows(address, request.limits))
            for address, schema, budget in zip(pair.addresses, pair.schemas, budgets, strict=True)
        ]
        on_progress(f"reading {len(pair.ranges[0]):,} ranges of {request.table} and {request.copy}")
        comparison = _Looks(spark, config, request, stage, plans, pair, on_progress)
        with remedy_for_types("give the copy's column the type of the table's, or one that holds all its values"):
            result = comparison.result()
    return ComparisonReport(
        table=str(request.table),
        copy=str(request.copy),
        rows=comparison.rows,
        ranges=len(pair.ranges[0]),
        differing=comparison.first_differing,
        looks=comparison.looks,
        schema_differences=tuple(pair.differences),
        result=result,
        seconds=time.monotonic() - began,
        lacking=pair.lacking,
    )


@contextmanager
def _budgets(
    spark: SparkSession, request: CompareRequest, on_progress: Callable[[str], None]
) -> Iterator[list[BudgetServer]]:
    """Yield a budget for each cluster: the limits hold for each of them."""
    host = str(spark.conf.get("spark.driver.host", "127.0.0.1"))
    with ExitStack() as stack:
        yield [
            stack.enter_context(BudgetServer(limits_for(live.address, request.limits), host=host, on_progress=callback))
            for live, callback in ((request.table, on_progress), (request.copy, None))
        ]


@dataclass(frozen=True)
class _Pair:
    """Both tables with the columns they share, and the ranges of each.

    ``shown`` are the tables with the types in which they are compared.
    """

    addresses: tuple[ClusterAddress, ClusterAddress]
    schemas: tuple[TableSchema, TableSchema]
    shown: tuple[TableSchema, TableSchema]
    lacking: tuple[str, ...]
    differences: list[str]
    ranges: tuple[list[TokenRange], list[TokenRange]]
    is_by_range: bool

    @classmethod
    def of(cls, request: CompareRequest, splits: int) -> _Pair:
        with connected(request.table.address) as first, connected(request.copy.address) as second:
            table = read_table_schema(first, request.table.name)
            copy = read_table_schema(second, request.copy.name)
            by_range = partitioner_of(first) == partitioner_of(second)
            ranges = ring_ranges(first, request.table.name, splits=splits)
            others = ranges if by_range else ring_ranges(second, request.copy.name, splits=splits)
            addresses = with_nodes(request.table.address, first), with_nodes(request.copy.address, second)
        if table.primary_key != copy.primary_key:
            msg = (
                f"{request.table} has the key {', '.join(table.primary_key)}, "
                f"{request.copy} has {', '.join(copy.primary_key)}"
            )
            raise ConfigurationError(msg, hint="compare tables with the same primary key")
        found = differences(table, copy)
        found += [f"the column {name!r} is only in the copy" for name in copy.names if name not in table.names]
        lacking = tuple(name for name in table.names if name not in copy.names)
        table, copy = shared(table, copy), shared(copy, table)
        shown = widened(table, copy), widened(copy, table)
        return cls(addresses, (table, copy), shown, lacking, found, (ranges, others), by_range)


class _Looks:
    """The rounds of a comparison: each looks only at what differed in the one before."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        request: CompareRequest,
        stage: StagingFolder,
        plans: Sequence[ReadPlan],
        pair: _Pair,
        on_progress: Callable[[str], None],
    ) -> None:
        self._spark, self._config, self._request, self._stage = spark, config, request, stage
        self._plans, self._pair, self._on_progress = plans, pair, on_progress
        self._ranges = pair.ranges
        self.rows = (0, 0)
        self.looks = self.first_differing = 0
        self._began = datetime.now(UTC)

    def result(self) -> DiffResult | None:
        """Return the difference after all rounds; None where nothing differs any more."""
        options = diff_options(self._plans[0].schema.primary_key, [plan.schema.names for plan in self._plans])
        suspects: Suspects | None = None
        while (sides := self._sides(suspects)) is not None:
            if self.looks > self._request.rechecks:
                return self._compared(sides, options)
            suspects = Suspects.of(sides, options, self._stage, self.looks)
            if suspects is None:
                return None
            self._on_progress(f"looking again at {count(suspects.count, 'row that differs', 'rows that differ')}")
            time.sleep(self._request.pause)
        return None

    def _sides(self, suspects: Suspects | None) -> tuple[Side, Side] | None:
        """Return the rows of ranges that differ, the copy first, reduced to the suspects if there are any."""
        self._ranges = self._differing()
        self.looks += 1
        if not any(self._ranges):
            return None
        names = [f"look-{self.looks}/{which}" for which in ("table", "copy")]
        table, copy = (
            self._stage.side(plan, shown, part, name)
            for plan, shown, part, name in zip(self._plans, self._pair.shown, self._ranges, names, strict=True)
        )
        if not self._pair.is_by_range and self.looks == 1:
            self.rows, self.first_differing = (table.rows or 0, copy.rows or 0), len(self._ranges[0])
        return (copy, table) if suspects is None else (suspects.only(copy), suspects.only(table))

    def _differing(self) -> tuple[list[TokenRange], list[TokenRange]]:
        """Return the ranges that still differ."""
        if not self._pair.is_by_range:
            # Ranges of two partitioners hold different rows: all of them are compared.
            return self._ranges
        looks = look(self._spark, self._plans, self._pair.shown, self._ranges[0], self._stage.tasks)
        found = differing(looks)
        if not self.looks:
            first, second = (sum(looked.rows for looked in side.values()) for side in looks)
            self.rows, self.first_differing = (first, second), len(found)
        return found, found

    def _compared(self, sides: tuple[Side, Side], options: DiffOptions) -> DiffResult:
        request = self._request
        to = table_folder(request.to, request.copy.name) if request.to else None
        if to is not None:
            self._wait_for_free_minute(to)
        wanted = ComparisonRequest(
            to=to,
            max_delete_share=request.max_delete_share,
            limit=request.limit,
            checksums=False,
            same_rows=max(self.rows[1] - (sides[0].rows or 0), 0),
            shown=shown_like_cql(*sides),
        )
        keys = self._plans[0].schema.primary_key
        # Rows that were equal in the first round were not read again: later writes to them are not known.
        copy, table = (replace(side, identity={**side.identity, "since": self._began.isoformat()}) for side in sides)
        return run_comparison(self._config, copy, table, keys, options, wanted)

    def _wait_for_free_minute(self, to: str) -> None:
        """Wait for the next minute if this one already has a change set, rather than lose what was read."""
        now = datetime.now(UTC)
        if open_filesystem(self._spark, self._config, to).exists(change_set_folder(to, now)):
            self._on_progress("this minute already has a change set; waiting for the next one")
            time.sleep(seconds_to_next_minute(now))
