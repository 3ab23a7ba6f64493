"""A load: the full rows that a generation begins with, or a part of them that arrives later.

The rows of each generation's load are kept in a separate branch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.iceberg.define import empty_snapshot
from lakeward.mirror.kinds.base import RowOpHandler
from lakeward.mirror.kinds.void import prepare_void
from lakeward.mirror.op.apply import extend_load, is_load_written, share_load_snapshot
from lakeward.mirror.op.check import require_reload_size, require_unique_keys
from lakeward.mirror.op.cut import require_new_keys, require_parts_apart, with_cut
from lakeward.mirror.op.effect import (
    ApplyPlan,
    Effect,
    OpInput,
    Strategy,
    earlier_changes,
    load_branch,
    load_rows,
    plan_fold,
)
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless, rows_once_per_key
from lakeward.mirror.op.reading import read_work
from lakeward.model import LandingFile, OpKind
from lakeward.text import count
from lakeward.transforms.columns import column
from lakeward.transforms.columns import columns as named
from lakeward.transforms.fold import as_base, lacking_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary
    from lakeward.iceberg.attempt import Attempt
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.kinds.base import Unfinished
    from lakeward.mirror.op.changelog import FileRecord
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import Bases, PreparedOp
    from lakeward.model import Progress
    from lakeward.spark.workspace import Workspace


class Load(RowOpHandler):
    """Full rows. They go to the mirror and not through the changelog, and are recovered from their files."""

    kind = OpKind.LOAD
    needs_every_file = True

    def decide(
        self,
        context: TableContext,
        work: Work,
        progress: Progress,
        columns: Sequence[Column],
        summaries: Sequence[FileSummary],
    ) -> Work:
        """Return the load with its cut, or a batch of the change files before the cut, where some wait."""
        if work.starts and work.generation.adopted:
            return work  # its cut is known from the files that the former system applied
        return with_cut(context, work, progress, columns, summaries)

    def check_input(
        self, context: TableContext, work: Work, op_input: OpInput, summaries: Sequence[FileSummary]
    ) -> None:
        """Refuse parts of a reload that share keys, and late parts that share keys with the load they would join."""
        if not context.settings.primary_key or op_input.changes is None:
            return
        if work.starts and work.generation.adopted:
            require_unique_keys(context, op_input.changes, summaries)
        elif not work.starts:
            earlier = load_rows(context, op_input.record.generation, op_input)
            if earlier is not None:
                require_new_keys(earlier, op_input.changes, context, summaries)
        elif op_input.record.generation > 1 and not work.earlier:
            require_parts_apart(op_input.changes, context, summaries)

    def check_effect(
        self, context: TableContext, work: Work, effect: Effect, columns: Sequence[Column], base: Snapshot | None
    ) -> None:
        """Refuse a reload that would leave too few rows."""
        if effect.load_rows is not None and work.starts:
            require_reload_size(context, effect, base)

    def rows_to_log(self, records: DataFrame | None, summaries: Sequence[FileSummary]) -> tuple[DataFrame | None, int]:
        """Return the bad rows alone: good rows do not go through the changelog."""
        if records is None:
            return super().rows_to_log(records, summaries)
        return records.filter(column(S.KIND) == S.KIND_BAD), sum(summary.bad for summary in summaries)

    def fold(self, context: TableContext, workspace: Workspace, op_input: OpInput, changes: DataFrame) -> Effect:
        """Return the rows for the load branch; ``main`` becomes the load, or receives the folded keys of late parts."""
        unique, rows = rows_once_per_key(workspace, changes, context.settings.primary_key, op_input.rows)
        kept, left_out = unique.select(*named(op_input.names)), _left_out(op_input.rows - rows)
        if op_input.record.starts:
            return _replacing(context, op_input.bases, kept, rows, left_out)
        return _joining(context, workspace, op_input, kept, rows, left_out)

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Add the rows to the generation's load branch."""
        if prepared.effect.load_rows is not None:
            extend_load(context, prepared.record, prepared.effect.load_rows, prepared.effect.load_count)

    def publish(self, context: TableContext, prepared: PreparedOp, *, base: int) -> Snapshot:
        """Commit the load to ``main``; an untouched mirror shares the load branch's snapshot."""
        if prepared.effect.plan.strategy is Strategy.LOAD:
            return share_load_snapshot(context, prepared.record, base)
        return super().publish(context, prepared, base=base)

    def write(self, context: TableContext, attempt: Attempt, prepared: PreparedOp, stamps: dict[str, str]) -> None:
        """Replace all rows by the load, or write the rows of keys that late parts touch."""
        if prepared.effect.plan.strategy is not Strategy.REPLACE:
            super().write(context, attempt, prepared, stamps)
            return
        load = context.mirror.require_head(load_branch(prepared.record.generation))
        attempt.overwrite(context.mirror.read(load.id), stamps, expected=load.rows)

    def recover(self, context: TableContext, workspace: Workspace, unfinished: Unfinished) -> PreparedOp:
        """Read the files again; return a void of the op where they are gone or their content has changed."""
        record, bases, columns = unfinished.record, unfinished.bases, context.mirror.columns()
        if record.starts and is_load_written(context, record):
            plan = ApplyPlan(_first_strategy(context, bases), "the load was written before the interruption")
            return unfinished.prepared(columns, Effect(plan))
        parts = [file for file in unfinished.files if file.was_read]
        landing = [_landing_file(context, part) for part in parts]
        generation = record.progress.generations[-1]
        columns, records, summaries = read_work(
            context, workspace, generation, landing, columns, op=record.op, erased=bases.erased
        )
        found = {summary.path: summary.content_hash for summary in summaries if summary.stable}
        if records is None or found != {part.summary.path: part.summary.content_hash for part in parts}:
            return prepare_void(context, record, bases)
        changes = records.filter(column(S.KIND) == S.KIND_CHANGE)
        rows = sum(summary.rows - summary.bad for summary in summaries)
        effect = self.compute_effect(context, workspace, OpInput(record, bases, columns, changes, rows))
        return unfinished.prepared(columns, effect)


def _first_strategy(context: TableContext, bases: Bases) -> Strategy:
    """Return the strategy for the load that a generation begins with.

    An untouched mirror can share the load's snapshot. A mirror that was emptied, as by an undo, has later commits.
    """
    is_untouched = bases.mirror is None or bases.mirror.id == empty_snapshot(context.mirror)
    return Strategy.LOAD if is_untouched else Strategy.REPLACE


def _replacing(context: TableContext, bases: Bases, rows: DataFrame, row_count: int, left_out: str) -> Effect:
    """Return the effect of a load that a generation begins with."""
    strategy = _first_strategy(context, bases)
    is_new = strategy is Strategy.LOAD
    reason = "the mirror is empty: it becomes the load" if is_new else "a new load replaces the mirror"
    return Effect(ApplyPlan(strategy, f"{reason}{left_out}"), load_rows=rows, load_count=row_count)


def _joining(
    context: TableContext, workspace: Workspace, op_input: OpInput, rows: DataFrame, row_count: int, left_out: str
) -> Effect:
    """Return the effect of parts that arrive after their load: changes logged since apply to them as well."""
    key = context.settings.primary_key
    earlier = load_rows(context, op_input.record.generation, op_input) if key else None
    base = lacking_keys(earlier, rows.select(*named(key)), keys=key) if earlier is not None else None
    history = earlier_changes(context, op_input) if key else None
    source = FoldInput(
        workspace, as_base(rows, op_input.names), op_input.rows, key, op_input.names, True, False, base, history,
        context.settings.key_moves, str(context.table), context.settings.metadata_columns.listed,
    )  # fmt: skip
    folded = fold_changes(source) if key else fold_keyless(source, None)
    plan = plan_fold(context.mirror, op_input.bases.mirror, folded, context.settings)
    return Effect(replace(plan, reason=f"{plan.reason}{left_out}"), folded, load_rows=rows, load_count=row_count)


def _left_out(rows: int) -> str:
    """Describe rows left out of the mirror because of a repeated key: the configured key is probably wrong."""
    left_out = count(
        rows, "row whose key comes again later in the load is", "rows whose key comes again later in the load are"
    )
    return f"; {left_out} left out" if rows else ""


def _landing_file(context: TableContext, record: FileRecord) -> LandingFile:
    found = record.summary
    location = context.storage.location(found.path)
    return LandingFile(found.path, location, found.file_class, found.time, found.identity)
