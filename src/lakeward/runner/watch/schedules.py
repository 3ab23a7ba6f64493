"""When watching runs tables whose scheduled snapshots become due, although no file landed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakeward.views.versions.periods import Calendar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.runner.tables import KnownTable
    from lakeward.runner.watch.triggers import Clock

_SECOND = 1_000_000


class SnapshotTimes:
    """The times at which snapshots of the watched tables become due, by the wall clock."""

    def __init__(self, tables: Callable[[], Iterable[KnownTable]], timezone: str, clock: Clock) -> None:
        """Set where the tables are asked for, whose settings may change, and the time zone of days."""
        self._tables = tables
        self._timezone = timezone
        self._clock = clock
        self._seen = self._now()

    def wait(self) -> float | None:
        """Return the seconds until a snapshot becomes due, 0 when one has; None without schedules."""
        due = [calendar.next_due(self._seen).due for calendar in self._by_calendar()]
        return max(0.0, (min(due) - self._now()) / _SECOND) if due else None

    def due(self) -> frozenset[str]:
        """Return the tables whose snapshots became due since the last call."""
        seen, now = self._seen, self._now()
        # A wall clock that was set back passes the same times again: tables with nothing to do are idle then.
        self._seen = now
        found = self._by_calendar()
        return frozenset(
            name for calendar, names in found.items() if calendar.next_due(seen).due <= now for name in names
        )

    def _by_calendar(self) -> dict[Calendar, list[str]]:
        """Return the tables by calendar: most have the same."""
        found: dict[Calendar, list[str]] = defaultdict(list)
        for table in self._tables():
            if (calendar := Calendar.of(table.settings.snapshots, self._timezone)) is not None:
                found[calendar].append(str(table.table))
        return found

    def _now(self) -> int:
        return int(self._clock.wall() * _SECOND)
