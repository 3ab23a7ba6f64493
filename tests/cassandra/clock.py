"""The time of exports and change sets, which have a minute each: steps of a test are minutes apart."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_USERS = (
    "cassandra.sync_rounds",
    "cassandra.export_journal",
    "cassandra.compare",
    "cassandra.ledger",
    "diffing.comparison",
)


class Clock(datetime):
    """A clock that is behind, and is put forward by the test."""

    offset = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        """Return its time."""
        return datetime.now(tz) + cls.offset

    @classmethod
    def next_minute(cls) -> None:
        """Put it forward."""
        cls.offset += timedelta(minutes=1)


def set_back(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    """Let exports and change sets go by a clock that is half an hour behind, until the test ends."""
    monkeypatch.setattr(Clock, "offset", timedelta(minutes=-30))
    for module in _USERS:
        monkeypatch.setattr(f"lakeward.{module}.datetime", Clock)
    return Clock
