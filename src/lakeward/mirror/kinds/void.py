"""Ops without rows: a void, which rolls back the previous op, and a truncate, which empties the mirror.

A void follows an op that was logged and can no longer be finished. A truncate follows the removal of the table's folder
at the source, and begins a new generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.base import OpHandler
from lakeward.mirror.op.apply import begin_empty_load, take_back_load
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.effect import ApplyPlan, Effect, PreparedOp, Strategy
from lakeward.mirror.op.ledger import op_record
from lakeward.mirror.op.undone import notes
from lakeward.model import OpKind, Progress

if TYPE_CHECKING:
    from lakeward.iceberg.attempt import Attempt
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, OpInput
    from lakeward.spark.workspace import Workspace


_VOID_PLAN = ApplyPlan(Strategy.LOG_ONLY, "an op that could not be finished is rolled back")
_TRUNCATE_PLAN = ApplyPlan(Strategy.CLEAR, "the table's folder is gone and on_missing_folder is truncate")


class Void(OpHandler):
    """Rolls back the previous op, which never reached ``main``. Has no rows."""

    kind = OpKind.VOID

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return no change of the mirror."""
        return Effect(_VOID_PLAN)

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Remove the rows of the previous op from its load branch."""
        take_back_load(context, generation=prepared.record.generation, op=prepared.record.op - 1)


def prepare_void(context: TableContext, record: OpRecord, bases: Bases) -> PreparedOp:
    """Prepare the void of a load whose files have changed since it was logged; they are new to the next op."""
    log = context.changelog.read(context.changelog.require_head().id)
    before = op_record(log, record.op - 1).progress if record.op > 1 else Progress()
    void = OpRecord(
        op=record.op + 1,
        kind=OpKind.VOID,
        generation=record.generation,
        progress=before.after_undoing(record.op + 1, back_to=record.op - 1),
        back_to=record.op - 1,
    )
    plan = ApplyPlan(Strategy.LOG_ONLY, f"the files of op {record.op} changed before it was applied: it is rolled back")
    files = notes(log, record.progress, void)
    return PreparedOp(void, bases, context.mirror.columns(), (), files, (), None, 0, Effect(plan))


class Truncate(OpHandler):
    """Empties the mirror. Has no rows."""

    kind = OpKind.TRUNCATE

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return the removal of all rows."""
        return Effect(_TRUNCATE_PLAN)

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Begin the generation with a load without rows."""
        begin_empty_load(context, prepared.record.generation)

    def write(self, context: TableContext, attempt: Attempt, prepared: PreparedOp, stamps: dict[str, str]) -> None:
        """Remove all rows."""
        attempt.clear(stamps)
