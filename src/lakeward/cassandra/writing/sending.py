"""Requests on their way: many at one time, each again while it may help."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.retrying import call_again, is_overload, is_passing, is_rejection, told
from lakeward.cassandra.writing.rows import TRIES
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cassandra.budget import BudgetClient
    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.writing.requests import Request
    from lakeward.cassandra.writing.rows import Row
    from lakeward.cassandra.writing.statements import Statements


class Sender:
    """Sends requests of one task. Failures are dealt with in the thread that sends; callbacks only note them."""

    def __init__(
        self,
        session: Any,
        statements: Statements,
        budget: BudgetClient,
        limits: WriteLimits,
        *,
        in_flight: int,
        reject: Callable[[Row, str], None],
    ) -> None:
        self._session, self._statements, self._budget = session, statements, budget
        self._in_flight, self._reject = in_flight, reject
        self._room = threading.Semaphore(in_flight)
        self._failed: deque[tuple[Request, Exception]] = deque()
        self._ceiling = Ceiling(limits.partition_write_units)
        self.shift = 0

    def send(self, request: Request) -> None:
        """Send a request as soon as budget and room allow it."""
        self._budget.take(rows=request.rows, write_units=request.units)
        self._ceiling.take(request.partition, request.units)
        self._room.acquire()
        try:
            future = self._session.execute_async(request.statement(self._statements, self.shift))
        except Exception as error:
            self._note(error, request)
        else:
            future.add_callbacks(self._acknowledged, self._note, errback_args=(request,))
        if self._failed:
            self._deal()

    def drain(self) -> None:
        """Wait until everything that was sent is acknowledged, or rejected."""
        for _ in range(self._in_flight):
            self._room.acquire()
        self._room.release(self._in_flight)
        self._deal()

    def _acknowledged(self, _: Any) -> None:
        self._room.release()

    def _note(self, error: Exception, request: Request) -> None:
        self._failed.append((request, error))
        self._room.release()

    def _deal(self) -> None:
        while self._failed:
            request, error = self._failed.popleft()
            if is_passing(error):
                if is_overload(error):
                    self._budget.slow_down(told(error))
                self._send_again(request)
            elif is_rejection(error):
                self._rejected(request, error)
            else:
                msg = f"the cluster does not take rows: {told(error)}"
                raise DataError(msg, hint="lakeward doctor   (checks permissions, too)") from error

    def _send_again(self, request: Request, first_try: int = 1) -> None:
        number = first_try

        def once() -> None:
            nonlocal number
            statement = request.statement(self._statements, self.shift + min(number, TRIES - 1))
            number += 1
            self._session.execute(statement)

        try:
            call_again(once, budget=self._budget)
        except Exception as error:
            if not is_rejection(error):
                raise
            self._rejected(request, error)

    def _rejected(self, request: Request, error: Exception) -> None:
        """Find the rows that a request was rejected for, by sending each alone."""
        rows = list(request.alone())
        if len(rows) > 1:
            for one in rows:
                self._send_again(one, first_try=2)
        else:
            self._reject(rows[0].first_row, told(error))


class Ceiling:
    """Keeps the write units of each partition below what the server gives one in a second.

    All rows of a partition are in one task, so that nobody else has to be asked.
    """

    def __init__(self, units: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._units, self._clock = units, clock
        self._second = 0
        self._spent: dict[tuple[bytes, ...], float] = {}

    def take(self, partition: tuple[bytes, ...], units: float) -> None:
        """Wait for the next second where the partition has had its share of this one."""
        if self._units is None:
            return
        now = self._clock()
        if int(now) != self._second:
            self._second, self._spent = int(now), {}
        spent = self._spent.get(partition, 0.0)
        if spent and spent + units > self._units:
            time.sleep(int(now) + 1 - now)
            self._second, self._spent, spent = int(self._clock()), {}, 0.0
        self._spent[partition] = spent + units
