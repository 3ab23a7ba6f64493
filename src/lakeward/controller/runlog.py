"""The log of runs: one event per thing that happened, with its ids and figures."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from lakeward.controller.observers import SilentObserver
from lakeward.logs import event
from lakeward.pipeline.report import Outcome
from lakeward.words import rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.errors import LakewardError
    from lakeward.pipeline.report import OpReport, RunReport, TableReport

logger = logging.getLogger(__name__)


class RunLog(SilentObserver):
    """Logs what a run does. A table with nothing to do is told at debug level: hundreds of them say nothing."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Log that a run begins."""
        # A table is in one run at a time, and its events come after this: no two threads speak of one entry.
        self._run_of.update(dict.fromkeys(tables, run_id))
        named = event("run.started", run=run_id, tables=len(tables))
        logger.info("run %s: %s", run_id, counted(len(tables), "table"), extra=named)

    def table_started(self, table: str) -> None:
        """Log that a table's turn has come."""
        logger.debug("%s: started", table, extra=self._event("table.started", table))

    def op_published(self, table: str, report: OpReport) -> None:
        """Log what an op did."""
        fields = {
            "kind": report.kind,
            "generation": report.generation,
            "files": report.files,
            "rows": report.read.rows,
            "quarantined": report.read.bad,
            "strategy": report.strategy,
            "seconds": round(report.seconds, 3),
            "mirror_snapshot": report.mirror_snapshot,
        }
        named = self._event("op.published", table, op=report.op, **fields)
        logger.info("%s: %s", table, op_line(report), extra=named)

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Log a passing fault."""
        fields = {"attempt": attempt, "delay": round(delay, 3), "error": error.message, "error_kind": error.kind}
        text = "%s: attempt %d failed, next in %.1f s: %s"
        logger.warning(text, table, attempt, delay, error.message, extra=self._event("retry", table, **fields))

    def table_finished(self, report: TableReport) -> None:
        """Log how a table came out."""
        fields = {
            "outcome": report.outcome,
            "ops": len(report.ops),
            "rows": report.rows_applied,
            "seconds": round(report.seconds, 3),
        }
        if report.outcome is Outcome.FAILED:
            fields |= {"error": report.message, "error_kind": report.error_kind, "hint": report.hint}
            named = self._event("table.failed", report.table, **fields)
            logger.error("%s: failed after %.1f s: %s", report.table, report.seconds, report.message, extra=named)
            return
        level = logging.DEBUG if report.outcome is Outcome.IDLE else logging.INFO
        reason = f": {report.message}" if report.message else ""
        text = "%s: %s in %.1f s%s"
        named = self._event("table.finished", report.table, **fields, reason=report.message)
        logger.log(level, text, report.table, report.outcome, report.seconds, reason, extra=named)

    def run_finished(self, report: RunReport) -> None:
        """Log the whole run's figures."""
        counts = {one.value: sum(1 for table in report.tables if table.outcome is one) for one in Outcome}
        fields = {
            "run": report.run_id,
            "seconds": round(report.seconds, 3),
            "rows": sum(table.rows_applied for table in report.tables),
            **counts,
        }
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no table"
        named = event("run.finished", **fields)
        logger.info("run %s finished in %.1f s: %s", report.run_id, report.seconds, told, extra=named)

    def _event(self, name: str, table: str, **fields: Any) -> dict[str, Any]:
        return event(name, run=self._run_of.get(table), table=table, **fields)


def op_line(report: OpReport) -> str:
    """Describe a published op in one line."""
    files, rows = counted(report.files, "file"), counted(report.read.rows, "row")
    bad = f" ({report.read.bad:,} set aside)" if report.read.bad else ""
    speed = f"{rate(report.read.rows, report.seconds)}, {report.seconds:.1f} s"
    return f"op {report.op} ({report.kind}) published: {files}, {rows}{bad}, {speed}, {report.strategy}"


def counted(number: int, noun: str) -> str:
    """Give ``1 file`` or ``1,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
