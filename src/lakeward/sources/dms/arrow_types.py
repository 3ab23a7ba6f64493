"""Which lake type a Parquet column has, whether that fits the table's, and the conversion between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.datatypes import MAX_PRECISION, can_widen
from lakeward.sources.dms.cells import Cells, convert_each, decoded
from lakeward.sources.dms.records import arrow_type
from lakeward.sources.dms.values import DAYS, INTEGER_RANGE, MICROSECONDS, format_times, parse_text, require_between

if TYPE_CHECKING:
    from lakeward.datatypes import Column

_MOMENTS = frozenset({"timestamp", "timestamp_ntz"})
_LAKE_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "int", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float16(): "float", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.null(): "string",
}  # fmt: skip


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Give a type without dictionary, extension, large offsets and fixed size, which all say how and not what."""
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
    """Give the lake type of a Parquet column's Arrow type, None when the lake has no place for it."""
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
    """Tell whether values of a Parquet column can be the table column's without loss."""
    found = lake_type_of(data_type)
    if found is None or pa.types.is_null(plain_type(data_type)):
        return found is not None
    if found in _MOMENTS and column.lake_type in _MOMENTS:
        return True
    return can_widen(found, column.lake_type)


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
    """Convert commit times to microseconds; what is finer is cut off here and kept by :func:`finer_digits`."""

    def convert_times(values: pa.Array) -> pa.Array:
        # Not a cast of nanoseconds to microseconds: it refuses what is finer, and cutting rounds towards 1970.
        if values.type.unit == "ns":
            values = pc.floor_temporal(values, unit="microsecond")
        micros = values.cast(pa.timestamp("us", "UTC"))
        require_between(micros.cast(pa.int64()), MICROSECONDS)
        return micros

    return convert_each(array, convert_times, pa.timestamp("us", "UTC"))


def to_text(scalar: pa.Scalar) -> str | None:
    """Write a value as text that the text parser reads back to the same value."""
    if not scalar.is_valid:
        return None
    if pa.types.is_binary(scalar.type):
        return str(scalar.as_py().hex())
    if pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.timestamp(scalar.type.unit)).cast(pa.string()).as_py())
    return decoded(scalar if pa.types.is_string(scalar.type) else scalar.cast(pa.string()))
