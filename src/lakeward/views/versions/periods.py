"""The days and hours of scheduled versions: when each is due, which are missing, and which of them stay.

Everything here is computed from arguments; times are in microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

from lakeward.mirror.op.checkpoints import Moment, MomentKind
from lakeward.model import micros_of, utc_time
from lakeward.text import time_zone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from zoneinfo import ZoneInfo

    from lakeward.config.tables import SnapshotSettings

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


@dataclass(frozen=True)
class Period:
    """A day or hour: it lasts from ``begin`` until before ``end``, and its version may be made from ``due`` on."""

    label: str
    begin: int
    end: int
    due: int

    @property
    def moment(self) -> Moment:
        """The moment of its version: everything that was committed before its end."""
        return Moment(MomentKind.TIME, self.end - 1, self.label)


@dataclass(frozen=True)
class Calendar:
    """The periods of a schedule, and how many of them have a version.

    Days begin in the time zone of ``zone``, hours at those of UTC. ``at`` is the time of the following day at which a
    day is due; no period is due before ``settle`` has passed after its end. ``older_than`` counts from the end.
    """

    every: str
    zone: ZoneInfo
    at: time = time()
    settle: int = 0
    keep: int | None = None
    older_than: int | None = None

    @classmethod
    def of(cls, settings: SnapshotSettings, timezone: str) -> Calendar | None:
        """Return the calendar of a table's settings, None without a schedule."""
        if settings.every is None:
            return None
        return cls(
            settings.every,
            time_zone(timezone, "timezone"),
            time.fromisoformat(settings.at),
            round(settings.settle * 1e6),
            settings.keep,
            round(settings.older_than * 1e6) if settings.older_than is not None else None,
        )

    def period_at(self, moment: int) -> Period:
        """Return the period that contains a moment."""
        if self.every == "hour":
            begin = moment - moment % _HOUR
            end = begin + _HOUR
            return Period(f"{utc_time(begin):%Y-%m-%dT%H}Z", begin, end, end + self.settle)
        return self.day(utc_time(moment).astimezone(self.zone).date())

    def day(self, found: date) -> Period:
        """Return a day; where a time does not exist on it, the moment at which clocks were set forward counts."""
        begin, end, due = (
            micros_of(datetime.combine(found + timedelta(days=days), at, tzinfo=self.zone))
            for days, at in ((0, time()), (1, time()), (1, self.at))
        )
        return Period(found.isoformat(), begin, end, max(due, end + self.settle))

    def first_of(self, day: str) -> int:
        """Return the beginning of a day as settings name it, which is the beginning of its first period."""
        return self.day(date.fromisoformat(day)).begin

    def since(self, moment: int) -> Iterator[Period]:
        """Yield the periods that end after a moment, oldest first, without end."""
        period = self.period_at(moment)
        while True:
            yield period
            period = self._following(period)

    def missing(
        self, now: int, *, through: int, earliest: str, known: Collection[str], scheduled: Iterable[int] = ()
    ) -> list[Period]:
        """Return the periods whose versions are due and not known, oldest first.

        Args:
            now: the time.
            through: periods that end by then are not asked for.
            earliest: the first moment at which the table's state is known, as 20 digits.
            known: labels of the periods that have a version.
            scheduled: the ends of the periods that have one by the schedule: they count for ``keep``.
        """
        asked = takewhile(lambda period: period.due <= now, self.since(through))
        found = [period for period in asked if period.label not in known and period.moment.digits >= earliest]
        limit = self._limit([*scheduled, *(period.end for period in found)], now)
        return [period for period in found if period.end >= limit]

    def surplus(self, ends: Iterable[int], now: int) -> set[int]:
        """Return which of the periods with these ends have a version that does not stay."""
        known = list(ends)
        limit = self._limit(known, now)
        return {end for end in known if end < limit}

    def next_due(self, now: int) -> Period:
        """Return the period that is due next."""
        # Long enough ago for every period that begins before it to be due.
        return next(period for period in self.since(now - self.settle - 3 * _DAY) if period.due > now)

    def _following(self, period: Period) -> Period:
        if self.every == "hour":
            return self.period_at(period.end)
        return self.day(date.fromisoformat(period.label) + timedelta(days=1))

    def _limit(self, ends: Iterable[int], now: int) -> int:
        """Return the first end of a period whose version stays."""
        newest_first = sorted(set(ends), reverse=True)
        limit = now - self.older_than if self.older_than is not None else 0
        if self.keep is not None and len(newest_first) > self.keep:
            return max(limit, newest_first[self.keep - 1])
        return limit
