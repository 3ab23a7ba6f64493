"""A batch: changes of single rows from change files, folded to the last state of every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.kinds.base import RowKind
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


class Batch(RowKind):
    """Changes of single rows. Recovered from the changelog, which holds them all."""

    name = OpKind.BATCH

    def check_effect(
        self, context: TableContext, work: Work, effect: Effect, columns: Sequence[Column], base: Snapshot | None
    ) -> None:
        """Refuse to delete too large a share of the mirror."""
        require_delete_share(context, effect, columns, base)

    def fold(self, context: TableContext, workspace: Workspace, given: OpInput, changes: DataFrame) -> Effect:
        """Fold the changes upon what they stand on and choose how they reach the mirror."""
        record, key = given.record, context.settings.primary_key
        base = history = None
        if record.late:
            history = earlier_changes(context, given)
            base = load_rows(context, record.generation, given)
        elif (record.partial or record.moves) and given.bases.mirror is not None:
            base = with_columns(context, context.mirror.read(given.bases.mirror.id), given)
        source = FoldInput(
            workspace, changes, given.rows, key, given.names, record.partial, record.moves, base if key else None,
            history, context.settings.key_moves, str(context.table),
        )  # fmt: skip
        folded = fold_changes(source) if key else fold_keyless(source, record.progress.generations[-1].order_by)
        return Effect(plan_fold(context.mirror, given.bases.mirror, folded, context.settings), folded)


# A retry: rows that were set aside go back at their own place in the order, or are given up.


class Retry(Batch):
    """Repaired rows as changes that come late, or no rows where they are dropped. Otherwise a batch."""

    name = OpKind.RETRY
