"""DMS-style CSV, written field by field for full control of quotes, and DMS-style Parquet."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.columns import decimal_parts
from lakeward.model import FileClass, Operation
from lakeward.testing.simulator.files import BEFORE_PREFIX, OPERATION_COLUMN, SEQUENCE_COLUMN, column_names, commit_text
from lakeward.testing.simulator.tables import lake_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.columns import Column
    from lakeward.model import TableId
    from lakeward.testing.oracle import Row
    from lakeward.testing.simulator.files import ChangeRow, SourceFile
    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec


if TYPE_CHECKING:
    Write = Callable[[Any], str]


def render_csv(file: SourceFile) -> bytes:
    """Return the file's bytes."""
    lines = [file.options.delimiter.join(fields) for fields in _records(file)]
    content = "".join(f"{line}\n" for line in lines).encode()
    # Without a fixed time the same simulation would produce other bytes a second later.
    return gzip.compress(content, mtime=0) if file.options.gzip else content


def quote(text: str, options: SimulatorOptions) -> str:
    """Write a text value: quoted where it would otherwise be read as something else."""
    if not options.rfc4180:
        return text
    special = text in (options.null, options.unchanged) or any(
        character in text for character in (options.delimiter, '"', "\n", "\r")
    )
    return '"' + text.replace('"', '""') + '"' if special else text


def value_writer(column_type: str, options: SimulatorOptions) -> Write:
    """Return the function that writes values of a type; None is written as the null token."""
    if column_type in ("string", "binary"):
        # An empty binary value is an empty field, which may be the null token.
        as_text: Write = str if column_type == "string" else bytes.hex
        return lambda value: options.null if value is None else quote(as_text(value), options)
    plain = _plain_writer(column_type)
    return lambda value: options.null if value is None else plain(value)


def _plain_writer(column_type: str) -> Write:
    if decimal_parts(column_type):
        return lambda value: format(value, "f")
    if column_type in ("timestamp", "timestamp_ntz"):
        return commit_text
    if column_type in ("date", "time"):
        return lambda value: str(value.isoformat())
    if column_type == "boolean":
        return lambda value: "true" if value else "false"
    return repr


def _records(file: SourceFile) -> Iterator[list[str]]:
    options = file.options
    if options.header and file.table is not None:
        yield [quote(name, options) for name in column_names(file, file.table)]
    if file.file_class is FileClass.LOAD:
        assert file.table is not None
        yield from _load_records(file, file.columns)
        return
    writers: dict[TableId, _ChangeWriter] = {}
    for change in file.changes:
        if change.table.id not in writers:
            writers[change.table.id] = _ChangeWriter(file, change.table)
        yield writers[change.table.id].fields(change)


def _load_records(file: SourceFile, columns: tuple[Column, ...]) -> Iterator[list[str]]:
    options = file.options
    operation = ["I"] if options.op_in_load else []
    end = [""] if options.change_sequence else []
    writers = _writers(columns, options)
    for row, stamp in zip(file.load, file.load_stamps, strict=True):
        start = [*operation, stamp] if options.timestamp_column else operation
        yield [*start, *(write(row.get(name)) for name, write in writers), *end]


class _ChangeWriter:
    """Writes one table's changes into one file."""

    def __init__(self, file: SourceFile, table: TableSpec) -> None:
        self._file = file
        self._options = file.options
        self._writers = _writers(file.columns_of(table), file.options)
        self._before_writers = _writers(file.before_columns(table), file.options)
        self._partial_sign = file.options.null if file.options.unchanged is None else file.options.unchanged
        self._is_transaction = file.file_class is FileClass.TRANSACTIONS

    def fields(self, change: ChangeRow) -> list[str]:
        """Return a record's fields: operation, timestamp, columns, sequence, before images."""
        fields = [change.letter] if self._options.op_in_changes else []
        if self._is_transaction:
            fields += [quote(change.table.id.name, self._options), quote(change.table.id.schema, self._options)]
        if self._options.timestamp_column:
            fields.append(commit_text(change.commit))
        fields += self._column_fields(change)
        if self._options.change_sequence:
            fields.append(change.sequence)
        before: Row = change.before or {}
        return [*fields, *(write(before.get(name)) for name, write in self._before_writers)]

    def _column_fields(self, change: ChangeRow) -> list[str]:
        image = change.image
        if change.operation is Operation.DELETE:
            left_out, sign = change.hidden, self._options.null
        else:
            left_out, sign = self._file.omitted(change), self._partial_sign
        if not left_out:
            return [write(image.get(name)) for name, write in self._writers]
        return [sign if name in left_out else write(image.get(name)) for name, write in self._writers]


def _writers(columns: tuple[Column, ...], options: SimulatorOptions) -> list[tuple[str, Write]]:
    return [(column.name, value_writer(column.type, options)) for column in columns]


# Parquet as DMS writes it, and the expected rows in the lake's types.
if TYPE_CHECKING:
    Arrays = list[tuple[str, pa.Array]]

_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "utinyint": pa.uint8(), "usmallint": pa.uint16(), "uint": pa.uint32(), "ubigint": pa.uint64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "time": pa.time32("ms"), "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(column_type: str) -> pa.DataType:
    """Return the Arrow type in which DMS writes a column type."""
    parts = decimal_parts(column_type)
    return pa.decimal128(*parts) if parts else _ARROW_TYPES[column_type]


def render_parquet(file: SourceFile) -> bytes:
    """Return the file's bytes."""
    arrays = _load_arrays(file) if file.file_class is FileClass.LOAD else _change_arrays(file)
    return _to_bytes(arrays, file.options.row_group_rows, "gzip" if file.options.gzip else "none")


def render_rows(columns: Sequence[Column], rows: Sequence[Row]) -> bytes:
    """Return source rows as Parquet in the lake's types."""
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
    """Return the images as the file shows them: null where a column is left out."""
    shown = []
    for change in file.changes:
        left_out = change.hidden if change.operation is Operation.DELETE else file.omitted(change)
        shown.append({**change.image, **dict.fromkeys(left_out)} if left_out else change.image)
    return shown


def _column_array(column: Column, values: list[Any]) -> tuple[str, pa.Array]:
    return (column.name, pa.array(values, arrow_type(column.type)))


def _texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string())
