"""Random tables against the diff in plain Python: all modes, all types, nulls in keys, changed schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.joining import diff, joined
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.pairs import classified, read_summary, summary_columns
from tests.diffing.oracle import diff_rows
from tests.diffing.tables import Change, changes, frame_of, frozen_rows, make_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

FEW: Callable[..., Any] = settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
# One of the random names is that of the diff column.
NAMED = DiffOptions(diff_column="is what")


def check(change: Change, spark: SparkSession, options: DiffOptions, keys: tuple[str, ...]) -> None:
    """Hold one diff against the oracle."""
    past, current = change.frames(spark)
    found = diff(past, current, keys, options)
    names, rows = diff_rows(
        change.past, change.current, keys, columns=change.schema.names, mode=options.diff_mode.value,
        sparse=options.sparse_mode, change_column=options.change_column,
        include_unchanged=options.include_unchanged, ignore=options.ignore_columns,
    )  # fmt: skip
    assert found.columns == [options.diff_column, *names[1:]]
    assert frozen_rows(found.collect()) == frozen_rows(rows)


@pytest.mark.parametrize("mode", DiffMode)
@given(change=changes(rows=120), switches=st.tuples(st.booleans(), st.booleans(), st.booleans()))
@FEW
def test_every_mode(spark: SparkSession, mode: DiffMode, change: Change, switches: tuple[bool, bool, bool]) -> None:
    sparse, unchanged, has_changes = switches
    options = DiffOptions(
        diff_column="is what",
        diff_mode=mode,
        sparse_mode=sparse,
        include_unchanged=unchanged,
        change_column="altered" if has_changes else None,
    )
    check(change, spark, options, change.keys)


@given(change=changes(rows=120))
@FEW
def test_ignored_columns(spark: SparkSession, change: Change) -> None:
    ignored = tuple(reversed([name for name in change.schema.names if name not in change.keys]))[:2]
    options = DiffOptions(
        diff_column="is what", ignore_columns=ignored, change_column="altered", include_unchanged=True
    )
    check(change, spark, options, change.keys)


@given(change=changes(rows=80))
@FEW
def test_all_columns_are_the_key_where_none_is_named(spark: SparkSession, change: Change) -> None:
    check(change, spark, NAMED, ())


@given(change=changes(rows=120))
@FEW
def test_the_summary_counts_what_is_there(spark: SparkSession, change: Change) -> None:
    past, current = change.frames(spark)
    alignment = align(change.schema, change.schema, change.keys, NAMED, evolve=False)
    _, rows = diff_rows(
        change.past, change.current, change.keys, columns=change.schema.names, change_column="altered",
        include_unchanged=True,
    )  # fmt: skip
    actions = [row[0] for row in rows]
    changed = [name for row in rows for name in row[1] or ()]
    for whole in (True, False):
        pairs = joined(past, current, alignment, NAMED, whole=whole)
        counted = classified(pairs, NAMED).agg(*summary_columns(alignment, NAMED)).collect()[0]
        known = {} if whole else {"past_rows": len(change.past), "current_rows": len(change.current)}
        found = read_summary(counted, alignment, **{"past_rows": None, "current_rows": None, **known})
        assert found.past_rows == len(change.past)
        assert found.current_rows == len(change.current)
        counts = (found.inserted, found.changed, found.deleted, found.unchanged)
        assert counts == tuple(actions.count(label) for label in "ICDN")
        assert dict(found.columns) == {column.name: changed.count(column.name) for column in alignment.compared}
        assert found.duplicates == 0


@pytest.mark.parametrize("mode", [DiffMode.COLUMN_BY_COLUMN, DiffMode.STRUCTS])
def test_added_dropped_and_widened_columns(spark: SparkSession, mode: DiffMode) -> None:
    past = StructType(
        [StructField("k", IntegerType()), StructField("wider", IntegerType()), StructField("gone", StringType()),
         StructField("same", DoubleType())]
    )  # fmt: skip
    current = StructType(
        [StructField("new", StringType()), StructField("k", LongType()), StructField("same", DoubleType()),
         StructField("wider", DoubleType())]
    )  # fmt: skip
    left = [(1, 5, "a", 1.5), (2, None, None, None), (3, 7, None, 0.0), (None, 1, "x", 2.5)]
    right = [(None, 1, 1.5, 5.0), ("n", 2, None, None), (None, 3, -0.0, 7.0), ("m", 2**40, 1.0, 1.0)]
    found = diff(
        frame_of(spark, left, past), frame_of(spark, right, current), ["k"],
        DiffOptions(evolve=True, diff_mode=mode, include_unchanged=True, change_column="altered", sparse_mode=True),
    )  # fmt: skip
    names, rows = diff_rows(
        [(k, None if wider is None else float(wider), gone, same) for k, wider, gone, same in left], right, ["k"],
        columns=past.names, current_columns=current.names, mode=mode.value, change_column="altered",
        include_unchanged=True, sparse=True,
    )  # fmt: skip
    assert found.columns == names
    assert frozen_rows(found.collect()) == frozen_rows(rows)


def test_tables_are_the_same_for_a_seed() -> None:
    assert repr(make_change(7).current) == repr(make_change(7).current)
    assert make_change(7).current != make_change(8).current
