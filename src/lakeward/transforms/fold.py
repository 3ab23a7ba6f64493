"""Fold changes into the rows they leave behind, per key and per column.

A change may be partial: ``_lw_unchanged`` names the columns it does not speak of, which keep their earlier
value. Folding starts at a key's last full image or delete, and every column takes the value of the last
change that speaks of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns
from lakeward.transforms.order import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_AT = f"{S.PREFIX}at"


def is_partial() -> Column:
    """Tell whether a change leaves some column unspoken."""
    return F.coalesce(F.size(column(S.UNCHANGED)), F.lit(0)) > 0


def is_delete() -> Column:
    """Tell whether a change removes its row."""
    return column(S.OPERATION).eqNullSafe(F.lit("D"))


def fold(changes: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Give one row per key with the operation that stands (``D``: the row is gone) and every column's value."""
    reset, at = f"{S.PREFIX}reset", _AT
    by_key = Window.partitionBy(*columns(keys)).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    starts_anew = F.when(is_delete() | ~is_partial(), place())
    standing = (
        changes.withColumn(reset, F.max(starts_anew).over(by_key))
        .withColumn(at, place())
        .filter(column(reset).isNull() | (column(at) >= column(reset)))
    )
    values = [_last_spoken(name).alias(name) for name in names if name not in keys]
    operation = F.max_by(column(S.OPERATION), column(at)).alias(S.OPERATION)
    return standing.groupBy(*columns(keys)).agg(operation, *values).select(S.OPERATION, *columns(names))


def is_spoken(name: str) -> Column:
    """Whether a change says what a column's value is."""
    return ~F.coalesce(F.array_contains(column(S.UNCHANGED), name), F.lit(False))


def _last_spoken(name: str) -> Column:
    """Give the value of the last change that speaks of a column; a delete speaks of all and leaves nothing."""
    value = F.when(~is_delete(), column(name))
    return F.max_by(value, F.when(is_spoken(name) | is_delete(), column(_AT)))
