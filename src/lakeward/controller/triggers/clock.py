"""The clock that triggers go by, so that tests can have one of their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: one that only moves forward, for waiting, and the one on the wall, for calendars."""

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        ...

    def wall(self) -> float:
        """Give seconds since 1970; an operator may set it."""
        ...


class SystemClock:
    """The machine's own."""

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Give seconds since 1970."""
        return time.time()
