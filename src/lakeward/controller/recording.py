"""Ops that no run did, kept in the history as runs of one op, so that `runs` and `status` tell of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.controller.workbench import new_run_id
from lakeward.pipeline.report import Outcome, TableReport
from lakeward.state.base import TableRun

if TYPE_CHECKING:
    from lakeward.model import TableId
    from lakeward.pipeline.report import OpReport
    from lakeward.state.base import StateStore


def record_op(state: StateStore, table: TableId, began: datetime, op: OpReport) -> None:
    """Keep one op that was published by a command of its own."""
    report = TableReport(str(table), Outcome.DONE, (op,), mirror_rows=op.mirror_rows, seconds=op.seconds)
    state.record_run(TableRun(new_run_id(), table, began, datetime.now(UTC), report.outcome, report.to_dict()))
