"""Whether a file's columns fit the table and its generation, before any of its rows is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas
from lakeward.model import OrderBy
from lakeward.sources.dms.layout import absent_columns, record_columns
from lakeward.sources.dms.problems import MismatchedFileError, UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.sources.base import ReadSpec
    from lakeward.sources.dms.layout import Layout


def check_names(names: Iterable[str]) -> None:
    """Refuse source columns with names that Lakeward keeps for itself."""
    if taken := sorted(name for name in names if name.startswith(schemas.PREFIX)):
        msg = f"columns {', '.join(taken)} cannot be mirrored: names that start with {schemas.PREFIX!r} are reserved"
        raise UnusableFileError(msg)


def check_columns(layout: Layout, spec: ReadSpec, *, names_from_settings: bool = False) -> None:
    """Refuse a file whose columns the table does not know, or that lacks columns it must have."""
    if layout.repeated:
        msg = f"the file names columns more than once: {', '.join(layout.repeated)}"
        raise UnusableFileError(msg)
    if layout.unknown and names_from_settings:
        msg = f"csv.columns names {', '.join(layout.unknown)}, which the table's schema does not have"
        raise UnusableFileError(msg)
    absent = absent_columns(layout, spec.columns)
    lacks_declared = any(name in record_columns(spec) for name in absent)
    if layout.unknown or (lacks_declared and spec.settings.is_strict and not names_from_settings):
        raise MismatchedFileError
    if missing := [name for name in spec.key if name in absent]:
        msg = f"the file has no column {', '.join(missing)}, which the key needs"
        raise UnusableFileError(msg)


def check_key(spec: ReadSpec) -> None:
    """Refuse to read for a key that the schema does not have: every row would be placed wrongly."""
    names = {column.name for column in spec.columns}
    if missing := [name for name in spec.key if name not in names]:
        msg = f"primary_key names {', '.join(missing)}, which the table's schema does not have"
        raise UnusableFileError(msg)


def choose_order(layout: Layout, spec: ReadSpec, *, load: bool) -> OrderBy | None:
    """Give the order column of a change file: the generation's, or the best that the file has."""
    if load:
        return None
    settings, order = spec.settings, spec.order_by
    if order is None:
        by_time = OrderBy.TIMESTAMP if settings.timestamp_column is not None else OrderBy.NONE
        order = OrderBy.SEQUENCE if layout.sequence is not None else by_time
    if order is OrderBy.SEQUENCE and layout.sequence is None:
        raise UnusableFileError(_missing(settings.sequence_column))
    if order is OrderBy.TIMESTAMP and layout.timestamp is None:
        raise UnusableFileError(_missing(settings.timestamp_column))
    return order


def _missing(column: str | None) -> str:
    name = repr(column) if column is not None else "timestamp_column (not set)"
    return f"the file has no column {name}, by which this table's changes are ordered"
