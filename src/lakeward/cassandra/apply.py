"""Apply a change set to a table: inserts and changes as upserts, deletes by full key, all with one timestamp.

Because of the single timestamp a replay changes nothing, newer writes and deletes of others survive, and the order of
the statements does not matter.
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

# The hint where there is no table.
FILL = "fill it first: lakeward cassandra import EXPORT --into KEYSPACE.TABLE --create-table"
_WRITTEN = ("inserted", "changed", "deleted")


@dataclass(frozen=True)
class ApplyRequest(WriteRequest):
    """The change set to apply, and how.

    timestamp: ``snapshot`` means the start of the export that the change set leads to.
    max_delete_share: refuse to delete a larger share of the rows of the past.
    csv_columns: columns of a change set that is CSV files without a line of names, in their order.
    """

    max_delete_share: float = 0.5
    csv_columns: tuple[str, ...] = ()


def apply_change_set(
    spark: SparkSession,
    config: Config,
    address: ClusterAddress,
    request: ApplyRequest,
    *,
    on_progress: OnProgress | None = None,
) -> WriteReport:
    """Write a change set into a table, or resume an attempt that was interrupted.

    Raises:
        RefusedInputError: the change set is incomplete, not the next one, does not fit the table, or deletes too much.
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
    """Decide from the record of a target whether a change set is applied to it; None where there is nothing to do.

    Raises:
        RefusedInputError: it must not be applied.
    """
    warnings_before, lost = _require_held(request, found, ledger)
    last = ledger.last()
    if not request.force and guards.is_applied(last, found.manifest):
        return None
    job = _job(request, found, parents["current"], ledger)
    if last is not None and request.timestamp != guards.SNAPSHOT_TIME:
        # A timestamp chosen by a person does not show how old the values are.
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
    # A change set without a manifest names neither the key nor the types; the table does.
    found = find_change_set(
        spark, config, folder, keys=target.primary_key, past=text_struct(target), csv_columns=request.csv_columns
    )
    require_no_csv_blobs(target, store.files(folder), found.label)
    return replace(found, frame=typed(found.frame, target, found.options))


def _dropped(diff: ParsedDiff, target: TableSchema) -> list[Matched]:
    """Return the columns of the target that only the past has: their values are deleted."""
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
    """Refuse a target that no longer holds what is recorded, unless the change set does not depend on it.

    Return the warnings, and why the record is void.
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
    """Return why a target without rows and without a record cannot be the past of a change set; None if it can."""
    if found.manifest is None or ledger.last() is not None or ledger.has_rows():
        return None
    counts = found.manifest.counts
    rows = sum(int(counts.get(word, 0)) for word in ("changed", "deleted", "unchanged"))
    return f"the target is empty, though {found.label} was made from {rows:,} rows" if rows else None


def _leaves_nothing(manifest: ChangeSetManifest, begun: Job | None) -> bool:
    """Whether an empty target is expected: it was empty before, or an interrupted attempt has deleted all rows."""
    is_begun = begun is not None and begun.change_set == manifest.id
    is_all_new = not any(manifest.counts.get(word) for word in ("changed", "unchanged"))
    return is_all_new and (is_begun or (guards.is_repair(manifest) and not manifest.counts.get("deleted")))


def _job(request: ApplyRequest, found: ChangeSet, origin: ExportOrigin | None, ledger: Ledger) -> Job:
    """Return the job as it was recorded when it began, or a new one."""
    manifest = found.manifest
    identity = guards.plain_identity(manifest.current) if manifest is not None else {"location": found.location}
    is_repair = manifest is not None and guards.is_repair(manifest)
    if is_repair and (last := ledger.last()) is not None:
        # The next change set still follows the export that was applied last.
        identity = dict(last.identity)
    name = manifest.id if manifest is not None else None
    own = guards.job_id(APPLY, {}, name or found.location, request.timestamp)
    if (known := ledger.known(own)) is not None:
        return known
    timestamp = guards.chosen_timestamp(request.timestamp, origin, found.label)
    if timestamp is None:
        msg = f"{found.label} was not made from exports of a table, so the time of its changes is not known"
        raise RefusedInputError(
            msg, hint="--timestamp now, or microseconds since 1970   (older writes by other clients are overwritten)"
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
        # The target may have lost static columns that the past had: there is then nothing to delete.
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
