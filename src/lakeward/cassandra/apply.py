"""A change set written into a table: inserts and changes as upserts, deletes by full key, all at one time.

The one time makes a replay change nothing, lets newer writes of others survive, deletes included, and lets the order of
statements not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.cassandra import guards
from lakeward.cassandra.connection import connected
from lakeward.cassandra.jobs import APPLY, Job, JobDecision, apply_outcome, is_replay
from lakeward.cassandra.snapshots import origin_of
from lakeward.cassandra.tables import require_readable, require_table
from lakeward.cassandra.values import spark_type
from lakeward.cassandra.write_frames import (
    Matched,
    action,
    changed_names,
    expiries,
    found_columns,
    matched,
    require_applicable,
    require_no_counters,
    require_no_csv_blobs,
    text_struct,
    typed,
    unit_count,
)
from lakeward.cassandra.write_job import WriteJob, WriteRequest, WriteRows, WriteTarget
from lakeward.cassandra.write_plan import WriteColumn
from lakeward.diffing.stored.addresses import absolute
from lakeward.diffing.stored.changesets import find_change_set
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.ledger import Ledger
    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.snapshots import ExportOrigin
    from lakeward.cassandra.write_plan import WriteReport
    from lakeward.config import Config
    from lakeward.diffing.frames.parsed_diff import ParsedDiff
    from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest

# What helps where there is no table.
FILL = "fill it first: lakeward cassandra import EXPORT --into KEYSPACE.TABLE --create-table"
_WRITTEN = ("inserted", "changed", "deleted")


@dataclass(frozen=True)
class ApplyRequest(WriteRequest):
    """Which change set is to be applied, and how.

    timestamp: ``snapshot`` stands for the start of the export that the change set leads to.
    max_delete_share: refuse where a larger part of the past's rows would be deleted.
    """

    max_delete_share: float = 0.5


def apply_change_set(
    spark: SparkSession,
    config: Config,
    address: ClusterAddress,
    request: ApplyRequest,
    *,
    on_progress: OnProgress | None = None,
) -> WriteReport:
    """Write what a change set says into a table, or go on with what was interrupted.

    Raises:
        RefusedInputError: the change set is not whole, not the next one, does not fit the table, or deletes too much.
        DataError: too many rows are rejected.
        RetriableError: the cluster does not answer.
    """
    with connected(address) as session:
        schema = require_table(session, request.into, remedy=FILL)
        require_readable(session, request.into)
        found = _find(spark, config, request, schema)
        parents = _parents(found)
        require_no_counters(found.label, schema, *_schemas(parents))
        target = WriteTarget.open(session, address, schema, request)
        decision = decide(request, found, parents, target.ledger)
        if decision is None:
            return target.unchanged()
        return WriteJob.build(target, request, decision, _rows(found, parents, schema), config).run(on_progress)


def decide(
    request: ApplyRequest, found: ChangeSet, parents: dict[str, ExportOrigin | None], ledger: Ledger
) -> JobDecision | None:
    """Decide by what is recorded of a target whether a change set is applied to it; None where there is nothing to do.

    Raises:
        RefusedInputError: it should not be.
    """
    warnings_before, lost = _require_held(request, found, ledger)
    last = ledger.last()
    if not request.force and guards.is_applied(last, found.manifest):
        return None
    job = _job(request, found, parents["current"], ledger)
    if last is not None and request.timestamp != guards.SNAPSHOT_TIME:
        # A time of a person's own does not say how old the values are.
        last = last.with_latest_time
    history = ledger.history()
    guards.require_few_deletes(found, request.max_delete_share)
    is_again = last is not None and is_replay(last, job, history)
    warnings = [
        *warnings_before,
        *guards.require_next(last, found, force=request.force),
        *guards.require_whole_parents(found, parents, force=request.force),
        *guards.require_later(last, job.timestamp, found.label, force=request.force, is_replay=is_again),
        *guards.require_none_under_way(ledger.under_way(), job.id, str(request.into), force=request.force),
    ]
    outcome = apply_outcome(last, job, found.manifest, history, lost=lost)
    return JobDecision(job, outcome, (*warnings, *outcome.warnings(str(request.into))))


def _find(spark: SparkSession, config: Config, request: ApplyRequest, target: TableSchema) -> ChangeSet:
    folder = absolute(request.source).rstrip("/")
    store = open_filesystem(spark, config, folder)
    if store.exists(f"{folder}/{MANIFEST}"):
        return find_change_set(spark, config, folder)
    # One that the published recipe wrote says neither what identifies a row nor its types; the table does.
    found = find_change_set(spark, config, folder, keys=target.primary_key, past=text_struct(target))
    require_no_csv_blobs(target, store.files(folder), found.label)
    return replace(found, frame=typed(found.frame, target, found.options))


def _dropped(diff: ParsedDiff, target: TableSchema) -> list[Matched]:
    """Return the target's columns that only the past has: their values are gone, also if the column comes back."""
    current = {field.name for field in diff.right or ()}
    gone = {field.name for field in diff.left or ()} - current
    return [
        Matched(
            WriteColumn(column.name, column.kind, column.type, column.type), F.lit(None).cast(spark_type(column.type))
        )
        for column in target.columns
        if column.name in gone and not column.kind.is_key
    ]


def _parents(found: ChangeSet) -> dict[str, ExportOrigin | None]:
    manifest = found.manifest
    if manifest is None:
        return {"past": None, "current": None}
    return {"past": origin_of(manifest.past), "current": origin_of(manifest.current)}


def _schemas(parents: dict[str, ExportOrigin | None]) -> list[TableSchema]:
    return [parent.schema for parent in parents.values() if parent is not None]


def _require_held(request: ApplyRequest, found: ChangeSet, ledger: Ledger) -> tuple[list[str], str | None]:
    """Refuse a target that does not hold any more what is recorded of it, unless it is to be made like another one.

    Return what a person should know, and why what was recorded is void.
    """
    manifest = found.manifest
    lost = ledger.lost() or _emptied(found, ledger)
    if lost is None or (manifest is not None and _leaves_nothing(manifest, ledger.under_way())):
        return [], None
    if not request.force:
        hint = f"fill it first: lakeward cassandra import EXPORT --into {request.into}; --force applies it regardless"
        raise RefusedInputError(lost, hint=hint)
    ledger.forget()
    return [f"{lost}; applied regardless"], lost


def _emptied(found: ChangeSet, ledger: Ledger) -> str | None:
    """Return why a target without rows and without a record cannot be what a change set was made of; None if it can."""
    if found.manifest is None or ledger.last() is not None or ledger.has_rows():
        return None
    counts = found.manifest.counts
    rows = sum(int(counts.get(word, 0)) for word in ("changed", "deleted", "unchanged"))
    return f"the target is empty, though {found.label} was made from {rows:,} rows" if rows else None


def _leaves_nothing(manifest: ChangeSetManifest, begun: Job | None) -> bool:
    """Whether it does not matter that the target is empty: it was before, or the half of this has deleted all."""
    is_begun = begun is not None and begun.change_set == manifest.id
    is_all_new = not any(manifest.counts.get(word) for word in ("changed", "unchanged"))
    return is_all_new and (is_begun or (guards.is_repair(manifest) and not manifest.counts.get("deleted")))


def _job(request: ApplyRequest, found: ChangeSet, origin: ExportOrigin | None, ledger: Ledger) -> Job:
    """Return the job as it was begun, or as it begins now."""
    manifest = found.manifest
    identity = guards.plain_identity(manifest.current) if manifest is not None else {"location": found.location}
    is_repair = manifest is not None and guards.is_repair(manifest)
    if is_repair and (last := ledger.last()) is not None:
        # What comes next is still told from the export that was applied last.
        identity = dict(last.identity)
    name = manifest.id if manifest is not None else None
    own = guards.job_id(APPLY, {}, name or found.location, request.timestamp)
    if (known := ledger.known(own)) is not None:
        return known
    timestamp = guards.chosen_timestamp(request.timestamp, origin, found.label)
    if timestamp is None:
        msg = f"{found.label} was not made from exports of a table, so the time of its changes is not known"
        raise RefusedInputError(
            msg, hint="--timestamp now, or microseconds since 1970   (older writes of others are overwritten)"
        )
    return Job(own, APPLY, unit_count(_count(found)), timestamp, identity, name, is_repair)


def _rows(found: ChangeSet, parents: dict[str, ExportOrigin | None], target: TableSchema) -> WriteRows:
    diff = found.read()
    require_applicable(found.label, diff)
    pairs = matched(found.label, found_columns(diff), found.keys, parents["current"], target) + _dropped(diff, target)
    return WriteRows(
        label=found.label,
        location=found.location,
        frame=diff.rows(unchanged=False),
        columns=pairs,
        count=_count(found),
        # Static columns of the past may be gone from the target as well: there is then nothing to delete.
        has_static_rows=any(schema.statics for schema in (target, *_schemas(parents))),
        expiries=expiries(diff, [pair.column.name for pair in pairs if not pair.column.is_key]),
        action=action(diff),
        changes=changed_names(diff),
    )


def _count(found: ChangeSet) -> int | None:
    """Return how many rows a change set writes; None without a manifest."""
    if found.manifest is None:
        return None
    return sum(int(found.manifest.counts.get(word, 0)) for word in _WRITTEN)
