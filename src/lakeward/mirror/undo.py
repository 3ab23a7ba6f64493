"""Undo: the op to go back to, a plan of what that undoes, and the op that does it.

The record in the changelog is written first, then the mirror. Once the record is logged, the ops that it undoes no
longer count: their files are new and their changes ignored. If the mirror is not changed yet, the next run does it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.documents import Document
from lakeward.errors import BugError, ConfigurationError, ConflictError, DataError
from lakeward.iceberg.attempt import drop_abandoned
from lakeward.mirror.kinds.undo import undo_effect
from lakeward.mirror.op.apply import loads_at
from lakeward.mirror.op.as_of import require_captured
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.check import RowChanges, row_changes
from lakeward.mirror.op.checkpoints import MomentKind, is_undone
from lakeward.mirror.op.effect import PreparedOp, Strategy, capture, require_expected_rows
from lakeward.mirror.op.ledger import last_load_ops, op_records, progress_of, require_state
from lakeward.mirror.op.steps import Step
from lakeward.mirror.op.undone import fences, files_of, is_newly_undone, is_op_row, is_redone, notes, pinned_log
from lakeward.mirror.run import carry_out, finish_interrupted, require_whole
from lakeward.model import OpKind, Progress
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import having_keys, is_delete, is_standing, lacks_commit_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from lakeward.mirror.op.changelog import FileRecord
    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, Effect
    from lakeward.mirror.op.report import Marked, OpReport

# How many ops and files a plan lists; beyond that it only counts them.
LISTED = 1000


@dataclass(frozen=True)
class UndoTarget:
    """The op to go back to, and the reason for it in words."""

    op: int
    reason: str


def target_op(context: TableContext, progress: Progress, op: int) -> UndoTarget:
    """Return the target of an undo to a named op.

    Raises:
        ConfigurationError: there is no such op.
    """
    if not 0 <= op <= progress.op:
        msg = f"{context.table}: there is no op {op}; its ops are 1 to {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op OP, 0 for the empty table")
    return UndoTarget(op, f"op {op} is the newest" if op == progress.op else f"op {op} was requested")


def target_before(context: TableContext, bases: Bases, progress: Progress, moment: Moment) -> UndoTarget:
    """Return the last op such that neither it nor an op before it holds a change committed after the moment.

    Raises:
        ConfigurationError: changes have no times, or the moment is before the first op or before the capture.
        DataError: some changes have no commit time.
    """
    _require_times(context, moment)
    require_captured(context, moment)
    log = pinned_log(context, bases).filter(is_standing(progress.undone))
    late = _first_late_op(context, log, progress, moment)
    if late is None:
        return UndoTarget(progress.op, f"no change was committed after {moment.label}")
    before = next((op for op in range(late - 1, 0, -1) if not is_undone(op, progress.undone)), 0)
    if before == 0:
        msg = f"{context.table}: its first op, {late}, already holds changes that were committed after {moment.label}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op 0   (back to an empty table)")
    reason = f"op {before} is the last op before {moment.label}: op {late} holds what was committed after it"
    return UndoTarget(before, reason)


def _require_times(context: TableContext, moment: Moment) -> None:
    by_op = f"lakeward undo {context.table} --to-op OP   (lakeward runs lists ops with their times)"
    if moment.kind is not MomentKind.TIME:
        msg = f"{moment.label} is not a time; expected 2020-11-14 or 2020-11-14T10:30:00"
        raise ConfigurationError(msg, hint=by_op)
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: the commit times of its changes are unknown"
        raise ConfigurationError(msg, hint=by_op)


def _first_late_op(context: TableContext, log: DataFrame, progress: Progress, moment: Moment) -> int | None:
    """Return the first op with a change committed after the moment, or with a load that began after it."""
    after = column(S.COMMIT_TIME) > F.timestamp_micros(F.lit(moment.micros))
    changes = log.filter(column(S.KIND) == S.KIND_CHANGE)
    changed, unknown = changes.agg(
        *(F.min(F.when(condition, column(S.OP))) for condition in (after, lacks_commit_time()))
    ).collect()[0]  # fmt: skip
    late = min((op for op in (changed, _first_late_load(log, progress, moment)) if op is not None), default=None)
    if unknown is not None and (late is None or unknown < late):
        msg = f"{context.table}: op {unknown} holds changes without a commit time: it is unknown where they belong"
        raise DataError(msg, hint=f"lakeward undo {context.table} --to-op OP")
    return late


def _first_late_load(log: DataFrame, progress: Progress, moment: Moment) -> int | None:
    late = [generation.number for generation in progress.generations if generation.began > moment.digits]
    if not late:
        return None
    starts = F.get_json_object(column(S.DETAIL), "$.starts") == F.lit("true")
    found: int | None = (
        log.filter(is_op_row() & starts & column(S.GENERATION).isin(late)).agg(F.min(S.OP)).collect()[0][0]
    )
    return found


@dataclass(frozen=True)
class UndoRequest:
    """The user's request: an op or a moment to go back to, files not to be read again, and the newest op they saw."""

    op: int | None = None
    moment: Moment | None = None
    skip_files: frozenset[str] = frozenset()
    newest_op: int | None = None


@dataclass(frozen=True)
class ConcernedOp(Document):
    """An op that is undone, or that counts again."""

    op: int
    kind: str
    generation: int
    files: int
    changes: int


@dataclass(frozen=True)
class UndoPlan(Document):
    """The effects of an undo. ``op`` is its number, None where there is nothing to do.

    ``newest_op`` is the table's newest op, ``back_to`` the op whose state is restored, and ``reason`` why it is that
    op. Up to 1,000 ops and files are listed; their counts are complete. ``rows`` is None unless they were counted.
    """

    table: str
    op: int | None
    newest_op: int
    back_to: int
    reason: str
    op_count: int = 0
    ops: tuple[ConcernedOp, ...] = ()
    ops_again: tuple[ConcernedOp, ...] = ()
    file_count: int = 0
    files: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    unfenced: tuple[str, ...] = ()
    rows: RowChanges | None = None
    marked: tuple[Marked, ...] = ()


@dataclass(frozen=True)
class UndoDecision:
    """The undo to carry out: its record, None where there is nothing to do, the files to fence, and other notes."""

    bases: Bases
    before: Progress
    target: UndoTarget
    record: OpRecord | None = None
    fences: tuple[FileRecord, ...] = ()
    notes: tuple[FileRecord, ...] = ()


def decide(context: TableContext, request: UndoRequest) -> UndoDecision:
    """Return the op to go back to and the record of the undo.

    Raises:
        ConfigurationError: the request cannot be fulfilled, or names files that were not read.
        ConflictError: the table has changed since the request was made.
        DataError: an op is interrupted, or a state that the undo needs is no longer kept.
    """
    bases = capture(context)
    require_whole(context, bases, "an undo")
    require_expected_rows(context, bases)
    before = progress_of(context, bases)
    if request.newest_op is not None and request.newest_op != before.op:
        msg = f"{context.table} is at op {before.op}; it was at op {request.newest_op} when this undo was shown"
        raise ConflictError(msg, hint="look again: the same command with --dry-run")
    target, log = _target(context, bases, before, request), pinned_log(context, bases)
    records = op_records(log, {op for op in (target.op, target.op + 1, before.op) if 0 < op <= before.op})
    require_state(context, target.op, records)
    record = _record(records, before, target.op)
    fenced = fences(context, log, record, request.skip_files)
    if _is_done(log, records[before.op], target.op, {fence.summary.path for fence in fenced}):
        return UndoDecision(bases, before, target)
    # Refuses missing loads before anything is written.
    loads_at(context.mirror.metadata(), context.table, record.progress, last_load_ops(log, record.progress))
    return UndoDecision(bases, before, target, record, fenced, notes(log, before, record))


def _target(context: TableContext, bases: Bases, before: Progress, request: UndoRequest) -> UndoTarget:
    if request.op is not None:
        return target_op(context, before, request.op)
    if request.moment is not None:
        return target_before(context, bases, before, request.moment)
    msg = "an undo needs an op or a time to go back to"
    raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op OP")


def describe(context: TableContext, decision: UndoDecision, rows: RowChanges | None = None) -> UndoPlan:
    """Return the plan of an undo."""
    record, before, target = decision.record, decision.before, decision.target
    if record is None:
        return UndoPlan(str(context.table), None, before.op, target.op, _nothing(before, target))
    log = pinned_log(context, decision.bases)
    gone = is_newly_undone(before, record)
    ops, again = _ops(log, gone, is_redone(before, record))
    files, fenced = files_of(log, gone, limit=LISTED), tuple(fence.summary.path for fence in decision.fences)
    return UndoPlan(
        table=str(context.table),
        op=record.op,
        newest_op=before.op,
        back_to=target.op,
        reason=target.reason,
        op_count=len(ops) if len(ops) < LISTED else log.filter(is_op_row() & gone).count(),
        ops=ops,
        ops_again=again,
        file_count=files.count,
        files=files.paths,
        fenced=fenced,
        unfenced=tuple(path for path in files.fenced if path not in fenced),
        rows=rows,
    )


def _record(records: Mapping[int, OpRecord], before: Progress, back_to: int) -> OpRecord:
    then = records[back_to].progress if back_to else Progress()
    op = before.op + 1
    generation = then.generation.number if then.generation else 0
    return OpRecord(op, OpKind.UNDO, generation, then.after_undoing(op, back_to=back_to), back_to=back_to)


def _is_done(log: DataFrame, newest: OpRecord, back_to: int, fenced: set[str]) -> bool:
    """Whether the table is already in the state after that op, by itself or by the undo just before."""
    if back_to == newest.op:
        return not fenced
    if newest.kind is not OpKind.UNDO or newest.back_to != back_to:
        return False
    return not fenced or fenced <= {*files_of(log, column(S.OP) == F.lit(newest.op), limit=LISTED).fenced}


def _nothing(before: Progress, target: UndoTarget) -> str:
    return target.reason if target.op == before.op else f"op {before.op} already went back to op {target.op}"


def _ops(log: DataFrame, gone: Column, again: Column) -> tuple[tuple[ConcernedOp, ...], tuple[ConcernedOp, ...]]:
    """Return the ops that are undone and those that are redone, in order."""
    kind = F.when(is_op_row(), F.get_json_object(column(S.DETAIL), "$.kind"))
    counts = [F.count(F.when(column(S.KIND) == row_kind, 1)) for row_kind in (S.KIND_FILE, S.KIND_CHANGE)]
    found = log.filter(gone | again).groupBy(S.OP).agg(F.max(kind), F.max(S.GENERATION), *counts, F.max(gone))
    # The ops that are undone are the newer ones: of too many, the newest are listed.
    rows = found.orderBy(column(S.OP).desc_nulls_last()).limit(LISTED).collect()[::-1]
    described = [(row[-1], ConcernedOp(*row[:-1])) for row in rows]
    return tuple(op for goes, op in described if goes), tuple(op for goes, op in described if not goes)


@dataclass(frozen=True)
class Undone(Document):
    """The result of an undo; without an op where there was nothing to do."""

    plan: UndoPlan
    op: OpReport | None = None


def plan_undo(context: TableContext, request: UndoRequest) -> UndoPlan:
    """Return what an undo would do, down to the rows; nothing is written.

    Raises:
        LakewardError: the undo would be refused.
    """
    decision = decide(context, request)
    if decision.record is None:
        return describe(context, decision)
    with Workspace() as workspace:
        effect = undo_effect(context, workspace, decision.record, decision.bases, decision.before)
        return describe(context, decision, _row_changes(context, decision, effect))


def undo(context: TableContext, request: UndoRequest) -> Undone:
    """Undo every op after the requested one; the context holds the table's lease.

    Raises:
        LakewardError: the undo is refused; nothing was written. A ConflictError: another writer committed first.
    """
    started = time.monotonic()
    for table in (context.changelog, context.mirror):
        drop_abandoned(table)
    finish_interrupted(context)
    decision = decide(context, request)
    plan = describe(context, decision)
    if decision.record is None:
        return Undone(plan)
    with Workspace() as workspace:
        effect = undo_effect(context, workspace, decision.record, decision.bases, decision.before)
        context.reached(Step.UNDO_DECIDED)
        columns_now, files = decision.bases.columns, decision.fences + decision.notes
        prepared = PreparedOp(decision.record, decision.bases, columns_now, (), files, (), None, 0, effect)
        report = carry_out(context, prepared)
    return Undone(plan, replace(report, seconds=time.monotonic() - started))


def _row_changes(context: TableContext, decision: UndoDecision, effect: Effect) -> RowChanges:
    """Return how many of the mirror's rows the undo changes."""
    base, keys = decision.bases.mirror, context.settings.primary_key
    if base is None:
        msg = f"{context.table}: an undo needs a mirror"
        raise BugError(msg)
    mirror = context.mirror.read(base.id)
    if effect.plan.strategy is Strategy.LOG_ONLY:
        return RowChanges()
    if effect.folded is not None:
        after = effect.folded.rows.filter(~is_delete()).select(*columns(mirror.columns))
        return row_changes(having_keys(mirror, effect.folded.rows, keys=keys), after, keys)
    return row_changes(mirror, mirror.limit(0) if effect.state is None else effect.state, keys)
