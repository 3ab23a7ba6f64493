"""Partition expressions as users write them (``dept``, ``days(ts)``, ``bucket(16, id)``), and what Iceberg refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.columns import TIMESTAMPS, decimal_parts, quote_name
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.columns import Column

_EXPRESSION = re.compile(
    r"^(?P<name>years?|months?|days?|hours?|bucket|truncate)\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<column>.+?)\s*\)$"
)
_FORMS = "a column, years(c), months(c), days(c), hours(c), bucket(n, c) or truncate(n, c)"
_DAYS = TIMESTAMPS | {"date"}
_WHOLE = frozenset({"int", "bigint", "decimal"})
# What Iceberg's transforms take, in lake types; identity takes every type that Lakeward writes.
_TAKES = {
    "years": _DAYS, "months": _DAYS, "days": _DAYS, "hours": TIMESTAMPS,
    "bucket": _WHOLE | _DAYS | {"string", "binary"},
    "truncate": _WHOLE | {"string", "binary"},
}  # fmt: skip
# The suffixes of partition field names in Iceberg.
_SUFFIXES = {
    "years": "year", "months": "month", "days": "day", "hours": "hour", "bucket": "bucket", "truncate": "trunc",
}  # fmt: skip
_OF_TIME = frozenset({"years", "months", "days", "hours"})
IDENTITY = "identity"


@dataclass(frozen=True)
class PartitionField:
    """A parsed ``partition_by`` entry."""

    column: str
    transform: str = IDENTITY
    width: int | None = None

    @property
    def sql(self) -> str:
        """The field as Spark SQL."""
        if self.transform == IDENTITY:
            return quote_name(self.column)
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{quote_name(self.column)})"

    @property
    def name(self) -> str:
        """The name of the field in Iceberg."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{_SUFFIXES[self.transform]}"

    @property
    def text(self) -> str:
        """The entry as users write it."""
        if self.transform == IDENTITY:
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width is not None else ''}{self.column})"


def parse_partition(expression: str, columns: Collection[str]) -> PartitionField:
    """Parse a ``partition_by`` entry; a column of that exact name takes precedence over a transform.

    Raises:
        ConfigurationError: it has none of the forms.
    """
    match = _EXPRESSION.match(expression.strip())
    if expression in columns or match is None:
        return PartitionField(expression)
    name, width = match["name"], match["width"]
    if (name in ("bucket", "truncate")) != (width is not None) or width == "0":
        msg = f"partition_by {expression!r} cannot be read; expected {_FORMS}, with n at least 1"
        raise ConfigurationError(msg)
    plural = name if name in _TAKES else f"{name}s"
    return PartitionField(match["column"], plural, int(width) if width is not None else None)


def partition_sql(expression: str, columns: Collection[str]) -> str:
    """Return a ``partition_by`` entry as Spark SQL; the caller has checked :func:`partition_problems`."""
    return parse_partition(expression, columns).sql


def renamed_partition(expression: str, renames: Mapping[str, str]) -> str:
    """Return an entry with the new name of a renamed column: Iceberg identifies the field by its id."""
    try:
        field = parse_partition(expression, renames)
    except ConfigurationError:
        return expression  # reported when the table is checked
    return PartitionField(renames.get(field.column, field.column), field.transform, field.width).text


def partition_problems(expressions: Sequence[str], columns: Sequence[Column]) -> Iterator[tuple[str, str | None]]:
    """Yield the problems of a table's partition entries, each with the missing column if there is one."""
    types = {column.name: column.lake_type for column in columns}
    fields: list[PartitionField] = []
    for expression in expressions:
        try:
            field = parse_partition(expression, types)
        except ConfigurationError as error:
            yield error.message, None
            continue
        if field.column not in types:
            yield f"partition_by {expression!r} names no column of the table; expected {_FORMS}", field.column
            continue
        yield from ((f"partition_by {expression!r}: {reason}", None) for reason in _refusals(field, types, fields))
        fields.append(field)


def _refusals(field: PartitionField, types: Mapping[str, str], earlier: Sequence[PartitionField]) -> Iterator[str]:
    kind = "decimal" if decimal_parts(types[field.column]) else types[field.column]
    takes = _TAKES.get(field.transform)
    if takes is not None and kind not in takes:
        yield f"{field.transform}() takes {_listed(takes)}, and {field.column} is {types[field.column]}"
    if field.transform != IDENTITY and field.name in types:
        yield f"Iceberg would name the field {field.name}, which is a column of the table"
    for other in earlier:
        same_time = other.transform in _OF_TIME and field.transform in _OF_TIME
        if other.column == field.column and (other.transform == field.transform or same_time):
            yield f"{field.column} is in the partition already, by {other.text}"


def _listed(types: Collection[str]) -> str:
    return ", ".join(sorted(types))
