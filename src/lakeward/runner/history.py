"""The history of runs: list them, show one in detail, and delete old ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.report import Outcome
from lakeward.runner.observers import SilentObserver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.mirror.op.report import RunReport
    from lakeward.model import TableId
    from lakeward.state.base import StateStore, TableRun

_FIRST_PAGE = 500
_ALL = 1_000_000
_DAY_SECONDS = 86_400.0
_IDLE_SPAN = timedelta(hours=1)


@dataclass(frozen=True)
class RunSummary(Document):
    """A run as ``lakeward runs`` lists it, summed over its tables; those that another writer held are not in it."""

    run_id: str
    started: str
    finished: str
    seconds: float
    tables: int
    done: int
    idle: int
    waiting: int
    failed: int
    ops: int
    files: int
    rows_in: int
    rows_applied: int
    rows_quarantined: int
    rows_ignored: int = 0


@dataclass(frozen=True)
class RunDetail:
    """One run: its sums, and every table's report as it was when the table was done."""

    summary: RunSummary
    tables: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**self.summary.to_dict(), "reports": list(self.tables)}


def is_repeated(state: StateStore, run: TableRun) -> bool:
    """Whether a run found nothing to do within an hour of another such run; recording all would bury the others."""
    if run.outcome != Outcome.IDLE:
        return False
    return any(
        before.outcome == Outcome.IDLE and run.started_at - before.started_at < _IDLE_SPAN
        for before in state.runs(run.table, limit=1)
    )


def list_runs(state: StateStore, table: TableId | None = None, *, limit: int = 20) -> list[RunSummary]:
    """Return the newest runs, newest first; with a table only its part of the runs that included it."""
    entries = _newest(state, table, limit)
    ids = list(dict.fromkeys(entry.run_id for entry in entries))[:limit]
    # Runs overlap: the last ones of a page may have further entries after it.
    by_run = {run_id: state.runs(table, run_id=run_id, limit=_ALL) for run_id in ids}
    # A run that was pruned in between has no entries any more.
    return [_summary(run_id, found) for run_id, found in by_run.items() if found]


def run_detail(state: StateStore, run_id: str, table: TableId | None = None) -> RunDetail:
    """Return one run.

    Raises:
        ConfigurationError: the history has no such run.
    """
    entries = state.runs(table, run_id=run_id, limit=_ALL)
    if not entries:
        where = f" with {table}" if table else ""
        msg = f"the history has no run {run_id}{where}; runs leave it after history_days, or when the state is wiped"
        raise ConfigurationError(msg, hint="lakeward runs")
    by_table = sorted(entries, key=lambda entry: entry.table)
    return RunDetail(_summary(run_id, entries), tuple(entry.report for entry in by_table))


def _newest(state: StateStore, table: TableId | None, limit: int) -> list[TableRun]:
    """Return the entries of at least ``limit`` runs, if there are so many: a run has an entry for each table."""
    page = limit if table else max(limit, _FIRST_PAGE)
    while True:
        entries = state.runs(table, limit=page)
        if len(entries) < page or len({entry.run_id for entry in entries}) >= limit:
            return entries
        page *= 4


def _summary(run_id: str, entries: Sequence[TableRun]) -> RunSummary:
    started, finished = min(entry.started_at for entry in entries), max(entry.finished_at for entry in entries)
    outcomes = Counter(entry.outcome for entry in entries)
    reports = [entry.report for entry in entries]
    ops = [op for report in reports for op in report["ops"]]
    return RunSummary(
        run_id=run_id,
        started=started.isoformat(),
        finished=finished.isoformat(),
        seconds=(finished - started).total_seconds(),
        tables=len(entries),
        done=outcomes[Outcome.DONE],
        idle=outcomes[Outcome.IDLE],
        waiting=outcomes[Outcome.WAITING],
        failed=outcomes[Outcome.FAILED],
        ops=len(ops),
        files=sum(op["files"] for op in ops),
        rows_in=sum(report["rows_in"] for report in reports),
        rows_applied=sum(report["rows_applied"] for report in reports),
        rows_quarantined=sum(report["rows_quarantined"] for report in reports),
        # Reports of earlier versions have no such count.
        rows_ignored=sum(report.get("rows_ignored", 0) for report in reports),
    )


class HistoryPruner(SilentObserver):
    """An observer that deletes old history after a run, at most once a day."""

    def __init__(self, state: StateStore, *, days: int) -> None:
        self._state = state
        self._days = days
        self._pruned: float | None = None
        self._lock = threading.Lock()

    def run_finished(self, report: RunReport) -> None:
        """Delete runs older than ``history_days``, unless that was done within the last day."""
        now = time.monotonic()
        with self._lock:
            if self._pruned is not None and now - self._pruned < _DAY_SECONDS:
                return
            self._pruned = now
        self._state.prune_runs(before=datetime.now(UTC) - timedelta(days=self._days))
