"""Parquet files: their columns as the lake sees them, and their rows as blocks of typed values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.datatypes import Column
from lakeward.sources.dms.arrow_types import convert, convert_commit_times, fits, lake_type_of, plain_type, to_text
from lakeward.sources.dms.blocks import Block, parse_moments
from lakeward.sources.dms.files import plain_file
from lakeward.sources.dms.layout import Layout, layout_by_names
from lakeward.sources.dms.limits import Limits, byte_lengths
from lakeward.sources.dms.problems import MismatchedFileError, UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config import TableSettings
    from lakeward.sources.base import ReadSpec
    from lakeward.sources.dms.blocks import Rows
    from lakeward.sources.dms.cells import Cells

MAX_ROWS = 1 << 16
# Rows that are converted at one time have about so many bytes at most.
_BLOCK_BYTES = 256 << 20


def open_parquet(plain_path: str, limits: Limits) -> pq.ParquetFile:
    """Open a Parquet file with 96 bit timestamps at microseconds.

    Texts are read as dictionaries: one long value of many rows would else be written out for each of them, before
    anybody knew how long it is.

    Raises:
        UnusableFileError: the file claims to hold more than its size allows, or names columns in no known encoding;
            OSError, ArrowException: no Parquet file.
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
    """Hold what the footer claims against the file's size.

    Not column by column: asked for a damaged column's metadata, pyarrow ends the process instead of raising.
    """
    limits.require_rows(metadata.num_rows, stored)
    groups = range(metadata.num_row_groups)
    limits.require_expansion(sum(metadata.row_group(group).total_byte_size for group in groups), stored)


def parquet_columns(local_path: str, settings: TableSettings) -> tuple[Column, ...]:
    """Give the source columns of a Parquet file with their lake types; metadata columns are left out.

    Raises:
        UnusableFileError: a column's type has no place in the lake; OSError, ArrowInvalid: no Parquet file.
    """
    declared = None if settings.columns is None else [column.name for column in settings.columns]
    limits = Limits.of(settings)
    with plain_file(local_path, limits) as path, open_parquet(path, limits) as file:
        schema = file.schema_arrow
        layout = layout_by_names(schema.names, settings, declared)
        return file_columns(schema, layout, settings)


def file_columns(schema: pa.Schema, layout: Layout, settings: TableSettings) -> tuple[Column, ...]:
    """Give a file's source columns in its own order, renames applied."""
    names = [settings.renames.get(name, name) for name in schema.names]
    wanted = {*layout.columns, *layout.unknown}
    return tuple(Column(name, _lake_type(field)) for name, field in zip(names, schema, strict=True) if name in wanted)


def _lake_type(field: pa.Field) -> str:
    lake = lake_type_of(field.type)
    if lake is None:
        msg = f"column {field.name!r} has type {field.type}, which the lake has no place for"
        raise UnusableFileError(msg)
    return lake


def check_types(schema: pa.Schema, layout: Layout, spec: ReadSpec) -> None:
    """Refuse a file with a column whose type does not fit the table's."""
    for column in spec.columns:
        position = layout.columns.get(column.name)
        if position is not None and not fits(schema.field(position).type, column):
            raise MismatchedFileError


def parquet_blocks(
    file: pq.ParquetFile, layout: Layout, spec: ReadSpec, limits: Limits, *, load: bool
) -> Iterator[Block]:
    """Give a file's rows in blocks, in physical order.

    Raises:
        UnusableFileError: a value or row is larger than ``limits`` allow.
    """
    start = 1
    for batch in file.iter_batches(batch_size=_batch_rows(file, limits), use_threads=False):
        rows = np.arange(start, start + batch.num_rows, dtype=np.int64)
        start += batch.num_rows
        for piece in _pieces(batch, rows, limits):
            yield _block(batch[piece], rows[piece], layout, spec, load=load)


def _batch_rows(file: pq.ParquetFile, limits: Limits) -> int:
    """Return how many rows may be read at one time: values of a fixed size take as much memory as their type says."""
    longest = 1
    for field in file.schema_arrow:
        if pa.types.is_fixed_size_binary(field.type):
            if field.type.byte_width > limits.value_bytes:
                where = f"column {field.name!r}"
                raise limits.value_too_large(where, field.type.byte_width)
            longest = max(longest, field.type.byte_width)
    return max(1, min(MAX_ROWS, _BLOCK_BYTES // longest))


def _pieces(batch: pa.RecordBatch, rows: Rows, limits: Limits) -> Iterator[slice]:
    """Cut a batch into pieces that fit into memory once their dictionaries are written out."""
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
    types = {column.name: column for column in spec.columns}

    def cells(position: int, column: Column) -> Cells:
        return convert(arrays[position], column)

    return Block(
        rows=rows,
        raw=lambda index: _json(batch.schema.names, arrays, index),
        operation=None if layout.operation is None else _text(arrays[layout.operation]),
        timestamp=None if layout.timestamp is None else _moments(arrays[layout.timestamp]),
        sequence=None if layout.sequence is None else _digits(arrays[layout.sequence]),
        transaction=None if layout.transaction is None else _text(arrays[layout.transaction]),
        columns={name: cells(position, types[name]) for name, position in layout.columns.items()},
        before={
            name: cells(position, types[name])
            for name, position in layout.before.items()
            if name in spec.key and not load
        },
        images=lambda: {
            name: cells(position, types[name]) for name, position in layout.before.items() if name not in spec.key
        },
    )


def _plain(column: pa.Array) -> pa.Array:
    """Give an array without dictionary, extension and large offsets."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    target = plain_type(column.type)
    return column if column.type == target else column.cast(target)


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _digits(array: pa.Array) -> pa.Array:
    """Give a change sequence as its digits; a decimal's scale holds none of them."""
    if pa.types.is_decimal(array.type) and array.type.scale:
        return pc.replace_substring_regex(array.cast(pa.string()), r"\.0+$", "")
    return array.cast(pa.string())


def _moments(array: pa.Array) -> Cells:
    """Give a commit time column as instants; DMS writes text."""
    if pa.types.is_timestamp(array.type):
        return convert_commit_times(array)
    return parse_moments(_text(array))


def _json(names: list[str], arrays: list[pa.Array], index: int) -> str:
    """Write a row as a JSON object of texts, which the text parser reads back to the same values."""
    fields = {name: to_text(array[index]) for name, array in zip(names, arrays, strict=True)}
    return json.dumps(fields, ensure_ascii=False)
