"""Export a table: read by ranges of tokens, in tasks, into a snapshot that is complete or does not exist."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.budget_server import BudgetServer
from lakeward.cassandra.clusters import limits_for
from lakeward.cassandra.connection import connected, with_nodes
from lakeward.cassandra.export_folder import (
    PLAIN,
    SET,
    StagedRows,
    is_published,
    publish,
    require_free_minute,
    snapshot_folder,
)
from lakeward.cassandra.export_journal import ExportPlan, Journal, Ownership, is_outdated, is_too_old, require_same
from lakeward.cassandra.range_files import read_groups, task_folder
from lakeward.cassandra.read_plan import (
    Partitioner,
    ReadPlan,
    TokenRange,
    estimated_size,
    grouped,
    page_rows,
    partitioner_of,
    ring_ranges,
    splits_for,
)
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.snapshots import BLOCK, OWN_COLUMNS, snapshot_struct
from lakeward.cassandra.tables import require_exportable, server_version
from lakeward.diffing.stored.addresses import absolute
from lakeward.diffing.stored.rows import TEXT_FORMATS, require_text
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.spark.errors import spark_faults, translated
from lakeward.storage.filesystem import open_filesystem
from lakeward.text import count

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.export_folder import Published
    from lakeward.cassandra.range_files import ReadGroup
    from lakeward.cassandra.schema import TableSchema
    from lakeward.config import Config
    from lakeward.storage.filesystem import FileSystem

# Ranges that a task reads into one file: as many as are under way at one time.
_RANGES_PER_GROUP = 4
# From this version on the server returns the times of a collection's elements.
_ELEMENT_TIMES_SINCE = (5,)
# From these on, and from 4.1 on, it returns the time of a frozen collection (CASSANDRA-17628).
_FROZEN_TIMES_SINCE, _FROZEN_TIMES_FIXED = (4, 1), ((3, 0, 28), (3, 11, 14), (4, 0, 5))
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class SourceTable:
    """The table to export as the cluster describes it: schema, ranges, and the versions for the manifest."""

    schema: TableSchema
    read: ReadPlan
    groups: tuple[tuple[TokenRange, ...], ...]
    partitioner: Partitioner
    expected_rows: int | None
    server: str
    driver: str


def examine_source(session: Session, address: ClusterAddress, request: ExportRequest, parallelism: int) -> SourceTable:
    """Read the definition and size of a table, and have the server check the query.

    Raises:
        ConfigurationError: the table or a column does not exist, may not be read, holds counters, or the condition
            is not valid.
    """
    schema = read_table_schema(session, request.table, request.columns)
    partitioner = partitioner_of(session)
    require_exportable(session, schema, counters=request.counters)
    server = server_version(session)
    version = _version(server)
    read = ReadPlan(
        with_nodes(address, session),
        schema,
        columns=_known(schema, request.columns),
        where=request.where,
        writetime=request.writetime,
        ttl=request.ttl,
        element_times=version >= _ELEMENT_TIMES_SINCE,
        frozen_times=_has_frozen_times(version),
    )
    _require_names(read)
    read.prepare(session)
    size = estimated_size(session, request.table, partitioner)
    splits = request.splits or splits_for(parallelism, size[1] if size else 0)
    ranges = ring_ranges(session, request.table, splits=splits)
    groups = max(len(ranges) // _RANGES_PER_GROUP, min(parallelism, len(ranges)))
    return SourceTable(
        schema=schema,
        read=read,
        groups=tuple(grouped(ranges, groups)),
        partitioner=partitioner,
        # The number of rows is known only where each partition has one.
        expected_rows=size[0] if size and not schema.clustering and not request.where else None,
        server=server,
        driver=importlib.metadata.version("cassandra-driver"),
    )


def _known(schema: TableSchema, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested columns besides the key, in the order of the table."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        msg = f"{schema.name} has no column {', '.join(unknown)}; it has {', '.join(schema.names)}"
        raise ConfigurationError(msg)
    if names and not set(names) - set(schema.primary_key):
        msg = f"all named columns of {schema.name} belong to its key, which is always exported"
        raise ConfigurationError(msg, hint=f"--columns {next(iter(schema.values)).name}" if schema.values else None)
    return tuple(name for name in schema.names if name in names and name not in schema.primary_key)


def _require_names(read: ReadPlan) -> None:
    """Refuse columns with names that a snapshot uses for times."""
    taken = [column.name for column in read.selected if column.name.startswith(OWN_COLUMNS)]
    if taken:
        msg = (
            f"{read.schema.name} has columns whose names begin like the time columns of a snapshot: {', '.join(taken)}"
        )
        raise ConfigurationError(msg, hint="rename them, or leave them out: --columns with the others")


def _has_frozen_times(version: tuple[int, ...]) -> bool:
    """Whether the server returns the times of frozen collections: older releases treat them as not frozen."""
    fixed = any(version[:2] == release[:2] and version >= release for release in _FROZEN_TIMES_FIXED)
    return fixed or version >= _FROZEN_TIMES_SINCE


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version such as ``4.0.11`` or ``5.0-rc1``."""
    return tuple(int(digits) for digits in _NUMBER.findall(text.partition("-")[0]))


FORMATS = ("parquet", *TEXT_FORMATS)
LAYOUTS = (SET, PLAIN)


@dataclass(frozen=True)
class ExportRequest:
    """What to export, and where to: ``<to>/<keyspace>/<table>/snapshot/year=…/…/minute=…``.

    ``columns`` are those besides the key, none meaning all. ``ttl`` implies ``writetime``. ``tasks`` limits how many
    tasks read at one time, ``splits`` is the number of ranges into which the ring is cut. ``restart`` discards what an
    interrupted export has read, ``restart_other`` only where that was a different export, which is refused otherwise.
    """

    table: TableName
    to: str
    format: str = "parquet"
    layout: str = SET
    where: str | None = None
    columns: tuple[str, ...] = ()
    writetime: bool = False
    ttl: bool = False
    counters: bool = False
    tasks: int | None = None
    splits: int | None = None
    limits: RateLimits = field(default_factory=RateLimits)
    restart: bool = False
    restart_other: bool = False

    def __post_init__(self) -> None:
        """Check the format and the layout.

        Raises:
            ConfigurationError: the format or the layout is not known.
        """
        if self.format not in FORMATS or self.layout not in LAYOUTS:
            known = f"{', '.join(FORMATS)} and {', '.join(LAYOUTS)}"
            msg = f"unknown format or layout: {self.format!r}, {self.layout!r}; expected {known}"
            raise ConfigurationError(msg)
        # Only Parquet has buckets; and the expiry of a value needs its write time and its TTL.
        object.__setattr__(self, "layout", self.layout if self.format == "parquet" else PLAIN)
        object.__setattr__(self, "writetime", self.writetime or self.ttl)


@dataclass(frozen=True)
class ExportReport(
    Document,
    keys=("folder", "id", "table", "rows", "ranges", "started", "ended", "resumed", "format", "layout", "checksum"),
    write={"table": str, "started": datetime.isoformat, "ended": datetime.isoformat},
):
    """A complete export."""

    folder: str
    table: TableName
    rows: int
    ranges: int
    started: datetime
    ended: datetime
    resumed: bool
    layout: str
    format: str
    checksum: str | None
    id: str


def export_table(
    spark: SparkSession,
    config: Config,
    address: ClusterAddress,
    request: ExportRequest,
    *,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Export a table, or resume an export that was interrupted: what was read is not read again.

    Args:
        spark: a session that counts in UTC and takes column names exactly (``table_session``).
        config: how the destination is reached.
        address: the cluster.
        request: what is exported, and where to.
        on_progress: called with lines about the progress.

    Raises:
        ConfigurationError: the table, the columns, the condition or the cluster is not as it must be.
        RefusedInputError: the minute has an export already, or an interrupted one was of something else.
        ConflictError: another one is under way.
        RetriableError: the cluster did not answer; the same command resumes where this one stopped.
    """
    job = _Job(spark, config, address, replace(request, to=absolute(request.to)), on_progress)
    with connected(address) as session:
        asked = examine_source(session, address, job.request, job.parallelism)
    struct = snapshot_struct(asked.schema, asked.read.chosen, writetime=request.writetime, ttl=request.ttl)
    require_text(struct, job.request.format)
    ownership = Ownership(job.store, job.root)
    ownership.require_free()
    with ownership:
        plan, resumed = job.taken_up(asked)
        folder = job.folder_of(plan)
        groups = job.read(asked, plan)
        staged = StagedRows(job.store, job.journal.folder, groups, struct, asked.schema.primary_key)
        ownership.require_own()
        job.say(f"writing {count(staged.rows, 'row')} to {folder}")
        about = _about(asked, plan, groups)
        with translated(*spark_faults(folder)):
            written = publish(spark, staged, folder, format=job.request.format, layout=job.request.layout, about=about)
        job.journal.remove()
    return _exported(job.request, plan, staged, folder, written, about, resumed=resumed)


class _Job:
    """An export and everything it works with."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        address: ClusterAddress,
        request: ExportRequest,
        on_progress: OnProgress | None,
    ) -> None:
        self.spark, self.address, self.request = spark, address, request
        self.say = on_progress or _nobody
        self._on_progress = on_progress
        self.store: FileSystem = open_filesystem(spark, config, request.to)
        self.root = f"{request.to}/{request.table.keyspace}/{request.table.table}"
        self.journal = Journal(self.store, self.root)
        self.place = task_folder(self.store, self.journal.folder)

    @property
    def parallelism(self) -> int:
        """The number of tasks that read at one time."""
        return self.request.tasks or max(self.spark.sparkContext.defaultParallelism, 1)

    def folder_of(self, plan: ExportPlan) -> str:
        """Return the folder in which an export is published."""
        return snapshot_folder(self.root, plan.started)

    def taken_up(self, asked: SourceTable) -> tuple[ExportPlan, bool]:
        """Begin an export or resume an interrupted one; return its plan, and whether it is resumed."""
        wanted, found = _wanted(self.address, self.request, asked), self._interrupted()
        if found is not None and self.request.restart_other and is_outdated(found, wanted):
            self.say(f"discarding what was read at {found.started:%Y-%m-%d %H:%M} UTC: it belongs to another export")
            found = None
        plan = found or ExportPlan.new(wanted, asked.groups)
        require_same(plan, wanted, self.journal.folder)
        require_free_minute(self.store, self.folder_of(plan), plan.id)
        if found is None:
            self.journal.begin(plan)
        return plan, found is not None

    def _interrupted(self) -> ExportPlan | None:
        """Return an interrupted export that is recent enough to resume; None where there is none."""
        found = self.journal.plan()
        if found is None or self.request.restart or is_too_old(found):
            return None
        return None if is_published(self.store, self.folder_of(found), found.id) else found

    def read(self, asked: SourceTable, plan: ExportPlan) -> tuple[ReadGroup, ...]:
        """Read the groups that were not read yet."""
        done = self.journal.done(plan)
        missing = [group for group in plan.groups if group.number not in done]
        if done:
            began = f"{plan.started:%Y-%m-%d %H:%M} UTC"
            self.say(f"resuming the export of {began}: {len(done)} of {len(plan.groups)} parts are read")
        host = str(self.spark.conf.get("spark.driver.host", "127.0.0.1"))
        limits = limits_for(self.address, self.request.limits)
        with BudgetServer(
            limits, host=host, on_progress=self._on_progress, expected_rows=asked.expected_rows
        ) as budget:
            read = replace(asked.read, budget=budget.address, page_rows=page_rows(self.address, limits))
            new = read_groups(self.spark, read, self.place, missing, tasks=self.request.tasks)
        return tuple(sorted([*done.values(), *new], key=lambda group: group.number))


def _nobody(line: str) -> None:
    """Ignore a line about the progress."""


def _wanted(address: ClusterAddress, request: ExportRequest, asked: SourceTable) -> dict[str, Any]:
    """Return what must be the same for an interrupted export to be resumed."""
    # Not the format and the layout: what tasks have read is the same for all of them.
    names = ("where", "writetime", "ttl")
    return {
        "cluster": address.name,
        **{name: getattr(request, name) for name in names},
        "columns": list(asked.read.columns),
        "consistency": address.settings.consistency,
        "partitioner": asked.partitioner.name,
        "schema": asked.schema.to_dict(),
    }


def _about(asked: SourceTable, plan: ExportPlan, groups: tuple[ReadGroup, ...]) -> dict[str, Any]:
    """Return the part of the manifest about the table and how it was read."""
    wanted, table = plan.wanted, asked.schema.name
    ended = max((group.ended for group in groups), default=plan.started.isoformat())
    ranges = [
        {"start": token_range.start, "end": token_range.end, "rows": rows}
        for group, found in zip(plan.groups, groups, strict=True)
        for token_range, rows in zip(group.ranges, found.rows, strict=True)
    ]
    block = {
        "cluster": wanted["cluster"],
        "keyspace": table.keyspace,
        "table": table.table,
        "schema": wanted["schema"],
        "started": plan.started.isoformat(timespec="microseconds"),
        "ended": ended,
        "consistency": wanted["consistency"],
        "partitioner": wanted["partitioner"],
        "writetime": wanted["writetime"],
        "ttl": wanted["ttl"],
        "collection_writetime": "max" if asked.read.element_times else "row",
        "where": wanted["where"],
        "columns": wanted["columns"],
        "server": asked.server,
        "driver": asked.driver,
        "ranges": sorted(ranges, key=lambda part: part["start"]),
    }
    return {"id": plan.id, "table": str(table), BLOCK: block}


def _exported(
    request: ExportRequest,
    plan: ExportPlan,
    staged: StagedRows,
    folder: str,
    written: Published,
    about: dict[str, Any],
    *,
    resumed: bool,
) -> ExportReport:
    block = about[BLOCK]
    return ExportReport(
        folder=folder,
        table=request.table,
        rows=staged.rows,
        ranges=len(block["ranges"]),
        started=plan.started,
        ended=datetime.fromisoformat(block["ended"]),
        resumed=resumed,
        layout=request.layout,
        format=request.format,
        checksum=written.checksum,
        id=plan.id,
    )
