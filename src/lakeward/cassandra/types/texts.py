"""Values that a snapshot holds as text: numbers of any size, and durations."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.errors import DataError

if TYPE_CHECKING:
    from uuid import UUID

# Python writes a decimal with E where its first digit stands further behind the point.
_SMALLEST_PLAIN = -5
_DURATION = re.compile(r"(-?)(\d+)mo(\d+)d(\d+)ns\Z")


def varint_text(value: int) -> str:
    """Write a whole number of any size."""
    try:
        return str(value)
    except ValueError:
        # Python's own conversion stops at 4,300 digits; that of decimals does not.
        return str(Decimal(value))


def varint_value(text: str | int) -> int:
    """Read a whole number of any size; one that is a number already is taken as it is."""
    try:
        return int(text)
    except ValueError:
        return int(Decimal(text))


def uuid_text(value: UUID | bytes) -> str | None:
    """Write a UUID; of no bytes at all there is none."""
    if type(value) is not bytes:
        return str(value)
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}" if digits else None


def decimal_text(value: Decimal | bytes) -> str | None:
    """Write a decimal as Python does, with all its digits and its scale; of no bytes at all there is none."""
    if type(value) is not bytes:
        return str(value)
    if not value:
        return None
    scale, number = int.from_bytes(value[:4], "big", signed=True), int.from_bytes(value[4:], "big", signed=True)
    digits = str(abs(number))
    if scale < 0 or len(digits) - scale < _SMALLEST_PLAIN:
        return str(Decimal(f"{number}e{-scale}"))
    if scale:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if number < 0 else digits


def duration_text(value: Any) -> str:
    """Write a duration of the driver's."""
    months, days, nanoseconds = value.months, value.days, value.nanoseconds
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    return f"{sign}{abs(months)}mo{abs(days)}d{abs(nanoseconds)}ns"


def duration_value(text: str) -> Any:
    """Read a duration, to one of the driver's.

    Raises:
        DataError: the text is not one that :func:`duration_text` wrote.
    """
    from cassandra.util import Duration

    found = _DURATION.match(text)
    if found is None:
        msg = f"{text!r} is no duration; expected one such as 1mo2d3ns"
        raise DataError(msg)
    sign = -1 if found.group(1) else 1
    return Duration(*(sign * int(part) for part in found.group(2, 3, 4)))
