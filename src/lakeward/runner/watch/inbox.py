"""Where triggers put what they saw, and where bursts are gathered into rounds."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.mirror.op.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from lakeward.runner.watch.requests import Ask, Receipt
    from lakeward.runner.watch.timers import Clock


# A steady stream never settles: it is cut into rounds this long, or longer where settling itself takes long.
_STREAM_SECONDS, _STREAM_SETTLES = 2.0, 4.0


@dataclass
class Gathering:
    """Asks that wait for their round, without a clock of its own: every method is told the time.

    Fresh asks wait until nothing came for ``settle`` seconds, at most ``limit`` seconds after the first of them.
    Delayed asks wait for their own moment; one of a key replaces another only to be earlier.
    """

    settle: float
    fresh: list[Ask] = field(default_factory=list)
    delayed: dict[Hashable, tuple[float, Ask]] = field(default_factory=dict)
    _first: float = 0.0
    _last: float = 0.0

    @property
    def limit(self) -> float:
        """Seconds after which a stream that does not settle is taken as it is."""
        return max(_STREAM_SECONDS, _STREAM_SETTLES * self.settle)

    def add(self, ask: Ask, now: float) -> None:
        """Take an ask that something just happened."""
        if not self.fresh:
            self._first = now
        self._last = now
        # A stream of files into the same folders must not fill the memory while a run takes long.
        if ask.receipt is not None or ask not in self.fresh:
            self.fresh.append(ask)

    def delay(self, ask: Ask, due: float, key: Hashable) -> None:
        """Take an ask for later."""
        if key not in self.delayed or due < self.delayed[key][0]:
            self.delayed[key] = (due, ask)

    def next_due(self) -> float | None:
        """Return the moment of the next round, None while nothing waits."""
        moments = [due for due, _ in self.delayed.values()]
        if self.fresh:
            moments.append(self._settled_at())
        return min(moments, default=None)

    def take(self, now: float) -> tuple[Ask, ...]:
        """Return what is due, and forget it."""
        due = [key for key, (moment, _) in self.delayed.items() if moment <= now]
        asks = [self.delayed.pop(key)[1] for key in due]
        if self.fresh and self._settled_at() <= now:
            asks += self.fresh
            self.fresh = []
        return tuple(asks)

    def _settled_at(self) -> float:
        return min(self._last + self.settle, self._first + self.limit)


class Inbox:
    """A gathering that several threads fill and one empties."""

    def __init__(self, settle: float, clock: Clock) -> None:
        self._gathering = Gathering(settle)
        self._clock = clock
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_woken = False

    def put(self, ask: Ask) -> None:
        """Hear of something that just happened."""
        with self._changed:
            self._gathering.add(ask, self._clock.monotonic())
            self._changed.notify()

    def put_later(self, ask: Ask, delay: float, key: Hashable) -> None:
        """Hear of something to do in a while; of two with the same key the earlier one counts."""
        with self._changed:
            self._gathering.delay(ask, self._clock.monotonic() + delay, key)
            self._changed.notify()

    def wake(self) -> None:
        """Let whoever waits look at something else, now or as soon as he begins to wait."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def take_all(self) -> tuple[Ask, ...]:
        """Return what came up to now, settled or not."""
        with self._changed:
            asks, self._gathering.fresh = tuple(self._gathering.fresh), []
            return asks

    def take(self, patience: float) -> tuple[Ask, ...]:
        """Wait until asks are due and give them; nothing when patience or the inbox ends first, or at a ``wake``."""
        end = self._clock.monotonic() + patience
        with self._changed:
            while True:
                now = self._clock.monotonic()
                asks = self._gathering.take(now)
                due = self._gathering.next_due()
                wait = end - now if due is None else min(end, due) - now
                if asks or now >= end or self._is_closed or self._is_woken:
                    self._is_woken = False
                    return asks
                self._changed.wait(max(wait, 0.001))


# What is asked for, table by table: what waits for a run, what a run answers now, which messages hang on it.


_UP_TO_DATE = (Outcome.DONE, Outcome.IDLE)


class Claim:
    """A message and the tables that must be up to date before it is ended."""

    def __init__(self, receipt: Receipt, tables: Collection[str]) -> None:
        self._receipt: Receipt | None = receipt
        self._open = set(tables)

    def settle(self, table: str) -> None:
        """One of the tables is up to date, or nobody's business any more; with the last one the message ends."""
        self._open.discard(table)
        if not self._open and self._receipt is not None:
            self._receipt.done()
            self._receipt = None

    def fail(self) -> None:
        """One of the tables failed: let the message come again, whatever the others do."""
        if self._receipt is not None:
            self._receipt.failed()
            self._receipt = None


@dataclass
class _Wanted:
    """Why a table is to be run, and the messages that wait for it."""

    reasons: set[str] = field(default_factory=set)
    claims: list[Claim] = field(default_factory=list)


class Desk:
    """Keeps asks until a run answers them; used by one thread.

    A run answers what was asked before it began: its listing may be older than a file that was told of since. What
    is asked for a table that is being run therefore waits for the next run of it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Wanted] = {}
        self._running: dict[str, list[Claim]] = {}
        # Messages of tables that somebody asks for again later.
        self._held: dict[str, list[Claim]] = defaultdict(list)

    def ask(self, ask: Ask, tables: Collection[str]) -> None:
        """Take an ask in that concerns these tables; a message that concerns none is ended."""
        claims = [] if ask.receipt is None else [Claim(ask.receipt, tables)]
        if not tables and ask.receipt is not None:
            ask.receipt.done()
        for table in tables:
            wanted = self._waiting.setdefault(table, _Wanted())
            wanted.reasons.add(ask.reason)
            wanted.claims += [*self._held.pop(table, ()), *claims]

    def forget_all_but(self, tables: Collection[str]) -> None:
        """Drop what is asked for other tables: they were given up, and their messages have nothing to wait for."""
        for table in (self._waiting.keys() | self._held.keys()) - set(tables):
            given_up = self._waiting.pop(table, _Wanted())
            for claim in [*given_up.claims, *self._held.pop(table, ())]:
                claim.settle(table)

    def free(self) -> list[str]:
        """Return the tables that wait for a run and are in none."""
        return sorted(self._waiting.keys() - self._running.keys())

    def begin(self, tables: Iterable[str]) -> list[str]:
        """Note that a run of these tables begins; give the reasons for it."""
        reasons = set()
        for table in tables:
            wanted = self._waiting.pop(table)
            self._running[table] = wanted.claims
            reasons |= wanted.reasons
        return sorted(reasons)

    def finish(self, table: str, outcome: Outcome) -> None:
        """Note how a table came out of its run: its messages end, come again, or are held while it waits."""
        claims = self._running.pop(table)
        if outcome in _UP_TO_DATE:
            for claim in claims:
                claim.settle(table)
        elif outcome is Outcome.FAILED:
            for claim in claims:
                claim.fail()
        elif claims:
            self._held[table] += claims

    def put_back(self, tables: Iterable[str]) -> None:
        """Note that tables did not come to their run; their messages are held until they are asked for again."""
        for table in tables:
            if claims := self._running.pop(table):
                self._held[table] += claims
