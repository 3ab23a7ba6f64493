"""A batch: changes of single rows from change files, folded to the last state of every key.

A retry is a batch of rows that were set aside: they are put back at their own place in the order, or dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.base import RowOpHandler
from lakeward.mirror.op.check import require_delete_share
from lakeward.mirror.op.effect import Effect, earlier_changes, load_rows, plan_fold, with_columns
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless
from lakeward.model import OpKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import OpInput
    from lakeward.spark.workspace import Workspace


class Batch(RowOpHandler):
    """Changes of single rows. Recovered from the changelog, which holds all of them."""

    kind = OpKind.BATCH

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
            history, context.settings.key_moves, str(context.table),
        )  # fmt: skip
        folded = fold_changes(source) if key else fold_keyless(source, record.progress.generations[-1].order_by)
        return Effect(plan_fold(context.mirror, op_input.bases.mirror, folded, context.settings), folded)


class Retry(Batch):
    """Repaired rows as late changes, or no rows where they are dropped. Otherwise a batch."""

    kind = OpKind.RETRY
