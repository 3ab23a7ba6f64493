"""Rows of the two sides, brought together by key: what every way to compare produces, and every output is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakeward.diffing.alignment import AlignedColumn, Alignment

HAS_LEFT, HAS_RIGHT = f"{S.PREFIX}has_left", f"{S.PREFIX}has_right"
# How many rows of a pair (0, 1 or 2) have a key that came before on their side; only where duplicate keys are reported.
SURPLUS = f"{S.PREFIX}surplus"


def left_name(position: int) -> str:
    """Name the past value of the aligned column at a position: by number, as a name may hold anything."""
    return f"{S.PREFIX}l{position}"


def right_name(position: int) -> str:
    """Name the current value of the aligned column at a position."""
    return f"{S.PREFIX}r{position}"


@dataclass(frozen=True)
class Pairs:
    """A frame of ``HAS_LEFT``, ``HAS_RIGHT`` (booleans, never null), then all past and all current values.

    Values have the aligned types. Every row that differs is there, whatever comparator is in force; equal ones may be,
    and all are where ``is_whole``, none where ``is_differing``.
    """

    frame: DataFrame
    alignment: Alignment
    is_whole: bool
    is_differing: bool = False

    def left(self, one: AlignedColumn) -> Column:
        """Give a column's past value; null where the past has no row."""
        return column(left_name(self.alignment.columns.index(one)))

    def right(self, one: AlignedColumn) -> Column:
        """Give a column's current value; null where there is no row any more."""
        return column(right_name(self.alignment.columns.index(one)))
