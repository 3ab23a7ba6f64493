"""Which types DuckDB compares exactly as Spark does, and how they are named there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lakeward.diffing.widening import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.diffing.alignment import AlignedColumn, Alignment

# Bytes are compared as bytes, texts too. Intervals, times of day and variants are kept in files in ways of Spark's own.
_SIMPLE: dict[str, str] = {
    "BooleanType": "BOOLEAN",
    "ByteType": "TINYINT",
    "ShortType": "SMALLINT",
    "IntegerType": "INTEGER",
    "LongType": "BIGINT",
    "FloatType": "FLOAT",
    "DoubleType": "DOUBLE",
    "StringType": "VARCHAR",
    "BinaryType": "BLOB",
    "DateType": "DATE",
    "TimestampType": "TIMESTAMPTZ",
    "TimestampNTZType": "TIMESTAMP",
}
_NO_KEY = (T.FloatType, T.DoubleType)


def native_type(data_type: T.DataType) -> str | None:
    """Give the DuckDB name of a simple type, None where there is none that compares alike."""
    if isinstance(data_type, T.DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if isinstance(data_type, T.StringType) and data_type != T.StringType():
        # Of another collation, or cut to a length.
        return None
    return _SIMPLE.get(type(data_type).__name__)


def is_native(data_type: T.DataType) -> bool:
    """Tell whether DuckDB compares values of a type, nested ones among them, as Spark does."""
    if isinstance(data_type, T.StructType):
        names = [one.name for one in data_type.fields]
        return bool(names) and not _alike(names) and all(is_native(one.dataType) for one in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return is_native(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return is_native(data_type.keyType) and is_native(data_type.valueType)
    return native_type(data_type) is not None


def why_not_native(alignment: Alignment) -> str | None:
    """Say why columns cannot be compared by DuckDB; None where they can."""
    if alike := _alike(alignment.left.names) or _alike(alignment.right.names):
        return f"columns {alike} differ in upper and lower case only, which DuckDB does not tell apart"
    for one in alignment.columns:
        problem = _key_problem(one) if one.is_key else _problem(one)
        if problem:
            return problem
    return None


def _key_problem(one: AlignedColumn) -> str | None:
    if one.left_type is None or one.right_type is None or not is_same(one.left_type, one.right_type):
        return f"key column {one.name} has not the same type on both sides, so that its rows lie in other buckets"
    if native_type(one.type) is None or isinstance(one.type, _NO_KEY):
        return f"key column {one.name} is of type {one.type.simpleString()}, which DuckDB does not pair as Spark does"
    return None


def _problem(one: AlignedColumn) -> str | None:
    for found in (one.left_type, one.right_type):
        if found is None:
            continue
        if not is_native(found):
            return f"column {one.name} is of type {found.simpleString()}, which DuckDB does not compare as Spark does"
        if one.has_one_type and not is_same(found, one.type) and not _is_castable(found, one.type):
            return f"column {one.name} is {found.simpleString()} on one side and {one.type.simpleString()} on the other"
    return None


def _is_castable(found: T.DataType, wanted: T.DataType) -> bool:
    return isinstance(found, T.NumericType) and isinstance(wanted, T.NumericType)


def _alike(names: Iterable[str]) -> str | None:
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            return f"{seen[name.casefold()]} and {name}"
        seen[name.casefold()] = name
    return None
