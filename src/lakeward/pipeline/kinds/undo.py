"""An undo: every op after an earlier one stands no longer, and the mirror becomes what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model import OpKind
from lakeward.pipeline.kinds.base import Kind
from lakeward.pipeline.load_branches import set_back_loads
from lakeward.pipeline.planner import Strategy
from lakeward.pipeline.steps import Step
from lakeward.pipeline.undo.effect import undo_effect

if TYPE_CHECKING:
    from lakeward.lake.iceberg.attempt import Attempt
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Effect, OpInput, Prepared
    from lakeward.pipeline.kinds.base import Unfinished
    from lakeward.pipeline.workspace import Workspace


class Undo(Kind):
    """Goes back to an earlier state. Has no rows of its own: changelog and kept states give those that were."""

    name = OpKind.UNDO
    takes_files_again = True

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return how the mirror becomes what it was."""
        return undo_effect(context, workspace, given.record, given.bases)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Set the load branches back and tag what is left behind, so that the undo can be undone."""
        set_back_loads(context, prepared.record, prepared.bases)
        context.reached(Step.UNDO_LOADS)

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Replace all rows by those of the earlier state, or the rows of the keys concerned."""
        effect = prepared.effect
        if effect.plan.strategy is not Strategy.RESTORE:
            super().write(context, attempt, prepared, stamps)
        elif effect.state is None or effect.state_count == 0:
            attempt.clear(stamps)
        else:
            attempt.overwrite(effect.state, stamps, expected=effect.state_count)

    def recover(self, context: TableContext, workspace: Workspace, unfinished: Unfinished) -> Prepared:
        """Work the undo out again, from what is kept."""
        effect = undo_effect(context, workspace, unfinished.record, unfinished.bases)
        return unfinished.prepared(context.mirror.columns(), effect)
