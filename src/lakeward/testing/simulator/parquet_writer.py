"""DMS-style Parquet, and the truth as Parquet in the lake's types."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.datatypes import decimal_parts
from lakeward.model import FileClass, Operation
from lakeward.testing.simulator.files import BEFORE_PREFIX, OPERATION_COLUMN, SEQUENCE_COLUMN, commit_text
from lakeward.testing.simulator.values import lake_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.datatypes import Column
    from lakeward.testing.oracle import Row
    from lakeward.testing.simulator.files import SourceFile

    Arrays = list[tuple[str, pa.Array]]

_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "utinyint": pa.uint8(), "usmallint": pa.uint16(), "uint": pa.uint32(), "ubigint": pa.uint64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "time": pa.time32("ms"), "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(column_type: str) -> pa.DataType:
    """Give the Arrow type in which DMS writes a column type."""
    parts = decimal_parts(column_type)
    return pa.decimal128(*parts) if parts else _ARROW_TYPES[column_type]


def render_parquet(file: SourceFile) -> bytes:
    """Give the file's bytes."""
    arrays = _load_arrays(file) if file.file_class is FileClass.LOAD else _change_arrays(file)
    return _to_bytes(arrays, file.options.row_group_rows, "gzip" if file.options.gzip else "none")


def render_rows(columns: Sequence[Column], rows: Sequence[Row]) -> bytes:
    """Give source rows as Parquet in the lake's types."""
    arrays = [
        (column.name, pa.array([lake_value(column.type, row.get(column.name)) for row in rows], _lake_arrow(column)))
        for column in columns
    ]
    return _to_bytes(arrays, 100_000, "snappy")


def _lake_arrow(column: Column) -> pa.DataType:
    return arrow_type(column.lake_type)


def _to_bytes(arrays: Arrays, row_group_rows: int, compression: str) -> bytes:
    table = pa.Table.from_arrays([array for _, array in arrays], names=[name for name, _ in arrays])
    sink = io.BytesIO()
    pq.write_table(table, sink, version="1.0", compression=compression, row_group_size=row_group_rows)
    return sink.getvalue()


def _load_arrays(file: SourceFile) -> Arrays:
    options, count = file.options, len(file.load)
    start: Arrays = [(OPERATION_COLUMN, _texts(["I"] * count))] if options.op_in_load else []
    if options.timestamp_column:
        start.append((options.timestamp_column, _texts(file.load_stamps)))
    columns = [_column_array(column, [row.get(column.name) for row in file.load]) for column in file.columns]
    end: Arrays = [(SEQUENCE_COLUMN, _texts([""] * count))] if options.change_sequence else []
    return [*start, *columns, *end]


def _change_arrays(file: SourceFile) -> Arrays:
    assert file.table is not None
    options, changes = file.options, file.changes
    arrays: Arrays = []
    if options.op_in_changes:
        arrays.append((OPERATION_COLUMN, _texts([change.letter for change in changes])))
    if options.timestamp_column:
        arrays.append((options.timestamp_column, _texts([commit_text(change.commit) for change in changes])))
    images = _images(file)
    arrays += [_column_array(column, [image.get(column.name) for image in images]) for column in file.columns]
    if options.change_sequence:
        arrays.append((SEQUENCE_COLUMN, _texts([change.sequence for change in changes])))
    for column in file.before_columns(file.table):
        values = [change.before.get(column.name) if change.before else None for change in changes]
        arrays.append((BEFORE_PREFIX + column.name, pa.array(values, arrow_type(column.type))))
    return arrays


def _images(file: SourceFile) -> list[Row]:
    """Give the images as the file shows them: null where a column is left out."""
    shown = []
    for change in file.changes:
        left_out = change.hidden if change.operation is Operation.DELETE else file.unspoken(change)
        shown.append({**change.image, **dict.fromkeys(left_out)} if left_out else change.image)
    return shown


def _column_array(column: Column, values: list[Any]) -> tuple[str, pa.Array]:
    return (column.name, pa.array(values, arrow_type(column.type)))


def _texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string())
