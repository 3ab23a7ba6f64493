"""Telling changelog rows of ops that stand from those of ops that were taken back."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column


def is_standing(undone: Iterable[tuple[int, int]]) -> Column:
    """Tell rows of ops outside all ranges of op numbers that were undone, both ends included."""
    kept = (~column(S.OP).between(first, last) for first, last in undone)
    return reduce(lambda one, other: one & other, kept, F.lit(True))
