"""Say what a run would do next, table by table, without writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.pipeline.choose import pending_files
from lakeward.pipeline.effect import capture
from lakeward.pipeline.ledger import progress_of
from lakeward.pipeline.reading import TransactionShelf
from lakeward.pipeline.report import Outcome, TablePlan, op_report
from lakeward.pipeline.row_changes import row_changes
from lakeward.pipeline.run import next_op
from lakeward.pipeline.workspace import Workspace
from lakeward.spark.errors import as_lakeward_error
from lakeward.transforms.columns import conformed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.context import RunOptions, TableContext
    from lakeward.pipeline.effect import Prepared
    from lakeward.pipeline.row_changes import RowChanges


def plan_tables(bench: Workbench, tables: Iterable[KnownTable], options: RunOptions) -> list[TablePlan]:
    """Plan every table; one that would fail is reported with the reason."""
    shelf = TransactionShelf(bench.storage)
    try:
        return [_plan_one(bench, known, options, shelf) for known in tables]
    finally:
        shelf.close()


def _plan_one(bench: Workbench, known: KnownTable, options: RunOptions, shelf: TransactionShelf) -> TablePlan:
    name = str(known.table)
    try:
        with Workspace() as workspace:
            return _planned(bench.context(known, options=options, shelf=shelf), workspace)
    except Exception as error:
        stopped = as_lakeward_error(error, name)
        return TablePlan(
            name,
            Outcome.FAILED,
            message=stopped.message,
            hint=stopped.hint,
            error_kind=stopped.kind,
            exit_code=stopped.exit_code,
        )


def _planned(context: TableContext, workspace: Workspace) -> TablePlan:
    name = str(context.table)
    following = next_op(context, workspace, capture(context))
    if following.op is None:
        outcome = Outcome.WAITING if following.reason else Outcome.IDLE
        return TablePlan(name, outcome, message=following.reason)
    prepared = following.op
    files = tuple(summary.path for summary in prepared.summaries)
    report = op_report(prepared)
    waiting, replaces = _waiting_files(context), _replaced_rows(context, prepared)
    return TablePlan(name, Outcome.DONE, report, files, files_waiting=waiting, replaces=replaces)


def _replaced_rows(context: TableContext, prepared: Prepared) -> RowChanges | None:
    """Count the rows that a reload would insert, update and delete; None where nothing is replaced."""
    load, mirror = prepared.effect.load_rows, prepared.bases.mirror
    if load is None or mirror is None or not prepared.record.starts:
        return None
    before = conformed(context.mirror.read(mirror.id), prepared.columns, context.settings.renames)
    return row_changes(before, load, context.settings.primary_key)


def _waiting_files(context: TableContext) -> int:
    """Count the files of a table that no op has taken."""
    progress = progress_of(context, capture(context))
    return sum(1 for _ in pending_files(context, progress))
