"""Run one table: op after op until nothing waits. A crash at any point is finished or taken back by the next call."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.errors import ConflictError
from lakeward.lake.iceberg.attempt import drop_abandoned
from lakeward.lake.iceberg.define import READING_PROPERTY, create_changelog, create_mirror, empty_snapshot, evolve
from lakeward.logs import bind, event
from lakeward.model import OpKind
from lakeward.pipeline.apply import apply_op, take_back_load
from lakeward.pipeline.changelog import log_op
from lakeward.pipeline.choose import choose
from lakeward.pipeline.effect import bases_of, capture
from lakeward.pipeline.erase.erased import unfinished_erasure
from lakeward.pipeline.erase.lake import erase_beside_main, expire_after_erasure
from lakeward.pipeline.erase.rewritten import rewritten_files
from lakeward.pipeline.ledger import progress_of
from lakeward.pipeline.load_branches import set_back_loads
from lakeward.pipeline.open_rows import open_after
from lakeward.pipeline.prepare import Prepared, prepare
from lakeward.pipeline.recover import prepare_unfinished, unfinished_op
from lakeward.pipeline.report import OpReport, op_report
from lakeward.pipeline.row_count import require_expected_rows
from lakeward.pipeline.schema import require_readable_names
from lakeward.pipeline.settings import describe_changed_reading, keep_settings, require_same_layout
from lakeward.pipeline.steps import Step
from lakeward.pipeline.work import Waiting
from lakeward.pipeline.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.records import Resolution

logger = logging.getLogger(__name__)
# A writer that lost a race starts over; losing this often in a row means that leases do not work.
_MAX_CONFLICTS = 5


@dataclass(frozen=True)
class Rest:
    """The end of a table's run: the mirror's rows, and why files are left to wait if they are."""

    rows: int | None
    reason: str | None = None


def run_table(context: TableContext) -> Iterator[OpReport | Rest]:
    """Do every op that is due, yielding each as it is published; a Rest comes last.

    Raises:
        LakewardError: the table stops here; everything published before stays.
    """
    changelog, mirror = drop_abandoned(context.changelog), drop_abandoned(context.mirror)
    found = bases_of(changelog, mirror)
    require_readable_names(context.table, found.columns, context.settings)
    bases = _after_erasure(context, changelog, found)
    rows = None
    conflicts = 0
    while True:
        bases = bases or capture(context)
        rows = bases.mirror.rows if bases.mirror else None
        try:
            report = run_op(context, bases)
        except ConflictError as error:
            conflicts += 1
            if conflicts == _MAX_CONFLICTS:
                raise
            told = event("op.conflict", table=str(context.table), error=error.message)
            logger.warning("%s: starting over: %s", context.table, error.message, extra=told)
            context.permission.require()
            bases = None
            continue
        if not isinstance(report, OpReport):
            yield Rest(rows, report.reason if report else None)
            return
        yield report
        if report.is_last:
            yield Rest(report.mirror_rows)
            return
        bases, conflicts = None, 0


def _after_erasure(context: TableContext, changelog: TableMetadata | None, bases: Bases) -> Bases | None:
    """Do what an interrupted erasure left for the next op to do; None when that moved what was captured."""
    erasing = unfinished_erasure(changelog)
    if erasing is None or not erasing.needs_lake or bases.applied != bases.logged:
        return bases
    finish_interrupted(context)
    return None


def run_op(context: TableContext, bases: Bases) -> OpReport | Waiting | None:
    """Finish an interrupted op, or do the next one on what was captured; None when nothing waits."""
    started = time.monotonic()
    with Workspace() as workspace:
        prepared = next_op(context, workspace, bases)
        if not isinstance(prepared, Prepared):
            return prepared
        with bind(op=prepared.record.op):
            done = carry_out(context, prepared)
        return replace(done, seconds=time.monotonic() - started)


def finish_interrupted(context: TableContext) -> None:
    """Finish the op that a crash left logged: the mirror would never get it once a later op is applied."""
    bases = capture(context)
    if unfinished_op(context, bases) is not None:
        run_op(context, bases)
    if bases.erased is not None:
        expire_after_erasure(context)
        for prepared in rewritten_files(context):
            carry_out(context, prepared)


def next_op(context: TableContext, workspace: Workspace, bases: Bases) -> Prepared | Waiting | None:
    """Prepare what comes next for a table, without writing anything that a reader could see."""
    unfinished = unfinished_op(context, bases)
    if unfinished is not None:
        return prepare_unfinished(context, workspace, unfinished, bases)
    if bases.mirror is not None:
        require_expected_rows(context, bases)
        require_same_layout(context, bases.properties)
    progress = progress_of(context, bases)
    context.reached(Step.CHOOSE_PROGRESS)
    work = choose(context, progress)
    context.reached(Step.CHOOSE_FILES)
    if work is None or isinstance(work, Waiting):
        return work
    return prepare(context, workspace, work, progress, bases)


def carry_out(context: TableContext, prepared: Prepared, resolutions: Sequence[Resolution] = ()) -> OpReport:
    """Log and apply a prepared op, each by one atomic step, and give its report."""
    report = op_report(prepared)
    if not prepared.is_logged:
        _define_tables(context, prepared)
        context.reached(Step.LOG_TABLES)
        base = prepared.bases.changelog
        logged = log_op(
            context,
            prepared.record,
            base=base.id if base else None,
            rows=prepared.rows,
            row_count=prepared.row_count,
            bad_rows=open_after(context, prepared, resolutions),
            files=prepared.files,
            resolutions=resolutions,
        )
        report = replace(report, changelog_snapshot=logged)
    if prepared.record.kind is OpKind.UNDO:
        set_back_loads(context, prepared.record, prepared.bases)
        context.reached(Step.UNDO_LOADS)
    if prepared.record.kind is OpKind.ERASE:
        erase_beside_main(context, prepared.record)
    if prepared.record.kind is OpKind.VOID:
        take_back_load(context, generation=prepared.record.generation, op=prepared.record.op - 1)
    # What did not exist when the op was worked out was empty then, whatever another writer has put there since.
    mirror = prepared.bases.mirror.id if prepared.bases.mirror else empty_snapshot(context.mirror)
    names = [column.name for column in prepared.columns]
    published = apply_op(context, prepared.record, prepared.effect, base=mirror, names=names)
    if prepared.record.kind is OpKind.ERASE:
        expire_after_erasure(context)
    context.reached(Step.APPLY_DONE)
    return replace(report, mirror_snapshot=published.id, mirror_rows=published.rows)


def _define_tables(context: TableContext, prepared: Prepared) -> None:
    """Create changelog and mirror, or bring their schemas up to what the op needs.

    The mirror comes last: as long as it lacks something, a crash in between is seen and the rest is done.
    """
    settings, bases = context.settings, prepared.bases
    if bases.mirror is None:
        create_changelog(context.changelog, prepared.columns)
        create_mirror(
            context.mirror,
            prepared.columns,
            partition_by=settings.partition_by,
            format_version=settings.format_version,
        )
    if prepared.schema_changes:
        evolve(context.changelog, prepared.columns, renames=settings.renames)
        evolve(context.mirror, prepared.columns, renames=settings.renames)
    _warn_of_changed_reading(context, prepared)
    keep_settings(context, bases.properties)


def _warn_of_changed_reading(context: TableContext, prepared: Prepared) -> None:
    """Log that settings for reading changed since the last op; an undo is the way to read files anew."""
    kept, mirror = prepared.bases.properties.get(READING_PROPERTY), prepared.bases.mirror
    if kept is None or mirror is None or not mirror.rows or prepared.record.kind is OpKind.UNDO:
        return
    changed = describe_changed_reading(context.table, json.loads(kept), context.settings, prepared.bases.columns)
    if changed is not None:
        logger.warning("%s", changed, extra=event("settings.changed", table=str(context.table)))
