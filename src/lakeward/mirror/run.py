"""Run one table: op after op until nothing waits. The next run finishes or rolls back what a crash interrupted."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, ConflictError, DataError
from lakeward.iceberg.attempt import drop_abandoned
from lakeward.iceberg.define import READING_PROPERTY, create_changelog, create_mirror, empty_snapshot, evolve
from lakeward.logs import bind, event
from lakeward.mirror.kinds import handler_of
from lakeward.mirror.kinds.base import Unfinished
from lakeward.mirror.kinds.erase import expire_after_erasure, rewritten_files
from lakeward.mirror.op.changelog import FileRecord, OpRecord, log_op
from lakeward.mirror.op.choose import choose
from lakeward.mirror.op.context import Waiting
from lakeward.mirror.op.effect import bases_of, capture, require_expected_rows, require_fitting_mirror
from lakeward.mirror.op.erased import unfinished_erasure, unlogged_erasure
from lakeward.mirror.op.isolation import reset_branches, settle_resets
from lakeward.mirror.op.ledger import op_record, progress_of
from lakeward.mirror.op.marks import clear_removal, require_no_mark
from lakeward.mirror.op.report import op_report
from lakeward.mirror.op.settings import describe_changed_reading, keep_settings, require_same_layout
from lakeward.mirror.op.steps import Step
from lakeward.mirror.prepare import prepare
from lakeward.model import OpKind
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from lakeward.errors import LakewardError
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.changelog import Resolution
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, PreparedOp
    from lakeward.mirror.op.report import OpReport


logger = logging.getLogger(__name__)
# A writer that lost a race starts over; losing this often in a row means that leases do not work.
_MAX_CONFLICTS = 5


def unfinished_op(context: TableContext, bases: Bases) -> int | None:
    """Return the number of the op that a crash left logged and not applied, None where there is none.

    Raises:
        ConflictError: another writer published meanwhile.
        DataError: the changelog or the mirror is gone, or was set back.
    """
    if bases.applied > bases.logged:
        raise _mirror_is_ahead(context, bases)
    if bases.mirror is None:
        if bases.logged:
            msg = f"{context.table}: the changelog is at op {bases.logged}, but the mirror is gone"
            hint = (
                f"restore {context.mirror.identifier} from a backup; or drop {context.changelog.identifier} too and "
                f"run again: the table is then rebuilt from the landing files"
            )
            raise DataError(msg, hint=hint)
        return None
    return bases.logged if bases.logged > bases.applied else None


def _mirror_is_ahead(context: TableContext, bases: Bases) -> LakewardError:
    """Return the error for a changelog that was lost or set back: its files would be read a second time."""
    if capture(context).logged >= bases.applied:
        return ConflictError(f"{context.table}: another writer published meanwhile")
    found = "the changelog is gone" if bases.changelog is None else f"the changelog is at op {bases.logged}"
    msg = f"{context.table}: the mirror is at op {bases.applied}, but {found}"
    hint = (
        f"restore {context.changelog.identifier} from a backup; or drop {context.mirror.identifier} too and run again: "
        f"the table is then rebuilt from the landing files"
    )
    return DataError(msg, hint=hint)


def prepare_unfinished(context: TableContext, workspace: Workspace, op: int, bases: Bases) -> PreparedOp:
    """Prepare the rest of a logged op as its kind requires.

    A batch is applied from the changelog, a load is read again from its files. An op that can no longer be finished
    is rolled back by a void, so that no op is ever stuck.
    """
    log = context.changelog.read(context.changelog.require_head().id if bases.changelog is None else bases.changelog.id)
    if op > bases.applied + 1:
        _require_no_reset(context, log, bases)
    unfinished = Unfinished(op_record(log, op), bases, log, tuple(_file_records(log, op)))
    return handler_of(unfinished.record.kind).recover(context, workspace, unfinished)


def _require_no_reset(context: TableContext, log: DataFrame, bases: Bases) -> None:
    """Refuse to finish only the last one of the ops of a reset; a writer publishes them together."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & (column(S.OP) == bases.applied + 1)
    row = log.filter(own).select(S.DETAIL).first()
    if row is not None and OpRecord.from_json(row[0]).kind is OpKind.RESET:
        msg = f"{context.table}: the ops of a reset, {bases.applied + 1} to {bases.logged}, are not applied yet"
        raise ConflictError(msg, hint=f"lakeward run {context.table}")


def require_whole(context: TableContext, bases: Bases, command: str) -> None:
    """Refuse a table that was never run, or whose last op was interrupted; ``command`` would finish that.

    Raises:
        ConfigurationError: there is no op, or the mirror was built with other settings.
        DataError: an op is logged and not applied.
    """
    if bases.changelog is None or bases.mirror is None or not bases.logged:
        msg = f"{context.table} has no ops yet: nothing was run"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    if (op := unfinished_op(context, bases)) is not None:
        msg = f"{context.table}: op {op} is logged and not yet applied"
        raise DataError(msg, hint=f"lakeward run {context.table} finishes it; so does {command} without --dry-run")
    require_same_layout(context, bases.properties)


def _file_records(log: DataFrame, op: int) -> Iterator[FileRecord]:
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.OP) == op)
    for row in log.filter(own).select(S.DETAIL).toLocalIterator():
        yield FileRecord.from_json(row[0])


@dataclass(frozen=True)
class NextOp:
    """The next step of a table's run: a prepared ``op``, or None.

    Without an op there is nothing left to do, or files have to wait for the ``reason`` named.
    """

    op: PreparedOp | None = None
    reason: str | None = None


@dataclass(frozen=True)
class RunEnd:
    """The end of a table's run: the rows of the mirror and, where files have to wait, the reason."""

    rows: int | None = None
    reason: str | None = None


class TableOps:
    """The ops of one table's run. Iterating carries them out, one after the other, until none is due.

    ``end`` is how the run ended, set once no further op is due.
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
        """Carry out the next op, starting over if another writer committed first; None when none is due."""
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
    """Clean up after interrupted runs; return the bases of the first op, None when the tables have changed since."""
    changelog, mirror = drop_abandoned(context.changelog), drop_abandoned(context.mirror)
    if reset_branches(changelog) or reset_branches(mirror):
        finish_interrupted(context)
        return None
    require_no_mark(context, changelog, mirror)
    clear_removal(context, mirror)
    bases = bases_of(changelog, mirror)
    require_fitting_mirror(context, bases)
    erasing = unfinished_erasure(changelog)
    if erasing is None or not erasing.needs_lake or bases.applied != bases.logged:
        return bases
    finish_interrupted(context)
    return None


def finish_interrupted(context: TableContext) -> None:
    """Finish the op that a crash left logged: once a later op is applied, the mirror would never receive it."""
    settle_resets(context)
    require_no_mark(context, context.changelog.find_metadata(), context.mirror.find_metadata())
    bases = capture(context)
    unfinished = unfinished_op(context, bases)
    if unfinished is not None:
        with Workspace() as workspace:
            prepared = prepare_unfinished(context, workspace, unfinished, bases)
            with bind(op=prepared.record.op):
                carry_out(context, prepared)
    changelog = context.changelog.find_metadata()
    require_logged_erasure(context, changelog)
    if unfinished_erasure(changelog) is not None:
        expire_after_erasure(context)
        for prepared in rewritten_files(context):
            carry_out(context, prepared)


def require_logged_erasure(context: TableContext, changelog: TableMetadata | None) -> None:
    """Refuse to continue where a crash came before an erasure of values was logged: they are all still stored.

    Raises:
        ConfigurationError: names the command that erases them.
    """
    if unlogged_erasure(changelog) is not None:
        msg = f"{context.table}: values were to be replaced by the table's rules (columns:), and that is not done yet"
        raise ConfigurationError(msg, hint=f"lakeward erase {context.table} --resume")


def next_op(context: TableContext, workspace: Workspace, bases: Bases, *, is_plan: bool = False) -> NextOp:
    """Prepare the next op of a table without writing anything that a reader could see.

    A plan shows the files that would be read, not the op before it that only records their numbers.
    """
    unfinished = unfinished_op(context, bases)
    if unfinished is not None:
        return NextOp(prepare_unfinished(context, workspace, unfinished, bases))
    if bases.mirror is not None:
        require_expected_rows(context, bases)
        require_same_layout(context, bases.properties)
    progress = progress_of(context, bases)
    context.reached(Step.CHOOSE_PROGRESS)
    work = choose(context, progress, arrivals_first=not is_plan)
    context.reached(Step.CHOOSE_FILES)
    if work is None:
        return NextOp()
    prepared = work if isinstance(work, Waiting) else prepare(context, workspace, work, progress, bases)
    return NextOp(reason=prepared.reason) if isinstance(prepared, Waiting) else NextOp(prepared)


def carry_out(context: TableContext, prepared: PreparedOp, resolutions: Sequence[Resolution] = ()) -> OpReport:
    """Log and apply a prepared op, each in one atomic step, and return its report."""
    handler, report = handler_of(prepared.record.kind), op_report(prepared)
    if not prepared.is_logged:
        if handler.defines_tables:
            _define_tables(context, prepared)
        context.reached(Step.LOG_TABLES)
        report = replace(report, changelog_snapshot=log_op(context, prepared, resolutions))
    if prepared.effect.plan.strategy.shuffles:
        context.adapt_plans(wanted=True)
    handler.before_main(context, prepared)
    # A mirror that did not exist when the op was prepared counts as empty, whatever another writer has put there since.
    base = prepared.bases.mirror.id if prepared.bases.mirror else empty_snapshot(context.mirror)
    published = handler.publish(context, prepared, base=base)
    handler.after_main(context)
    context.reached(Step.APPLY_DONE)
    return replace(report, mirror_snapshot=published.id, mirror_rows=published.rows)


def _define_tables(context: TableContext, prepared: PreparedOp) -> None:
    """Create changelog and mirror, or evolve their schemas to what the op needs.

    The mirror comes last: as long as it lacks a column, the next run sees the interruption and does the rest.
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
    keep_settings(context, bases.properties, prepared.columns)


def _warn_of_changed_reading(context: TableContext, prepared: PreparedOp) -> None:
    """Log a warning when settings for reading changed since the last op: only an undo has files read again."""
    kept, mirror = prepared.bases.properties.get(READING_PROPERTY), prepared.bases.mirror
    if kept is None or mirror is None or not mirror.rows or handler_of(prepared.record.kind).takes_files_again:
        return
    changed = describe_changed_reading(context.table, json.loads(kept), context.settings, prepared.bases.columns)
    if changed is not None:
        logger.warning("%s", changed, extra=event("settings.changed", table=str(context.table)))
