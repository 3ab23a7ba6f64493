"""Schedules: an interval or a cron expression. Ticks that were missed are made up for once, not n times."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from lakeward.errors import ConfigurationError


class Timer(Protocol):
    """A schedule for runs."""

    reason: str

    def wait(self) -> float:
        """Return the seconds until the next tick; 0 when it is due."""
        ...

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        ...


class Every:
    """A timer with a fixed interval from its creation; a long run skips ticks and does not shift them."""

    def __init__(self, seconds: float, clock: Clock, *, reason: str) -> None:
        if seconds <= 0:
            msg = f"an interval of {seconds:g} s never ends; expected a span such as 10m"
            raise ConfigurationError(msg)
        self.reason = reason
        self._seconds = seconds
        self._clock = clock
        self._due = clock.monotonic() + seconds

    def wait(self) -> float:
        """Return the seconds until the next tick."""
        return max(0.0, self._due - self._clock.monotonic())

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        late = self._clock.monotonic() - self._due
        if late < 0:
            return False
        self._due += (late // self._seconds + 1) * self._seconds
        return True


class Cron:
    """A timer that ticks at the times of a cron expression (5 fields, or 6 with seconds first)."""

    def __init__(self, expression: str, clock: Clock, *, timezone: str = "UTC") -> None:
        self.reason = f"schedule {expression}"
        self._expression = expression
        self._zone = _zone(timezone)
        self._clock = clock
        self._seen = clock.wall()
        self._due = self._after(self._seen)

    def wait(self) -> float:
        """Return the seconds until the next tick."""
        return max(0.0, self._due - self._clock.wall())

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        now = self._clock.wall()
        is_set_back, is_due = now < self._seen, now >= self._due
        self._seen = now
        # A wall clock that was set back would leave the next tick too far away.
        if is_due or is_set_back:
            self._due = self._after(now)
        return is_due

    def _after(self, moment: float) -> float:
        try:
            return next(CronSim(self._expression, datetime.fromtimestamp(moment, self._zone))).timestamp()
        except CronSimError as error:
            msg = f"{self._expression!r} is not a cron expression ({error}); expected five fields such as '0 * * * *'"
            raise ConfigurationError(msg, hint="minute hour day-of-month month day-of-week") from None
        except StopIteration:
            msg = f"the cron expression {self._expression!r} never matches"
            raise ConfigurationError(msg) from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        msg = f"{name!r} is not a known time zone; expected a name such as Europe/Berlin"
        raise ConfigurationError(msg) from error


class Clock(Protocol):
    """The clock of timers, replaced in tests: a monotonic time for waiting, and a wall time for calendars."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970; an operator may set it."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()
