"""Read a live table once, by tasks and within one budget: folded by each task, or as a frame that Spark evaluates."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.cassandra.budget_server import BudgetServer
from lakeward.cassandra.clusters import limits_for
from lakeward.cassandra.connection import connected, task_session, with_nodes
from lakeward.cassandra.read_plan import (
    ReadPlan,
    estimated_size,
    grouped,
    page_rows,
    partitioner_of,
    ring_ranges,
    splits_for,
)
from lakeward.cassandra.reading import read_ranges
from lakeward.cassandra.retry import rows_of
from lakeward.cassandra.snapshots import snapshot_arrow_schema, snapshot_struct
from lakeward.cassandra.tables import require_readable, require_table
from lakeward.spark.errors import task_error, translated
from lakeward.spark.marks import in_task, marked_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from cassandra.cluster import Session
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.cassandra.budget import OnProgress, RateLimits
    from lakeward.cassandra.clusters import LiveTable
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.read_plan import TokenRange
    from lakeward.cassandra.schema import TableSchema

Folded = TypeVar("Folded")


@dataclass(frozen=True)
class LiveScan:
    """A table that is read once: its definition, the addresses of its nodes, and its ranges by task.

    ``expected_rows`` is known only of tables whose partitions have one row each.
    """

    address: ClusterAddress
    schema: TableSchema
    partitioner: str
    groups: tuple[tuple[TokenRange, ...], ...]
    expected_rows: int | None

    @classmethod
    def of(cls, session: Session, table: LiveTable, parallelism: int) -> LiveScan:
        """Examine a table that is to be read by so many tasks at one time.

        Raises:
            ConfigurationError: there is no such table, it may not be read, or its cluster has no token ranges.
        """
        schema = require_table(session, table.name, remedy=None)
        require_readable(session, table.name)
        partitioner = partitioner_of(session)
        size = estimated_size(session, table.name, partitioner)
        ranges = ring_ranges(session, table.name, splits=splits_for(parallelism, size[1] if size else 0))
        expected = size[0] if size and not schema.clustering else None
        groups = tuple(grouped(ranges, parallelism))
        return cls(with_nodes(table.address, session), schema, partitioner.name, groups, expected)

    @property
    def ranges(self) -> int:
        """The number of token ranges."""
        return sum(map(len, self.groups))

    def plan(self, columns: Iterable[str]) -> ReadPlan:
        """Return the plan of reading the key and these columns, in rows as CQL returns them."""
        wanted = tuple(own.name for own in self.schema.values if own.name in set(columns))
        return ReadPlan(self.address, self.schema, columns=wanted, keys_only=not wanted, repeats_statics=True)

    @contextmanager
    def budget(
        self, spark: SparkSession, limits: RateLimits, on_progress: OnProgress | None
    ) -> Iterator[tuple[BudgetServer, Callable[[ReadPlan], ReadPlan]]]:
        """Yield a budget, and what makes a plan keep to it."""
        host, found = str(spark.conf.get("spark.driver.host", "127.0.0.1")), limits_for(self.address, limits)
        with BudgetServer(found, host=host, on_progress=on_progress, expected_rows=self.expected_rows) as server:
            yield server, partial(replace, budget=server.address, page_rows=page_rows(self.address, found))


def tasks_of(spark: SparkSession, tasks: int | None) -> int:
    """Return how many tasks read at one time."""
    return tasks or max(spark.sparkContext.defaultParallelism, 1)


def examine(spark: SparkSession, table: LiveTable, tasks: int | None) -> LiveScan:
    """Examine a table as :meth:`LiveScan.of` does, over a connection of its own."""
    with connected(table.address) as session:
        return LiveScan.of(session, table, tasks_of(spark, tasks))


def folded(
    spark: SparkSession,
    plan: ReadPlan,
    groups: Sequence[tuple[TokenRange, ...]],
    fold: Callable[[Iterator[tuple[TokenRange, pa.RecordBatch]]], Folded],
) -> list[Folded]:
    """Return what each task makes of the batches of its ranges.

    Raises:
        ConfigurationError: the table changed while it was read.
        RetriableError: the cluster did not answer.
    """
    if not groups:
        return []
    with translated(task_error()):
        return spark.sparkContext.parallelize(groups, len(groups)).map(partial(_fold_in_task, plan, fold)).collect()


def _fold_in_task(
    plan: ReadPlan,
    fold: Callable[[Iterator[tuple[TokenRange, pa.RecordBatch]]], Folded],
    ranges: tuple[TokenRange, ...],
) -> Folded:
    with marked_errors():
        return fold(read_ranges(task_session(plan.address), plan, ranges))


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken."""
    while name in taken:
        name += "_"
    return name


def read_column(schema: TableSchema) -> str:
    """Return the name of the column with the number of rows that a task has read."""
    return free_name(f"{S.PREFIX}read", schema.names)


def rows_frame(spark: SparkSession, plan: ReadPlan, groups: Sequence[tuple[TokenRange, ...]]) -> DataFrame:
    """Return the rows with a complete key as a frame; every evaluation reads the cluster.

    Each task adds a row of nulls whose :func:`read_column` is the number of rows that it has read. It is null in all
    others.
    """
    fields = snapshot_struct(plan.schema, plan.chosen).fields
    struct = T.StructType([*fields, T.StructField(read_column(plan.schema), T.LongType())])
    numbers = spark.range(0, len(groups), 1, max(len(groups), 1))
    return numbers.mapInArrow(in_task(_reading_task(plan, tuple(groups))), struct)


def _reading_task(
    plan: ReadPlan, groups: tuple[tuple[TokenRange, ...], ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    name = read_column(plan.schema)
    clustering = plan.schema.clustering[0].name if plan.schema.clustering else None

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = snapshot_arrow_schema(plan.schema, plan.chosen).append(pa.field(name, pa.int64()))
        session, count = task_session(plan.address), 0
        for group in [groups[number] for batch in batches for number in batch.column(0).to_pylist()]:
            for _, found in read_ranges(session, plan, group):
                rows = complete_rows(found, clustering)
                count += rows.num_rows
                if rows.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [*rows.columns, pa.nulls(rows.num_rows, pa.int64())], schema=schema
                    )
        nothing = [pa.nulls(1, field.type) for field in schema][:-1]
        yield pa.RecordBatch.from_arrays([*nothing, pa.array([count], pa.int64())], schema=schema)

    return read


def complete_rows(batch: pa.RecordBatch, clustering: str | None) -> pa.RecordBatch:
    """Return the rows with a complete key: those of partitions that have only static values are left out."""
    return batch if clustering is None else batch.filter(batch.column(clustering).is_valid())


def time_before_reading(session: Session) -> int:
    """Return the microsecond as of which what is read from now on may be written over.

    It is the earlier of this machine's time and the cluster's: what others write later has a later timestamp and wins.
    """
    ((milliseconds,),) = rows_of(session, "SELECT toUnixTimestamp(now()) FROM system.local")
    # The server's time is cut to milliseconds: what was written earlier within this one counts.
    return min(int(milliseconds) * 1_000 + 999, time.time_ns() // 1_000)
