"""Take ops back by one op of their own: first its record in the changelog, then the mirror.

Once the record is logged, the ops it takes back stand no longer: their files are new, their changes count for nobody,
and whoever finds the mirror not yet changed finishes it (`pipeline/recover.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.errors import BugError
from lakeward.lake.iceberg.attempt import drop_abandoned
from lakeward.pipeline.effect import Prepared
from lakeward.pipeline.planner import Strategy
from lakeward.pipeline.row_changes import RowChanges, row_changes
from lakeward.pipeline.run import carry_out, finish_interrupted
from lakeward.pipeline.steps import Step
from lakeward.pipeline.undo.effect import undo_effect
from lakeward.pipeline.undo.plan import Decision, Goal, UndoPlan, decide, describe
from lakeward.pipeline.workspace import Workspace
from lakeward.transforms.columns import columns
from lakeward.transforms.fold import is_delete
from lakeward.transforms.keys import having_keys

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Effect
    from lakeward.pipeline.report import OpReport


@dataclass(frozen=True)
class Undone:
    """An undo that was done, or that had nothing to do: then without an op."""

    plan: UndoPlan
    op: OpReport | None = None


def plan_undo(context: TableContext, goal: Goal) -> UndoPlan:
    """Tell what an undo would do, down to the rows; nothing is written.

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
        prepared = Prepared(decision.record, decision.bases, columns_now, (), files, (), None, 0, effect)
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
