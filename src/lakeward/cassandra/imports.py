"""Import a snapshot into a table: every cell with its recorded write time, or with the time of the snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.cassandra import guards
from lakeward.cassandra.connection import connected
from lakeward.cassandra.jobs import IMPORT, Job, JobDecision, JobEffect, import_outcome
from lakeward.cassandra.keyspaces import limits_of
from lakeward.cassandra.snapshots import EXPIRES, WRITETIME, origin_of
from lakeward.cassandra.tables import is_there, make_table, require_readable, require_table
from lakeward.cassandra.write_frames import SourceColumn, matched, require_no_counters, unit_count
from lakeward.cassandra.write_job import WriteJob, WriteRequest, WriteRows, WriteTarget
from lakeward.diffing.stored.changesets import is_surely_same, shown_state
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.jobs import AppliedState, JobOutcome
    from lakeward.cassandra.ledger import Ledger
    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.snapshots import ExportOrigin
    from lakeward.cassandra.write_plan import WriteReport
    from lakeward.config import Config
    from lakeward.diffing.stored.addresses import Side

# The hint where there is no table.
CREATE_TABLE = "--create-table   (creates it like the exported table)"


@dataclass(frozen=True)
class ImportRequest(WriteRequest):
    """What to import, and how.

    source: an export, a snapshot set, or plain files (``schema`` and ``format`` are for those).
    timestamp: ``snapshot`` means the recorded write times, else the start of the export.
    create_table: create the table from the export's definition where there is none.
    over: write over the recorded state of the target, unless newer cells there would hide parts of the snapshot.
    """

    create_table: bool = False
    over: bool = False
    schema: str | None = None
    format: str | None = None


def import_snapshot(
    spark: SparkSession,
    config: Config,
    address: ClusterAddress,
    request: ImportRequest,
    *,
    on_progress: OnProgress | None = None,
) -> WriteReport:
    """Write all rows of a snapshot into a table, or resume an import that was interrupted.

    Raises:
        RefusedInputError: the snapshot is incomplete or does not fit the table, or the table holds something else.
        DataError: too many rows are rejected.
        RetriableError: the cluster does not answer.
    """
    side = open_side(spark, config, request.source, schema=request.schema, format=request.format)
    origin = origin_of(side.identity)
    with connected(address) as session:
        target = WriteTarget.open(session, address, _table(session, request, origin), request)
        forgotten = _forget_lost(target.ledger)
        has_times = request.timestamp == guards.SNAPSHOT_TIME and any(
            name.startswith(WRITETIME) for name in side.frame.columns
        )
        decision = decide(request, side, origin, target.ledger, has_recorded_times=has_times)
        if decision is None:
            return target.unchanged()
        decision = replace(decision, warnings=(*forgotten, *decision.warnings))
        rows = _rows(request, side, origin, target)
        return WriteJob.build(target, request, decision, rows, config).run(on_progress)


def decide(
    request: ImportRequest, side: Side, origin: ExportOrigin | None, ledger: Ledger, *, has_recorded_times: bool
) -> JobDecision | None:
    """Decide from the record of a target whether a snapshot is written to it; None where there is nothing to do.

    Raises:
        RefusedInputError: the target holds another state, or a part of one.
    """
    last = ledger.last()
    last = last.with_latest_time if last is not None else None
    if _is_held(last, side) and not request.force:
        return None
    job, warnings = _job(request, side, origin, ledger)
    begun = ledger.under_way()
    is_begun = begun is not None and begun.id == job.id
    outcome = import_outcome(
        last,
        job,
        ledger.history(),
        has_recorded_times=has_recorded_times,
        has_rows=last is None and not is_begun and ledger.has_rows(),
    )
    if last is None and is_begun:
        # The rows in the target are its own, except those that were there before it.
        outcome = replace(outcome, why=ledger.doubt_of(job))
    warnings += tuple(guards.require_none_under_way(begun, job.id, str(request.into), force=request.force))
    return JobDecision(job, outcome, warnings + _target_warnings(last, side, request, outcome))


def _is_held(last: AppliedState | None, side: Side) -> bool:
    return last is not None and last.unknown is None and is_surely_same(last.identity, side.identity)


def _forget_lost(ledger: Ledger) -> tuple[str, ...]:
    """Drop the record where the rows are gone: finished units would otherwise not be written again."""
    lost = ledger.lost()
    if lost is None:
        return ()
    ledger.forget()
    return (f"{lost}: the whole snapshot is written",)


def _table(session: Any, request: ImportRequest, origin: ExportOrigin | None) -> TableSchema:
    if request.create_table and not is_there(session, request.into):
        _create(session, request, origin)
    target = require_table(session, request.into, remedy=CREATE_TABLE)
    require_readable(session, request.into)
    require_no_counters(request.source, target, origin.schema if origin is not None else None)
    return target


def _create(session: Any, request: ImportRequest, origin: ExportOrigin | None) -> None:
    if origin is None:
        msg = f"{request.source} does not describe its table, so the table cannot be created from it"
        raise RefusedInputError(msg, hint="--create-table needs what lakeward cassandra export wrote")
    require_no_counters(request.source, origin.schema)
    if request.dry_run:
        msg = f"there is no table {request.into} yet, and a dry run creates none"
        raise RefusedInputError(
            msg, hint="create it first: " + "; ".join(origin.schema.create_statements(request.into))
        )
    make_table(session, request.into, origin.schema.create_statements(request.into), what=str(request.into))


def _rows(request: ImportRequest, side: Side, origin: ExportOrigin | None, target: WriteTarget) -> WriteRows:
    frame, schema = side.frame, target.schema
    names = [name for name in frame.columns if not name.startswith((WRITETIME, EXPIRES))]
    found = {name: SourceColumn(frame.schema[name].dataType, column(name)) for name in names}
    keys = side.primary_key or tuple(name for name in schema.primary_key if name in found)
    pairs = matched(request.source, found, keys, origin, schema)
    values = [pair.column.name for pair in pairs if not pair.column.is_key]
    writetimes = _times(frame, WRITETIME, values) if request.timestamp == guards.SNAPSHOT_TIME else []
    if writetimes and limits_of(target.address.settings).oldest_timestamp is not None:
        msg = f"{request.source} has the times at which cells were written, which this cluster does not accept"
        raise RefusedInputError(msg, hint="--timestamp now   (leaves them out)")
    return WriteRows(
        label=side.label,
        location=str(side.identity.get("location", "")),
        frame=frame,
        columns=pairs,
        count=side.rows,
        has_static_rows=bool(schema.statics),
        writetimes=writetimes,
        expiries=_times(frame, EXPIRES, values),
    )


def _job(
    request: ImportRequest, side: Side, origin: ExportOrigin | None, ledger: Ledger
) -> tuple[Job, tuple[str, ...]]:
    """Return the job as it was recorded when it began, or a new one."""
    identity = guards.plain_identity(side.identity)
    own = guards.job_id(IMPORT, identity, request.timestamp)
    warnings: tuple[str, ...] = ()
    if (known := ledger.known(own)) is not None:
        return known, warnings
    timestamp = guards.chosen_timestamp(request.timestamp, origin, request.source)
    if timestamp is None:
        timestamp = guards.chosen_timestamp(guards.NOW, None, request.source)
        warnings = (f"{request.source} does not say when it was read: its cells are written as of now",)
    assert timestamp is not None
    return Job(own, IMPORT, unit_count(side.rows), timestamp, identity), warnings


def _times(frame: DataFrame, mark: str, values: Sequence[str]) -> list[Column]:
    """Return the recorded times of all values, null where there is none; empty where none is recorded at all."""
    if not any(mark + name in frame.columns for name in values):
        return []
    none = F.lit(None).cast("bigint")
    return [column(mark + name).cast("bigint") if mark + name in frame.columns else none for name in values]


def _target_warnings(
    last: AppliedState | None, side: Side, request: ImportRequest, outcome: JobOutcome
) -> tuple[str, ...]:
    """Refuse a target that holds another state, or a part of one; return the warnings."""
    stay = f"those that {side.label} does not have stay, and so do newer cells (--timestamp now overwrites them)"
    if last is None:
        return (f"{request.into} already has rows: {stay}",) if outcome.why is not None else ()
    unknown = guards.unknown_warnings(last)
    msg = unknown[0] if unknown else f"{request.into} holds {shown_state(last.identity)}"
    msg = f"{msg}, written at {last.at:%Y-%m-%d %H:%M:%S} UTC"
    if not request.force and not request.over:
        hint = guards.REESTABLISH if unknown else "apply what changed since: lakeward cassandra diff, then apply"
        raise RefusedInputError(msg, hint=f"{hint}; --force writes the snapshot over it")
    is_lost = outcome.effect is JobEffect.MIXES or (unknown and outcome.effect is JobEffect.KEEPS)
    if is_lost and not request.force:
        lose = f"{msg}: parts of {side.label} would be hidden by newer cells in the table"
        raise RefusedInputError(lose, hint=f"--timestamp now overwrites them; {guards.REESTABLISH}")
    rows = f": of its rows, {stay}" if outcome.effect is not JobEffect.KEEPS else ""
    return (msg + rows, *outcome.warnings(str(request.into)))
