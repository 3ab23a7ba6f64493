"""When each generation of a table was the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.pipeline.as_of import first_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model import Generation

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Span:
    """A generation, and the time in which it was the table, in microseconds since 1970.

    ``start`` None: from the beginning, which is not known. ``end`` is the first moment after it, None: it still is.
    """

    generation: Generation
    start: int | None
    end: int | None


def spans_of(generations: Sequence[Generation], cdc_start: str | None, timezone: str) -> list[Span]:
    """Give the time of every generation that ever was the table, oldest first.

    At any moment the newest generation that had begun by then is the table, and nothing is before the capture began.
    A day of ``cdc_start`` begins in ``timezone``. Of a generation whose load nobody saw nothing can be told.
    """
    floor = first_digits(cdc_start, timezone) if cdc_start else ""
    found = []
    for number, generation in enumerate(generations):
        start = max(generation.began, floor)
        end = min((one.began for one in generations[number + 1 :]), default=None)
        if not generation.unseen and (end is None or start < end):
            found.append(Span(generation, _micros(start) if start else None, _micros(end) if end else None))
    return found


def _micros(digits: str) -> int:
    moment = datetime.strptime(digits.ljust(20, "0")[:20], "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
