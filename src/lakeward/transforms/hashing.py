"""Hashes of rows and values of any type that Spark can compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from lakeward.transforms.columns import column
from lakeward.transforms.compare import normalised, normalised_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField

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
