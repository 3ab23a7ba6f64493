"""Keys: nulls, floats, nested ones, keys that come twice; and what the query looks like that brings rows together."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakeward.diffing.comparison import SideComparison
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.comparators import Bitwise
from lakeward.diffing.frames.joining import diff, joined
from lakeward.diffing.frames.options import DiffMode, DiffOptions, DuplicateKeys
from lakeward.diffing.frames.pairs import classified, read_summary, summary_columns
from lakeward.diffing.frames.refusals import refused_duplicate
from lakeward.diffing.stored.addresses import Side
from lakeward.session.sessions import table_session
from lakeward.spark.errors import Failure
from lakeward.spark.refusals import duplicate_key_in
from tests.diffing.tables import frame_of, frozen_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

REPORT = DiffOptions(duplicate_keys=DuplicateKeys.REPORT, include_unchanged=True)


def table(spark: SparkSession, rows: list[tuple[Any, ...]], *types: DataType) -> DataFrame:
    """Return rows of columns k0, k1 …, the last of which is v."""
    names = [f"k{at}" for at in range(len(types) - 1)] + ["v"]
    return frame_of(spark, rows, StructType([StructField(*pair) for pair in zip(names, types, strict=True)]))


def test_a_null_is_a_key_and_not_the_value_that_stands_for_it(spark: SparkSession) -> None:
    stands = [
        (LongType(), 0), (StringType(), ""), (BinaryType(), b""), (DoubleType(), 0.0),
        (DateType(), dt.date(1970, 1, 1)),
        (DecimalType(9, 2), Decimal("0.00")), (TimestampType(), dt.datetime(1970, 1, 1)),
    ]  # fmt: skip
    found = []
    quick = spark.newSession()
    quick.conf.set("spark.sql.adaptive.enabled", "false")
    for data_type, value in stands:
        # In one partition, so that a job of many joins needs no exchange.
        past = table(quick, [(None, 1), (value, 2)], data_type, IntegerType()).coalesce(1)
        current = table(quick, [(value, 2), (None, 3)], data_type, IntegerType()).coalesce(1)
        texts = diff(past, current, ["k0"], DiffOptions(include_unchanged=True)).selectExpr(
            "diff", "k0 is null as none", "left_v", "right_v"
        )
        found.append(texts)
    every = found[0]
    for frame in found[1:]:
        every = every.unionAll(frame)
    assert frozen_rows(every.collect()) == frozen_rows([("C", True, 1, 3), ("N", False, 2, 2)] * len(stands))


def test_several_keys_with_nulls_floats_and_nested_values(spark: SparkSession) -> None:
    held = StructType([StructField("m", MapType(StringType(), IntegerType())), StructField("d", DoubleType())])
    types = (DoubleType(), ArrayType(StringType()), held, IntegerType())
    past = [
        (0.0, None, None, 1), (-math.inf, [None], ({"a": 1, "b": 2}, 0.0), 2), (math.nan, [], ({}, math.nan), 3),
        (None, None, (None, None), 4), (None, ["x"], None, 5),
    ]  # fmt: skip
    current = [
        (-0.0, None, None, 1), (-math.inf, [None], ({"b": 2, "a": 1}, -0.0), 2), (math.nan, [], ({}, math.nan), 30),
        (None, None, (None, None), 4), (None, ["y"], None, 5),
    ]  # fmt: skip
    found = diff(
        table(spark, past, *types), table(spark, current, *types), ["k0", "k1", "k2"],
        DiffOptions(include_unchanged=True),
    )  # fmt: skip
    expected = [
        ("N", *past[0], 1), ("N", *past[1], 2), ("C", *past[2], 30), ("N", *past[3], 4),
        ("D", *past[4], None), ("I", None, ["y"], None, None, 5),
    ]  # fmt: skip
    assert frozen_rows(found.collect()) == frozen_rows(expected)


@pytest.mark.parametrize("action", ["count", "write", "unmatched"])
def test_a_key_that_comes_twice_is_named(spark: SparkSession, tmp_path: Path, action: str) -> None:
    past = table(spark, [(1, "é", 1), (None, "é", 2), (None, "é", 2)], LongType(), StringType(), IntegerType())
    current = table(spark, [(1, "é", 1), (None, "é", 2)], LongType(), StringType(), IntegerType())
    if action == "unmatched":
        current = current.limit(0)
    found = diff(past, current, ["k0", "k1"], DiffOptions(include_unchanged=True))
    with pytest.raises(PySparkException) as caught:
        found.write.parquet(str(tmp_path / "out")) if action == "write" else found.count()
    key = duplicate_key_in(Failure(caught.value))
    assert key == 'past side: {"k0": null, "k1": "é"}'
    assert "occurs more than once on the past side" in str(refused_duplicate(key))


def test_a_single_key_that_comes_twice_on_the_current_side_is_named(spark: SparkSession) -> None:
    # Zero stands for a null in the join: both together are no duplicate, but one of them twice is.
    rows = [(0, 1), (None, 1), (5, 1)]
    past = table(spark, rows, LongType(), IntegerType())
    assert diff(past, past, ["k0"]).count() == 0
    for twice in ((0, 9), (None, 9), (5, 9)):
        current = table(spark, [*rows, twice], LongType(), IntegerType())
        with pytest.raises(PySparkException) as caught:
            diff(past, current, ["k0"]).collect()
        shown = "null" if twice[0] is None else str(twice[0])
        assert duplicate_key_in(Failure(caught.value)) == f'current side: {{"k0": {shown}}}'


def test_other_errors_are_no_duplicate_keys(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql("select raise_error('the key comes twice')").collect()
    assert duplicate_key_in(Failure(caught.value)) is None
    assert duplicate_key_in(Failure(ValueError("x"))) is None


def test_rows_of_a_key_that_comes_twice_are_paired_in_order_and_counted(spark: SparkSession) -> None:
    types = (LongType(), StringType())
    past = table(spark, [(1, "b"), (1, "a"), (2, "x"), (None, "n"), (None, "n"), (0, "z")], *types)
    current = table(spark, [(1, "a"), (1, "c"), (1, "d"), (2, "x"), (None, "n")], *types)
    expected = [
        ("N", 1, "a", "a"), ("C", 1, "b", "c"), ("I", 1, None, "d"), ("N", 2, "x", "x"),
        ("N", None, "n", "n"), ("D", None, "n", None), ("D", 0, "z", None),
    ]  # fmt: skip
    assert frozen_rows(diff(past, current, ["k0"], REPORT).collect()) == frozen_rows(expected)
    alignment = align(past.schema, current.schema, ["k0"], REPORT, evolve=False)
    for whole in (True, False):
        pairs = joined(past, current, alignment, REPORT, whole=whole)
        counted = classified(pairs, REPORT).agg(*summary_columns(alignment, REPORT)).collect()[0]
        rows = {"past_rows": None if whole else 6, "current_rows": None if whole else 5}
        summary = read_summary(counted, alignment, **rows)
        assert (summary.inserted, summary.changed, summary.deleted, summary.unchanged) == (1, 1, 2, 3)
        assert summary.duplicates == 4
        assert (summary.deleted, summary.past_rows) == (2, 6)


def test_without_keys_rows_are_counted_where_duplicates_are_reported(spark: SparkSession) -> None:
    types = (LongType(), StringType())
    past = table(spark, [(1, "a"), (1, "a"), (1, "a")], *types)
    current = table(spark, [(1, "a"), (1, "b")], *types)
    expected = [("N", 1, "a"), ("D", 1, "a"), ("D", 1, "a"), ("I", 1, "b")]
    assert frozen_rows(diff(past, current, (), REPORT).collect()) == frozen_rows(expected)


def test_without_keys_a_column_that_one_side_lacks_is_null_there(spark: SparkSession) -> None:
    past = spark.createDataFrame([(1, "a"), (2, None), (3, None)], "id int, gone string")
    current = spark.createDataFrame(
        [(1, None, None), (2, None, None), (3, 5, {"k": 1})], "id int, new int, m map<string,int>"
    )
    found = diff(past, current, (), DiffOptions(evolve=True, include_unchanged=True))
    assert found.columns == ["diff", "id", "gone", "new", "m"]
    assert frozen_rows(found.collect()) == frozen_rows(
        [
            ("D", 1, "a", None, None), ("I", 1, None, None, None), ("N", 2, None, None, None),
            ("D", 3, None, None, None), ("I", 3, None, 5, {"k": 1}),
        ]
    )  # fmt: skip


def test_any_number_of_keys_may_be_null(spark: SparkSession) -> None:
    width, places = 64, (0, 31, 32, 61, 62, None)
    quick = table_session(spark)
    schema = ", ".join(f"k{at} bigint" for at in range(width))
    rows = [tuple(None if at == place else 0 for at in range(width)) for place in places]
    past, current = quick.createDataFrame(rows[1:], schema), quick.createDataFrame(rows[:-1], schema)
    assert frozen_rows(diff(past, current).collect()) == frozen_rows([("D", *rows[-1]), ("I", *rows[0])])
    with SideComparison(Side("past", past), Side("current", current), (), DiffOptions()) as comparison:
        assert (comparison.summary().inserted, comparison.summary().unchanged) == (1, 4)


def test_a_comparator_finer_than_equality_sees_its_rows(spark: SparkSession) -> None:
    past, current = (table(spark, [(1, zero), (2, 1.0)], LongType(), DoubleType()) for zero in (0.0, -0.0))
    assert diff(past, current, ["k0"]).count() == 0
    options = DiffOptions(default_comparator=Bitwise(), diff_mode=DiffMode.STRUCTS)
    assert frozen_rows(diff(past, current, ["k0"], options).collect()) == frozen_rows([("C", 1, (1, 0.0), (1, -0.0))])


def test_in_structs_no_column_can_collide_and_a_frame_can_be_compared_with_itself(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, 3, 4)], "id int, diff int, left int, left_diff int")
    later = frame.selectExpr("left_diff", "id", "diff + 1 as diff", "left")
    found = diff(frame, later, ["id"], DiffOptions(diff_mode=DiffMode.STRUCTS, change_column="changed"))
    assert found.columns == ["diff", "changed", "id", "left", "right"]
    assert found.collect() == [("C", ["diff"], 1, (1, 2, 3, 4), (4, 1, 3, 3))]


@pytest.mark.parametrize("key", ["bigint", "double", "string", "struct<a:int>"])
def test_each_side_is_exchanged_and_sorted_once(spark: SparkSession, tmp_path: Path, key: str) -> None:
    value = "named_struct('a', cast(id as int))" if key.startswith("struct") else f"cast(id as {key})"
    spark.range(10).selectExpr(f"{value} as k", "id as v").write.parquet(str(tmp_path / "t"))
    side = spark.read.parquet(str(tmp_path / "t"))
    text = diff(side, side, ["k"])._jdf.queryExecution().executedPlan().toString()
    steps = [line.lstrip(" :+-*()0123456789").split(" ")[0] for line in text.splitlines()]
    assert steps.count("Exchange") == 2, text
    assert steps.count("Sort") == 2, text
    assert steps.count("SortMergeJoin") == 1, text
    sorts = [line for line in text.splitlines() if "Sort [" in line]
    assert all(line.count(" ASC ") == 1 for line in sorts), "by one key, so that Spark's radix sort can serve"
