"""A repair: rows of keys that a verification found to differ are written again.

Recomputed rows are written and not logged: if the op is interrupted, it ends without them and the next verification
finds the difference again. Rows taken from another copy are logged as changes and recovered like those of a batch.
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
    from lakeward.mirror.op.effect import PreparedOp


class Repair(Batch):
    """Corrected rows. Leaves table definitions and stored settings as they are: no file is read."""

    kind = OpKind.REPAIR
    defines_tables = False

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Report the step between changelog and mirror."""
        context.reached(Step.REPAIR_LOGGED)

    def keys(self, context: TableContext, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the table's key; without one a row is identified by all its columns."""
        return context.settings.primary_key or names

    def stamps(self, record: OpRecord) -> dict[str, str]:
        """Return the stamps of the commit, which mark it as a repair of the mirror."""
        return {**applied_stamps(record), REPAIRED_STAMP: str(record.op)}
