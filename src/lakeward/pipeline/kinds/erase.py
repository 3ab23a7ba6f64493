"""An erasure: rows of certain keys are taken out of every file of changelog and mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model import OpKind
from lakeward.pipeline.effect import Effect
from lakeward.pipeline.erase.lake import erase_beside_main, erase_from_main, expire_after_erasure
from lakeward.pipeline.kinds.base import Kind
from lakeward.pipeline.planner import ApplyPlan, Strategy

if TYPE_CHECKING:
    from lakeward.lake.iceberg.attempt import Attempt
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import OpInput, Prepared
    from lakeward.pipeline.workspace import Workspace

_PLAN = ApplyPlan(Strategy.ERASE, "rows of erased keys are taken out of every file that holds them")


class Erase(Kind):
    """Takes out rows by the hashes of their keys. Has no rows: the record says which keys."""

    name = OpKind.ERASE

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that rows are taken out."""
        return Effect(_PLAN)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Clean the changelog, load branches and tags: ``main`` comes last, and says that the op is applied."""
        erase_beside_main(context, prepared.record)

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Clean the branch that becomes ``main``."""
        erase_from_main(context, attempt, prepared.record, stamps)

    def after_main(self, context: TableContext) -> None:
        """Remove the snapshots that may still hold the rows."""
        expire_after_erasure(context)
