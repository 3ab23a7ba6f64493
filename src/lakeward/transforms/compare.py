"""Comparing rows of any type: two frames of a table row by row, and hashes of rows.

Rows are compared as multisets, so that a row that occurs twice differs from the same row once. A null equals a null,
and a NaN equals a NaN. Maps, which Spark cannot compare, are normalised first.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructField, StructType

from lakeward import schemas as S
from lakeward.columns import quote_name
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


# How many more copies of a row are expected than found; negative if more are found than expected.
TIMES = f"{S.PREFIX}times"
EXPECTED = f"{S.PREFIX}expected"
FOUND = f"{S.PREFIX}found"
EXPECTED_TIMES = f"{S.PREFIX}expected_times"
FOUND_TIMES = f"{S.PREFIX}found_times"
# Longer values are truncated when they are shown.
_SHOWN_LENGTH = 500


def leftovers(expected: DataFrame, found: DataFrame, *, names: Sequence[str]) -> DataFrame:
    """Return the rows that do not occur equally often on both sides, each once, with the difference as ``TIMES``."""
    both = expected.select(*columns(names), F.lit(1).alias(TIMES)).unionByName(
        found.select(*columns(names), F.lit(-1).alias(TIMES))
    )
    return both.groupBy(*columns(names)).agg(F.sum(TIMES).alias(TIMES)).filter(column(TIMES) != 0)


def by_key(left: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Pair leftovers by key: how many rows of the key each side has left over, and one of each side."""
    row = F.struct(*columns(names))
    is_expected, is_found = column(TIMES) > 0, column(TIMES) < 0
    return left.groupBy(*columns(keys)).agg(
        F.sum(F.when(is_expected, column(TIMES)).otherwise(0)).alias(EXPECTED_TIMES),
        F.sum(F.when(is_found, -column(TIMES)).otherwise(0)).alias(FOUND_TIMES),
        F.max(F.when(is_expected, row)).alias(EXPECTED),
        F.max(F.when(is_found, row)).alias(FOUND),
    )


def unpaired(left: DataFrame, *, names: Sequence[str]) -> DataFrame:
    """Return leftovers of a table without key in the form of :func:`by_key`, without pairing rows."""
    row = F.struct(*columns(names))
    is_expected, is_found = column(TIMES) > 0, column(TIMES) < 0
    return left.select(
        F.when(is_expected, column(TIMES)).otherwise(0).alias(EXPECTED_TIMES),
        F.when(is_found, -column(TIMES)).otherwise(0).alias(FOUND_TIMES),
        F.when(is_expected, row).alias(EXPECTED),
        F.when(is_found, row).alias(FOUND),
    )


def totals(*, keys: Sequence[str], names: Sequence[str]) -> list[Column]:
    """Return aggregates over pairs: rows missing, extra and different, then for each column in how many of these.

    A key with one row left over on each side counts as one different row.
    """
    surplus = column(EXPECTED_TIMES) - column(FOUND_TIMES)
    counts = [
        F.sum(F.greatest(surplus, F.lit(0))),
        F.sum(F.greatest(-surplus, F.lit(0))),
        F.sum(F.least(column(EXPECTED_TIMES), column(FOUND_TIMES))),
    ]
    differing = [F.sum(_differs(name).cast("long")) for name in names if name not in keys]
    return [F.coalesce(count, F.lit(0)) for count in (*counts, *differing)]


def differing_columns(*, keys: Sequence[str], names: Sequence[str]) -> Column:
    """Return the names of the columns in which a pair differs; none where one side has no row."""
    found = [F.when(_differs(name), F.lit(name)) for name in names if name not in keys]
    return F.filter(F.array(*found, F.lit(None).cast("string")), lambda name: name.isNotNull())


def as_texts(pairs: DataFrame, side: str, names: Sequence[str]) -> Column:
    """Return one side's row as a struct of texts, for display."""
    types = pairs.schema[side].dataType
    assert isinstance(types, StructType)
    texts = []
    for position, name in enumerate(names):
        value = _value(side, name)
        text = F.hex(value) if isinstance(types[name].dataType, BinaryType) else value.cast("string")
        cut = F.when(F.length(text) > _SHOWN_LENGTH, F.concat(F.substring(text, 1, _SHOWN_LENGTH), F.lit("…")))
        # Named by position: a column name may contain anything.
        texts.append(F.coalesce(cut, text).alias(f"c{position}"))
    return F.struct(*texts)


def in_sample(share: float, names: Sequence[str]) -> Column:
    """Whether a row is in the sample, by the hash of its key: the same rows on both sides and at every call."""
    return F.pmod(F.xxhash64(*columns(names)), F.lit(_SAMPLE_STEPS)) < F.lit(round(share * _SAMPLE_STEPS))


_SAMPLE_STEPS = 1_000_000


def all_of(conditions: Sequence[Column]) -> Column:
    """Return the condition that all of these hold."""
    return reduce(lambda left, right: left & right, conditions, F.lit(True))


def _differs(name: str) -> Column:
    """Whether a column differs where both sides have a row."""
    paired = column(EXPECTED).isNotNull() & column(FOUND).isNotNull()
    return paired & ~_value(EXPECTED, name).eqNullSafe(_value(FOUND, name))


def _value(side: str, name: str) -> Column:
    return F.col(f"{quote_name(side)}.{quote_name(name)}")


# Spark can neither compare, hash, sort nor join maps, at any depth of a value. They are normalised to arrays. Types
# that cannot be made comparable are found by :func:`uncomparable_part`.


KEY, VALUE = "key", "value"
# Types whose values Spark cannot compare.
_NOT_COMPARABLE = frozenset({"variant", "interval", "geometry", "geography"})


def uncomparable_part(data_type: DataType) -> str | None:
    """Return the name of a type inside a type whose values cannot be compared; None if there is none."""
    if isinstance(data_type, StructType):
        found = (uncomparable_part(field.dataType) for field in data_type.fields)
        return next((name for name in found if name is not None), None)
    if isinstance(data_type, ArrayType):
        return uncomparable_part(data_type.elementType)
    if isinstance(data_type, MapType):
        return uncomparable_part(data_type.keyType) or uncomparable_part(data_type.valueType)
    name = data_type.simpleString().partition("(")[0]
    return name if name in _NOT_COMPARABLE else None


def holds_map(data_type: DataType) -> bool:
    """Whether there is a map anywhere in a type."""
    if isinstance(data_type, StructType):
        return any(holds_map(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return holds_map(data_type.elementType)
    return isinstance(data_type, MapType)


def normalised_type(data_type: DataType) -> DataType:
    """Return the type of :func:`normalised`: an array of (key, value) structs in place of each map."""
    if not holds_map(data_type):
        return data_type
    if isinstance(data_type, StructType):
        return StructType(
            [StructField(field.name, normalised_type(field.dataType), field.nullable) for field in data_type.fields]
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(normalised_type(data_type.elementType), data_type.containsNull)
    assert isinstance(data_type, MapType)
    # Map keys cannot contain maps in Spark.
    entry = StructType(
        [
            StructField(KEY, data_type.keyType, nullable=False),
            StructField(VALUE, normalised_type(data_type.valueType), data_type.valueContainsNull),
        ]
    )
    return ArrayType(entry, containsNull=False)


def normalised(value: Column, data_type: DataType) -> Column:
    """Return a value with every map in it as an array of its entries, sorted by key: their order does not count.

    A value without maps is returned as it is; nulls stay nulls on every level.
    """
    if not holds_map(data_type):
        return value
    if isinstance(data_type, MapType):
        return F.sort_array(entries(value, data_type))
    return change_inside(value, data_type, normalised)


def change_inside(value: Column, data_type: DataType, change: Callable[[Column, DataType], Column]) -> Column:
    """Return an array or struct with its elements or fields changed, by their types; null stays null."""
    if isinstance(data_type, ArrayType):
        return F.transform(value, lambda element: change(element, data_type.elementType))
    assert isinstance(data_type, StructType)
    parts = [change(value.getField(field.name), field.dataType).alias(field.name) for field in data_type.fields]
    return F.when(value.isNotNull(), F.struct(*parts))


def entries(value: Column, data_type: MapType) -> Column:
    """Return a map's entries in the order in which it holds them, values normalised."""
    found = F.map_entries(value)
    value_type = data_type.valueType
    if not holds_map(value_type):
        return found
    return F.transform(
        found,
        lambda entry: F.struct(
            entry.getField(KEY).alias(KEY), normalised(entry.getField(VALUE), value_type).alias(VALUE)
        ),
    )


# Spark's hash of several values seeds each with the hash of the one before: a different first value makes a different
# function.
_LANE_SEEDS = (0x6C616B65, 0x77617264)
_BITS_OF_A_MASK = 62


def row_hash_lanes(fields: Iterable[StructField]) -> tuple[Column, Column]:
    """Return two independent 64-bit hashes of a row's named columns, of any type that Spark can compare.

    Equal rows have equal hashes: NaN equals NaN, -0.0 equals 0.0, and the order of a map's entries does not count. Rows
    that differ anywhere, even in a null inside a nested value, differ in the sequence of values that is hashed.
    """
    return value_hash_lanes([(column(field.name), field.dataType) for field in fields])


def value_hash_lanes(values: Sequence[tuple[Column, DataType]]) -> tuple[Column, Column]:
    """Return the two hashes of :func:`row_hash_lanes` for values with their types."""
    hashed = [*[_hashable(value, kind) for value, kind in values], *_null_masks([value for value, _ in values])]
    first, second = (F.xxhash64(F.lit(seed).cast("bigint"), *hashed) for seed in _LANE_SEEDS)
    return first, second


def _null_masks(values: Sequence[Column]) -> list[Column]:
    """Return which values are null, as bits of numbers: Spark's hash skips nulls."""
    masks = []
    for start in range(0, len(values), _BITS_OF_A_MASK):
        bits = [
            F.when(value.isNull(), F.lit(1 << at).cast("bigint")).otherwise(F.lit(0).cast("bigint"))
            for at, value in enumerate(values[start : start + _BITS_OF_A_MASK])
        ]
        mask = bits[0]
        for bit in bits[1:]:
            mask = mask.bitwiseOR(bit)
        masks.append(mask)
    return masks


def _hashable(value: Column, data_type: DataType) -> Column:
    """Return a value whose hash covers all of it: nested values with their sizes and with marks for nulls in them."""
    if isinstance(data_type, MapType):
        return _hashable(normalised(value, data_type), normalised_type(data_type))
    if isinstance(data_type, ArrayType):
        element = data_type.elementType
        size = F.when(value.isNull(), F.lit(-1)).otherwise(F.size(value))
        return F.struct(size, F.transform(value, lambda item: F.struct(item.isNull(), _hashable(item, element))))
    if isinstance(data_type, StructType):
        inner = [(value.getField(field.name), field.dataType) for field in data_type.fields]
        return F.struct(*[part for member, kind in inner for part in (member.isNull(), _hashable(member, kind))])
    return value
