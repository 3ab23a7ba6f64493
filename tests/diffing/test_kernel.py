"""The native kernel: the pairs of two snapshot sets are those that Spark's own join finds."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.comparators import Bitwise
from lakeward.diffing.frames.joining import joined
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.frames.pairs import PlannedPairs, shaped
from lakeward.diffing.plans.buckets import bucket_pairs
from lakeward.diffing.stored.addresses import FoundSet, Side
from lakeward.spark.errors import recognised, spark_faults
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.hadoop import HadoopFileSystem
from lakeward.storage.sets import write_set

_SCHEMA = (
    "id bigint, `a.b` string, small smallint, f float, d double, dec decimal(38,10), flag boolean, day date, "
    "t timestamp, n timestamp_ntz, raw binary, list array<int>, s struct<x: int, `Y y`: array<string>>, "
    "m map<string, array<double>>"
)
_MOMENT = datetime(1402, 2, 3, 4, 5, 6, 789, UTC)


def _row(number, **changed):
    row = {
        "id": number or None,
        "a.b": f"k'{number % 3}",
        "small": number % 100,
        "f": [0.5, float("nan"), -0.0, None][number % 4],
        "d": [float("inf"), 1e300, None, 0.0][number % 4],
        "dec": Decimal(number) / 7 if number % 5 else None,
        "flag": [True, False, None][number % 3],
        "day": date(1500, 1, 1 + number % 28),
        "t": _MOMENT if number % 2 else None,
        "n": datetime(2020, 1, 1, 0, number % 60),
        "raw": bytes([number % 256, 255]),
        "list": [[], None, [None, number], [1]][number % 4],
        "s": [None, (None, None), (number, ["ä", None])][number % 3],
        "m": [{}, None, {"a": [1.0, None], "b": None}][number % 3],
    }
    return tuple({**row, **changed}[name] for name in row)


_CHANGES = [
    {"a.b": "k'0"}, {"small": None}, {"f": None}, {"f": 0.0}, {"dec": Decimal("0.0000000001")}, {"flag": None},
    {"day": None}, {"t": datetime(1402, 2, 3, 4, 5, 6, 790, UTC)}, {"n": None}, {"raw": b""}, {"list": [1, None]},
    {"s": (None, [])}, {"m": {"a": [None, 1.0]}}, {"m": {"b": None, "a": [1.0, None]}}, {"d": 5.0},
]  # fmt: skip


def _before():
    return [_row(number) for number in range(120)]


def _after():
    rows = [_row(number) for number in range(5, 120)]
    for at, changed in enumerate(_CHANGES):
        rows[at * 3] = _row(at * 3 + 5, **changed)
    return [*rows, *[_row(number) for number in range(1000, 1006)], _row(0, small=3)]


def _side(frame, folder, keys, *, store=None, count=4):
    store = store or LocalFileSystem()
    layout = write_set(frame, store, str(folder), keys, count=count)
    return Side(
        str(folder), frame, tuple(keys), FoundSet(store, str(folder), layout), rows=layout.rows, format="parquet"
    )


def _aligned(past, current, keys, options=None):
    return align(past.frame.schema, current.frame.schema, keys, options or DiffOptions(), evolve=True)


def _planned(past, current, keys, options=None, *, exact=False):
    options = options or DiffOptions()
    found = bucket_pairs(past, current, _aligned(past, current, keys, options), options, exact=exact)
    assert isinstance(found, PlannedPairs), found
    return found


def _texts(frame):
    return sorted(row[0] for row in frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect())


def _require_same_as_joined(past, current, keys, options=None, *, exact=False):
    options = options or DiffOptions()
    found = _planned(past, current, keys, options, exact=exact)
    alignment = found.pairs.alignment
    expected = joined(past.frame, current.frame, alignment, options, whole=True)
    diff, wanted = shaped(found.pairs, options), shaped(expected, options)
    assert diff.schema.simpleString() == wanted.schema.simpleString()
    assert _texts(diff) == _texts(wanted)
    return found, diff


@pytest.fixture(scope="module")
def sides(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets") / "version=1 [a]*"
    keys = ["id", "a.b"]
    past = _side(spark.createDataFrame(_before(), _SCHEMA), folder / "past", keys)
    return past, _side(spark.createDataFrame(_after(), _SCHEMA), folder / "it's current", keys, count=16)


def test_every_type_and_null_is_compared_as_spark_does_in_sets_of_different_counts(sides):
    past, current = sides

    found, diff = _require_same_as_joined(past, current, ["id", "a.b"])

    assert {row[0]: row[1] for row in diff.groupBy("diff").count().collect()} == {"C": 11, "D": 5, "I": 7}
    assert (found.past_rows, found.current_rows) == (120, 122)


def test_unchanged_rows_and_ignored_columns(sides):
    past, current = sides

    _require_same_as_joined(past, current, ["id", "a.b"], DiffOptions(include_unchanged=True))
    _require_same_as_joined(past, current, ["a.b", "id"], DiffOptions(ignore_columns=("m", "s", "list")))


def test_buckets_with_equal_checksums_are_not_read_unless_exact(spark, tmp_path):
    frame = spark.range(200).select("id", F.col("id").cast("string").alias("v"))
    one = F.when(F.col("id") == 7, F.lit("x")).otherwise(F.col("v")).alias("v")
    past, current = (
        _side(frame, tmp_path / "a", ["id"], count=8),
        _side(frame.select("id", one), tmp_path / "b", ["id"], count=4),
    )
    bucket = frame.filter("id = 7").select(F.pmod(F.hash("id"), F.lit(4))).collect()[0][0]
    for found in current.set.layout.buckets:
        if found.number != bucket:
            (tmp_path / "b" / found.path).write_bytes(b"this is never read")

    planned, _ = _require_same_as_joined(past, current, ["id"])
    assert "3 of 4 have equal checksums" in planned.reason

    exact = _planned(past, current, ["id"], exact=True)
    with pytest.raises(Exception, match="cannot be compared natively") as caught:
        exact.pairs.frame.collect()
    recognised_error = recognised(caught.value, *spark_faults("diff"))
    assert recognised_error is not None and recognised_error.exit_code == 2 and "--plan join" in str(recognised_error)


def test_identical_sets_are_compared_without_any_task(spark, tmp_path):
    frame = spark.range(50).select("id", F.lit("x").alias("v"))
    past, current = (_side(frame, tmp_path / name, ["id"]) for name in "ab")

    found = _planned(past, current, ["id"])

    assert found.pairs.frame.rdd.getNumPartitions() == 0 and found.pairs.frame.count() == 0
    _require_same_as_joined(past, current, ["id"], exact=True)


def test_columns_that_came_went_or_widened(spark, tmp_path):
    old_rows = [(1, 1, 2.5, "x"), (2, None, None, "y"), (3, 3, 1.0, None)]
    new_rows = [(1, 1, 2.5, [1]), (2, 9, None, None), (3, 3, 1.0, None)]
    old = spark.createDataFrame(old_rows, "id int, w int, f float, gone string")
    new = spark.createDataFrame(new_rows, "id int, w bigint, f double, more array<int>")
    past, current = _side(old, tmp_path / "a", ["id"]), _side(new, tmp_path / "b", ["id"])

    found, _ = _require_same_as_joined(past, current, ["id"])
    assert "all are read" in found.reason


def test_a_side_without_rows(spark, tmp_path):
    frame = spark.range(20).select("id", F.array("id").alias("v"))
    full, empty = _side(frame, tmp_path / "a", ["id"]), _side(frame.limit(0), tmp_path / "b", ["id"])

    _require_same_as_joined(full, empty, ["id"])
    _require_same_as_joined(empty, full, ["id"])
    _require_same_as_joined(empty, empty, ["id"])


def test_files_that_only_spark_can_read_are_sent_to_the_tasks(spark, sides, tmp_path):
    store = HadoopFileSystem(spark, "file")
    past, current = sides
    keys = ["id", "a.b"]
    sent = [
        _side(one.frame, f"file://{tmp_path}/{name}", keys, store=store, count=count)
        for one, name, count in ((past, "past", 8), (current, "current", 4))
    ]

    _require_same_as_joined(*sent, keys)


def test_the_kernel_names_the_reason_where_it_cannot_compare(spark, tmp_path, monkeypatch):
    frame = spark.createDataFrame([(1, 2.0, "x")], "id int, d double, v string")
    past = _side(frame, tmp_path / "a", ["id"])
    plain = Side("plain", frame, ("id",))
    other = _side(frame.withColumn("id", F.col("id").cast("bigint")), tmp_path / "b", ["id"])
    by_text = _side(frame, tmp_path / "c", ["v"])

    def why(left, right, keys, options=None):
        options = options or DiffOptions()
        return bucket_pairs(left, right, _aligned(left, right, keys, options), options, exact=False)

    assert why(past, plain, ["id"]) == "plain is not a snapshot set"
    assert "different types on the two sides" in why(past, other, ["id"])
    assert "made by id, the other by v" in why(past, by_text, ["id"])
    assert "the requested key is v" in why(past, past, ["v"])
    assert "of type double" in why(past, past, ["id", "d"])
    assert "bitwise" in why(past, past, ["id"], DiffOptions(default_comparator=Bitwise()))
    monkeypatch.setattr("lakeward.diffing.plans.buckets.find_spec", lambda name: None)
    assert "DuckDB is not installed" in why(past, past, ["id"])
