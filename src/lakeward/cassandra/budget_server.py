"""The server and the client of a job's budget: the driver process serves it, and tasks ask for it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from lakeward.cassandra.budget import (
    GREETING_SECONDS,
    NOTHING,
    Amounts,
    BudgetAddress,
    BudgetLedger,
    Line,
    OnProgress,
    RateLimits,
    Totals,
    greet_as_client,
    greet_as_server,
    progress_line,
)
from lakeward.errors import RetriableError
from lakeward.logs import event

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)
RAMP_SECONDS = 3.0
# How long tasks of a job without limits may go on before they report.
FREE_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
# A task that was silent for so long has reported everything: it reports several times in that span.
_SILENT_SECONDS = 0.3
_SETTLE_SECONDS = 2.0
_TOKEN_BYTES = 32


class BudgetServer:
    """The budget of one job, served during a ``with`` block."""

    def __init__(
        self,
        limits: RateLimits,
        *,
        host: str,
        ramp_seconds: float = RAMP_SECONDS,
        on_progress: OnProgress | None = None,
        expected_rows: int | None = None,
        rejected: int = 0,
    ) -> None:
        """Take the limits, and the address at which executors reach this process (``spark.driver.host``).

        The rate rises from a quarter to the full rate within ``ramp_seconds`` of the first request. ``on_progress`` is
        called every few seconds. ``rejected`` is the number of rows that earlier attempts could not write.
        """
        self._host, self._on_progress = host.strip("[]"), on_progress
        self._ledger = BudgetLedger(limits, ramp_seconds=ramp_seconds, clock=time.monotonic)
        self._expected, self._rejected = expected_rows, rejected
        self._turn = threading.Condition()
        self._queue: deque[object] = deque()
        self._lines: dict[Line, float] = {}
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener: socket.socket | None = None
        self._address: BudgetAddress | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._listener = _listen(self._host)
        self._address = BudgetAddress(self._host, self._listener.getsockname()[1], self._token)
        threading.Thread(target=self._accept, name="budget-accept", daemon=True).start()
        if self._on_progress is not None:
            threading.Thread(
                target=self._report_progress, args=(self._on_progress,), name="budget-progress", daemon=True
            ).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._listener is not None:
            # Only this wakes a thread that waits in accept(); closing alone does not.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._turn:
            lines = list(self._lines)
            self._turn.notify_all()
        for line in lines:
            line.hang_up()

    @property
    def address(self) -> BudgetAddress:
        """The address at which tasks reach this server."""
        assert self._address is not None, "the budget can be reached only inside its with block"
        return self._address

    def totals(self) -> Totals:
        """Return the totals of all tasks, once those that have ended have reported."""
        limit = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < limit:
            with self._turn:
                last = max(self._lines.values(), default=0.0)
            if time.monotonic() - last >= _SILENT_SECONDS:
                break
            time.sleep(0.02)
        with self._turn:
            return self._ledger.totals()

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="budget-task", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if not greet_as_server(connection, self._token):
                logger.warning("refused a connection to the job's budget: it does not have the job's token")
                connection.close()
                return
        except OSError:
            connection.close()
            return
        line = Line(connection)
        with self._turn:
            self._lines[line] = time.monotonic()
        try:
            while (asked := line.receive()) is not None:
                self._answer(line, asked)
        except OSError:
            # The task has ended; what it was granted and did not report is at most one turn.
            pass
        finally:
            with self._turn:
                del self._lines[line]
            line.close()

    def _answer(self, line: Line, asked: dict[str, Any]) -> None:
        with self._turn:
            self._lines[line] = time.monotonic()
            if "used" in asked:
                self._ledger.count(Amounts(*asked["used"]))
            if "back" in asked:
                self._ledger.hand_back(Amounts(*asked["back"]))
                self._turn.notify_all()
            if "slow" in asked:
                self._slow_down(str(asked["slow"]))
            self._rejected += int(asked.get("rejected", 0))
        if "rejected" in asked:
            line.send({"rejected": self._rejected})
        if "wanted" in asked:
            granted = self._wait_for(line, Amounts(*asked["wanted"]), Amounts(*asked["needed"]))
            with self._turn:
                free = 0.0 if self._ledger.is_limited else FREE_SECONDS
            line.send({"granted": granted, "free": free})

    def _wait_for(self, line: Line, wanted: Amounts, needed: Amounts) -> Amounts:
        """Wait in the queue of all tasks; a task that has ended meanwhile gets nothing and blocks no other."""
        ticket = object()
        with self._turn:
            self._queue.append(ticket)
            try:
                while not self._ended.is_set():
                    if self._queue[0] is not ticket:
                        self._turn.wait()
                    elif line.has_ended():
                        break
                    elif (granted := self._ledger.offer(wanted, needed)) is not None:
                        return granted
                    else:
                        self._turn.wait(self._ledger.patience(wanted, needed))
            finally:
                self._queue.remove(ticket)
                self._turn.notify_all()
        raise ConnectionError

    def _slow_down(self, reason: str) -> None:
        if self._ledger.slow_down():
            logger.warning("the cluster is overloaded, slowing down: %s", reason, extra=event("cassandra.slow_down"))
            if self._on_progress is not None:
                self._on_progress(f"the cluster is overloaded, slowing down: {reason}")

    def _report_progress(self, on_progress: OnProgress) -> None:
        shown = 0
        while not self._ended.wait(PROGRESS_SECONDS):
            with self._turn:
                totals, recent = self._ledger.totals(), self._ledger.recent_rates()
            if totals.rows == shown:
                continue
            shown = totals.rows
            on_progress(
                progress_line(
                    totals.rows,
                    self._expected,
                    recent.rows,
                    written=(recent.write_units, totals.write_units),
                    read=(recent.read_units, totals.read_units),
                )
            )


def _listen(host: str) -> socket.socket:
    """Listen at the address that executors use, or at all addresses where it belongs to a proxy."""
    try:
        return socket.create_server((host, 0), family=_family(host))
    except OSError:
        return socket.create_server(("", 0))


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


REPORT_SECONDS = 0.1
# Credit that was not used for so long is returned: the task may have ended.
_IDLE_SECONDS = 0.15
# The amount requested ahead grows until requests are rare enough.
_OFTEN_SECONDS, _SELDOM_SECONDS, _MOST_AHEAD = 0.02, 0.1, 256
_REASON_LENGTH = 200


class BudgetClient:
    """Requests the budget for the tasks of this process. Threads may share it."""

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

    def take(self, *, rows: float = 0, write_units: float = 0, requests: float = 1) -> None:
        """Wait until this amount is granted, and earlier overspending is paid off."""
        need = Amounts(rows, write_units, requests=requests)
        with self._lock:
            if time.monotonic() >= self._free_until:
                self._ask_for(need)
            self._note(need)

    def spent(self, *, rows: float = 0, read_units: float = 0) -> None:
        """Report what was done without asking because it is known only afterwards: the next request waits for it.

        A negative amount is returned: what was taken in advance for something that turned out smaller.
        """
        with self._lock:
            self._note(Amounts(rows, read_units=read_units))

    def slow_down(self, reason: str) -> None:
        """Report that the cluster is overloaded or does not answer: the whole job slows down for a while."""
        with self._lock:
            self._send({"slow": reason[:_REASON_LENGTH]})
            # Consult the budget before the next request, even if there was no limit so far.
            self._free_until = 0.0

    def reject(self) -> int:
        """Report a row that cannot be written; return how many the whole job has."""
        with self._lock:
            self._send({"rejected": 1})
            answer = self._line.receive()
            if answer is None:
                raise _lost()
            return int(answer["rejected"])

    def has_ended(self) -> bool:
        """Whether the job's driver process has ended; False while another thread waits for its answer."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._line.has_ended()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Report what is left, and close the connection."""
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
                # The next call raises the error.
                return

    def _report(self) -> None:
        """Report what was used, and return unused credit, in one message."""
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
    """Return the client that all tasks of this process share; it is created after the fork.

    Raises:
        RetriableError: the job's driver process does not answer.
    """
    key = (os.getpid(), address)
    with _MAKING:
        # A worker process of Spark outlives jobs and their budgets.
        for ended in [known for known, client in _CLIENTS.items() if client.has_ended()]:
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
