"""A repair: the rows of keys that a verification found to differ, written anew.

Rows of a recomputation are written and not logged: interrupted, the op ends without them and the next verification
finds the difference again. Rows of another copy are logged as changes, and recovered like those of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.lake.iceberg.define import REPAIRED_STAMP
from lakeward.model import OpKind
from lakeward.pipeline.kinds.batch import Batch
from lakeward.pipeline.stamps import applied_stamps
from lakeward.pipeline.steps import Step

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Prepared
    from lakeward.pipeline.records import OpRecord


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
