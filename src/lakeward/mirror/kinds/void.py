"""A void: takes back the op just before it, which was logged and can no longer be finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.base import Kind
from lakeward.mirror.op.apply import begin_empty_load, take_back_load
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.effect import ApplyPlan, Effect, Prepared, Strategy
from lakeward.mirror.op.ledger import op_record
from lakeward.mirror.op.undone import notes
from lakeward.model import OpKind, Progress

if TYPE_CHECKING:
    from lakeward.iceberg.attempt import Attempt
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, OpInput
    from lakeward.spark.workspace import Workspace


_VOID_PLAN = ApplyPlan(Strategy.LOG_ONLY, "an op that could not be finished is taken back")


class Void(Kind):
    """Leaves ``main`` as it is, which never saw the op before. Has no rows."""

    name = OpKind.VOID

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that the mirror stays as it is."""
        return Effect(_VOID_PLAN)

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


# A truncate: the mirror becomes empty because the source's folder is gone, and a new generation begins.


_TRUNCATE_PLAN = ApplyPlan(Strategy.CLEAR, "the table's folder is gone and on_missing_folder is truncate")


class Truncate(Kind):
    """Empties the mirror. Has no rows: the record alone says what it does."""

    name = OpKind.TRUNCATE

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that the mirror becomes empty."""
        return Effect(_TRUNCATE_PLAN)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Begin the generation with a load of no rows."""
        begin_empty_load(context, prepared.record.generation)

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Remove all rows."""
        attempt.clear(stamps)
