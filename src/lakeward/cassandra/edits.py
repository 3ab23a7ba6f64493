"""Edit rows of a live table where they are: delete those that meet a condition, or write them again with a TTL.

The rows are read once and staged in files, so that what is shown, guarded and written is the same. All writes have the
time at which reading began: what others wrote later has a later time and stays. A call that was killed is repeated as
a whole, which changes nothing that it has already done.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.cassandra import guards
from lakeward.cassandra.clusters import LiveTable
from lakeward.cassandra.compare import open_staging_folder
from lakeward.cassandra.conditions import parse_condition, sql_value
from lakeward.cassandra.connection import connected
from lakeward.cassandra.conversion import to_cql
from lakeward.cassandra.jobs import DELETE, EDITS, TTL, Job, JobDecision, edit_outcome
from lakeward.cassandra.retry import call_again, rows_of
from lakeward.cassandra.scans import LiveScan, free_name, read_column, rows_frame, tasks_of, time_before_reading
from lakeward.cassandra.tables import require_table
from lakeward.cassandra.write_frames import SourceColumn, matched, unit_count
from lakeward.cassandra.write_job import WriteJob, WriteRequest, WriteRows, WriteTarget
from lakeward.cassandra.write_plan import DELETED, WriteStatus
from lakeward.delete_guard import DEFAULT_MAX_SHARE, Removal, rows_refusal
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.storage.claims import remove_files
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cassandra.cluster import Session
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.compare import StagingFolder
    from lakeward.cassandra.conditions import Condition
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.write_plan import WriteReport
    from lakeward.config import Config

# The time of the writes: when reading began.
READ_TIME = "read"
# The longest TTL of Cassandra, 20 years.
MOST_SECONDS = 630_720_000
ALL = "true"


def whole_seconds(seconds: float) -> int:
    """Return a TTL in whole seconds.

    Raises:
        ConfigurationError: it is negative, or has a fraction.
    """
    if seconds < 0 or seconds != int(seconds):
        msg = f"a TTL is a whole number of seconds, not {seconds}"
        raise ConfigurationError(msg, hint="0 is no TTL")
    return int(seconds)


@dataclass(frozen=True)
class EditReport(Document):
    """The rows of a table, those that meet the condition, and what was written to it, or would be.

    ``ttl`` is that of rewritten rows in seconds, 0 for rows that stay; None for a delete.
    """

    table: str
    where: str
    rows: int
    matching: int
    ttl: int | None
    read_units: float
    written: WriteReport


@dataclass(frozen=True)
class EditRequest(WriteRequest):
    """The rows to edit: those of the table ``into`` for which ``where``, a condition in SQL, is true.

    timestamp: ``read``: the time at which reading began; or ``now``, for tables that accept no timestamps.
    ttl: write them again with this TTL in seconds, 0: without one; None: delete them.
    max_delete_share: refuse to delete a larger share of the rows.
    staging: folder for the rows that meet the condition, which all tasks must reach.
    """

    where: str = ALL
    ttl: int | None = None
    max_delete_share: float = DEFAULT_MAX_SHARE
    staging: str | None = None

    def __post_init__(self) -> None:
        """Check the TTL and the time of the writes.

        Raises:
            ConfigurationError: one of them is not valid.
        """
        if self.timestamp not in (READ_TIME, guards.NOW):
            msg = f"the timestamp {self.timestamp!r} is not valid; expected {READ_TIME} or {guards.NOW}"
            raise ConfigurationError(msg)
        if self.ttl is not None and not 0 <= self.ttl <= MOST_SECONDS:
            msg = f"a TTL is at most {MOST_SECONDS:,} seconds, which are 20 years, not {self.ttl:,}"
            raise ConfigurationError(msg, hint="0 is no TTL")

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return DELETE if self.ttl is None else TTL


def edit_rows(
    spark: SparkSession,
    config: Config,
    address: ClusterAddress,
    request: EditRequest,
    *,
    on_progress: OnProgress | None = None,
) -> EditReport:
    """Delete the rows that meet a condition, or write them again with a TTL; a dry run counts and estimates.

    Raises:
        ConfigurationError: there is no such table, it may not be written, or the condition is not valid.
        RefusedInputError: the table has counters, another job was left unfinished, or too many rows would be deleted.
        DataError: too many rows are rejected.
        RetriableError: the cluster does not answer; the same call does the rest.
    """
    with connected(address) as session:
        schema = require_table(session, request.into, remedy=None)
        _require_editable(schema, request)
        condition = parse_condition(spark, schema, request.where)
        target = WriteTarget.open(session, address, schema, request)
        _require_no_other_job(target, request)
        moment = time_before_reading(session)
        scan = LiveScan.of(session, LiveTable(address, request.into), tasks_of(spark, request.tasks))
        with (
            open_staging_folder(spark, config, request.staging, request.tasks) as stage,
            _staged(spark, scan, request, condition, stage, on_progress) as staged,
        ):
            warnings = _require_allowed(staged, request, schema)
            decision = _decide(request, target, staged, moment, warnings)
            if not staged.matching:
                return staged.report(request, _nothing_to_do(request, target, decision))
            # All that matched is written: units of an earlier call were made of other rows.
            forced = replace(request, force=True)
            job = WriteJob.build(target, forced, decision, _rows(request, staged, schema), config)
            written = job.run(on_progress)
            if written.status is not WriteStatus.DRY_RUN and request.kind == DELETE:
                written = replace(written, warnings=(*written.warnings, *_survivors(session, schema, staged)))
            return staged.report(request, written)


def _require_editable(schema: TableSchema, request: EditRequest) -> None:
    if schema.has_counters:
        verb = "deleted: one that is added to again continues from its old value" if request.ttl is None else (
            "written with a TTL: they can only be added to"
        )  # fmt: skip
        msg = f"{schema.name} has counters, which cannot be {verb}"
        raise RefusedInputError(msg, hint="create the table again without them, or TRUNCATE it")


def _require_no_other_job(target: WriteTarget, request: EditRequest) -> None:
    """Refuse a table with an unfinished import or change set; an edit that was not finished does not matter."""
    begun = target.ledger.under_way()
    if begun is not None and begun.kind not in EDITS:
        msg = guards.unfinished(begun, str(request.into))
        raise RefusedInputError(msg, hint="finish it first, with the command that started it")


# How many deleted rows are looked for again.
_SAMPLE = 100


def _survivors(session: Session, schema: TableSchema, staged: _Staged) -> tuple[str, ...]:
    """Return a warning if some of the deleted rows are still there: a later timestamp wins, whoever wrote it."""
    keys = [own for own in schema.columns if own.kind.is_key]
    where = " AND ".join(f"{own.cql} = ?" for own in keys)
    query = call_again(lambda: session.prepare(f"SELECT {keys[0].cql} FROM {schema.name.cql} WHERE {where}"))
    change = [to_cql(own.type, key=True) for own in keys]
    sample = staged.frame.select(*columns([own.name for own in keys])).limit(_SAMPLE).collect()
    found = 0
    for row in [picked.asDict(recursive=True) for picked in sample]:
        values = [make(row[own.name]) for make, own in zip(change, keys, strict=True)]
        found += bool(rows_of(session, query, values))
    if not found:
        return ()
    why = "they were written meanwhile, or with times later than this delete, which win"
    return (f"{found:,} of {len(sample):,} deleted rows that were looked for are still there: {why}",)


def _require_allowed(staged: _Staged, request: EditRequest, schema: TableSchema) -> tuple[str, ...]:
    """Refuse to delete too many rows, in a dry run only with a warning; return all warnings."""
    warnings = []
    removal = Removal(staged.matching, staged.rows, request.max_delete_share)
    if request.ttl is None and removal.is_refused:
        error = rows_refusal(removal, staged.table, request.where)
        if not request.dry_run:
            raise error
        warnings.append(f"{error.message}; --apply is refused   ({error.hint})")
    if schema.statics and staged.matching:
        names = ", ".join(own.name for own in schema.statics)
        warnings.append(f"static values stay as they are, also where a partition has no other rows left: {names}")
    return tuple(warnings)


def _decide(
    request: EditRequest, target: WriteTarget, staged: _Staged, moment: int, warnings: tuple[str, ...]
) -> JobDecision:
    verb = "the delete of rows" if request.ttl is None else f"the TTL of {request.ttl:,} seconds for rows"
    timestamp = guards.chosen_timestamp(guards.NOW, None, "") if request.timestamp == guards.NOW else moment
    assert timestamp is not None
    identity = {"location": f"{verb} of {staged.table} where {request.where}"}
    job = Job(_id(request), request.kind, unit_count(staged.matching), timestamp, identity)
    outcome = edit_outcome(target.ledger.last(), job)
    return JobDecision(job, outcome, (*warnings, *outcome.warnings(str(request.into))))


def _nothing_to_do(request: EditRequest, target: WriteTarget, decision: JobDecision) -> WriteReport:
    """Return the report of an edit of no rows, after ending one that was killed when it had written all of them."""
    begun = target.ledger.known(decision.job.id)
    if begun is not None and not request.dry_run:
        target.ledger.finish(begun, decision.outcome)
    return replace(target.unchanged(), warnings=decision.warnings if begun is not None else ())


def _id(request: EditRequest) -> str:
    return guards.job_id(request.kind, {}, request.where, str(request.ttl))


def _rows(request: EditRequest, staged: _Staged, schema: TableSchema) -> WriteRows:
    found = {field.name: SourceColumn(field.dataType, column(field.name)) for field in staged.frame.schema.fields}
    is_delete = request.ttl is None
    return WriteRows(
        label=staged.table,
        location=staged.table,
        frame=staged.frame,
        columns=matched(staged.table, found, schema.primary_key, None, schema),
        count=staged.matching,
        has_static_rows=False,
        ttl=request.ttl,
        action=F.lit(DELETED) if is_delete else None,
        changes=F.lit(None).cast("array<string>") if is_delete else None,
    )


@dataclass(frozen=True)
class _Staged:
    """The rows that meet the condition, in files; ``rows`` is how many the table has."""

    table: str
    frame: DataFrame
    rows: int
    matching: int
    read_units: float

    def report(self, request: EditRequest, written: WriteReport) -> EditReport:
        """Return the report of what was written."""
        return EditReport(
            self.table, request.where, self.rows, self.matching, request.ttl, round(self.read_units, 1), written
        )


@contextmanager
def _staged(
    spark: SparkSession,
    scan: LiveScan,
    request: EditRequest,
    condition: Condition,
    stage: StagingFolder,
    on_progress: OnProgress | None,
) -> Iterator[_Staged]:
    """Read the table once, and yield what is needed of the rows that meet the condition; the files are removed."""
    schema, count, folder, store = scan.schema, read_column(scan.schema), f"{stage.folder}/rows", stage.store
    table, place = f"{scan.address.name}/{schema.name}", store.for_spark(f"{stage.folder}/rows")
    kept = [*schema.primary_key, *(own.name for own in schema.regulars if request.ttl is not None)]
    try:
        with scan.budget(spark, request.limits.for_reading(), on_progress) as (budget, limited):
            rows = rows_frame(spark, limited(scan.plan([*kept, *condition.columns])), scan.groups)
            found = _chosen(rows, schema, condition, kept, count)
            with condition.errors(table):
                found.write.options(**store.options).parquet(place)
            units = budget.totals().read_units
        written = spark.read.options(**store.options).schema(found.schema).parquet(place)
        counts = written.agg(F.sum(count), F.count_if(column(count).isNull())).first()
        assert counts is not None
        frame = written.filter(column(count).isNull()).select(*[column(_KEPT)[name].alias(name) for name in kept])
        yield _Staged(table, frame, int(counts[0] or 0), int(counts[1]), units)
    finally:
        # The folder was made under a new id: all in it is from here.
        remove_files(store, folder, store.files(folder))


# The struct of what is kept of a row: its names cannot clash with those of the condition's columns.
_KEPT = "kept"


def _chosen(rows: DataFrame, schema: TableSchema, condition: Condition, kept: Sequence[str], count: str) -> DataFrame:
    """Return what is kept of the rows that meet a condition, and how many rows each task has read."""
    whole = free_name(f"{S.PREFIX}row", schema.names)
    typed = rows.select(
        F.struct(*columns(kept)).alias(whole),
        column(count),
        *[sql_value(schema.column(name)).alias(name) for name in condition.columns],
    )
    holds = F.when(column(count).isNotNull(), F.lit(True)).otherwise(condition.holds)
    return typed.filter(holds).select(column(whole).alias(_KEPT), column(count))
