"""Rows of a frame as results of a command: a bounded list of objects, or a table for eyes."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

from lakeward.cli.output import add_row, count, styled, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console


def first_rows(frame: DataFrame, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Give the first rows as JSON objects, in the forms of ``lakeward sql``, and whether there are more."""
    from lakeward.cli.sql_values import json_rows

    texts = json_rows(frame.limit(limit + 1))
    found = [json.loads(row[0]) for row in texts.toLocalIterator()] if texts is not None else []
    return found[:limit], len(found) > limit


def draw_rows(console: Console, names: list[str], rows: list[dict[str, Any]], what: str) -> None:
    """Draw rows, NULL told from an empty text."""
    drawn = table(*names)
    for row in rows:
        add_row(drawn, [_cell(row[name]) for name in names])
    if rows:
        console.print(drawn)
    console.print(count(len(rows), what))


def plain(value: Any) -> Any:
    """Give a value as JSON has it: binary values as base64, numbers that are none as text."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _cell(value: Any) -> Any:
    if value is None:
        return styled("NULL", "dim")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
