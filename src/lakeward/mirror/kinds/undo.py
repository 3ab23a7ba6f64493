"""An undo: every op after a chosen one is undone, and the mirror returns to the state after that op.

Its effect is computed from the changelog and the states kept in the lake alone, so that a later process can finish it
after a crash. An undo may itself be undone: then ops that it had undone count again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError
from lakeward.mirror.kinds.base import OpHandler
from lakeward.mirror.op.apply import reset_loads
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.effect import ApplyPlan, Effect, Strategy, plan_fold
from lakeward.mirror.op.fold import FoldInput, materialize, with_linked_keys
from lakeward.mirror.op.ledger import op_record
from lakeward.mirror.op.steps import Step
from lakeward.mirror.op.undone import is_earlier, is_newly_undone, is_op_row, is_redone, pinned_log
from lakeward.model import OpKind
from lakeward.transforms.columns import column, columns, conformed
from lakeward.transforms.fold import having_keys, is_standing, lacking_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.iceberg.attempt import Attempt
    from lakeward.mirror.kinds.base import Unfinished
    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, OpInput, PreparedOp
    from lakeward.model import Progress
    from lakeward.spark.workspace import Workspace

# Ops whose rows are not in the changelog, or that change which of its rows count.
_WHOLE = (OpKind.LOAD, OpKind.TRUNCATE)


class Undo(OpHandler):
    """Returns to an earlier state. It has no rows: they come from the changelog and kept states."""

    kind = OpKind.UNDO
    takes_files_again = True

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return how the mirror returns to its earlier state."""
        return undo_effect(context, workspace, op_input.record, op_input.bases)

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Reset the load branches and tag the heads they leave, so that the undo can itself be undone."""
        reset_loads(context, prepared.record, prepared.bases)
        context.reached(Step.UNDO_LOADS)

    def write(self, context: TableContext, attempt: Attempt, prepared: PreparedOp, stamps: dict[str, str]) -> None:
        """Replace all rows by those of the earlier state, or only the rows of the keys concerned."""
        effect = prepared.effect
        if effect.plan.strategy is not Strategy.RESTORE:
            super().write(context, attempt, prepared, stamps)
        elif effect.state is None or effect.state_count == 0:
            attempt.clear(stamps)
        else:
            attempt.overwrite(effect.state, stamps, expected=effect.state_count)

    def recover(self, context: TableContext, workspace: Workspace, unfinished: Unfinished) -> PreparedOp:
        """Compute the undo again, from the changelog and kept states."""
        effect = undo_effect(context, workspace, unfinished.record, unfinished.bases)
        return unfinished.prepared(context.mirror.columns(), effect)


class Reset(Undo):
    """Returns to the empty table, on branches that only its own ops see: those read all files again.

    The load branches and heads that it replaces are tagged when all of these ops are published.
    """

    kind = OpKind.RESET
    defines_tables = False

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Do nothing: the branches of the reset have no load yet."""


def undo_effect(
    context: TableContext, workspace: Workspace, record: OpRecord, bases: Bases, before: Progress | None = None
) -> Effect:
    """Return how the mirror returns to its state after the op that is the undo's target.

    ``before`` is the progress before the undo, read from the changelog where it is not passed.

    Raises:
        DataError: a state that this needs is no longer kept.
    """
    if record.progress.generation is None:
        return Effect(ApplyPlan(Strategy.RESTORE, "nothing had been loaded then: the mirror becomes empty"))
    log = pinned_log(context, bases)
    before = before or op_record(log, record.op - 1).progress
    then = rows_as_of(context, workspace, op_moment(_back_to(record))).rows
    if not context.settings.primary_key or _changes_load(log, before, record):
        reason = f"the mirror becomes what it was after op {record.back_to}"
        return Effect(ApplyPlan(Strategy.RESTORE, reason), state=then, state_count=then.count())
    touched = _touched_keys(context, workspace, record, bases, before)
    if not touched.take(1):
        return Effect(ApplyPlan(Strategy.LOG_ONLY, "no row of the mirror comes from the ops concerned"))
    folded = materialize(
        workspace, _rows_then(then, touched, context.settings.primary_key), context.settings.primary_key
    )
    return Effect(plan_fold(context.mirror, bases.mirror, folded, context.settings), folded)


def _back_to(record: OpRecord) -> int:
    if record.back_to is None:
        msg = f"op {record.op} is an undo without a target op"
        raise BugError(msg)
    return record.back_to


def _changes_load(log: DataFrame, before: Progress, record: OpRecord) -> bool:
    """Whether loads, reloads or truncates are among the ops that are undone or redone."""
    differing = is_newly_undone(before, record) | is_redone(before, record)
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    return bool(log.filter(is_op_row() & differing & kind.isin(*_WHOLE)).take(1))


def _touched_keys(
    context: TableContext, workspace: Workspace, record: OpRecord, bases: Bases, before: Progress
) -> DataFrame:
    """Return the keys of changes that are undone or redone, and the keys linked to them by moves."""
    keys, names = context.settings.primary_key, tuple(field.name for field in bases.columns)
    generation = column(S.GENERATION) == F.lit(record.generation)
    log = pinned_log(context, bases).filter((column(S.KIND) == S.KIND_CHANGE) & generation & is_earlier(record))
    differing = is_newly_undone(before, record) | is_redone(before, record)
    counted = is_standing(before.undone) | is_standing(record.progress.undone)
    own, every = (
        conformed(log.filter(condition), bases.columns, {}).drop(S.OP, S.GENERATION)
        for condition in (differing, counted)
    )
    touched = own.select(*columns(keys)).distinct()
    return workspace.keep(with_linked_keys(touched, every, FoldInput(workspace, own, 0, keys, names)))


def _rows_then(then: DataFrame, touched: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return the touched keys' rows of an earlier state as folded rows: a key it lacks is deleted."""
    rows = having_keys(then, touched, keys=keys)
    gone = lacking_keys(touched, rows.select(*columns(keys)), keys=keys)
    written = rows.select(F.lit("U").alias(S.OPERATION), *columns(then.columns))
    deleted = gone.select(F.lit("D").alias(S.OPERATION), *columns(keys))
    return written.unionByName(deleted, allowMissingColumns=True)
