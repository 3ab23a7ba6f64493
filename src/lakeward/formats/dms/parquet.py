"""Parquet files: their columns as the lake sees them, and their rows as blocks of typed values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.column_policy import RuleKind
from lakeward.columns import MAX_PRECISION, Column, fits_type
from lakeward.config.policy import rules_of
from lakeward.formats.dms.blocks import Block, parse_moments
from lakeward.formats.dms.files import Limits, MismatchedFileError, UnusableFileError, byte_lengths, plain_file
from lakeward.formats.dms.layout import Layout, layout_by_names
from lakeward.formats.dms.protection import protected
from lakeward.formats.dms.values import (
    DAYS,
    INTEGER_RANGE,
    MICROSECONDS,
    Cells,
    arrow_type,
    convert_each,
    decoded,
    format_times,
    parse_text,
    require_between,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.column_policy import ColumnRule
    from lakeward.config import TableSettings
    from lakeward.formats.base import ReadSpec
    from lakeward.formats.dms.blocks import Rows


_LAKE_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "int", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float16(): "float", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.null(): "string",
}  # fmt: skip


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return a type without dictionary, extension, large offsets and fixed size, which only concern the encoding."""
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return pa.binary()
    if pa.types.is_binary_view(data_type):
        return pa.binary()
    return pa.date32() if pa.types.is_date64(data_type) else data_type


def lake_type_of(data_type: pa.DataType) -> str | None:
    """Return the lake type of a Parquet column's Arrow type, None when the lake has no such type."""
    plain = plain_type(data_type)
    if pa.types.is_decimal(plain):
        fitting = plain.precision <= MAX_PRECISION and 0 <= plain.scale <= plain.precision
        return f"decimal({plain.precision},{plain.scale})" if fitting else None
    if pa.types.is_timestamp(plain):
        return "timestamp_ntz" if plain.tz is None else "timestamp"
    if pa.types.is_time(plain):
        return "string"
    return _LAKE_TYPES.get(plain)


def fits(data_type: pa.DataType, column: Column) -> bool:
    """Whether values of a Parquet column fit the table's column without loss."""
    found = lake_type_of(data_type)
    if found is None or pa.types.is_null(plain_type(data_type)):
        return found is not None
    return fits_type(found, column.lake_type)


def convert(array: pa.Array, column: Column) -> Cells:
    """Convert a plain array that :func:`fits` to the column's lake type, finding values outside the declared range."""
    target = arrow_type(column.lake_type)
    if pa.types.is_time(array.type):
        return convert_each(array, format_times, target)
    if column.type == "time" and pa.types.is_string(array.type):
        return parse_text(array, column.type)
    return convert_each(array, lambda values: _cast(values, column, target), target)


def _cast(values: pa.Array, column: Column, target: pa.DataType) -> pa.Array:
    if column.type in INTEGER_RANGE and not pa.types.is_null(values.type):
        values.cast(INTEGER_RANGE[column.type])  # raises where a value is outside the declared type
    if pa.types.is_timestamp(values.type):
        # Without a zone the value counts as UTC, with one it is stored as UTC already.
        micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        require_between(micros, MICROSECONDS)
        return micros.cast(target)
    if pa.types.is_string(values.type):
        values.validate(full=True)  # raises where a value is not UTF-8, which Parquet files may hold
    result = values.cast(target)
    if pa.types.is_date(target):
        require_between(result.cast(pa.int32()), DAYS)
    return result


def convert_commit_times(array: pa.Array) -> Cells:
    """Convert commit times to microseconds; finer digits are dropped here and kept by :func:`finer_digits`."""

    def convert_times(values: pa.Array) -> pa.Array:
        # A cast of nanoseconds to microseconds would fail for finer values, and truncation rounds towards 1970.
        if values.type.unit == "ns":
            values = pc.floor_temporal(values, unit="microsecond")
        micros = values.cast(pa.timestamp("us", "UTC"))
        require_between(micros.cast(pa.int64()), MICROSECONDS)
        return micros

    return convert_each(array, convert_times, pa.timestamp("us", "UTC"))


def to_text(scalar: pa.Scalar) -> str | None:
    """Return a value as text that the text parser reads back as the same value."""
    if not scalar.is_valid:
        return None
    if pa.types.is_binary(scalar.type):
        return str(scalar.as_py().hex())
    if pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.timestamp(scalar.type.unit)).cast(pa.string()).as_py())
    return decoded(scalar if pa.types.is_string(scalar.type) else scalar.cast(pa.string()))


MAX_ROWS = 1 << 16
# Approximate limit on the bytes of rows that are converted at one time.
_BLOCK_BYTES = 256 << 20


def open_parquet(plain_path: str, limits: Limits) -> pq.ParquetFile:
    """Open a Parquet file with 96 bit timestamps at microseconds.

    Texts are read as dictionaries: otherwise a long value that many rows share would be copied for each of them before
    its length is checked.

    Raises:
        UnusableFileError: the file claims to hold more than its size allows, or names columns in no known encoding;
            OSError, ArrowException: not a Parquet file.
    """
    try:
        with pq.ParquetFile(plain_path) as file:
            metadata = file.metadata
            _require_bounded(metadata, Path(plain_path).stat().st_size, limits)
            texts = [field.name for field in file.schema_arrow if plain_type(field.type) in (pa.string(), pa.binary())]
        return pq.ParquetFile(
            plain_path, metadata=metadata, coerce_int96_timestamp_unit="us", memory_map=False, read_dictionary=texts
        )
    except UnicodeDecodeError as error:
        msg = f"a column's name is not valid UTF-8: {error.object!r}"
        raise UnusableFileError(msg) from error


def _require_bounded(metadata: pq.FileMetaData, stored: int, limits: Limits) -> None:
    """Check the sizes in the footer against the file's size.

    Not column by column: for the metadata of a damaged column, pyarrow ends the process instead of raising.
    """
    limits.require_rows(metadata.num_rows, stored)
    groups = range(metadata.num_row_groups)
    limits.require_expansion(sum(metadata.row_group(group).total_byte_size for group in groups), stored)


def parquet_columns(local_path: str, settings: TableSettings) -> tuple[Column, ...]:
    """Return the source columns of a Parquet file with their lake types; metadata columns are left out.

    Raises:
        UnusableFileError: the lake has no type for a column; OSError, ArrowInvalid: not a Parquet file.
    """
    declared = None if settings.columns is None else [column.name for column in settings.columns]
    limits = Limits.of(settings)
    with plain_file(local_path, limits) as path, open_parquet(path, limits) as file:
        schema = file.schema_arrow
        layout = layout_by_names(schema.names, settings, declared)
        return file_columns(schema, layout, settings)


def file_columns(schema: pa.Schema, layout: Layout, settings: TableSettings) -> tuple[Column, ...]:
    """Return a file's source columns in its own order, renames applied."""
    names = [settings.renames.get(name, name) for name in schema.names]
    wanted, rules = {*layout.columns, *layout.unknown}, rules_of(settings)
    return tuple(
        Column(name, _lake_type(field, rules.get(name)))
        for name, field in zip(names, schema, strict=True)
        if name in wanted
    )


def _lake_type(field: pa.Field, rule: ColumnRule | None) -> str:
    if rule is not None and rule.kind in (RuleKind.DROP, RuleKind.MASK):
        return "string"  # whatever its type is: no value of it is stored
    lake = lake_type_of(field.type)
    if lake is None:
        msg = f"column {field.name!r} has type {field.type}, which the lake cannot store"
        raise UnusableFileError(msg)
    return lake


def check_types(schema: pa.Schema, layout: Layout, spec: ReadSpec) -> None:
    """Refuse a file with a column whose type does not fit the table's."""
    for column in spec.read_columns:
        position, rule = layout.columns.get(column.name), spec.policy.rule(column.name)
        if rule is not None and rule.kind is RuleKind.MASK:
            continue
        if position is not None and not fits(schema.field(position).type, column):
            raise MismatchedFileError


def parquet_blocks(
    file: pq.ParquetFile,
    layout: Layout,
    spec: ReadSpec,
    limits: Limits,
    *,
    load: bool,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> Iterator[Block]:
    """Yield a file's rows in blocks, in physical order; ``constants`` are columns with one value, after the file's own.

    Raises:
        UnusableFileError: a value or row is larger than ``limits`` allow.
    """
    start = 1
    for batch in file.iter_batches(batch_size=_batch_rows(file, limits), use_threads=False):
        rows = np.arange(start, start + batch.num_rows, dtype=np.int64)
        start += batch.num_rows
        for piece in _pieces(batch, rows, limits):
            yield _block(_with_constants(batch[piece], constants or {}), rows[piece], layout, spec, load=load)


def _with_constants(batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    for name, value in constants.items():
        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch


def _batch_rows(file: pq.ParquetFile, limits: Limits) -> int:
    """Return how many rows may be read at one time; values of a fixed size use the memory of their type."""
    longest = 1
    for field in file.schema_arrow:
        if pa.types.is_fixed_size_binary(field.type):
            if field.type.byte_width > limits.value_bytes:
                where = f"column {field.name!r}"
                raise limits.value_too_large(where, field.type.byte_width)
            longest = max(longest, field.type.byte_width)
    return max(1, min(MAX_ROWS, _BLOCK_BYTES // longest))


def _pieces(batch: pa.RecordBatch, rows: Rows, limits: Limits) -> Iterator[slice]:
    """Yield slices of a batch that fit into memory once their dictionaries are expanded."""
    columns = [column if pa.types.is_dictionary(column.type) else _plain(column) for column in batch.columns]
    limits.require_texts(rows, columns)
    lengths = [length for column in columns if (length := byte_lengths(column)) is not None]
    sizes = np.sum(lengths, axis=0) if lengths else np.zeros(len(rows), dtype=np.int64)
    ends = np.cumsum(sizes)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + _BLOCK_BYTES, side="right")))
        yield slice(start, end)
        start = end


def _block(batch: pa.RecordBatch, rows: Rows, layout: Layout, spec: ReadSpec, *, load: bool) -> Block:
    arrays = [_plain(column) for column in batch.columns]
    types = {column.name: column for column in spec.read_columns}

    def cells(position: int, column: Column) -> Cells:
        return protected(arrays[position], column, spec.policy, lambda: convert(arrays[position], column))

    return Block(
        rows=rows,
        raw=lambda index: _json(batch.schema.names, arrays, index),
        operation=None if layout.operation is None else _text(arrays[layout.operation]),
        timestamp=None if layout.timestamp is None else _moments(arrays[layout.timestamp]),
        sequence=None if layout.sequence is None else _digits(arrays[layout.sequence]),
        transaction=None if layout.transaction is None else _text(arrays[layout.transaction]),
        columns={name: cells(position, types[name]) for name, position in layout.columns.items() if name in types},
        before={
            name: cells(position, types[name])
            for name, position in layout.before.items()
            if name in spec.key and not load
        },
        images=lambda: {
            name: cells(position, types[name])
            for name, position in layout.before.items()
            if name in types and name not in spec.key
        },
    )


def _plain(column: pa.Array) -> pa.Array:
    """Return an array without dictionary, extension and large offsets."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    target = plain_type(column.type)
    return column if column.type == target else column.cast(target)


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _digits(array: pa.Array) -> pa.Array:
    """Return a change sequence as its digits, without the zeros of a decimal's scale."""
    if pa.types.is_decimal(array.type) and array.type.scale:
        return pc.replace_substring_regex(array.cast(pa.string()), r"\.0+$", "")
    return array.cast(pa.string())


def _moments(array: pa.Array) -> Cells:
    """Return a commit time column as instants; DMS writes text."""
    if pa.types.is_timestamp(array.type):
        return convert_commit_times(array)
    return parse_moments(_text(array))


def _json(names: list[str], arrays: list[pa.Array], index: int) -> str:
    """Return a row as a JSON object of texts, which the text parser reads back as the same values."""
    fields = {name: to_text(array[index]) for name, array in zip(names, arrays, strict=True)}
    return json.dumps(fields, ensure_ascii=False)
