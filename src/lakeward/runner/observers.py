"""Observers of runs: the log, progress, metrics, notifications and the pruning of history.

Tables run in parallel, and so do runs while watching: events may come from several threads at the same time, so an
observer must guard its state. A table is in one run at a time, but its next run may start and end before the other
tables of its last run are done.
"""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.logs import event
from lakeward.mirror.op.report import Outcome
from lakeward.text import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.config import Config
    from lakeward.errors import LakewardError
    from lakeward.mirror.op.report import OpReport, RunReport, TableReport
    from lakeward.runner.metrics import Metrics
    from lakeward.runner.status import TableStatus
    from lakeward.state.base import StateStore


logger = logging.getLogger(__name__)


class Observer(Protocol):
    """The events of a run, in this order; those of one table come from one thread."""

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Handle the start of a run, before the state of any table changes."""

    def table_started(self, table: str) -> None:
        """Handle the start of a table."""

    def op_published(self, table: str, report: OpReport) -> None:
        """Handle an op that was published."""

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Handle a temporary error in attempt number ``attempt``; the next one starts in ``delay`` seconds."""

    def table_finished(self, report: TableReport) -> None:
        """Handle the outcome of a table, after it was recorded."""

    def run_finished(self, report: RunReport) -> None:
        """Handle the end of a run."""


class SilentObserver:
    """An observer that does nothing, the base class of observers of some events only."""

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Do nothing."""

    def table_started(self, table: str) -> None:
        """Do nothing."""

    def op_published(self, table: str, report: OpReport) -> None:
        """Do nothing."""

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Do nothing."""

    def table_finished(self, report: TableReport) -> None:
        """Do nothing."""

    def run_finished(self, report: RunReport) -> None:
        """Do nothing."""


def fan_out(observers: Iterable[Observer]) -> Observer:
    """Return an observer that passes every event to all of ``observers``."""
    return _All(tuple(observers))


class _All:
    """Several observers; one that fails is logged and disturbs neither the run nor the others."""

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        self._notify(lambda observer: observer.run_started, run_id, tables)

    def table_started(self, table: str) -> None:
        self._notify(lambda observer: observer.table_started, table)

    def op_published(self, table: str, report: OpReport) -> None:
        self._notify(lambda observer: observer.op_published, table, report)

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        self._notify(lambda observer: observer.retry, table, attempt, delay, error)

    def table_finished(self, report: TableReport) -> None:
        self._notify(lambda observer: observer.table_finished, report)

    def run_finished(self, report: RunReport) -> None:
        self._notify(lambda observer: observer.run_finished, report)

    def _notify(self, event: Callable[[Observer], Callable[..., None]], *arguments: Any) -> None:
        for observer in self._observers:
            try:
                event(observer)(*arguments)
            except Exception as error:
                # What was published stays: an observer must not turn it into a failure.
                logger.warning("%s failed: %s: %s", type(observer).__name__, type(error).__name__, error)
                logger.debug("%s failed", type(observer).__name__, exc_info=error)


class Reporting:
    """The observers that the configuration of a lake defines, made when the first run needs them."""

    def __init__(
        self, config: Config, state: StateStore, status: Callable[[Sequence[str]], Sequence[TableStatus]]
    ) -> None:
        """Prepare the observers; ``status`` returns the status of named tables."""
        self._config = config
        self._state = state
        self._status = status
        self._making = threading.Lock()

    @cached_property
    def metrics(self) -> Metrics:
        """Figures for Prometheus. They cover every run after the first access, or all with ``metrics: file:``."""
        from lakeward.runner.metrics import Metrics

        file = self._config.metrics.file
        return Metrics(file=Path(self._config.resolve(file)) if file else None, status=self._status)

    def observers(self) -> tuple[Observer, ...]:
        """Return the log of runs, the pruning of their history, notifications and metrics, as configured.

        Raises:
            ConfigurationError: notifications cannot be sent as configured.
        """
        # Two runs that start at the same time must share the observers.
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                return (*self._always, self.metrics)
            return self._always

    def count_poison(self) -> None:
        """Count a message that could not be read, if metrics are kept."""
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                self.metrics.count_poison()

    def close(self) -> None:
        """Close the metrics."""
        if "metrics" in self.__dict__:
            self.metrics.close()

    @cached_property
    def _always(self) -> tuple[Observer, ...]:
        from lakeward.runner.history import HistoryPruner
        from lakeward.runner.notify import Notifier, open_channels

        observers: list[Observer] = [RunLog(), HistoryPruner(self._state, days=self._config.history_days)]
        if (settings := self._config.notify) is not None:
            observers.append(Notifier(self._state, open_channels(settings), on=settings.on))
        return tuple(observers)


class RunLog(SilentObserver):
    """The log of runs, one event each with ids and figures; tables with nothing to do are logged at debug level."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Log the start of a run."""
        # A table is in one run at a time, and its events come after this: no two threads use the same entry.
        self._run_of.update(dict.fromkeys(tables, run_id))
        named = event("run.started", run=run_id, tables=len(tables))
        logger.info("run %s: %s", run_id, counted(len(tables), "table"), extra=named)

    def table_started(self, table: str) -> None:
        """Log the start of a table."""
        logger.debug("%s: started", table, extra=self._event("table.started", table))

    def op_published(self, table: str, report: OpReport) -> None:
        """Log what an op did."""
        fields = {
            "kind": report.kind,
            "generation": report.generation,
            "files": report.files,
            "rows": report.read.rows,
            "quarantined": report.read.bad,
            "ignored": report.read.ignored,
            "strategy": report.strategy,
            "seconds": round(report.seconds, 3),
            "mirror_snapshot": report.mirror_snapshot,
        }
        named = self._event("op.published", table, op=report.op, **fields)
        logger.info("%s: %s", table, op_line(report), extra=named)

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Log a temporary error."""
        fields = {"attempt": attempt, "delay": round(delay, 3), "error": error.message, "error_kind": error.kind}
        text = "%s: attempt %d failed, next in %.1f s: %s"
        logger.warning(text, table, attempt, delay, error.message, extra=self._event("retry", table, **fields))

    def table_finished(self, report: TableReport) -> None:
        """Log the outcome of a table."""
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
        counts = {outcome.value: sum(1 for table in report.tables if table.outcome is outcome) for outcome in Outcome}
        fields = {
            "run": report.run_id,
            "seconds": round(report.seconds, 3),
            "rows": sum(table.rows_applied for table in report.tables),
            **counts,
        }
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no table"
        named = event("run.finished", **fields)
        logger.info("run %s finished in %.1f s: %s", report.run_id, report.seconds, outcomes, extra=named)

    def _event(self, name: str, table: str, **fields: Any) -> dict[str, Any]:
        return event(name, run=self._run_of.get(table), table=table, **fields)


def op_line(report: OpReport) -> str:
    """Return a published op in one line."""
    files, rows = counted(report.files, "file"), counted(report.read.rows, "row")
    bad = f" ({report.read.bad:,} set aside)" if report.read.bad else ""
    ignored = f" ({report.read.ignored:,} more ignored)" if report.read.ignored else ""
    speed = f"{rate(report.read.rows, report.seconds)}, {report.seconds:.1f} s"
    return f"op {report.op} ({report.kind}) published: {files}, {rows}{bad}{ignored}, {speed}, {report.strategy}"


def counted(number: int, noun: str) -> str:
    """Return ``1 file`` or ``1,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
