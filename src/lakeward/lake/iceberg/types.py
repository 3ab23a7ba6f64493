"""Iceberg's column types in Lakeward's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.datatypes import Column
from lakeward.errors import DataError
from lakeward.schemas import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

_FROM_ICEBERG = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "date": "date",
    "timestamptz": "timestamp", "timestamp": "timestamp_ntz",
}  # fmt: skip


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
