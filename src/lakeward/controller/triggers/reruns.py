"""Tables that must be run again although nothing new lands: they wait, were locked, or failed in passing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.pipeline.report import Outcome

if TYPE_CHECKING:
    from lakeward.pipeline.report import TableReport

_FIRST, _MOST = 1.0, 300.0
_WAITING_MOST = 30.0
# Kinds of errors that may pass without anybody's doing.
_PASSING = ("retriable", "conflict")


class Reruns:
    """Decides when a table is to be run again, ever later as long as nothing changes."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def delay(self, report: TableReport, load_settle: float = 0.0) -> float | None:
        """Give the seconds after which a table is run again; None when it is done, or somebody must act first."""
        if not _comes_again(report):
            self._times.pop(report.table, None)
            return None
        times = self._times.get(report.table, 0)
        self._times[report.table] = times + 1
        return min(backoff(times), _longest(report, load_settle))


def backoff(times: int) -> float:
    """Give a wait that doubles with every time, up to five minutes."""
    return min(_FIRST * 2.0 ** min(times, 30), _MOST)


def _comes_again(report: TableReport) -> bool:
    if report.outcome is Outcome.FAILED:
        return report.error_kind in _PASSING
    return report.outcome in (Outcome.WAITING, Outcome.LOCKED)


def _longest(report: TableReport, load_settle: float) -> float:
    """A load that settles is looked at often enough to be late by no more than a quarter of its own time."""
    if report.outcome is not Outcome.WAITING:
        return _MOST
    return min(max(load_settle / 4, _FIRST), _WAITING_MOST) if load_settle else _WAITING_MOST
