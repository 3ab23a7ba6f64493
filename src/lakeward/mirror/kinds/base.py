"""The interface of op handlers: what the execution of an op leaves to its kind.

The effect of an op is computed (`effect`) and the op is logged. Then it does its work on other branches of the mirror
(`before_main`), reaches ``main`` in one commit (`publish`) and cleans up (`after_main`). Where a crash left it logged
and not applied, the next run prepares the rest of it (`recover`) and continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakeward.iceberg.attempt import Attempt
from lakeward.mirror.op.apply import applied_stamps, write_folded
from lakeward.mirror.op.changelog import changes_of
from lakeward.mirror.op.check import require_fitting_times
from lakeward.mirror.op.effect import ApplyPlan, Effect, OpInput, PreparedOp, Strategy
from lakeward.mirror.op.fold import ONE_TASK
from lakeward.mirror.op.steps import Step
from lakeward.transforms.columns import conformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.changelog import FileRecord, OpRecord
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import OpKind, Progress
    from lakeward.spark.workspace import Workspace


@dataclass(frozen=True)
class Unfinished:
    """An op that a crash left logged and not applied: its record and files, and the changelog that holds them."""

    record: OpRecord
    bases: Bases
    log: DataFrame
    files: tuple[FileRecord, ...]

    def prepared(self, columns: tuple[Column, ...], effect: Effect) -> PreparedOp:
        """Return the op ready to be applied."""
        return PreparedOp(self.record, self.bases, columns, (), self.files, (), None, 0, effect, is_logged=True)


class OpHandler:
    """The behaviour of ops of one kind. The defaults are those of an op that contains changes of single rows.

    ``needs_every_file``: the op waits until none of its files is being written any more. ``defines_tables``: it may
    create changelog and mirror, change their columns and store settings in them. ``takes_files_again``: files that
    were read before are new after it, and are then read under the current settings.
    """

    kind: ClassVar[OpKind]
    needs_every_file: ClassVar[bool] = False
    defines_tables: ClassVar[bool] = True
    takes_files_again: ClassVar[bool] = False

    # From files to an op.

    def decide(
        self,
        context: TableContext,
        work: Work,
        progress: Progress,
        columns: Sequence[Column],
        summaries: Sequence[FileSummary],
    ) -> Work:
        """Return the work to do, now that its files are read; work of another kind must be prepared from the start.

        Raises:
            DataError: the files do not fit the table's state.
        """
        require_fitting_times(context, work, progress, summaries)
        return work

    def check_input(
        self, context: TableContext, work: Work, op_input: OpInput, summaries: Sequence[FileSummary]
    ) -> None:
        """Raise DataError for rows that are not allowed in this op."""

    def check_effect(
        self, context: TableContext, work: Work, effect: Effect, columns: Sequence[Column], base: Snapshot | None
    ) -> None:
        """Raise DataError for an effect that is more likely a mistake than intended."""

    def rows_to_log(self, records: DataFrame | None, summaries: Sequence[FileSummary]) -> tuple[DataFrame | None, int]:
        """Return the rows that the changelog keeps, and how many they are."""
        return records, sum(summary.rows + summary.moves for summary in summaries)

    # From an op to the mirror.

    def compute_effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Set Spark up for the size of the op and return its effect."""
        context.adapt_plans(wanted=op_input.rows > ONE_TASK or op_input.record.late)
        return self.effect(context, workspace, op_input)

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return what the op does to the mirror. Depends only on its changes and the snapshots it is based on."""
        raise NotImplementedError

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Do the work on other branches that must precede the commit on ``main``; must be idempotent."""

    def publish(self, context: TableContext, prepared: PreparedOp, *, base: int) -> Snapshot:
        """Commit the op to ``main`` on top of snapshot ``base``; return the snapshot that readers see now.

        Raises:
            ConflictError: ``main`` has changed since, or the lease was lost. Readers saw nothing of this attempt.
        """
        with Attempt(context.mirror, op=prepared.record.op, base=base) as attempt:
            context.reached(Step.APPLY_BRANCH)
            self.write(context, attempt, prepared, self.stamps(prepared.record))
            context.reached(Step.APPLY_APPEND)
            snapshot = attempt.publish(before=context.permission.require)
            context.reached(Step.APPLY_PUBLISH)
        context.reached(Step.APPLY_DROP)
        return snapshot

    def write(self, context: TableContext, attempt: Attempt, prepared: PreparedOp, stamps: dict[str, str]) -> None:
        """Write the op to the attempt's branch."""
        names = tuple(column.name for column in prepared.columns)
        write_folded(context, attempt, prepared.effect, stamps, keys=self.keys(context, names), names=names)

    def keys(self, context: TableContext, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns by which the op's rows are found in the mirror."""
        return context.settings.primary_key

    def stamps(self, record: OpRecord) -> dict[str, str]:
        """Return the stamps of the op's commit on the mirror."""
        return applied_stamps(record)

    def after_main(self, context: TableContext) -> None:
        """Do the work that must follow the commit on ``main``; after a crash the next run does it."""

    def recover(self, context: TableContext, workspace: Workspace, unfinished: Unfinished) -> PreparedOp:
        """Prepare the rest of an op that was logged: from its changes in the changelog."""
        record, columns = unfinished.record, context.mirror.columns()
        changes = conformed(changes_of(unfinished.log, record.op), columns, {})
        rows = sum(file.summary.rows - file.summary.bad for file in unfinished.files)
        effect = self.compute_effect(context, workspace, OpInput(record, unfinished.bases, columns, changes, rows))
        return unfinished.prepared(columns, effect)


class RowOpHandler(OpHandler):
    """An op that brings rows. They are folded, unless they belong to a generation that a newer load replaced."""

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return what the op's rows do to the mirror."""
        record = op_input.record
        if record.progress.generations and record.generation < record.progress.generations[-1].number:
            return Effect(ApplyPlan(Strategy.LOG_ONLY, "the changes belong to a generation that a newer load replaced"))
        if op_input.changes is None:
            return Effect(ApplyPlan(Strategy.LOG_ONLY, "no file contains rows"))
        return self.fold(context, workspace, op_input, op_input.changes)

    def fold(self, context: TableContext, workspace: Workspace, op_input: OpInput, changes: DataFrame) -> Effect:
        """Return what rows of the current generation do to the mirror."""
        raise NotImplementedError
