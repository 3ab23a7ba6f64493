"""A task's side of the budget."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from lakeward.cassandra.budget.amounts import NOTHING, Amounts
from lakeward.cassandra.budget.wire import GREETING_SECONDS, BudgetAddress, Line, greet_as_client
from lakeward.errors import RetriableError

if TYPE_CHECKING:
    from collections.abc import Mapping

REPORT_SECONDS = 0.1
# Credit that was not touched for so long goes back: the task may have ended.
_IDLE_SECONDS = 0.15
# How much is asked for ahead grows until asking is needed only so often.
_OFTEN_SECONDS, _SELDOM_SECONDS, _MOST_AHEAD = 0.02, 0.1, 256
_REASON_LENGTH = 200


class BudgetClient:
    """Asks for what the tasks of this process are about to do. Threads may share it."""

    def __init__(self, address: BudgetAddress) -> None:
        """Connect.

        Raises:
            RetriableError: the job's driver process does not answer.
        """
        self._lock = threading.Lock()
        self._line = _connected(address)
        self._credit, self._used = NOTHING, NOTHING
        self._free_until, self._asked_at, self._touched_at = 0.0, 0.0, 0.0
        self._ahead = 1
        self._has_news = threading.Event()
        threading.Thread(target=self._report_on, name="budget-report", daemon=True).start()

    def take(self, rows: float = 0, write_units: float = 0, read_units: float = 0, requests: float = 1) -> None:
        """Wait until so much may be done, and until what was spent beyond earlier allowances is paid for."""
        need = Amounts(rows, write_units, read_units, requests)
        with self._lock:
            if time.monotonic() >= self._free_until:
                self._ask_for(need)
            self._note(need)

    def spent(self, rows: float = 0, write_units: float = 0, read_units: float = 0, requests: float = 0) -> None:
        """Tell what was done without asking, because it is known only afterwards: the next request waits for it.

        Less than nothing is given back: what was taken beforehand for something that turned out smaller.
        """
        with self._lock:
            self._note(Amounts(rows, write_units, read_units, requests))

    def slow_down(self, reason: str) -> None:
        """Tell that the cluster is overloaded or does not answer in time: the whole job goes slower for a while."""
        with self._lock:
            self._send({"slow": reason[:_REASON_LENGTH]})
            # Ask before the next request, also where there was no limit until now.
            self._free_until = 0.0

    def reject(self) -> int:
        """Tell of a row that cannot be written, and give how many there are of the whole job."""
        with self._lock:
            self._send({"rejected": 1})
            answer = self._line.receive()
            if answer is None:
                raise _lost()
            return int(answer["rejected"])

    def has_ended(self) -> bool:
        """Whether the job's driver process has gone; whoever waits for its answer will hear of it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._line.has_ended()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Tell what is left to tell, and end the connection."""
        with self._lock:
            with contextlib.suppress(RetriableError):
                self._touched_at = 0.0
                self._report()
            self._line.close()

    def _note(self, amounts: Amounts) -> None:
        self._used = self._used.plus(amounts)
        if time.monotonic() >= self._free_until:
            self._credit = self._credit.plus(amounts.times(-1))
        self._touched_at = time.monotonic()
        self._has_news.set()

    def _ask_for(self, need: Amounts) -> None:
        self._adjust_ahead()
        while True:
            lacking = _positive(need.plus(self._credit.times(-1)))
            if not any(amount > 1e-9 for amount in lacking):
                return
            wanted = _positive(need.times(self._ahead).plus(self._credit.times(-1)))
            used, self._used = self._used, NOTHING
            self._send({"used": used, "wanted": wanted, "needed": lacking})
            answer = self._line.receive()
            if answer is None:
                raise _lost()
            self._asked_at = time.monotonic()
            if answer["free"]:
                self._credit, self._free_until = NOTHING, self._asked_at + answer["free"]
                return
            self._credit = self._credit.plus(Amounts(*answer["granted"]))

    def _adjust_ahead(self) -> None:
        since = time.monotonic() - self._asked_at
        if since < _OFTEN_SECONDS:
            self._ahead = min(self._ahead * 2, _MOST_AHEAD)
        elif since > _SELDOM_SECONDS:
            self._ahead = max(self._ahead // 2, 1)

    def _report_on(self) -> None:
        while True:
            self._has_news.wait()
            time.sleep(REPORT_SECONDS)
            try:
                with self._lock:
                    self._report()
            except (OSError, RetriableError, ValueError):
                # Whoever asks next hears of it.
                return

    def _report(self) -> None:
        """Tell what was used, and hand back what lies idle; both in one message."""
        report: dict[str, Amounts] = {}
        if any(self._used):
            report["used"], self._used = self._used, NOTHING
        if time.monotonic() - self._touched_at >= _IDLE_SECONDS:
            report["back"], self._credit = self._credit, NOTHING
            self._has_news.clear()
        if report:
            self._send(report)

    def _send(self, document: Mapping[str, object]) -> None:
        try:
            self._line.send(document)
        except OSError as error:
            raise _lost() from error


def _positive(amounts: Amounts) -> Amounts:
    return Amounts(*(max(amount, 0.0) for amount in amounts))


_CLIENTS: dict[tuple[int, BudgetAddress], BudgetClient] = {}
_MAKING = threading.Lock()


def budget_client(address: BudgetAddress) -> BudgetClient:
    """Give the client that all tasks of this process share; it is made after the fork.

    Raises:
        RetriableError: the job's driver process does not answer.
    """
    key = (os.getpid(), address)
    with _MAKING:
        # A process of Spark's outlives jobs and their budgets.
        for ended in [one for one, client in _CLIENTS.items() if client.has_ended()]:
            _CLIENTS.pop(ended).close()
        if key not in _CLIENTS:
            _CLIENTS[key] = BudgetClient(address)
        return _CLIENTS[key]


def _connected(address: BudgetAddress) -> Line:
    try:
        connection = socket.create_connection((address.host, address.port), timeout=GREETING_SECONDS)
        if greet_as_client(connection, address.token):
            return Line(connection)
        connection.close()
    except OSError as error:
        raise _unreachable(address) from error
    raise _unreachable(address)


def _unreachable(address: BudgetAddress) -> RetriableError:
    msg = f"the driver of the job, which keeps its budget, does not answer at {address.host}:{address.port}"
    return RetriableError(msg, hint="set spark.driver.host to an address that executors can reach")


def _lost() -> RetriableError:
    return RetriableError("the driver of the job, which keeps its budget, has ended")
