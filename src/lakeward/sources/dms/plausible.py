"""How well a headerless layout's metadata fields fit the records at hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.sources.dms.layout import Layout

OPERATIONS = frozenset("IUD")
COMMIT_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")
# AR_H_CHANGE_SEQ has 35 digits; a key of so many would be a decimal beyond any 64 bit number.
_SEQUENCE = re.compile(r"[0-9]{20,38}")


def plausible_share(layout: Layout, records: Sequence[Sequence[str | None]], *, load: bool) -> float:
    """Give the share of records whose metadata fields all look as this layout says."""
    fitting = sum(_is_plausible(layout, record, load=load) for record in records)
    return fitting / len(records) if records else 0.0


def _is_plausible(layout: Layout, record: Sequence[str | None], *, load: bool) -> bool:
    operation = None if layout.operation is None else record[layout.operation]
    if layout.operation is not None and operation not in OPERATIONS:
        return False
    if layout.operation is None and not load and record[0] in OPERATIONS:
        return False  # rather a change cut short than a change without operation
    # Metadata may be missing from a load row, never from a change; before images are missing from inserts.
    return (
        _fits(record, layout.timestamp, COMMIT_TIME, may_be_empty=load)
        and _fits(record, layout.sequence, _SEQUENCE, may_be_empty=load)
        and (not _has_image(layout, record) or not (load or operation == "I"))
    )


def _fits(record: Sequence[str | None], position: int | None, pattern: re.Pattern[str], *, may_be_empty: bool) -> bool:
    if position is None:
        return True
    value = record[position]
    return bool(pattern.match(value)) if value else may_be_empty


def _has_image(layout: Layout, record: Sequence[str | None]) -> bool:
    return any(record[position] for position in layout.before.values())
