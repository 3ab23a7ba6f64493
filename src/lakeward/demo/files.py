"""Files as DMS writes them: Parquet with typed columns, and CSV without header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from lakeward.demo.shop import Row

TIMESTAMP_COLUMN = "cdc_timestamp"
Change = tuple[str, "Row"]


def write_parquet_load(file: Path, schema: pa.Schema, rows: Iterable[Row], time: datetime) -> None:
    """Write a load part: the source's columns and the time of the load."""
    stamped = [{**row, TIMESTAMP_COLUMN: time} for row in rows]
    _write(file, pa.schema([*schema, _timestamp_field()]), stamped)


def write_parquet_changes(file: Path, schema: pa.Schema, changes: Iterable[Change], time: datetime) -> None:
    """Write a change file: the operation first, the commit time last."""
    stamped = [{"Op": operation, **row, TIMESTAMP_COLUMN: time} for operation, row in changes]
    _write(file, pa.schema([pa.field("Op", pa.string()), *schema, _timestamp_field()]), stamped)


def write_csv(file: Path, records: Iterable[Sequence[Any]]) -> None:
    """Write records without header; None is an unquoted NULL."""
    lines = [",".join("NULL" if value is None else str(value) for value in record) for record in records]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _timestamp_field() -> pa.Field:
    return pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", tz="UTC"))


def _write(file: Path, schema: pa.Schema, rows: list[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
