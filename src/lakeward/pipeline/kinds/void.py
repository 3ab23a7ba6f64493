"""A void: takes back the op just before it, which was logged and can no longer be finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model import OpKind, Progress
from lakeward.pipeline.effect import Effect, Prepared
from lakeward.pipeline.kinds.base import Kind
from lakeward.pipeline.ledger import op_record
from lakeward.pipeline.load_branches import take_back_load
from lakeward.pipeline.planner import ApplyPlan, Strategy
from lakeward.pipeline.records import OpRecord
from lakeward.pipeline.undone import notes

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases, OpInput
    from lakeward.pipeline.workspace import Workspace

_PLAN = ApplyPlan(Strategy.LOG_ONLY, "an op that could not be finished is taken back")


class Void(Kind):
    """Leaves ``main`` as it is, which never saw the op before. Has no rows."""

    name = OpKind.VOID

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that the mirror stays as it is."""
        return Effect(_PLAN)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Take the op's rows out of its load branch."""
        take_back_load(context, generation=prepared.record.generation, op=prepared.record.op - 1)


def prepare_void(context: TableContext, record: OpRecord, bases: Bases) -> Prepared:
    """Prepare the void of a load whose files are no longer what was logged; they are new to the next op."""
    log = context.changelog.read(context.changelog.require_head().id)
    before = op_record(log, record.op - 1).progress if record.op > 1 else Progress()
    void = OpRecord(
        op=record.op + 1,
        kind=OpKind.VOID,
        generation=record.generation,
        progress=before.after_undoing(record.op + 1, back_to=record.op - 1),
        back_to=record.op - 1,
    )
    plan = ApplyPlan(Strategy.LOG_ONLY, f"the files of op {record.op} changed before it was applied: it is taken back")
    files = notes(log, record.progress, void)
    return Prepared(void, bases, context.mirror.columns(), (), files, (), None, 0, Effect(plan))
