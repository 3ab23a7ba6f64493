"""Reports as runs return them, for observers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lakeward.mirror.op.report import OpReport, Outcome, RowCounts, RunReport, TableReport
from lakeward.model import TableId
from lakeward.state.base import StateStore, TableRun

OP = OpReport(
    op=3, kind="batch", generation=1, files=2, size=2048, read=RowCounts(1500, 1000, 300, 197, 3), writes=10,
    removals=2, strategy="append", reason="no key can exist", changelog_snapshot=7, mirror_snapshot=8, seconds=3.0,
)  # fmt: skip
IGNORING = TableReport("sales.log", Outcome.DONE, (replace(OP, read=RowCounts(5, 5, ignored=7)),), mirror_rows=5)
DONE = TableReport("sales.product", Outcome.DONE, (OP,), mirror_rows=103, seconds=3.5)
IDLE = TableReport("sales.till", Outcome.IDLE, seconds=0.1)
LOCKED = TableReport("sales.held", Outcome.LOCKED, (), "held by run 7")
FAILED = TableReport("sales.customer", Outcome.FAILED, (), "3 bad rows", "repair the files", "data", 3, seconds=0.5)
RUN = RunReport("r1", (DONE, IDLE, LOCKED, FAILED), 4.0)
NOW = datetime(2024, 4, 5, 1, 2, 3, tzinfo=UTC)


def record(state: StateStore, run_id: str, report: TableReport, *, at: datetime = NOW) -> None:
    """Keep a report as the runner does."""
    table = TableId.parse(report.table)
    state.set_error(table, report.message if report.outcome is Outcome.FAILED else None)
    finished = at + timedelta(seconds=report.seconds)
    state.record_run(TableRun(run_id, table, at, finished, report.outcome, report.to_dict()))
