"""Run one table: op after op until nothing waits. A crash at any point is finished or taken back by the next call."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.errors import ConflictError, DataError
from lakeward.iceberg.attempt import drop_abandoned
from lakeward.iceberg.define import READING_PROPERTY, create_changelog, create_mirror, empty_snapshot, evolve
from lakeward.logs import bind, event
from lakeward.mirror.kinds import kind_of
from lakeward.mirror.kinds.base import Unfinished
from lakeward.mirror.kinds.erase import expire_after_erasure, rewritten_files
from lakeward.mirror.op.changelog import FileRecord, log_op, open_after
from lakeward.mirror.op.choose import choose
from lakeward.mirror.op.context import Waiting
from lakeward.mirror.op.effect import bases_of, capture, require_expected_rows
from lakeward.mirror.op.erased import unfinished_erasure
from lakeward.mirror.op.ledger import op_record, progress_of
from lakeward.mirror.op.report import op_report
from lakeward.mirror.op.schema import require_readable_names
from lakeward.mirror.op.settings import describe_changed_reading, keep_settings, require_same_layout
from lakeward.mirror.op.steps import Step
from lakeward.mirror.prepare import prepare
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from lakeward.errors import LakewardError
    from lakeward.mirror.op.changelog import Resolution
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, Prepared
    from lakeward.mirror.op.report import OpReport


# Finish the op that a crash left logged but not applied.
# How the rest of an op is prepared is decided by its kind: a batch is applied from the changelog, a load is read
# again from its files. An op that can no longer be finished is taken back, and no op is ever stuck.


def unfinished_op(context: TableContext, bases: Bases) -> int | None:
    """Return the number of the op that is logged and not applied."""
    if bases.applied > bases.logged:
        raise _mirror_is_ahead(context, bases)
    if bases.mirror is None:
        if bases.logged:
            msg = f"{context.table}: the changelog stands at op {bases.logged}, but the mirror is gone"
            hint = (
                f"restore {context.mirror.identifier} from a backup; or drop {context.changelog.identifier} too and "
                f"run again: the table is then built anew from the landing files"
            )
            raise DataError(msg, hint=hint)
        return None
    return bases.logged if bases.logged > bases.applied else None


def _mirror_is_ahead(context: TableContext, bases: Bases) -> LakewardError:
    """Say that the changelog was lost or cut back: its files would be read again, twice where there is no key."""
    if capture(context).logged >= bases.applied:
        return ConflictError(f"{context.table}: another writer published while this one looked")
    found = "the changelog is gone" if bases.changelog is None else f"the changelog stands at op {bases.logged}"
    msg = f"{context.table}: the mirror stands at op {bases.applied}, but {found}"
    hint = (
        f"restore {context.changelog.identifier} from a backup; or drop {context.mirror.identifier} too and run again: "
        f"the table is then built anew from the landing files"
    )
    return DataError(msg, hint=hint)


def prepare_unfinished(context: TableContext, workspace: Workspace, op: int, bases: Bases) -> Prepared:
    """Prepare the rest of a logged op; its void where it can no longer be finished."""
    log = context.changelog.read(context.changelog.require_head().id if bases.changelog is None else bases.changelog.id)
    unfinished = Unfinished(op_record(log, op), bases, log, tuple(_file_records(log, op)))
    return kind_of(unfinished.record.kind).recover(context, workspace, unfinished)


def _file_records(log: DataFrame, op: int) -> Iterator[FileRecord]:
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.OP) == op)
    for row in log.filter(own).select(S.DETAIL).toLocalIterator():
        yield FileRecord.from_json(row[0])


logger = logging.getLogger(__name__)
# A writer that lost a race starts over; losing this often in a row means that leases do not work.
_MAX_CONFLICTS = 5


@dataclass(frozen=True)
class NextOp:
    """What comes next for a table: an ``op`` that is prepared, or none.

    Without an op nothing is left to do; or files are left to wait, for the ``reason`` given.
    """

    op: Prepared | None = None
    reason: str | None = None


@dataclass(frozen=True)
class RunEnd:
    """How a table's run ended: the mirror's rows, and the reason why files are left to wait where some are."""

    rows: int | None = None
    reason: str | None = None


class TableOps:
    """The ops of one table's run. Iterating carries them out, one after the other, until none is due.

    ``end`` says how the run ended, once there is no further op.
    """

    def __init__(self, context: TableContext) -> None:
        self.end = RunEnd()
        self._context = context

    def __iter__(self) -> Iterator[OpReport]:
        """Carry out every op that is due, yielding each as it is published.

        Raises:
            LakewardError: the table stops here; everything published before stays.
        """
        bases = _first_bases(self._context)
        while (report := self._next(bases)) is not None:
            yield report
            if report.is_last:
                self.end = RunEnd(report.mirror_rows)
                return
            bases = None

    def _next(self, bases: Bases | None) -> OpReport | None:
        """Carry out the next op, from the beginning where another writer was faster; None when none is due."""
        context = self._context
        for _ in range(_MAX_CONFLICTS - 1):
            try:
                return self._attempt(bases or capture(context))
            except ConflictError as error:
                fields = event("op.conflict", table=str(context.table), error=error.message)
                logger.warning("%s: starting over: %s", context.table, error.message, extra=fields)
                context.permission.require()
                bases = None
        return self._attempt(capture(context))

    def _attempt(self, bases: Bases) -> OpReport | None:
        started = time.monotonic()
        with Workspace() as workspace:
            following = next_op(self._context, workspace, bases)
            if following.op is None:
                self.end = RunEnd(bases.mirror.rows if bases.mirror else None, following.reason)
                return None
            with bind(op=following.op.record.op):
                report = carry_out(self._context, following.op)
        return replace(report, seconds=time.monotonic() - started)


def _first_bases(context: TableContext) -> Bases | None:
    """Tidy up after runs that were interrupted; return what the first op stands on, None when that has moved since."""
    changelog, mirror = drop_abandoned(context.changelog), drop_abandoned(context.mirror)
    bases = bases_of(changelog, mirror)
    require_readable_names(context.table, bases.columns, context.settings)
    erasing = unfinished_erasure(changelog)
    if erasing is None or not erasing.needs_lake or bases.applied != bases.logged:
        return bases
    finish_interrupted(context)
    return None


def finish_interrupted(context: TableContext) -> None:
    """Finish the op that a crash left logged: the mirror would never get it once a later op is applied."""
    bases = capture(context)
    unfinished = unfinished_op(context, bases)
    if unfinished is not None:
        with Workspace() as workspace:
            prepared = prepare_unfinished(context, workspace, unfinished, bases)
            with bind(op=prepared.record.op):
                carry_out(context, prepared)
    if bases.erased is not None:
        expire_after_erasure(context)
        for prepared in rewritten_files(context):
            carry_out(context, prepared)


def next_op(context: TableContext, workspace: Workspace, bases: Bases) -> NextOp:
    """Prepare what comes next for a table, without writing anything that a reader could see."""
    unfinished = unfinished_op(context, bases)
    if unfinished is not None:
        return NextOp(prepare_unfinished(context, workspace, unfinished, bases))
    if bases.mirror is not None:
        require_expected_rows(context, bases)
        require_same_layout(context, bases.properties)
    progress = progress_of(context, bases)
    context.reached(Step.CHOOSE_PROGRESS)
    work = choose(context, progress)
    context.reached(Step.CHOOSE_FILES)
    if work is None:
        return NextOp()
    prepared = work if isinstance(work, Waiting) else prepare(context, workspace, work, progress, bases)
    return NextOp(reason=prepared.reason) if isinstance(prepared, Waiting) else NextOp(prepared)


def carry_out(context: TableContext, prepared: Prepared, resolutions: Sequence[Resolution] = ()) -> OpReport:
    """Log and apply a prepared op, each by one atomic step, and return its report."""
    kind, report = kind_of(prepared.record.kind), op_report(prepared)
    if not prepared.is_logged:
        if kind.defines_tables:
            _define_tables(context, prepared)
        context.reached(Step.LOG_TABLES)
        report = replace(report, changelog_snapshot=_log(context, prepared, resolutions))
    if prepared.effect.plan.strategy.shuffles:
        context.adapt_plans(wanted=True)
    kind.before_main(context, prepared)
    # What did not exist when the op was worked out was empty then, whatever another writer has put there since.
    base = prepared.bases.mirror.id if prepared.bases.mirror else empty_snapshot(context.mirror)
    published = kind.publish(context, prepared, base=base)
    kind.after_main(context)
    context.reached(Step.APPLY_DONE)
    return replace(report, mirror_snapshot=published.id, mirror_rows=published.rows)


def _log(context: TableContext, prepared: Prepared, resolutions: Sequence[Resolution]) -> int:
    base = prepared.bases.changelog
    return log_op(
        context,
        prepared.record,
        base=base.id if base else None,
        rows=prepared.rows,
        row_count=prepared.row_count,
        bad_rows=open_after(context, prepared, resolutions),
        files=prepared.files,
        resolutions=resolutions,
    )


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
    if kept is None or mirror is None or not mirror.rows or kind_of(prepared.record.kind).takes_files_again:
        return
    changed = describe_changed_reading(context.table, json.loads(kept), context.settings, prepared.bases.columns)
    if changed is not None:
        logger.warning("%s", changed, extra=event("settings.changed", table=str(context.table)))
