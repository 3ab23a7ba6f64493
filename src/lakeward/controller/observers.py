"""Who hears what a run does: the log, progress, metrics, notifications, the history's upkeep.

Tables run in parallel, and while watching so do runs: every event may come from another thread, several at one time,
so an observer guards what it keeps. A table is in one run at a time, but its next run may begin and end before the
others of its last run are done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.errors import LakewardError
    from lakeward.pipeline.report import OpReport, RunReport, TableReport

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
    """Give one observer that passes everything on."""
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
        for one in self._observers:
            try:
                event(one)(*told)
            except Exception as error:
                # What was published stands: whoever cannot hear of it must not turn it into a failure.
                logger.warning("%s failed: %s: %s", type(one).__name__, type(error).__name__, error)
                logger.debug("%s failed", type(one).__name__, exc_info=error)
