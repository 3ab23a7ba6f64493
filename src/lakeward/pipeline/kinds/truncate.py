"""A truncate: the mirror becomes empty because the source's folder is gone, and a new generation begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model import OpKind
from lakeward.pipeline.effect import Effect
from lakeward.pipeline.kinds.base import Kind
from lakeward.pipeline.load_branches import begin_empty_load
from lakeward.pipeline.planner import ApplyPlan, Strategy

if TYPE_CHECKING:
    from lakeward.lake.iceberg.attempt import Attempt
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import OpInput, Prepared
    from lakeward.pipeline.workspace import Workspace

_PLAN = ApplyPlan(Strategy.CLEAR, "the table's folder is gone and on_missing_folder is truncate")


class Truncate(Kind):
    """Empties the mirror. Has no rows: the record alone says what it does."""

    name = OpKind.TRUNCATE

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that the mirror becomes empty."""
        return Effect(_PLAN)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Begin the generation with a load of no rows."""
        begin_empty_load(context, prepared.record.generation)

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Remove all rows."""
        attempt.clear(stamps)
