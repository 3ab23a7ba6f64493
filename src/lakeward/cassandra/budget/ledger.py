"""The budget itself: how much may be handed out now. No sockets, no threads, and any clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lakeward.cassandra.budget.amounts import NOTHING, Amounts, RateLimits, Totals

if TYPE_CHECKING:
    from collections.abc import Callable

# What one turn hands out at most, and what may be saved up, in seconds of the whole rate: a task waits for a turn and
# not for its whole share, a machine that stalls for a moment loses nothing, and a burst is 1.3 % of half a minute.
TURN_SECONDS = 0.05
SAVED_SECONDS = 0.4
RAMP_START = 0.25
# After overload: a moment of nothing, then half the rate, doubled every few seconds until it is whole again.
PAUSE_SECONDS = 0.5
DEAF_SECONDS = 1.0
RECOVERY_SECONDS = 5.0
SLOWEST = 1 / 64
_RATE_WINDOW_SECONDS = 3.0
_REQUESTS = 3


class BudgetLedger:
    """Counts what may be done and what was done. Call it from one thread at a time."""

    def __init__(self, limits: RateLimits, *, ramp_seconds: float, clock: Callable[[], float]) -> None:
        """Begin with nothing saved."""
        self._rates, self._ramp, self._clock = limits.rates, ramp_seconds, clock
        self._levels = [0.0] * len(NOTHING)
        self._used, self._recent = NOTHING, deque[tuple[float, Amounts]]()
        self._first: float | None = None
        self._last = clock()
        self._factor, self._paused_until, self._slowed_at = 1.0, 0.0, float("-inf")
        # Requests per second that overload left to a job without any limit; None: no such ceiling.
        self._ceiling: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether anything has to be asked for at present."""
        return self._ceiling is not None or any(rate is not None for rate in self._rates)

    def offer(self, wanted: Amounts, needed: Amounts) -> Amounts | None:
        """Hand out a part of what is wanted; None: not yet. ``needed`` is the least that is of use."""
        now = self._refill()
        if now < self._paused_until or self._debt_seconds(now) > 0:
            return None
        share, rates = 1.0, self._current_rates(now)
        for want, need, level, rate in zip(wanted, needed, self._levels, rates, strict=True):
            if rate is None or want <= 0:
                continue
            turn = max(rate * TURN_SECONDS, 1e-9)
            # A little short counts as enough: otherwise rounding would make a task wait for another turn.
            if level < min(need, turn) * (1 - 1e-9):
                return None
            share = min(share, min(level, turn) / want)
        granted = Amounts(*(want if rate is None else want * share for want, rate in zip(wanted, rates, strict=True)))
        self._take(granted)
        return granted

    def patience(self, wanted: Amounts, needed: Amounts) -> float:
        """Say in how many seconds it is worth asking again."""
        now = self._clock()
        waits = [self._paused_until - now, self._debt_seconds(now), 0.001]
        for want, need, level, rate in zip(wanted, needed, self._levels, self._current_rates(now), strict=True):
            if rate is not None and want > 0:
                waits.append((min(need, rate * TURN_SECONDS) - level) / rate)
        return min(max(waits), SAVED_SECONDS)

    def hand_back(self, unused: Amounts) -> None:
        """Take back what a task got and did not use; less than nothing is what it used beyond that."""
        self._refill()
        self._take(unused.times(-1))

    def count(self, used: Amounts) -> None:
        """Note what was really done."""
        self._begin()
        self._used = self._used.plus(used)
        self._recent.append((self._clock(), used))
        self._forget_old()

    def slow_down(self) -> bool:
        """Halve the rate for a while because the cluster is overloaded; False: it was just done."""
        now = self._refill()
        if now - self._slowed_at < DEAF_SECONDS:
            return False
        if not any(rate is not None for rate in self._rates) and self._ceiling is None:
            self._ceiling = max(self.recent_rates().requests, 1.0)
        self._factor = max(self._factor / 2, SLOWEST)
        self._levels = [min(level, 0.0) for level in self._levels]
        self._slowed_at, self._paused_until = now, now + PAUSE_SECONDS
        return True

    def recent_rates(self) -> Amounts:
        """Give what was done per second of late."""
        now = self._forget_old()
        total = NOTHING
        for _, used in self._recent:
            total = total.plus(used)
        begun = now if self._first is None else self._first
        return total.times(1 / max(min(_RATE_WINDOW_SECONDS, now - begun), 0.1))

    def totals(self) -> Totals:
        """Sum up."""
        seconds = 0.0 if self._first is None else self._clock() - self._first
        rows = round(self._used.rows)
        return Totals(
            rows,
            self._used.write_units,
            self._used.read_units,
            round(self._used.requests),
            seconds,
            rows / seconds if seconds else 0.0,
        )

    def _forget_old(self) -> float:
        now = self._clock()
        while self._recent and self._recent[0][0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        return now

    def _begin(self) -> None:
        if self._first is None:
            self._first = self._last = self._clock()

    def _refill(self) -> float:
        """Let time count since the last call: the rate may have changed on the way, which a short step hardly sees."""
        self._begin()
        now = self._clock()
        # A pause saves nothing up.
        passed, self._last = max(now - max(self._last, self._paused_until), 0.0), now
        self._recover(passed)
        for at, rate in enumerate(self._current_rates(now)):
            if rate is not None:
                self._levels[at] = min(self._levels[at] + rate * passed, rate * SAVED_SECONDS)
        return now

    def _recover(self, passed: float) -> None:
        if self._factor >= 1.0:
            return
        self._factor = min(self._factor * 2 ** (passed / RECOVERY_SECONDS), 1.0)
        if self._factor >= 1.0:
            self._ceiling = None

    def _current_rates(self, now: float) -> list[float | None]:
        factor = self._factor
        if self._ramp and self._first is not None:
            factor *= min(1.0, RAMP_START + (1 - RAMP_START) * (now - self._first) / self._ramp)
        rates = [None if rate is None else rate * factor for rate in self._rates]
        if self._ceiling is not None:
            rates[_REQUESTS] = self._ceiling * self._factor
        return rates

    def _debt_seconds(self, now: float) -> float:
        """Say how long the whole job waits for what some task spent beyond its allowance."""
        rates = zip(self._levels, self._current_rates(now), strict=True)
        return max((-level / rate for level, rate in rates if rate is not None and level < -1e-6), default=0.0)

    def _take(self, amounts: Amounts) -> None:
        for at, (amount, rate) in enumerate(zip(amounts, self._current_rates(self._last), strict=True)):
            if rate is not None:
                self._levels[at] = min(self._levels[at] - amount, rate * SAVED_SECONDS)
