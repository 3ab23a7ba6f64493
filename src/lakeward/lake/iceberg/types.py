"""Iceberg's column types in Lakeward's words, and the partition expressions users write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import Column, quote_name
from lakeward.errors import ConfigurationError, DataError
from lakeward.schemas import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_FROM_ICEBERG = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "date": "date",
    "timestamptz": "timestamp", "timestamp": "timestamp_ntz",
}  # fmt: skip
_TRANSFORM = re.compile(
    r"^(?P<name>years?|months?|days?|hours?|bucket|truncate)\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<column>.+?)\s*\)$"
)
_NEEDS_WIDTH = ("bucket", "truncate")


def lake_columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read the source's columns from an Iceberg schema as JSON; a changelog has Lakeward's own besides."""
    fields = [field for field in schema["fields"] if not field["name"].startswith(PREFIX)]
    return tuple(Column(field["name"], _lake_type(field["name"], field["type"])) for field in fields)


def _lake_type(name: str, iceberg_type: Any) -> str:
    if isinstance(iceberg_type, str):
        if iceberg_type.startswith("decimal"):
            return iceberg_type.replace(" ", "")
        if iceberg_type in _FROM_ICEBERG:
            return _FROM_ICEBERG[iceberg_type]
    msg = f"column {name!r} has type {iceberg_type}, which Lakeward did not write"
    raise DataError(msg)


def partition_sql(expression: str, columns: Collection[str]) -> str:
    """Write one ``partition_by`` entry (``dept``, ``days(ts)``, ``bucket(16, id)``) as Spark SQL.

    Raises:
        ConfigurationError: it names no known column or transform.
    """
    if expression in columns:
        return quote_name(expression)
    match = _TRANSFORM.match(expression.strip())
    if match is None or match["column"] not in columns:
        named = match["column"] if match else expression
        msg = f"partition_by {expression!r}: no column {named!r}; columns: {', '.join(columns)}"
        raise ConfigurationError(msg)
    name, width = match["name"], match["width"]
    if (name in _NEEDS_WIDTH) != (width is not None):
        msg = f"partition_by {expression!r}: expected bucket(n, column), truncate(n, column) or days(column)"
        raise ConfigurationError(msg)
    if name not in _NEEDS_WIDTH and not name.endswith("s"):
        name += "s"
    return f"{name}({f'{width}, ' if width else ''}{quote_name(match['column'])})"
