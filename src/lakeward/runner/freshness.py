"""Whether a table meets its ``freshness`` objective: on time, late, or unknown.

The objective limits how old a change may be that the mirror lacks. Lakeward sees landing, not the source, so it judges
by what waits there:

- late: a file has waited longer than the objective, by the time in its name or its modification time, whichever is
  earlier. Or the capture is behind: the file with the newest change is younger than the objective, and that change's
  commit time is older than it.
- unknown: not late, but nothing shows that it is on time: nothing was loaded yet, the last run stopped, or an op is not
  applied and its files are gone from landing.
- on time: everything else. A source at rest, with nothing in landing that waits, is on time, however old its last
  change.

A time later than now, from a wrong clock or time zone, is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.documents import Document
from lakeward.model import digits_micros, utc_time

_SECOND = 1_000_000


class FreshnessVerdict(StrEnum):
    """Whether a table meets its objective."""

    ON_TIME = "on time"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Freshness(Document):
    """A table measured by its ``freshness`` objective.

    ``newest_change`` is the time of the newest applied change; ``basis`` where it comes from: ``commit``, the commit
    time in the file, or ``name``, the time in the name of the file that contains it. ``age_seconds`` is the time since
    then. ``waiting_seconds`` is how long the oldest file that is not applied has waited.
    """

    verdict: FreshnessVerdict
    objective_seconds: float
    reason: str
    newest_change: str | None = None
    basis: str | None = None
    age_seconds: float | None = None
    waiting_seconds: float | None = None

    @property
    def is_on_time(self) -> bool:
        """Whether the table is known to meet its objective."""
        return self.verdict is FreshnessVerdict.ON_TIME

    def is_late_after(self, seconds: float) -> bool:
        """Whether the table is late ``seconds`` later, if nothing is applied until then."""
        if self.verdict is FreshnessVerdict.LATE:
            return True
        return self.waiting_seconds is not None and self.waiting_seconds + seconds > self.objective_seconds


@dataclass(frozen=True)
class Applied:
    """What a mirror contains, and what it lacks; times are in microseconds since 1970.

    ``newest_commit`` is the latest commit time among the applied changes, ``newest_name`` the time in the name of the
    file with the newest one, as 20 digits. ``waiting_since`` is the earliest time of the files that are not applied.
    ``obstacle`` is why the mirror may lack more than these files, as a clause.
    """

    newest_commit: int | None = None
    newest_name: str = ""
    waiting_since: int | None = None
    obstacle: str | None = None


def judge_freshness(objective: float, applied: Applied, *, now: int) -> Freshness:
    """Return the verdict on a table at a moment, in microseconds since 1970; ``objective`` is in seconds."""
    since = applied.waiting_since
    waiting = max(0, now - since) / _SECOND if since is not None else None
    moment, basis = _newest_change(applied, now)
    age = (now - moment) / _SECOND if moment is not None else None
    verdict, reason = _verdict(objective, applied, waiting, _capture_lag(objective, applied, now))
    return Freshness(
        verdict,
        objective,
        reason,
        newest_change=utc_time(moment).isoformat() if moment is not None else None,
        basis=basis,
        age_seconds=age,
        waiting_seconds=waiting,
    )


def unknown_freshness(objective: float, reason: str) -> Freshness:
    """Return the verdict on a table whose status cannot be read."""
    return Freshness(FreshnessVerdict.UNKNOWN, objective, reason)


def _verdict(
    objective: float, applied: Applied, waiting: float | None, lag: float | None
) -> tuple[FreshnessVerdict, str]:
    if waiting is not None and waiting > objective:
        text = f"a file has waited for {waiting:,.0f} s, longer than the objective of {objective:g} s"
        return FreshnessVerdict.LATE, text
    if applied.obstacle is not None:
        return FreshnessVerdict.UNKNOWN, applied.obstacle
    if lag is not None:
        text = f"files arrive, but the newest change is {lag:,.0f} s old, more than the objective of {objective:g} s"
        return FreshnessVerdict.LATE, text
    if waiting is not None:
        return FreshnessVerdict.ON_TIME, f"no file has waited for longer than {waiting:,.0f} s"
    return FreshnessVerdict.ON_TIME, "no file waits"


def _newest_change(applied: Applied, now: int) -> tuple[int | None, str | None]:
    """Return the time of the newest applied change and its basis: the commit time, else the file name's."""
    if applied.newest_commit is not None and applied.newest_commit <= now:
        return applied.newest_commit, "commit"
    named = _named_at(applied)
    return (named, "name") if named is not None and named <= now else (None, None)


def _capture_lag(objective: float, applied: Applied, now: int) -> float | None:
    """Return the age of the newest change in seconds if the capture delivers, but later than the objective."""
    named, commit = _named_at(applied), applied.newest_commit
    if named is None or commit is None:
        return None
    arrived, age = (now - named) / _SECOND, (now - commit) / _SECOND
    return age if 0 <= arrived <= objective < age else None


def _named_at(applied: Applied) -> int | None:
    return digits_micros(applied.newest_name) if applied.newest_name else None
