"""Requests for runs: the inbox that collects bursts, and the tables that wait for a run."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.mirror.op.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from lakeward.runner.watch.requests import MessageReceipt, RunRequest
    from lakeward.runner.watch.triggers import Clock


# A steady stream never settles: it is split into rounds of this length, or longer with a long settle time.
_STREAM_SECONDS, _STREAM_SETTLES = 2.0, 4.0


@dataclass
class RequestBuffer:
    """Requests that wait for their round; the time is an argument of every method.

    Fresh requests wait until none arrived for ``settle`` seconds, at most ``limit`` seconds after the first of them.
    Delayed requests wait for their time; of two with the same key the earlier one counts.
    """

    settle: float
    fresh: list[RunRequest] = field(default_factory=list)
    delayed: dict[Hashable, tuple[float, RunRequest]] = field(default_factory=dict)
    _first: float = 0.0
    _last: float = 0.0

    @property
    def limit(self) -> float:
        """Seconds after which a stream that does not settle is handled."""
        return max(_STREAM_SECONDS, _STREAM_SETTLES * self.settle)

    def add(self, request: RunRequest, now: float) -> None:
        """Add a request for something that just happened."""
        if not self.fresh:
            self._first = now
        self._last = now
        # A stream of files into the same folders must not fill the memory during a long run.
        if request.receipt is not None or request not in self.fresh:
            self.fresh.append(request)

    def delay(self, request: RunRequest, due: float, key: Hashable) -> None:
        """Add a request for later."""
        if key not in self.delayed or due < self.delayed[key][0]:
            self.delayed[key] = (due, request)

    def next_due(self) -> float | None:
        """Return the time of the next round; None if nothing waits."""
        moments = [due for due, _ in self.delayed.values()]
        if self.fresh:
            moments.append(self._settled_at())
        return min(moments, default=None)

    def take(self, now: float) -> tuple[RunRequest, ...]:
        """Remove and return the requests that are due."""
        due = [key for key, (moment, _) in self.delayed.items() if moment <= now]
        requests = [self.delayed.pop(key)[1] for key in due]
        if self.fresh and self._settled_at() <= now:
            requests += self.fresh
            self.fresh = []
        return tuple(requests)

    def _settled_at(self) -> float:
        return min(self._last + self.settle, self._first + self.limit)


class Inbox:
    """A buffer of requests that several threads fill and one empties."""

    def __init__(self, settle: float, clock: Clock) -> None:
        self._buffer = RequestBuffer(settle)
        self._clock = clock
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_woken = False

    def put(self, request: RunRequest) -> None:
        """Add a request for something that just happened."""
        with self._changed:
            self._buffer.add(request, self._clock.monotonic())
            self._changed.notify()

    def put_later(self, request: RunRequest, delay: float, key: Hashable) -> None:
        """Add a request for later; of two with the same key the earlier one counts."""
        with self._changed:
            self._buffer.delay(request, self._clock.monotonic() + delay, key)
            self._changed.notify()

    def wake(self) -> None:
        """End the current call of ``take``, or the next one if there is none."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def close(self) -> None:
        """End every call of ``take`` from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def take_all(self) -> tuple[RunRequest, ...]:
        """Remove and return all fresh requests, settled or not."""
        with self._changed:
            requests, self._buffer.fresh = tuple(self._buffer.fresh), []
            return requests

    def take(self, patience: float) -> tuple[RunRequest, ...]:
        """Wait for requests that are due and return them; nothing after ``patience`` seconds, ``wake`` or ``close``."""
        end = self._clock.monotonic() + patience
        with self._changed:
            while True:
                now = self._clock.monotonic()
                requests = self._buffer.take(now)
                due = self._buffer.next_due()
                wait = end - now if due is None else min(end, due) - now
                if requests or now >= end or self._is_closed or self._is_woken:
                    self._is_woken = False
                    return requests
                self._changed.wait(max(wait, 0.001))


_UP_TO_DATE = (Outcome.DONE, Outcome.IDLE)


class PendingMessage:
    """A message and the tables that must be up to date before it is deleted."""

    def __init__(self, receipt: MessageReceipt, tables: Collection[str]) -> None:
        self._receipt: MessageReceipt | None = receipt
        self._open = set(tables)

    def settle(self, table: str) -> None:
        """Remove a table that is up to date or no longer watched; with the last one the message is deleted."""
        self._open.discard(table)
        if not self._open and self._receipt is not None:
            self._receipt.done()
            self._receipt = None

    def fail(self) -> None:
        """Release the message for redelivery, as one of the tables failed."""
        if self._receipt is not None:
            self._receipt.failed()
            self._receipt = None


@dataclass
class _PendingRun:
    """The reasons for a run of a table, and the messages that wait for it."""

    reasons: set[str] = field(default_factory=set)
    messages: list[PendingMessage] = field(default_factory=list)


class PendingRuns:
    """The tables that wait for a run or are in one, and their messages; used by one thread.

    A run covers requests from before its start: its listing may be older than a file that was reported since. A request
    for a table that is being run therefore waits for the next run of it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _PendingRun] = {}
        self._running: dict[str, list[PendingMessage]] = {}
        # Messages of tables that wait, until they are requested again.
        self._held: dict[str, list[PendingMessage]] = defaultdict(list)

    def add(self, request: RunRequest, tables: Collection[str]) -> None:
        """Add a request that concerns these tables; a message that concerns none is deleted."""
        messages = [] if request.receipt is None else [PendingMessage(request.receipt, tables)]
        if not tables and request.receipt is not None:
            request.receipt.done()
        for table in tables:
            wanted = self._waiting.setdefault(table, _PendingRun())
            wanted.reasons.add(request.reason)
            wanted.messages += [*self._held.pop(table, ()), *messages]

    def forget_all_but(self, tables: Collection[str]) -> None:
        """Drop the requests for tables that are no longer watched, and settle their messages."""
        for table in (self._waiting.keys() | self._held.keys()) - set(tables):
            dropped = self._waiting.pop(table, _PendingRun())
            for message in [*dropped.messages, *self._held.pop(table, ())]:
                message.settle(table)

    def free(self) -> list[str]:
        """Return the tables that wait for a run and are in none."""
        return sorted(self._waiting.keys() - self._running.keys())

    def begin(self, tables: Iterable[str]) -> list[str]:
        """Mark these tables as running, and return the reasons for the run."""
        reasons = set()
        for table in tables:
            wanted = self._waiting.pop(table)
            self._running[table] = wanted.messages
            reasons |= wanted.reasons
        return sorted(reasons)

    def finish(self, table: str, outcome: Outcome) -> None:
        """Handle the outcome of a table: its messages are deleted, redelivered, or held while it waits."""
        messages = self._running.pop(table)
        if outcome in _UP_TO_DATE:
            for message in messages:
                message.settle(table)
        elif outcome is Outcome.FAILED:
            for message in messages:
                message.fail()
        elif messages:
            self._held[table] += messages

    def put_back(self, tables: Iterable[str]) -> None:
        """Mark tables as not run; their messages are held until the tables are requested again."""
        for table in tables:
            if messages := self._running.pop(table):
                self._held[table] += messages
