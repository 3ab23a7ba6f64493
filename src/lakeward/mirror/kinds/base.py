"""What an op of some kind does: the questions that the execution of an op asks its kind.

An op is worked out (`effect`) and logged. Then it does its work beside the mirror's ``main`` (`before_main`), is
brought into ``main`` by one commit (`publish`) and tidies up (`after_main`). Where a crash left it logged and not
applied, the next run prepares the rest of it (`recover`) and goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakeward.iceberg.attempt import Attempt
from lakeward.mirror.op.apply import applied_stamps, write_folded
from lakeward.mirror.op.changelog import changes_of
from lakeward.mirror.op.cut import require_fitting_times
from lakeward.mirror.op.effect import ApplyPlan, Effect, OpInput, Prepared, Strategy
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
    """An op that a crash left logged and not applied: its record and files, and the changelog it stands in."""

    record: OpRecord
    bases: Bases
    log: DataFrame
    files: tuple[FileRecord, ...]

    def prepared(self, columns: tuple[Column, ...], effect: Effect) -> Prepared:
        """Return the op ready to be applied."""
        return Prepared(self.record, self.bases, columns, (), self.files, (), None, 0, effect, is_logged=True)


class Kind:
    """What ops of one kind do. What is not overridden is that of an op that brings changes of single rows.

    ``needs_every_file`` says that an op waits until none of its files is being written any more.
    ``defines_tables`` says that it may create changelog and mirror, change their columns and keep settings in them,
    ``takes_files_again`` that files which were read before are new after it, and are then read under today's settings.
    """

    name: ClassVar[OpKind]
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
        """Return the work to do once its files were read; other work must be prepared from the beginning.

        Raises:
            DataError: the files do not fit the table's state.
        """
        require_fitting_times(context, work, progress, summaries)
        return work

    def check_input(self, context: TableContext, work: Work, given: OpInput, summaries: Sequence[FileSummary]) -> None:
        """Refuse rows that the op must not have."""

    def check_effect(
        self, context: TableContext, work: Work, effect: Effect, columns: Sequence[Column], base: Snapshot | None
    ) -> None:
        """Refuse an effect that is more likely a fault than what was meant."""

    def rows_to_log(self, records: DataFrame | None, summaries: Sequence[FileSummary]) -> tuple[DataFrame | None, int]:
        """Return the rows that the changelog keeps, and how many they are."""
        return records, sum(summary.rows + summary.moves for summary in summaries)

    # From an op to the mirror.

    def work_out(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Fold an op's changes and choose how they reach the mirror."""
        context.adapt_plans(wanted=given.rows > ONE_TASK or given.record.late)
        return self.effect(context, workspace, given)

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return what the op does to the mirror, from its changes and the snapshots it stands on alone."""
        raise NotImplementedError

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Do what must be done beside ``main`` before the op is applied; done again, it changes nothing."""

    def publish(self, context: TableContext, prepared: Prepared, *, base: int) -> Snapshot:
        """Bring the op into ``main`` on top of snapshot ``base``; return the snapshot that readers see now.

        Raises:
            ConflictError: ``main`` has moved since, or the lease was lost. Readers saw nothing of this attempt.
        """
        with Attempt(context.mirror, op=prepared.record.op, base=base) as attempt:
            context.reached(Step.APPLY_BRANCH)
            self.write(context, attempt, prepared, self.stamps(prepared.record))
            context.reached(Step.APPLY_APPEND)
            snapshot = attempt.publish(before=context.permission.require)
            context.reached(Step.APPLY_PUBLISH)
        context.reached(Step.APPLY_DROP)
        return snapshot

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Write the op to the attempt's branch."""
        names = tuple(column.name for column in prepared.columns)
        write_folded(context, attempt, prepared.effect, stamps, keys=self.keys(context, names), names=names)

    def keys(self, context: TableContext, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns by which the op's rows are found in the mirror."""
        return context.settings.primary_key

    def stamps(self, record: OpRecord) -> dict[str, str]:
        """Return what the op's commit on the mirror says of itself."""
        return applied_stamps(record)

    def after_main(self, context: TableContext) -> None:
        """Do what can only be done once the op is applied; a crash before it leaves that to the next run."""

    def recover(self, context: TableContext, workspace: Workspace, unfinished: Unfinished) -> Prepared:
        """Prepare the rest of an op that was logged: from its changes in the changelog."""
        record, columns = unfinished.record, context.mirror.columns()
        changes = conformed(changes_of(unfinished.log, record.op), columns, {})
        rows = sum(file.summary.rows - file.summary.bad for file in unfinished.files)
        effect = self.work_out(context, workspace, OpInput(record, unfinished.bases, columns, changes, rows))
        return unfinished.prepared(columns, effect)


class RowKind(Kind):
    """What ops do that bring rows: they are folded, unless they came for a generation that a newer one replaced."""

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return what the op's rows do to the mirror."""
        record = given.record
        if record.progress.generations and record.generation < record.progress.generations[-1].number:
            return Effect(ApplyPlan(Strategy.LOG_ONLY, "the changes belong to a generation that a newer load replaced"))
        if given.changes is None:
            return Effect(ApplyPlan(Strategy.LOG_ONLY, "no file brings rows"))
        return self.fold(context, workspace, given, given.changes)

    def fold(self, context: TableContext, workspace: Workspace, given: OpInput, changes: DataFrame) -> Effect:
        """Return what rows of the current generation do to the mirror."""
        raise NotImplementedError
