"""Undo: which op to go back to, what that takes back, and the op that does it.

First comes the record in the changelog, then the mirror. Once the record is logged, the ops it takes back stand no
longer: their files are new, their changes do not count, and whoever finds the mirror not yet changed finishes it.
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
from lakeward.mirror.op.settings import require_same_layout
from lakeward.mirror.op.steps import Step
from lakeward.mirror.op.undone import fences, files_of, is_newly_undone, is_op_row, is_redone, notes, pinned_log
from lakeward.mirror.run import carry_out, finish_interrupted, unfinished_op
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
    from lakeward.mirror.op.report import OpReport

# Ops and files that a plan names one by one; beyond that it counts them.
LISTED = 1000


@dataclass(frozen=True)
class Target:
    """The op to go back to, and in words why it is that one."""

    op: int
    reason: str


def target_op(context: TableContext, progress: Progress, op: int) -> Target:
    """Return the target of an undo to a named op.

    Raises:
        ConfigurationError: there is no such op.
    """
    if not 0 <= op <= progress.op:
        msg = f"{context.table}: there is no op {op}; its ops are 1 to {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op OP, 0 for nothing at all")
    return Target(op, f"op {op} is the newest" if op == progress.op else f"op {op} was asked for")


def target_before(context: TableContext, bases: Bases, progress: Progress, moment: Moment) -> Target:
    """Return the last op such that neither it nor one before it holds a change committed after the moment.

    Raises:
        ConfigurationError: the table cannot be asked by time, or no op or not even its capture lies before the moment.
        DataError: some changes have no commit time.
    """
    _require_times(context, moment)
    require_captured(context, moment)
    log = pinned_log(context, bases).filter(is_standing(progress.undone))
    late = _first_late_op(context, log, progress, moment)
    if late is None:
        return Target(progress.op, f"no change was committed after {moment.label}")
    before = next((op for op in range(late - 1, 0, -1) if not is_undone(op, progress.undone)), 0)
    if before == 0:
        msg = f"{context.table}: its first op, {late}, already holds changes that were committed after {moment.label}"
        raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op 0   (back to an empty table)")
    reason = f"op {before} is the last one before {moment.label}: op {late} holds what was committed after it"
    return Target(before, reason)


def _require_times(context: TableContext, moment: Moment) -> None:
    by_op = f"lakeward undo {context.table} --to-op OP   (lakeward runs lists ops with their times)"
    if moment.kind is not MomentKind.TIME:
        msg = f"{moment.label} is not a time; expected 2020-11-14 or 2020-11-14T10:30:00"
        raise ConfigurationError(msg, hint=by_op)
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: nothing tells when its changes were committed"
        raise ConfigurationError(msg, hint=by_op)


def _first_late_op(context: TableContext, log: DataFrame, progress: Progress, moment: Moment) -> int | None:
    """Return the first op with a change committed after the moment, or with a load that began after it."""
    after = column(S.COMMIT_TIME) > F.timestamp_micros(F.lit(moment.micros))
    changes = log.filter(column(S.KIND) == S.KIND_CHANGE)
    changed, unknown = changes.agg(
        *(F.min(F.when(one, column(S.OP))) for one in (after, lacks_commit_time()))
    ).collect()[0]  # fmt: skip
    late = min((one for one in (changed, _first_late_load(log, progress, moment)) if one is not None), default=None)
    if unknown is not None and (late is None or unknown < late):
        msg = f"{context.table}: op {unknown} holds changes without a commit time: nothing tells where they belong"
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
class Goal:
    """What was asked for: an op or a moment to go back to, files not to be taken again, the op that was newest then."""

    op: int | None = None
    moment: Moment | None = None
    skip_files: frozenset[str] = frozenset()
    newest_op: int | None = None


@dataclass(frozen=True)
class ConcernedOp:
    """An op that is taken back, or that stands again."""

    op: int
    kind: str
    generation: int
    files: int
    changes: int


@dataclass(frozen=True)
class Marked:
    """A publication or tag that holds ops which are taken back."""

    kind: str
    version: str
    location: str
    op: int


@dataclass(frozen=True)
class UndoPlan(Document):
    """What an undo takes back. ``op`` is its number, None where there is nothing to do.

    ``newest_op`` is the op that the table stands at, ``back_to`` the one whose state holds again and ``reason`` why it
    is that one. Ops and files are named up to 1,000; their counts are whole. ``rows`` is None where nobody asked.
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
class Decision:
    """An undo decided on: the record to log, None where nothing is to do, the files to fence, what else to note."""

    bases: Bases
    before: Progress
    target: Target
    record: OpRecord | None = None
    fences: tuple[FileRecord, ...] = ()
    notes: tuple[FileRecord, ...] = ()


def decide(context: TableContext, goal: Goal) -> Decision:
    """Find the op to go back to and make the record of the undo.

    Raises:
        ConfigurationError: the goal cannot be reached, or names files that were not read.
        ConflictError: the table has moved since the goal was set.
        DataError: an op is interrupted, or what the undo needs is no longer kept.
    """
    bases = capture(context)
    _require_whole(context, bases)
    before = progress_of(context, bases)
    if goal.newest_op is not None and goal.newest_op != before.op:
        msg = f"{context.table} stands at op {before.op}; it stood at op {goal.newest_op} when this undo was shown"
        raise ConflictError(msg, hint="look again: the same command with --dry-run")
    target, log = _target(context, bases, before, goal), pinned_log(context, bases)
    records = op_records(log, {op for op in (target.op, target.op + 1, before.op) if 0 < op <= before.op})
    require_state(context, target.op, records)
    record = _record(records, before, target.op)
    fenced = fences(context, log, record, goal.skip_files)
    if _is_done(log, records[before.op], target.op, {one.summary.path for one in fenced}):
        return Decision(bases, before, target)
    # What can refuse does so before anything is written.
    loads_at(context.mirror.metadata(), context.table, record.progress, last_load_ops(log, record.progress))
    return Decision(bases, before, target, record, fenced, notes(log, before, record))


def _target(context: TableContext, bases: Bases, before: Progress, goal: Goal) -> Target:
    if goal.op is not None:
        return target_op(context, before, goal.op)
    if goal.moment is not None:
        return target_before(context, bases, before, goal.moment)
    msg = "an undo needs an op or a time to go back to"
    raise ConfigurationError(msg, hint=f"lakeward undo {context.table} --to-op OP")


def describe(context: TableContext, decision: Decision, rows: RowChanges | None = None) -> UndoPlan:
    """Return what an undo concerns."""
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


def _require_whole(context: TableContext, bases: Bases) -> None:
    """Refuse a table that was never run, that something else wrote to, or whose last op is interrupted."""
    if bases.changelog is None or bases.mirror is None or not bases.logged:
        msg = f"{context.table} has no ops yet: nothing was run"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    if (op := unfinished_op(context, bases)) is not None:
        msg = f"{context.table}: op {op} is logged and not yet applied"
        raise DataError(msg, hint=f"lakeward run {context.table} finishes it; so does an undo that is no dry run")
    require_expected_rows(context, bases)
    require_same_layout(context, bases.properties)


def _record(records: Mapping[int, OpRecord], before: Progress, back_to: int) -> OpRecord:
    then = records[back_to].progress if back_to else Progress()
    op = before.op + 1
    generation = then.generation.number if then.generation else 0
    return OpRecord(op, OpKind.UNDO, generation, then.after_undoing(op, back_to=back_to), back_to=back_to)


def _is_done(log: DataFrame, newest: OpRecord, back_to: int, fenced: set[str]) -> bool:
    """Return whether the table already stands as after that op, by itself or by the undo just before."""
    if back_to == newest.op:
        return not fenced
    if newest.kind is not OpKind.UNDO or newest.back_to != back_to:
        return False
    return not fenced or fenced <= {*files_of(log, column(S.OP) == F.lit(newest.op), limit=LISTED).fenced}


def _nothing(before: Progress, target: Target) -> str:
    return target.reason if target.op == before.op else f"op {before.op} has gone back to op {target.op} already"


def _ops(log: DataFrame, gone: Column, again: Column) -> tuple[tuple[ConcernedOp, ...], tuple[ConcernedOp, ...]]:
    """Describe ops that go and ops that come again from all their rows in the changelog, in order."""
    kind = F.when(is_op_row(), F.get_json_object(column(S.DETAIL), "$.kind"))
    counts = [F.count(F.when(column(S.KIND) == one, 1)) for one in (S.KIND_FILE, S.KIND_CHANGE)]
    found = log.filter(gone | again).groupBy(S.OP).agg(F.max(kind), F.max(S.GENERATION), *counts, F.max(gone))
    # Those that go are the newer ones: of too many, the newest are named.
    rows = found.orderBy(column(S.OP).desc_nulls_last()).limit(LISTED).collect()[::-1]
    described = [(row[-1], ConcernedOp(*row[:-1])) for row in rows]
    return tuple(one for goes, one in described if goes), tuple(one for goes, one in described if not goes)


@dataclass(frozen=True)
class Undone:
    """An undo that was done, or that had nothing to do: then without an op."""

    plan: UndoPlan
    op: OpReport | None = None


def plan_undo(context: TableContext, goal: Goal) -> UndoPlan:
    """Return what an undo would do, down to the rows; nothing is written.

    Raises:
        LakewardError: the undo would be refused.
    """
    decision = decide(context, goal)
    if decision.record is None:
        return describe(context, decision)
    with Workspace() as workspace:
        effect = undo_effect(context, workspace, decision.record, decision.bases, decision.before)
        return describe(context, decision, _row_changes(context, decision, effect))


def undo(context: TableContext, goal: Goal) -> Undone:
    """Take back every op after the goal; the context holds the table's lease.

    Raises:
        LakewardError: the undo is refused; nothing was written. A ConflictError: another writer was faster.
    """
    started = time.monotonic()
    for table in (context.changelog, context.mirror):
        drop_abandoned(table)
    finish_interrupted(context)
    decision = decide(context, goal)
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


def _row_changes(context: TableContext, decision: Decision, effect: Effect) -> RowChanges:
    """Count what becomes of the mirror's rows."""
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
