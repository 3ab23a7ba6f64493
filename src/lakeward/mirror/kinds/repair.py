"""A repair: the rows of keys that a verification found to differ, written anew.

Rows of a recomputation are written and not logged: interrupted, the op ends without them and the next verification
finds the difference again. Rows of another copy are logged as changes, and recovered like those of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.iceberg.define import REPAIRED_STAMP
from lakeward.mirror.kinds.batch import Batch
from lakeward.mirror.op.apply import applied_stamps
from lakeward.mirror.op.steps import Step
from lakeward.model import OpKind

if TYPE_CHECKING:
    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Prepared


class Repair(Batch):
    """Rows put right. Leaves tables and settings as they are: nothing is read under new ones."""

    name = OpKind.REPAIR
    defines_tables = False

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Pass the step between changelog and mirror."""
        context.reached(Step.REPAIR_LOGGED)

    def keys(self, context: TableContext, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the table's key; without one a row is identified by all its columns."""
        return context.settings.primary_key or names

    def stamps(self, record: OpRecord) -> dict[str, str]:
        """Return the stamps of the commit, which says that it repaired the mirror."""
        return {**applied_stamps(record), REPAIRED_STAMP: str(record.op)}
