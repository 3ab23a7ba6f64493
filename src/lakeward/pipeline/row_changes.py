"""How many rows of a table would be inserted, updated and deleted to get from one state to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_TIMES, _ARRIVED, _LEFT = (f"{S.PREFIX}{name}" for name in ("times", "arrived", "left"))


@dataclass(frozen=True)
class RowChanges:
    """Rows by what becomes of them. In a table without a key nothing is updated."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def row_changes(before: DataFrame, after: DataFrame, keys: Sequence[str]) -> RowChanges:
    """Compare two states of the same columns row for row; a null equals a null."""
    names = columns(after.columns)
    sides = before.select(*names, F.lit(-1).alias(_TIMES)).unionByName(after.select(*names, F.lit(1).alias(_TIMES)))
    differing = sides.groupBy(*names).agg(F.sum(_TIMES).alias(_TIMES)).filter(column(_TIMES) != 0)
    arrived = F.sum(F.greatest(column(_TIMES), F.lit(0)))
    left = F.sum(F.greatest(-column(_TIMES), F.lit(0)))
    if not keys:
        found = differing.agg(arrived, left).collect()[0]
        return RowChanges(found[0] or 0, 0, found[1] or 0)
    by_key = differing.groupBy(*columns(keys)).agg(arrived.alias(_ARRIVED), left.alias(_LEFT))
    is_there, was_there = column(_ARRIVED) > 0, column(_LEFT) > 0
    found = by_key.agg(
        *(F.count(F.when(one, 1)) for one in (is_there & ~was_there, is_there & was_there, was_there & ~is_there))
    ).collect()[0]
    return RowChanges(*found)
