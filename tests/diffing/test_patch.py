"""Applying, reversing and joining diffs: names, schemas, and refusals with their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.diffing.frames.comparators import Epsilon
from lakeward.diffing.frames.joining import diff
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.parsed_diff import parse_diff
from lakeward.diffing.frames.patching import compose, composed, patch, patched, reverse
from lakeward.diffing.frames.refusals import refusals
from lakeward.errors import RefusedInputError
from lakeward.session.sessions import table_session
from tests.diffing.spark_extension import python_package
from tests.diffing.stored import stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "id int, name string"
DIFF = "diff string, id int, left_name string, right_name string"


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return table_session(spark)


def table(spark: SparkSession, *rows: tuple[Any, ...], schema: str = TABLE) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def refused(frame: DataFrame) -> str:
    with pytest.raises(RefusedInputError) as caught, refusals():
        frame.collect()
    return caught.value.message


def test_a_prefix_is_taken_off_once_and_only_at_the_beginning(spark):
    schema = "right_id int, copyright_year int, left_right_left_ string, right_ int"
    past = table(spark, (1, 1999, "a", 1), (2, 2000, None, None), schema=schema)
    current = table(spark, (1, 2001, None, 1), (3, 2002, "c", 3), schema=schema)
    found = stored(diff(past, current, ["right_id"]))
    assert "right_copyright_year" in found.columns
    assert rows(patch(past, found, ["right_id"])) == rows(current)


def test_prefixes_of_which_one_begins_with_the_other_are_refused_without_a_manifest(spark):
    options = DiffOptions(left_column_prefix="a", right_column_prefix="a_b")
    past, current = table(spark, (1, "x")), table(spark, (1, "y"))
    found = diff(past, current, ["id"], options)
    with pytest.raises(RefusedInputError, match=r"begin with a_ and with a_b_: a_b_name"):
        patch(past, found, ["id"], options)
    known = parse_diff(found, ["id"], options, past=past.schema, current=current.schema)
    assert rows(patched(past, known, strict=True, result=current.schema)) == [(1, "y")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("I", 1, None, "b"), 'the diff inserts {"id":1}, which the past has'),
        (("C", 7, "a", "b"), 'the diff changes or deletes {"id":7}, which the past lacks'),
        (("D", 7, "a", None), 'the diff changes or deletes {"id":7}, which the past lacks'),
        (("C", 1, "other", "b"), 'the diff has other past values for {"id":1} than the past'),
        (("D", 1, None, None), 'the diff has other past values for {"id":1} than the past'),
        (("X", 1, "a", None), "the diff has the action X; known are I, C, D, N"),
    ],
)
def test_a_diff_of_another_table_is_refused_with_the_key(spark, change, message):
    past = table(spark, (1, "a"), (2, "b"))
    assert message in refused(patch(past, table(spark, change, schema=DIFF), ["id"]))


def test_a_diff_of_another_table_is_applied_on_request(spark):
    past = table(spark, (1, "a"), (2, "b"), (None, "n"))
    changes = [("I", 1, None, "one"), ("C", 7, "x", "seven"), ("D", 2, "z", None), ("D", 9, "z", None)]
    found = patch(past, table(spark, *changes, schema=DIFF), ["id"], strict=False)
    assert rows(found) == [(1, "one"), (7, "seven"), (None, "n")]


def test_a_key_that_comes_twice_in_the_diff_is_refused(spark):
    twice = table(spark, ("C", 1, "a", "b"), ("C", 1, "a", "c"), schema=DIFF)
    assert '{"id": 1}' in refused(patch(table(spark, (1, "a")), twice, ["id"]))


def test_columns_come_leave_and_widen_with_the_diff_and_go_back_with_its_reverse(spark):
    former, later = "id int, size int, gone string, same double", "id int, size bigint, same double, new string"
    past = table(spark, (1, 10, "a", 1.5), (2, 20, "b", None), schema=former)
    current = table(spark, (1, 10, 1.5, "x"), (3, 3_000_000_000, None, None), schema=later)
    options = DiffOptions(evolve=True)
    found = stored(diff(past, current, ["id"], options))
    result = patch(past, found, ["id"], options)
    assert result.schema.simpleString() == "struct<id:int,size:bigint,same:double,new:string>"
    assert rows(result) == rows(current)
    known = parse_diff(reverse(found, ["id"], options), ["id"], options, past=current.schema, current=past.schema)
    back = patched(current, known, strict=True, result=past.schema)
    assert back.schema.simpleString() == past.schema.simpleString()
    assert rows(back) == rows(past)


def test_fields_of_structs_come_and_leave_as_columns_do(spark):
    former = "id int, v struct<a:int,gone:string>, list array<struct<a:int>>, m map<string,struct<a:int,b:int>>"
    later = "id int, v struct<new:double,a:bigint>, list array<struct<a:int,b:int>>, m map<string,struct<b:int>>"
    past = table(
        spark, (1, (1, "x"), [(1,)], {"k": (1, 2)}), (2, None, None, None), (3, (3, None), [None], {}), schema=former
    )
    current = table(
        spark, (1, (0.5, 1), [(1, 5)], {"k": (2,)}), (2, None, None, None), (4, (None, 4), [], None), schema=later
    )
    last = table(spark, (2, (None, 7), None, {"z": (None,)}), schema=later)
    options = DiffOptions(evolve=True)
    first = stored(diff(past, current, ["id"], options))
    assert rows(first.select("diff", "id")) == [("C", 1), ("D", 3), ("I", 4)]
    known = parse_diff(first, ["id"], options, past=past.schema, current=current.schema)
    assert rows(patched(past, known, strict=True, result=current.schema)) == rows(current)
    then = stored(diff(current, last, ["id"], options))
    second = parse_diff(then, ["id"], options, past=current.schema, current=last.schema)
    both = parse_diff(stored(composed(known, second, options)), ["id"], options, past=past.schema, current=last.schema)
    assert rows(patched(past, both, strict=True, result=last.schema)) == rows(last)


def test_a_diff_with_other_columns_is_refused(spark):
    found = table(spark, ("C", 1, "a", "b"), schema=DIFF)
    with pytest.raises(RefusedInputError, match="columns that the diff does not have: price"):
        patch(table(spark, (1, "a", 2), schema="id int, name string, price int"), found, ["id"])
    with pytest.raises(RefusedInputError, match="columns of the diff that are missing: name"):
        patch(table(spark, (1,), schema="id int"), found, ["id"])
    with pytest.raises(RefusedInputError, match="column name is int in the past, string in the diff"):
        patch(table(spark, (1, 2), schema="id int, name int"), found, ["id"])
    with pytest.raises(RefusedInputError, match="no key column id; it has key, name"):
        patch(table(spark, (1, "a"), schema="key int, name string"), found, ["id"])
    with pytest.raises(RefusedInputError, match="begin neither with left_ nor with right_: id"):
        patch(table(spark, (1, "a")), found.withColumn("key", found.id), ["key"])


@pytest.mark.parametrize("mode", [DiffMode.COLUMN_BY_COLUMN, DiffMode.STRUCTS])
def test_keys_are_derived_from_the_columns_of_the_diff(spark, mode):
    options = DiffOptions(diff_mode=mode)
    past, current = table(spark, (1, "a"), (2, "b")), table(spark, (1, "c"), (3, "d"))
    found = stored(diff(past, current, ["id"], options))
    assert rows(patch(past, found, options=options)) == rows(current)
    assert rows(patch(current, reverse(found, options=options), options=options)) == rows(past)
    assert rows(compose(found, reverse(found, options=options), options=options)) == []


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ("diff string, id int, left_id int, left_x int, right_x int", DiffOptions()),
        ("diff string, left_id int, right_id int", DiffOptions()),
        ("diff string, id int, x int", DiffOptions(diff_mode=DiffMode.RIGHT_SIDE)),
    ],
)
def test_keys_that_cannot_be_derived_must_be_named(spark, schema, options):
    with pytest.raises(RefusedInputError, match=r"the key columns of the diff cannot be determined; it has .*id"):
        reverse(spark.createDataFrame([], schema), options=options)


def test_diffs_without_what_is_needed_are_refused(spark):
    past, current = table(spark, (1, "a")), table(spark, (1, None))
    for options, message in (
        (DiffOptions(diff_mode=DiffMode.LEFT_SIDE), "in left-side mode cannot be applied"),
        (DiffOptions(sparse_mode=True), "a change to null looks like no change"),
    ):
        with pytest.raises(RefusedInputError, match=message):
            patch(past, diff(past, current, ["id"], options), ["id"], options)
    right = DiffOptions(diff_mode=DiffMode.RIGHT_SIDE)
    with pytest.raises(RefusedInputError, match="cannot be reversed: it does not have the past values"):
        reverse(diff(past, current, ["id"], right), ["id"], right)
    for options, message in (
        (right, "the values of one side only"),
        (DiffOptions(sparse_mode=True, change_column="c"), "does not have the values that did not change"),
        (DiffOptions(ignore_columns=("name",)), "ignores columns or tolerates"),
        (DiffOptions(default_comparator=Epsilon(0.1)), "ignores columns or tolerates"),
    ):
        one = diff(past, current, ["id"], options)
        with pytest.raises(RefusedInputError, match=message):
            compose(one, one, ["id"], options)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("I", 1, None, "a"), ("I", 1, None, "b"), 'the first leaves {"id":1}, which the second inserts'),
        (("D", 1, "a", None), ("D", 1, "a", None), 'the first deletes {"id":1}, which the second changes or deletes'),
        (("D", 1, "a", None), ("C", 1, "a", "b"), 'the first deletes {"id":1}, which the second changes or deletes'),
        (("C", 1, "a", "b"), ("C", 1, "c", "d"), 'it has other past values for {"id":1}'),
    ],
)
def test_diffs_that_do_not_follow_each_other_are_refused_with_the_key(spark, first, second, message):
    both = compose(table(spark, first, schema=DIFF), table(spark, second, schema=DIFF), ["id"])
    assert message in refused(both)


def test_two_diffs_make_the_one_of_their_ends(spark):
    first = [("I", 1, None, "a"), ("I", 2, None, "a"), ("C", 3, "a", "b"), ("C", 4, "a", "b"), ("C", 5, "a", "b"),
             ("D", 6, "a", None), ("D", 7, "a", None), ("C", 8, "a", "b")]  # fmt: skip
    second = [("C", 1, "a", "c"), ("D", 2, "a", None), ("C", 3, "b", "c"), ("C", 4, "b", "a"), ("D", 5, "b", None),
              ("I", 6, None, "a"), ("I", 7, None, "c"), ("D", 9, "z", None)]  # fmt: skip
    both = compose(table(spark, *first, schema=DIFF), table(spark, *second, schema=DIFF), ["id"])
    assert rows(both) == rows(
        table(
            spark, ("I", 1, None, "c"), ("C", 3, "a", "c"), ("D", 5, "a", None), ("C", 7, "a", "c"),
            ("C", 8, "a", "b"), ("D", 9, "z", None), schema=DIFF,
        )
    )  # fmt: skip


def test_values_within_the_tolerance_that_the_diff_was_made_with_are_no_misfit(spark):
    options = DiffOptions(default_comparator=Epsilon(0.1, relative=False), ignore_columns=("note",))
    schema = "id int, size double, note string"
    diff_schema = "diff string, id int, left_size double, right_size double, left_note string, right_note string"
    found = table(spark, ("C", 1, 1.05, 2.0, "x", "y"), schema=diff_schema)
    assert rows(patch(table(spark, (1, 1.0, "z"), schema=schema), found, ["id"], options)) == [(1, 2.0, "y")]
    assert "other past values" in refused(patch(table(spark, (1, 1.5, "x"), schema=schema), found, ["id"], options))


def test_spark_extensions_diff_is_a_patch(spark):
    past, current = table(spark, (1, "a"), (2, "b"), (3, None)), table(spark, (1, "c"), (3, None), (4, "d"))
    found = stored(python_package().Differ().diff(past, current, "id"))
    assert rows(patch(past, found, ["id"])) == rows(current)
    assert rows(patch(current, reverse(found, ["id"]), ["id"])) == rows(past)


def test_an_ignored_column_that_became_a_text_is_a_text_in_every_row(spark):
    past = table(spark, (1, "a", 5), (2, "b", None), (3, "c", 7), schema=f"{TABLE}, code int")
    current = table(spark, (1, "a", "x"), (2, "b", "y"), (3, "d", "z"), schema=f"{TABLE}, code string")
    options = DiffOptions(ignore_columns=("code",), evolve=True)
    found = stored(diff(past, current, "id", options))
    assert rows(patch(past, found, "id", options)) == [(1, "a", "5"), (2, "b", None), (3, "d", "z")]
    with pytest.raises(RefusedInputError, match="which ignores it: rows that did not change have no value"):
        patch(current, reverse(found, "id", options), "id", options)
