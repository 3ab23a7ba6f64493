"""A comparison by join reports every key that occurs twice, on either side, and counts rows on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.diffing.comparison import SideComparison
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.stored.addresses import Side
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Rows = list[tuple[int | None, int | None]]


def _compared(spark: SparkSession, past: Rows, current: Rows) -> Any:
    sides = [
        Side(label, spark.createDataFrame(rows, "id int, value int"))
        for label, rows in (("then", past), ("now", current))
    ]
    return SideComparison(sides[0], sides[1], ["id"], DiffOptions(), plan="join")


@pytest.mark.parametrize(
    ("past", "current", "side", "key"),
    [
        # Equal rows never come out of the join: only the counts show the repeat.
        ([(1, 1), (1, 1), (2, 2)], [(1, 1), (2, 2)], "past", 1),
        ([(1, 1), (2, 2)], [(1, 1), (2, 2), (2, 2)], "current", 2),
        ([(1, 1), (1, 1)], [(1, 1), (1, 1)], "current", 1),
        ([(1, 1), (1, 2)], [(1, 1)], "past", 1),
        # Keys of one side alone.
        ([(3, 1), (3, 1)], [(1, 1)], "past", 3),
        ([(1, 1)], [(1, 1), (4, 1), (4, 2)], "current", 4),
        ([(None, 1), (None, 2)], [(0, 1)], "past", None),
        ([], [(5, 1), (5, 1)], "current", 5),
    ],
)
def test_a_key_that_occurs_twice_is_reported(
    spark: SparkSession, past: Rows, current: Rows, side: str, key: Any
) -> None:
    with _compared(spark, past, current) as comparison, pytest.raises(RefusedInputError) as caught:
        comparison.summary()
    assert f"keys occur more than once on the {side} side" in caught.value.message
    assert f"id={key!r} (2 times)" in caught.value.message


@pytest.mark.parametrize(
    ("past", "current", "counts"),
    [
        ([(1, 1), (None, 1), (0, 1)], [(1, 2), (None, 1), (5, 1)], (3, 3, 1, 1, 1, 1)),
        ([], [(1, 1)], (0, 1, 1, 0, 0, 0)),
        ([(1, 1)], [], (1, 0, 0, 0, 1, 0)),
        ([], [], (0, 0, 0, 0, 0, 0)),
    ],
)
def test_rows_are_counted_in_the_same_pass(
    spark: SparkSession, past: Rows, current: Rows, counts: tuple[int, ...]
) -> None:
    with _compared(spark, past, current) as comparison:
        found = comparison.summary()
    names = ("past_rows", "current_rows", "inserted", "changed", "deleted", "unchanged")
    assert tuple(getattr(found, name) for name in names) == counts
