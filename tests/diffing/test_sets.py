"""Snapshot sets: rows placed by key, described by checksums that see every difference and no order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakeward.errors import DataError, RefusedInputError
from lakeward.storage.checksum import checksum_columns, checksum_of, read_checksum
from lakeward.storage.filesystem import LocalFileSystem, for_reading
from lakeward.storage.sets import SetLayout, write_set

_NESTED = "k int, a array<int>, s struct<x: int, y: array<string>>, m map<string, array<int>>, d double"
_ROWS = [
    (0, [1, None], (None, ["a"]), {"a": [1], "b": None}, 0.0),
    (1, [None, 1], (1, None), {"b": [], "a": [1]}, float("nan")),
    (2, [], (None, None), {}, None),
    (3, None, None, None, 1.5),
]
# Each differs from the row of its key in one place, and by what Spark's own hash passes over.
_CHANGED = [
    (0, [None, 1], (None, ["a"]), {"a": [1], "b": None}, 0.0),
    (1, [None, 1], (1, None), {"b": None, "a": [1]}, float("nan")),
    (2, [], None, {}, None),
    (3, None, None, {}, 1.5),
]


def _checksum(frame):
    return checksum_of(frame).text


def _each(frame):
    found = frame.groupBy("k").agg(*checksum_columns(frame.schema)).collect()
    return {row["k"]: read_checksum(row.asDict()) for row in found}


def test_a_checksum_detects_what_the_hash_of_spark_ignores(spark):
    before, after = (_each(spark.createDataFrame(rows, _NESTED)) for rows in (_ROWS, _CHANGED))

    assert [key for key in before if before[key] == after[key]] == []
    # Two numbers that do not depend on each other.
    assert len({entry.first for entry in before.values()} | {entry.second for entry in before.values()}) == 2 * len(
        _ROWS
    )


def test_a_checksum_does_not_depend_on_order_partitions_or_the_spelling_of_equal_values(spark):
    frame = spark.createDataFrame(_ROWS, _NESTED)
    respelled = [(0, *_ROWS[0][1:3], {"b": None, "a": [1]}, -0.0), *_ROWS[1:]]

    assert _checksum(frame) == _checksum(spark.createDataFrame(respelled[::-1], _NESTED).repartition(3))
    # The order of columns is none of the content either.
    assert _checksum(frame) == _checksum(frame.select("m", "d", "k", "s", "a"))


def test_a_row_twice_is_not_no_row_and_sums_do_not_overflow(spark):
    many = spark.range(100_000).select(F.lit(7).alias("k"), F.col("id").cast("string").alias("t"))
    once, twice = _checksum(many), _checksum(many.union(many))

    assert once.startswith("100000:") and twice.startswith("200000:")
    assert once.split(":")[1] != twice.split(":")[1] != "0" * 32
    assert _checksum(many.limit(0)) == f"0:{'0' * 32}"


def test_a_null_in_one_column_is_not_a_null_in_another(spark):
    wide = ", ".join(f"c{at} string" for at in range(130))
    rows = [tuple("x" if at == place else None for at in range(130)) for place in (0, 1, 64, 65, 128)]
    texts = {_checksum(spark.createDataFrame([row], wide)) for row in rows}

    assert len(texts) == len(rows)


def test_each_bucket_is_a_sorted_file_with_the_keys_of_its_hash(spark, tmp_path):
    rows = spark.range(3000).select(
        F.when(F.col("id") > 0, F.col("id")).alias("id"), F.concat(F.lit("k"), "id").alias("a.b"), F.rand(1).alias("v")
    )
    layout = write_set(rows, LocalFileSystem(), str(tmp_path / "set"), ["id", "a.b"], count=8, expected_rows=3000)

    assert layout.count == 8 and layout.rows == 3000 and layout.keys == ("id", "a.b")
    placed = rows.select(F.pmod(F.hash("id", "`a.b`"), F.lit(8)).alias("bucket")).groupBy("bucket").count().collect()
    assert {bucket.number: bucket.rows for bucket in layout.buckets} == {row["bucket"]: row["count"] for row in placed}
    for bucket in layout.buckets:
        file = tmp_path / "set" / bucket.path
        ids = pq.read_table(file)["id"].to_pylist()
        assert bucket.size == file.stat().st_size and ids == sorted(ids, key=lambda value: (value is not None, value))
    assert layout.checksum == _checksum(rows)
    assert SetLayout.from_dict(layout.to_dict()) == layout


def test_values_come_back_as_they_were(spark, tmp_path):
    struct = f"{_NESTED}, t timestamp, n timestamp_ntz, day date, dec decimal(38,10), b binary"
    moment = datetime(1402, 2, 3, 4, 5, 6, 789, UTC)
    rest = (moment, datetime(9999, 12, 31, 23, 59), date(1500, 1, 1), Decimal("1.0000000001"), b"\x00\xff")
    rows = spark.createDataFrame([(*row, *rest) for row in _ROWS], struct)
    layout = write_set(rows, LocalFileSystem(), str(tmp_path / "a [b]*?"), ["k"])

    found = spark.read.schema(rows.schema).parquet(for_reading(str(tmp_path / "a [b]*?")))
    assert _checksum(found) == _checksum(rows) == layout.checksum
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_sets_of_different_counts_have_checksums_that_add_up(spark, tmp_path):
    rows = spark.range(500).select("id", (F.col("id") * 3).alias("v"))
    few, many = (write_set(rows, LocalFileSystem(), str(tmp_path / str(n)), ["id"], count=n) for n in (2, 16))

    assert few.checksum == many.checksum
    for number, buckets in many.grouped(2).items():
        assert sum(bucket.rows for bucket in buckets) == next(
            bucket.rows for bucket in few.buckets if bucket.number == number
        )


def test_an_empty_set_has_no_rows(spark, tmp_path):
    seen = Observation()
    rows = spark.range(10).filter("id > 10").observe(seen, F.count(F.lit(1)).alias("rows"))
    layout = write_set(rows, LocalFileSystem(), str(tmp_path / "set"), ["id"], count=4)

    assert (layout.rows, layout.buckets, seen.get) == (0, (), {"rows": 0})


def test_a_key_that_comes_twice_is_named(spark, tmp_path):
    rows = spark.createDataFrame([(1, "a"), (None, "b"), (None, "c"), (2, "d")], "id int, v string")

    with pytest.raises(RefusedInputError, match=r"more than once"):
        write_set(rows, LocalFileSystem(), str(tmp_path / "set"), ["id"])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], "there is none"),
        (["x"], "no key column 'x'"),
        (["id", "m"], "cannot be assigned to buckets"),
        (["d"], "cannot be assigned to buckets"),
    ],
)
def test_keys_that_determine_no_bucket_are_refused(spark, tmp_path, keys, expected):
    rows = spark.createDataFrame([(1, {"a": 1}, 1.5)], "id int, m map<string, int>, d double")

    with pytest.raises(RefusedInputError, match=expected):
        write_set(rows, LocalFileSystem(), str(tmp_path / "set"), keys)


def test_other_rows_than_expected_are_an_error(spark, tmp_path):
    with pytest.raises(DataError, match="hold 10 rows, expected 11"):
        write_set(spark.range(10), LocalFileSystem(), str(tmp_path / "set"), ["id"], expected_rows=11)
