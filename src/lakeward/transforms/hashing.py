"""A hash of a table's content that does not depend on the order of its rows or on how they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_MODULUS = 2**64


def row_hash(names: Sequence[str]) -> Column:
    """Give a row's 64-bit hash; a null differs from every value, and from a null in another column."""
    # Spark's hash passes over nulls: the second part says where they are.
    nulls = F.concat_ws("", *[column(name).isNull().cast("int").cast("string") for name in names])
    return F.xxhash64(*[column(name) for name in names], nulls)


def content_hash(names: Sequence[str]) -> Column:
    """Give an aggregate over all rows: their number, and sum and exclusive-or of their hashes, as text.

    The sum tells rows that come twice, which cancel each other out in the exclusive-or.
    """
    each = row_hash(names)
    total = F.coalesce(F.sum(each.cast("decimal(38,0)")), F.lit(0).cast("decimal(38,0)"))
    mixed = F.coalesce(F.bit_xor(each), F.lit(0).cast("bigint"))
    wrapped = F.pmod(total, F.lit(str(_MODULUS)).cast("decimal(38,0)"))
    return F.concat_ws(":", F.count(F.lit(1)).cast("string"), F.lower(F.hex(mixed)), wrapped.cast("string"))


def sorted_by_name(frame: DataFrame) -> list[str]:
    """Give a frame's columns in an order that does not depend on how the table was built."""
    return sorted(frame.columns)
