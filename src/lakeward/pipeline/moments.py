"""Moments that people ask for: a day, a time, an op, a position in the source's change sequence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeward.errors import ConfigurationError
from lakeward.sources.dms.changes import SEQUENCE_DIGITS

_OP = re.compile(r"op:(\d{1,18})", re.ASCII)
_SEQUENCE = re.compile(rf"sequence:(\d{{1,{SEQUENCE_DIGITS}}})", re.ASCII)
_DMS_SEQUENCE_DIGITS = 35
# Python reads more forms of ISO 8601, days without dashes and weeks among them, and takes those for midnight.
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(rf"{_DAY.pattern}[T ]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class MomentKind(StrEnum):
    """What a moment is counted by."""

    TIME = "time"
    OP = "op"
    SEQUENCE = "sequence"


@dataclass(frozen=True)
class Moment:
    """The end of a moment: everything up to ``limit`` counts, ``limit`` included.

    ``limit`` is microseconds since 1970, an op number, or a change sequence padded as the changelog keeps it.
    ``label`` names the moment in files and lists.
    """

    kind: MomentKind
    limit: int | str
    label: str

    def is_after(self, other: Moment) -> bool:
        """Tell whether it comes after another of its kind."""
        # Sequences are padded to one length, so that their texts are in their order.
        mine, others = self.limit, other.limit
        return mine > others if isinstance(mine, str) and isinstance(others, str) else int(mine) > int(others)

    @property
    def op(self) -> int | None:
        """The op, where the moment is one."""
        return int(self.limit) if self.kind is MomentKind.OP else None

    @property
    def micros(self) -> int | None:
        """The time in microseconds since 1970, where the moment is one."""
        return int(self.limit) if self.kind is MomentKind.TIME else None

    @property
    def digits(self) -> str:
        """The moment as the 20 digits of file name times; empty for an op."""
        if self.kind is MomentKind.TIME:
            moment = _EPOCH + timedelta(microseconds=int(self.limit))
            return f"{moment.year:04d}{moment:%m%d%H%M%S%f}"
        if self.kind is MomentKind.SEQUENCE:
            # A DMS change sequence has 35 digits and begins with the time of the commit, YYYYMMDDHHMMSS and hundredths;
            # one that does not can only be of the newest generation.
            number = str(self.limit).lstrip("0")
            return number[:16].ljust(20, "9") if len(number) == _DMS_SEQUENCE_DIGITS else "9" * 20
        return ""


def op_moment(op: int) -> Moment:
    """Give the moment at which an op was done."""
    return Moment(MomentKind.OP, op, f"op-{op}")


def parse_moment(text: str, timezone: str = "UTC") -> Moment:
    """Read ``2020-11-14`` (the whole day), ``2020-11-14T10:30:00``, ``op:41`` or ``sequence:20201114103000…``.

    Days, and times without an offset, count in ``timezone``.

    Raises:
        ConfigurationError: the text is no moment.
    """
    if match := _OP.fullmatch(text):
        return op_moment(int(match[1]))
    if match := _SEQUENCE.fullmatch(text):
        return Moment(MomentKind.SEQUENCE, match[1].rjust(SEQUENCE_DIGITS, "0"), f"sequence-{match[1]}")
    zone = _zone(timezone)
    try:
        if _DAY.fullmatch(text):
            return _day(text, zone)
        if _TIME.fullmatch(text):
            return _time(text, zone)
    except (ValueError, OverflowError) as error:
        raise _no_moment(text) from error
    raise _no_moment(text)


def _no_moment(text: str) -> ConfigurationError:
    msg = f"{text!r} is not a moment; expected 2020-11-14, 2020-11-14T10:30:00, op:41 or sequence:NUMBER"
    return ConfigurationError(msg)


def _day(text: str, zone: ZoneInfo) -> Moment:
    following = date.fromisoformat(text) + timedelta(days=1)
    midnight = datetime.combine(following, time(), tzinfo=zone)
    return Moment(MomentKind.TIME, _micros(midnight) - 1, text)


def _time(text: str, zone: ZoneInfo) -> Moment:
    found = datetime.fromisoformat(text)
    instant = (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    fraction = f".{instant.microsecond:06d}" if instant.microsecond else ""
    return Moment(MomentKind.TIME, _micros(instant), f"{instant.year:04d}-{instant:%m-%dT%H%M%S}{fraction}Z")


def _micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        msg = f"timezone {name!r} is not known; expected a name such as Europe/Berlin"
        raise ConfigurationError(msg) from error
