"""Who hears what a run does: the log, progress, metrics, notifications, the history's upkeep.

Tables run in parallel, and while watching so do runs: every event may come from another thread, several at one time,
so an observer guards what it keeps. A table is in one run at a time, but its next run may begin and end before the
others of its last run are done.
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
    """Hears the events of a run, in this order; those of one table come from one thread."""

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Hear that a run begins, before any table's state is changed."""

    def table_started(self, table: str) -> None:
        """Hear that a table's turn has come."""

    def op_published(self, table: str, report: OpReport) -> None:
        """Hear that an op is published."""

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Hear that a passing fault stopped attempt number ``attempt``; the next one comes in ``delay`` seconds."""

    def table_finished(self, report: TableReport) -> None:
        """Hear how a table came out, once it is recorded."""

    def run_finished(self, report: RunReport) -> None:
        """Hear that all tables are done."""


class SilentObserver:
    """Hears everything and does nothing: the base of observers that care for some events only."""

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
    """Return one observer that passes everything on."""
    return _All(tuple(observers))


class _All:
    """Passes every event on to several observers; one that fails is said and does not disturb run or others."""

    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        self._tell(lambda one: one.run_started, run_id, tables)

    def table_started(self, table: str) -> None:
        self._tell(lambda one: one.table_started, table)

    def op_published(self, table: str, report: OpReport) -> None:
        self._tell(lambda one: one.op_published, table, report)

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        self._tell(lambda one: one.retry, table, attempt, delay, error)

    def table_finished(self, report: TableReport) -> None:
        self._tell(lambda one: one.table_finished, report)

    def run_finished(self, report: RunReport) -> None:
        self._tell(lambda one: one.run_finished, report)

    def _tell(self, event: Callable[[Observer], Callable[..., None]], *told: Any) -> None:
        for observer in self._observers:
            try:
                event(observer)(*told)
            except Exception as error:
                # What was published stands: whoever cannot hear of it must not turn it into a failure.
                logger.warning("%s failed: %s: %s", type(observer).__name__, type(error).__name__, error)
                logger.debug("%s failed", type(observer).__name__, exc_info=error)


# Who hears of every run of a lake, by its configuration.


class Reporting:
    """The observers that a lake has from its configuration, made when the first run needs them."""

    def __init__(
        self, config: Config, state: StateStore, status: Callable[[Sequence[str]], Sequence[TableStatus]]
    ) -> None:
        """Take what they need; ``status`` tells how named tables stand."""
        self._config = config
        self._state = state
        self._status = status
        self._making = threading.Lock()

    @cached_property
    def metrics(self) -> Metrics:
        """Figures for Prometheus. Once asked for, or with ``metrics: file:``, every run is taken in."""
        from lakeward.runner.metrics import Metrics

        file = self._config.metrics.file
        return Metrics(file=Path(self._config.resolve(file)) if file else None, status=self._status)

    def observers(self) -> tuple[Observer, ...]:
        """Return the log of runs, the upkeep of their history, notifications and metrics, as configured.

        Raises:
            ConfigurationError: notifications cannot be sent as configured.
        """
        # Two runs that begin at one time must not get two sets.
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                return (*self._always, self.metrics)
            return self._always

    def count_poison(self) -> None:
        """Count a message that could not be read, where figures are kept."""
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                self.metrics.count_poison()

    def close(self) -> None:
        """Let go of what metrics hold."""
        if "metrics" in self.__dict__:
            self.metrics.close()

    @cached_property
    def _always(self) -> tuple[Observer, ...]:
        from lakeward.runner.history import HistoryUpkeep
        from lakeward.runner.notify import Notifier, open_channels

        observers: list[Observer] = [RunLog(), HistoryUpkeep(self._state, days=self._config.history_days)]
        if (settings := self._config.notify) is not None:
            observers.append(Notifier(self._state, open_channels(settings), on=settings.on))
        return tuple(observers)


# The log of runs: one event per thing that happened, with its ids and figures.


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
    """Return ``1 file`` or ``1,000 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
