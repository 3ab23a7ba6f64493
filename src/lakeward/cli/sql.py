"""``lakeward sql``: query the lake."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import command
from lakeward.cli.output import add_row, count, emit_text, note, reader_may_leave, styled, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from rich.console import Console

    from lakeward.cli.options import Invocation

_TEXT_ROWS = 1000

safe_csv = click.option(
    "--safe-csv",
    is_flag=True,
    help="With --output csv: write an apostrophe before texts that a spreadsheet would treat as a formula.",
)


@command("sql", outputs=("text", "json", "csv"))
@click.argument("query", metavar="QUERY")
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Run any statement: mirrors, files and settings of this machine are then not protected.",
)
@safe_csv
def sql(invocation: Invocation, query: str, allow_writes: bool, safe_csv: bool) -> None:
    """Run Spark SQL over the lake; the mirror of a table is schema.table.

    Only statements that read the lake are run: queries, SHOW, DESCRIBE, EXPLAIN. Files, settings, environment
    variables, other catalogs and functions that call foreign code are refused.

    text shows up to 1,000 rows. json is one array of row objects and csv is RFC 4180 with a header; both are
    streamed, with any number of rows. Decimals, dates and timestamps are text, timestamps in ISO 8601 with their offset
    (UTC unless configured otherwise), binary values are base64.
    """
    from lakeward import query_errors

    with query_errors():
        with invocation.lake() as lake:
            frame = lake.sql(query, allow_writes=allow_writes)
        # Progress has ended here: rows may be written.
        with reader_may_leave():
            if invocation.output == "csv":
                write_csv(invocation, frame, safe=safe_csv)
            else:
                _WRITERS[invocation.output](invocation, frame)


def _write_json(invocation: Invocation, frame: DataFrame) -> None:
    from lakeward.cli.sql_values import json_rows

    separator = "[\n"
    for text in _streamed(json_rows(frame)):
        invocation.has_output = True
        sys.stdout.write(separator + text)
        separator = ",\n"
    invocation.has_output = True
    sys.stdout.write("\n]\n" if separator == ",\n" else "[]\n")
    sys.stdout.flush()


def write_csv(invocation: Invocation, frame: DataFrame, *, safe: bool = False) -> None:
    """Write rows as CSV with a header, as they arrive; ``safe``: no text is a formula to a spreadsheet."""
    from lakeward.cli.sql_values import csv_record, numeric_columns, text_rows, without_formula

    rows = _prefetched(text_rows(frame).toLocalIterator())
    # A number with a minus sign is not a formula.
    is_number = numeric_columns(frame) if safe else []
    invocation.has_output = True
    sys.stdout.write(csv_record(map(without_formula, frame.columns) if safe else frame.columns))
    for row in rows:
        values = (
            [v if number else without_formula(v) for v, number in zip(row, is_number, strict=True)] if safe else row
        )
        sys.stdout.write(csv_record(values))
    sys.stdout.flush()


def _write_text(invocation: Invocation, frame: DataFrame) -> None:
    from lakeward.cli.sql_values import numeric_columns, text_rows

    rows = [tuple(row) for row in text_rows(frame).limit(_TEXT_ROWS + 1).toLocalIterator()]
    is_cut = len(rows) > _TEXT_ROWS
    numeric = numeric_columns(frame)

    def text(console: Console) -> None:
        headings = [f"> {name}" if number else name for name, number in zip(frame.columns, numeric, strict=True)]
        drawn = table(*headings)
        for row in rows[:_TEXT_ROWS]:
            add_row(drawn, [styled("NULL", "dim") if value is None else value for value in row])
        if headings:
            console.print(drawn)
        console.print(count(min(len(rows), _TEXT_ROWS), "row"))

    emit_text(invocation, text)
    if is_cut:
        note(invocation, f"only the first {_TEXT_ROWS:,} rows are shown; --output json or csv writes all")


_WRITERS = {"json": _write_json, "text": _write_text}


def _streamed(frame: DataFrame | None) -> Iterator[str]:
    """Yield the single text column of a frame, partition by partition."""
    if frame is not None:
        for row in frame.toLocalIterator():
            yield row[0]


def _prefetched(rows: Iterator[Any]) -> Iterator[Any]:
    """Read the first row before anything is written: most errors occur there."""
    from itertools import chain

    first = next(rows, None)
    return rows if first is None else chain([first], rows)
