"""The time at DynamoDB, for hosts whose clocks differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

_RESOLUTION = timedelta(seconds=1)
_ASKED = "lakeward_asked"


class ServerClock:
    """The host's clock, put right by the ``Date`` of DynamoDB's answers where it is provably wrong.

    A date has whole seconds and an answer takes time: a host that is off by less than that keeps its own time, and
    one that is off by more is put right to within a second. Two hosts so agree on when a lease ends, give or take
    a second.
    """

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        """The time by which leases end."""
        return datetime.now(UTC) + self._offset

    def watch(self, client: Any) -> None:
        """Look at every answer that the client gets."""
        client.meta.events.register("before-call.dynamodb", self._before_call)
        client.meta.events.register("after-call.dynamodb", self._after_call)

    def observe(self, date: str | None, asked: datetime, answered: datetime) -> None:
        """Learn from one answer: its date was true at some moment between asking and answer."""
        if date is None:
            return
        told = parsedate_to_datetime(date)
        least, most = told - answered, told + _RESOLUTION - asked
        self._offset = min(max(timedelta(0), least), most)

    def _before_call(self, context: dict[str, Any], **_rest: object) -> None:
        context[_ASKED] = datetime.now(UTC)

    def _after_call(self, http_response: Any, context: dict[str, Any], **_rest: object) -> None:
        self.observe(http_response.headers.get("date"), context[_ASKED], datetime.now(UTC))
