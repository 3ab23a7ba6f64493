"""The driver's side of the budget: it answers every task of the job, each in its turn."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from lakeward.cassandra.budget.amounts import Amounts, RateLimits, Totals
from lakeward.cassandra.budget.ledger import BudgetLedger
from lakeward.cassandra.budget.wire import BudgetAddress, Line, greet_as_server
from lakeward.cassandra.progress import Tell, progress_line
from lakeward.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)
RAMP_SECONDS = 3.0
# How long tasks of a job without limits may go on before they report.
FREE_SECONDS = 0.2
TELL_SECONDS = 5.0
# A task that was silent for so long has told all it did: it reports several times in that span.
_SILENT_SECONDS = 0.3
_SETTLE_SECONDS = 2.0
_TOKEN_BYTES = 32


class BudgetServer:
    """The budget of one job, for the time of a ``with`` block."""

    def __init__(
        self,
        limits: RateLimits,
        *,
        host: str,
        ramp_seconds: float = RAMP_SECONDS,
        tell: Tell | None = None,
        expected_rows: int | None = None,
        rejected: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the limits, and the address at which executors reach this process (``spark.driver.host``).

        The rate rises from a quarter to the whole within ``ramp_seconds`` of the first request. ``tell`` hears every
        few seconds how far the work is. ``rejected`` are rows that earlier attempts could not write.
        """
        self._host, self._tell = host.strip("[]"), tell
        self._ledger = BudgetLedger(limits, ramp_seconds=ramp_seconds, clock=clock)
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
        if self._tell is not None:
            threading.Thread(target=self._narrate, args=(self._tell,), name="budget-tell", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._listener is not None:
            # A thread that waits in accept() wakes up only by this; closing alone leaves it there.
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
        """What tasks need in order to ask."""
        assert self._address is not None, "the budget serves only inside its with block"
        return self._address

    def totals(self) -> Totals:
        """Sum up what all tasks did, once those that have ended have told it."""
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
                logger.warning("refused a connection to the job's budget that does not know its token")
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
            # The task has gone; what it had got and not told is at most one turn.
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
        """Wait in the queue of all tasks; one that has gone meanwhile gets nothing and holds up nobody."""
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
            logger.warning("the cluster is overloaded, going slower: %s", reason, extra=event("cassandra.slow_down"))
            if self._tell is not None:
                self._tell(f"the cluster is overloaded, going slower: {reason}")

    def _narrate(self, tell: Tell) -> None:
        told = 0
        while not self._ended.wait(TELL_SECONDS):
            with self._turn:
                totals, recent = self._ledger.totals(), self._ledger.recent_rates()
            if totals.rows == told:
                continue
            told = totals.rows
            tell(
                progress_line(
                    totals.rows,
                    self._expected,
                    recent.rows,
                    written=(recent.write_units, totals.write_units),
                    read=(recent.read_units, totals.read_units),
                )
            )


def _listen(host: str) -> socket.socket:
    """Listen at the address that executors are told, or at all where it is one of a proxy's before this machine."""
    try:
        return socket.create_server((host, 0), family=_family(host))
    except OSError:
        return socket.create_server(("", 0))


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
