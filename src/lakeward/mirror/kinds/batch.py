"""A batch: changes of single rows from change files, folded to the last state of every key; and ops that work like one.

A retry is a batch of rows that were set aside: they are put back at their own place in the order, or dropped. A repair
writes rows of keys that a verification found to differ. Recomputed rows are written and not logged: if the op is
interrupted, it ends without them and the next verification finds the difference again. Rows taken from another copy are
logged as changes and recovered like those of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.iceberg.define import REPAIRED_STAMP
from lakeward.mirror.kinds.base import RowOpHandler
from lakeward.mirror.op.apply import applied_stamps
from lakeward.mirror.op.check import require_delete_share
from lakeward.mirror.op.effect import Effect, earlier_changes, load_rows, plan_fold, with_columns
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless
from lakeward.mirror.op.order_check import require_decided_order
from lakeward.mirror.op.steps import Step
from lakeward.model import OpKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import OpInput, PreparedOp
    from lakeward.spark.workspace import Workspace


class Batch(RowOpHandler):
    """Changes of single rows. Recovered from the changelog, which holds all of them."""

    kind = OpKind.BATCH

    def check_input(
        self, context: TableContext, work: Work, op_input: OpInput, summaries: Sequence[FileSummary]
    ) -> None:
        """Refuse changes whose order the files do not decide."""
        require_decided_order(context, op_input, summaries)

    def check_effect(
        self, context: TableContext, work: Work, effect: Effect, columns: Sequence[Column], base: Snapshot | None
    ) -> None:
        """Refuse to delete too large a share of the mirror's rows."""
        require_delete_share(context, effect, columns, base)

    def fold(self, context: TableContext, workspace: Workspace, op_input: OpInput, changes: DataFrame) -> Effect:
        """Fold the changes into the rows they are based on and choose how they reach the mirror."""
        record, key = op_input.record, context.settings.primary_key
        base = history = None
        if record.late:
            history = earlier_changes(context, op_input)
            base = load_rows(context, record.generation, op_input)
        elif (record.partial or record.moves) and op_input.bases.mirror is not None:
            base = with_columns(context, context.mirror.read(op_input.bases.mirror.id), op_input)
        source = FoldInput(
            workspace, changes, op_input.rows, key, op_input.names, record.partial, record.moves, base if key else None,
            history, context.settings.key_moves, str(context.table), context.settings.metadata_columns.listed,
        )  # fmt: skip
        folded = fold_changes(source) if key else fold_keyless(source, record.progress.generations[-1].order_by)
        return Effect(plan_fold(context.mirror, op_input.bases.mirror, folded, context.settings), folded)


class Retry(Batch):
    """Repaired rows as late changes, or no rows where they are dropped. Otherwise a batch."""

    kind = OpKind.RETRY


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
