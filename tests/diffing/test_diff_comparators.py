"""What each comparator holds equal, on the values where it matters: all in one query per type."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakeward.diffing.frames.comparators import parse_comparator
from lakeward.transforms.columns import column
from tests.diffing.tables import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN, INF = math.nan, math.inf


def verdicts(
    spark: SparkSession, data_type: DataType, pairs: list[tuple[Any, Any]], texts: tuple[str, ...]
) -> dict[str, str]:
    """Return for every pair whether each comparator holds it equal, in both orders: = or x; none may be null."""
    schema = StructType([StructField("at", LongType()), StructField("l", data_type), StructField("r", data_type)])
    frame = frame_of(spark, [(at, *pair) for at, pair in enumerate(pairs)], schema)
    answers = []
    for text in texts:
        comparator = parse_comparator(text)
        assert comparator.accepts(data_type)
        left, right = (comparator.prepared(column(name), data_type) for name in "lr")
        answers += [comparator.equal(left, right), comparator.equal(right, left)]
    rows = frame.select("at", *[answer.alias(f"a{at}") for at, answer in enumerate(answers)]).sort("at").collect()
    found = {}
    for at, text in enumerate(texts):
        both = [(row[2 * at + 1], row[2 * at + 2]) for row in rows]
        assert all(one is other and one is not None for one, other in both), text
        found[text] = "".join("=" if one else "x" for one, _ in both)
    return found


def test_floating_numbers(spark: SparkSession) -> None:
    pairs = [
        (1.0, 1.0), (1.0, 1.01), (100.0, 101.0), (0.0, -0.0), (0.0, 0.0), (NAN, NAN), (INF, INF), (INF, -INF),
        (NAN, 1.0), (INF, 1.0), (None, None), (None, 0.0), (1.0, 2.0), (1.7e308, -1.7e308), (1.0, 1.5),
    ]  # fmt: skip
    texts = ("equal", "bitwise", "epsilon:0.5", "epsilon:0.5:exclusive", "epsilon:1%", "epsilon:0:exclusive")
    assert verdicts(spark, DoubleType(), pairs, texts) == {
        "equal": "=xx====xxx=xxxx",
        "bitwise": "=xxx===xxx=xxxx",
        "epsilon:0.5": "==x====xxx=xxx=",
        "epsilon:0.5:exclusive": "==x====xxx=xxxx",
        "epsilon:1%": "=======xxx=xxxx",
        "epsilon:0:exclusive": "=xx====xxx=xxxx",
    }


def test_numbers_too_far_apart_for_their_type(spark: SparkSession) -> None:
    top = 2**63 - 1
    pairs = [(top, -top - 1), (top, top - 1), (-top - 1, None), (5, 6)]
    texts = ("epsilon:1", "epsilon:1:exclusive", "epsilon:1e30", "epsilon:10%")
    assert verdicts(spark, LongType(), pairs, texts) == {
        "epsilon:1": "x=x=",
        "epsilon:1:exclusive": "xxxx",
        "epsilon:1e30": "==x=",
        "epsilon:10%": "x=xx",
    }
    large = 10**38 - 1
    pairs = [(Decimal(large), Decimal(-large)), (Decimal(1), Decimal(2))]
    found = verdicts(spark, DecimalType(38, 0), pairs, ("epsilon:1",))
    assert found == {"epsilon:1": "x="}


def test_times(spark: SparkSession) -> None:
    day, noon = dt.date(2024, 2, 28), dt.datetime(2024, 2, 28, 12)
    days = [(day, day + dt.timedelta(1)), (day, day + dt.timedelta(2)), (None, day), (None, None), (day, day)]
    assert verdicts(spark, DateType(), days, ("duration:1d", "duration:1d:exclusive")) == {
        "duration:1d": "=xx==",
        "duration:1d:exclusive": "xxx==",
    }
    times = [(noon, noon + dt.timedelta(seconds=90)), (noon, noon + dt.timedelta(seconds=90, microseconds=1))]
    assert verdicts(spark, TimestampType(), times, ("duration:1m30s", "duration:90s:exclusive")) == {
        "duration:1m30s": "=x",
        "duration:90s:exclusive": "xx",
    }


def test_texts(spark: SparkSession) -> None:
    pairs = [("a b", " a \t\n b "), ("ab", "a b"), ("", " \x00\x7f"), ("a\u00a0b", "a b"), (None, ""), ("x\n", "x")]
    assert verdicts(spark, StringType(), pairs, ("whitespace", "equal")) == {"whitespace": "=x=xx=", "equal": "xxxxxx"}


def test_maps_and_what_holds_them(spark: SparkSession) -> None:
    one, turned, other = {"a": 0.0, "b": NAN}, {"b": NAN, "a": 0.0}, {"a": -0.0, "b": NAN}
    map_type = MapType(StringType(), DoubleType())
    pairs = [(one, one), (one, turned), (one, other), (one, {"a": 0.0}), ({}, {}), (None, {}), (None, None)]
    assert verdicts(spark, map_type, pairs, ("map", "map:ordered", "equal", "bitwise")) == {
        "map": "===x=x=",
        "map:ordered": "=x=x=x=",
        "equal": "===x=x=",
        "bitwise": "==xx=x=",
    }
    held = StructType([StructField("m.n", ArrayType(map_type)), StructField("d", DoubleType())])
    wrapped = [
        (([one], 1.0), ([turned], 1.0)), (([other], 1.0), ([one], 1.0)), (([one, None], 1.0), ([one], 1.0)),
        ((None, 0.0), (None, -0.0)), ((None, None), None), (([], None), (None, None)),
    ]  # fmt: skip
    assert verdicts(spark, held, wrapped, ("equal", "bitwise")) == {"equal": "==x=xx", "bitwise": "=xxxxx"}
