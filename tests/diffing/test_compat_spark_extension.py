"""Programs that were written for spark-extension: what its documentation shows, and what it does otherwise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, SparkRuntimeException
from pyspark.sql.types import DoubleType, IntegerType, StringType

import lakeward
from lakeward.compat import spark_extension
from lakeward.compat.spark_extension import DiffComparator, DiffComparators, Differ, DiffMode, DiffOptions
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.session.sessions import table_session
from tests.diffing.spark_extension import python_package

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TABLE = "id int, name string, label string"
LEFT = [(1, "pen", None), (2, "ink", "blue"), (3, "cap", "red"), (4, "bag", "old"), (5, "map", "gone")]
RIGHT = [(1, "pen", "new"), (2, "Ink", "blue"), (3, "Cap", "Red"), (4, "bag", "old"), (6, "cup", "added")]


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return table_session(spark)


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame(LEFT, TABLE), spark.createDataFrame(RIGHT, TABLE)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


# The documented results: for each layout the columns, and the rows by id.
HEAD = ["diff", "id"]
MODES: dict[str, tuple[DiffOptions, list[str], list[tuple[Any, ...]]]] = {
    "column by column": (
        DiffOptions(),
        [*HEAD, "left_name", "right_name", "left_label", "right_label"],
        [
            ("C", 1, "pen", "pen", None, "new"),
            ("C", 2, "ink", "Ink", "blue", "blue"),
            ("C", 3, "cap", "Cap", "red", "Red"),
            ("N", 4, "bag", "bag", "old", "old"),
            ("D", 5, "map", None, "gone", None),
            ("I", 6, None, "cup", None, "added"),
        ],
    ),
    "side by side": (
        DiffOptions().with_diff_mode(DiffMode.SideBySide),
        [*HEAD, "left_name", "left_label", "right_name", "right_label"],
        [
            ("C", 1, "pen", None, "pen", "new"),
            ("C", 2, "ink", "blue", "Ink", "blue"),
            ("C", 3, "cap", "red", "Cap", "Red"),
            ("N", 4, "bag", "old", "bag", "old"),
            ("D", 5, "map", "gone", None, None),
            ("I", 6, None, None, "cup", "added"),
        ],
    ),
    "left side": (
        DiffOptions().with_diff_mode(DiffMode.LeftSide),
        [*HEAD, "name", "label"],
        [
            ("C", 1, "pen", None), ("C", 2, "ink", "blue"), ("C", 3, "cap", "red"),
            ("N", 4, "bag", "old"), ("D", 5, "map", "gone"), ("I", 6, None, None),
        ],
    ),
    "right side": (
        DiffOptions().with_diff_mode(DiffMode.RightSide),
        [*HEAD, "name", "label"],
        [
            ("C", 1, "pen", "new"), ("C", 2, "Ink", "blue"), ("C", 3, "Cap", "Red"),
            ("N", 4, "bag", "old"), ("D", 5, None, None), ("I", 6, "cup", "added"),
        ],
    ),
    "sparse": (
        DiffOptions().with_sparse_mode(True),
        [*HEAD, "left_name", "right_name", "left_label", "right_label"],
        [
            ("C", 1, None, None, None, "new"),
            ("C", 2, "ink", "Ink", None, None),
            ("C", 3, "cap", "Cap", "red", "Red"),
            ("N", 4, None, None, None, None),
            ("D", 5, "map", None, "gone", None),
            ("I", 6, None, "cup", None, "added"),
        ],
    ),
    "changed columns": (
        DiffOptions().with_change_column("changes").with_diff_mode(DiffMode.RightSide),
        ["diff", "changes", "id", "name", "label"],
        [
            ("C", ["label"], 1, "pen", "new"),
            ("C", ["name"], 2, "Ink", "blue"),
            ("C", ["name", "label"], 3, "Cap", "Red"),
            ("N", [], 4, "bag", "old"),
            ("D", None, 5, None, None),
            ("I", None, 6, "cup", "added"),
        ],
    ),
    "all options in order": (
        DiffOptions("d", "l", "r", "i", "c", "x", "n", "changes", DiffMode.Default, False),
        ["d", "changes", "id", "l_name", "r_name", "l_label", "r_label"],
        [
            ("c", ["label"], 1, "pen", "pen", None, "new"),
            ("c", ["name"], 2, "ink", "Ink", "blue", "blue"),
            ("c", ["name", "label"], 3, "cap", "Cap", "red", "Red"),
            ("n", [], 4, "bag", "bag", "old", "old"),
            ("x", None, 5, "map", None, "gone", None),
            ("i", None, 6, None, "cup", None, "added"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "columns", "expected"), MODES.values(), ids=list(MODES))
def test_the_documented_layouts(
    both: tuple[DataFrame, DataFrame], options: DiffOptions, columns: list[str], expected: list[tuple[Any, ...]]
) -> None:
    left, right = both
    found = left.diff(right, options, "id")  # type: ignore[operator]
    assert found.columns == columns
    assert [tuple(row) for row in found.sort("id").collect()] == expected


def test_without_ids_rows_are_inserted_and_deleted(both: tuple[DataFrame, DataFrame]) -> None:
    left, right = (side.drop("label").filter("id < 3 or id > 4") for side in both)
    found = left.diff(right)  # type: ignore[operator]
    assert found.columns == ["diff", "id", "name"]
    assert rows(found) == [("D", 2, "ink"), ("D", 5, "map"), ("I", 2, "Ink"), ("I", 6, "cup"), ("N", 1, "pen")]


def test_ignored_columns_are_shown_and_not_compared(both: tuple[DataFrame, DataFrame]) -> None:
    left, right = (side.filter("id = 1") for side in both)
    wider = right.selectExpr("id", "length(label) label", "name", "true extra")
    found = left.diff(wider, ["id"], ["extra", "label"])  # type: ignore[operator]
    assert found.columns == ["diff", "id", "left_name", "right_name", "right_extra", "left_label", "right_label"]
    assert rows(found) == [("N", 1, "pen", "pen", True, None, 3)]


def test_diffwith_has_both_sides_as_structs(both: tuple[DataFrame, DataFrame]) -> None:
    left, right = both
    named = DiffOptions().with_diff_column("d").with_left_column_prefix("old").with_right_column_prefix("new")
    found = left.select("label", "name", "id").diffwith(right, named, "id").sort("old.id", "new.id")  # type: ignore[operator]
    assert found.columns == ["d", "old", "new"]
    assert found.schema["old"].dataType.simpleString() == "struct<id:int,label:string,name:string>"
    assert [tuple(row) for row in found.collect()] == [
        ("I", None, (6, "added", "cup")),
        ("C", (1, None, "pen"), (1, "new", "pen")),
        ("C", (2, "blue", "ink"), (2, "blue", "Ink")),
        ("C", (3, "red", "cap"), (3, "Red", "Cap")),
        ("N", (4, "old", "bag"), (4, "old", "bag")),
        ("D", (5, "gone", "map"), None),
    ]


def test_numbers_within_a_share_are_equal(spark: SparkSession) -> None:
    prices = "id int, price double"
    left = spark.createDataFrame([(1, 1.0), (2, 2.0), (3, 3.0)], prices)
    right = spark.createDataFrame([(1, 1.0), (2, 2.02), (3, 3.05)], prices)
    within = DiffComparators.epsilon(0.01).as_relative().as_inclusive()
    for options in (
        DiffOptions().with_data_type_comparator(within, DoubleType()),
        DiffOptions().with_column_name_comparator(within, "price"),
        DiffOptions().with_default_comparator(within),
    ):
        found = Differ(options).diff(left, right, "id").sort("id").collect()
        assert [row["diff"] for row in found] == ["N", "N", "C"]


def test_the_names_with_options_work_and_warn(both: tuple[DataFrame, DataFrame]) -> None:
    left, right = (side.filter("id = 2") for side in both)
    options = DiffOptions(change_diff_value="other")
    with pytest.warns(DeprecationWarning, match=r"diff takes options too: left\.diff"):
        assert rows(left.diff_with_options(right, options, "id"))[0][0] == "other"  # type: ignore[operator]
    with pytest.warns(DeprecationWarning, match=r"left\.diffwith"):
        assert rows(left.diffwith_with_options(right, options, ["id"], ["label"]))[0][0] == "other"  # type: ignore[operator]


@pytest.mark.parametrize(
    "columns", [(["id"],), (["id"], "name"), ("id", DiffOptions()), (["id"], [1]), (["id"], ["name"], [])], ids=repr
)
def test_columns_are_named_in_one_of_two_ways(both: tuple[DataFrame, DataFrame], columns: tuple[Any, ...]) -> None:
    for call in (spark_extension.diff, spark_extension.diffwith):
        with pytest.raises(ConfigurationError, match="Columns must be texts, or two lists of texts"):
            call(*both, *columns)


def test_a_comparator_compares_two_columns_by_itself(spark: SparkSession) -> None:
    """A comparator of a user's may ask one of the others."""
    frame = spark.createDataFrame([(1, 2, "a b", " a  b", None)], "x int, y int, s string, t string, nothing string")
    maps = frame.selectExpr("*", "map('a', 1, 'b', 2) m", "map('b', 2, 'a', 1) n", "current_timestamp() now")
    make, its = DiffComparators, maps
    found = maps.select(
        make.default().equiv(its.x, its.y),
        make.default().equiv(its.nothing, its.nothing),
        make.epsilon(0.5).equiv(its.x, its.y),
        make.epsilon(0.5).as_exclusive().equiv(its.x, its.y),
        make.string().equiv(its.s, its.t),
        make.string().equiv(its.s, its.nothing),
        make.duration("PT0S").equiv(its.now, its.now),
        make.map(StringType(), IntegerType()).equiv(its.m, its.n),
        make.map(StringType(), IntegerType(), True).equiv(its.m, its.n),
    )
    assert tuple(found.collect()[0]) == (False, True, True, False, True, False, True, True, False)


# What docs/diff.md lists as different: in each case both packages run the same lines.


@pytest.fixture(scope="module")
def theirs() -> Any:
    return python_package()


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Any:
    """Return a function that makes a frame of one row, or of rows, with an id."""

    def make(*values: Any, schema: str = "v string") -> DataFrame:
        return spark.createDataFrame([(1, value) for value in values], f"id int, {schema}")

    return make


def test_a_key_that_comes_twice_multiplies_rows_there_and_is_refused_here(theirs: Any, frame: Any) -> None:
    left, right = frame("a", "b"), frame("a", "c")
    assert len(theirs.diff(left, right, "id").collect()) == 4
    with pytest.raises(SparkRuntimeException, match=r'lakeward-duplicate key: \{"side":"past","key":\{"id":1\}\}'):
        spark_extension.diff(left, right, "id").collect()
    paired = DiffOptions(duplicate_keys=lakeward.DuplicateKeys.REPORT)
    assert rows(spark_extension.diff(left, right, paired, "id")) == [("C", 1, "b", "c"), ("N", 1, "a", "a")]
    same = frame("a", "a", "b"), frame("a", "a", "a")
    assert rows(theirs.diff(*same)) == [("D", 1, "b"), *[("N", 1, "a")] * 6]
    assert rows(spark_extension.diff(*same, paired)) == [("D", 1, "b"), ("I", 1, "a"), *[("N", 1, "a")] * 2]


def test_nan_infinities_and_zeros_within_an_epsilon(spark: SparkSession, theirs: Any) -> None:
    pairs = [(math.nan, math.nan), (math.inf, math.inf), (0.0, 0.0), (1.0, math.nan), (1.0, math.inf), (1.0, 1.05)]
    sides = [
        spark.createDataFrame([(at, pair[side]) for at, pair in enumerate(pairs)], "id int, v double")
        for side in (0, 1)
    ]
    verdicts = {}
    for package in (theirs, spark_extension):
        within = package.DiffComparators.epsilon(0.1)
        for name, comparator in {
            "distance": within.as_absolute(),
            "share": within,
            "less than the share": within.as_exclusive(),
        }.items():
            options = package.DiffOptions().with_default_comparator(comparator)
            found = package.diff(*sides, options, "id").sort("id").collect()
            verdicts[package.__name__.partition(".")[0], name] = "".join(row["diff"] for row in found)
    assert verdicts == {
        ("gresearch", "distance"): "CCNCCN",
        ("gresearch", "share"): "NCNNNN",
        ("gresearch", "less than the share"): "CCCCCN",
        ("lakeward", "distance"): "NNNCCN",
        ("lakeward", "share"): "NNNCCN",
        ("lakeward", "less than the share"): "NNNCCN",
    }


def test_comparators_that_compare_plainly_there_work_as_documented_here(theirs: Any, frame: Any) -> None:
    texts = frame("a b"), frame(" a  b")
    times = [frame(f"2026-01-01 00:0{minute}:00").selectExpr("id", "timestamp(v) v") for minute in (0, 4)]
    verdicts = []
    for its in (theirs, spark_extension):
        by_text = its.DiffOptions().with_column_name_comparator(its.DiffComparators.string(), "v")
        by_time = its.DiffOptions().with_column_name_comparator(its.DiffComparators.duration("PT5M"), "v")
        found = its.diff(*texts, by_text, "id").select("diff").union(its.diff(*times, by_time, "id").select("diff"))
        verdicts.append([row["diff"] for row in found.collect()])
    assert verdicts == [["C", "C"], ["N", "N"]]


def test_maps_fail_there_and_are_compared_by_their_entries_here(theirs: Any, frame: Any) -> None:
    maps = [frame("").selectExpr("id", f"map({entries}) v") for entries in ("'a', 1, 'b', 2", "'b', 2, 'a', 1")]
    for its in (theirs, spark_extension):
        by_entries = its.DiffComparators.map(StringType(), IntegerType())
        for options in (its.DiffOptions(), its.DiffOptions().with_column_name_comparator(by_entries, "v")):
            if its is theirs:
                with pytest.raises(AnalysisException, match="INVALID_ORDERING_TYPE"):
                    its.diff(*maps, options, "id")
            else:
                assert its.diff(*maps, options, "id").collect()[0]["diff"] == "N"
    others = DiffOptions().with_column_name_comparator(DiffComparators.map(StringType(), StringType()), "v")
    with pytest.raises(ConfigurationError, match="map of map<string,string> cannot compare column 'v'"):
        spark_extension.diff(*maps, others, "id")


def test_a_comparator_that_answers_null_hides_a_change_there_and_shows_it_here(theirs: Any, frame: Any) -> None:
    def options(its: Any) -> Any:
        class Plain(its.DiffComparator):
            def equiv(self, left: Column, right: Column) -> Column:
                return left == right

        return its.DiffOptions(change_column="what").with_default_comparator(Plain())

    sides = frame(None), frame("b")
    assert rows(theirs.diff(*sides, options(theirs), "id")) == [("N", ["v"], 1, None, "b")]
    assert rows(spark_extension.diff(*sides, options(spark_extension), "id")) == [("C", ["v"], 1, None, "b")]


def test_a_known_comparator_with_an_equiv_of_the_users_is_compared_by_it(frame: Any) -> None:
    class Never(spark_extension.EpsilonDiffComparator):
        def equiv(self, left: Column, right: Column) -> Column:
            return left.isNull() & left.isNotNull()

    options = DiffOptions().with_default_comparator(Never(0.1))
    assert isinstance(options.default_comparator, DiffComparator)
    assert rows(spark_extension.diff(frame("a"), frame("a"), options, "id")) == [("C", 1, "a", "a")]


def test_a_default_comparator_compares_only_what_it_can(theirs: Any, frame: Any) -> None:
    sides = frame("a"), frame("b")
    for its in (theirs, spark_extension):
        within = its.DiffComparators.epsilon(0.1)
        by_default = its.DiffOptions().with_default_comparator(within)
        by_name = its.DiffOptions().with_column_name_comparator(within, "v")
        by_other_name = its.DiffOptions().with_column_name_comparator(within, "w")
        assert its.diff(*sides, by_other_name, "id").collect()[0]["diff"] == "C"
        if its is theirs:
            for options in (by_default, by_name):
                with pytest.raises(AnalysisException):
                    its.diff(*sides, options, "id")
        else:
            assert its.diff(*sides, by_default, "id").collect()[0]["diff"] == "C"
            with pytest.raises(ConfigurationError, match="cannot compare column 'v', which is string"):
                its.diff(*sides, by_name, "id")


def test_whole_numbers_too_far_apart_fail_there_and_differ_here(theirs: Any, frame: Any) -> None:
    sides = frame(2**31 - 1, schema="v int"), frame(-(2**31), schema="v int")
    for its in (theirs, spark_extension):
        within = its.DiffOptions().with_column_name_comparator(its.DiffComparators.epsilon(0.1), "v")
        found = its.diff(*sides, within, "id")
        if its is theirs:
            with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
                found.collect()
        else:
            assert found.collect()[0]["diff"] == "C"


def test_structs_are_whole_here_without_ids_in_every_mode_and_under_any_name(theirs: Any, frame: Any) -> None:
    sides = frame("a"), frame("b")
    assert rows(theirs.diffwith(*sides)) == [("D", (), None), ("I", None, ())]
    assert rows(spark_extension.diffwith(*sides)) == [("D", (1, "a"), None), ("I", None, (1, "b"))]
    with pytest.raises(ValueError, match="Some id columns do not exist: i, d"):
        theirs.diffwith(*sides, "id", "v")
    assert len(rows(spark_extension.diffwith(*sides, "id", "v"))) == 2
    one_side = DiffMode.LeftSide
    other = theirs.DiffOptions(diff_mode=theirs.DiffMode[one_side.name])
    assert rows(theirs.diffwith(*sides, other, "id")) == [("C", (1,), (1,))]
    assert rows(spark_extension.diffwith(*sides, DiffOptions(diff_mode=one_side), "id")) == [("C", (1, "a"), (1, "b"))]
    named = [frame(value, schema="left_v string").selectExpr("id left", "left_v", "1 v") for value in "ab"]
    assert theirs.diffwith(*named, "left").schema["left"].dataType.names == ["left", "v", "v"]
    assert spark_extension.diffwith(*named, "left").schema["left"].dataType.names == ["left", "left_v", "v"]


def test_names_that_collide_or_have_dots(theirs: Any, frame: Any) -> None:
    names = {"left_column_prefix": "l", "right_column_prefix": "l_r"}
    twice = [frame(value, schema="r_a string").selectExpr("*", "'x' a") for value in "ab"]
    assert theirs.diff(*twice, theirs.DiffOptions(**names), "id").columns.count("l_r_a") == 2
    with pytest.raises(ConfigurationError, match="more than one column is called 'l_r_a'"):
        spark_extension.diff(*twice, DiffOptions(**names), "id")
    for wrong in ({"insert_diff_value": "D"}, {"left_column_prefix": ""}, {"left_column_prefix": "right"}):
        assert theirs.diff(*twice, theirs.DiffOptions(**wrong), "id").columns
        with pytest.raises(ConfigurationError):
            spark_extension.diff(*twice, DiffOptions(**wrong), "id")
    dotted = frame("a", schema="`a.b` string"), frame("b", schema="`a.b` string")
    with pytest.raises(AnalysisException):
        theirs.diff(*dotted, "id")
    assert rows(spark_extension.diff(*dotted, "id")) == [("C", 1, "a", "b")]
    assert rows(spark_extension.diffwith(*dotted, "id")) == [("C", (1, "a"), (1, "b"))]


def test_a_frame_is_not_compared_with_itself_there_and_is_here(theirs: Any, frame: Any) -> None:
    same = frame("a")
    with pytest.raises(AnalysisException, match="ambiguous"):
        theirs.diff(same, same.filter("id = 2"), "id")
    assert rows(spark_extension.diff(same, same.filter("id = 2"), "id")) == [("D", 1, "a", None)]


def test_other_schemas_are_refused_by_both_with_errors_of_their_own(theirs: Any, frame: Any) -> None:
    left, right = frame("a"), frame(1, schema="v int")
    with pytest.raises(ValueError, match="do not have the same schema"):
        theirs.diff(left, right, "id")
    with pytest.raises(RefusedInputError, match="do not have the same columns"):
        spark_extension.diff(left, right, "id")
    with pytest.raises(AssertionError):
        theirs.DiffOptions().with_sparse_mode("no")
    with pytest.raises(ConfigurationError):
        DiffOptions().with_sparse_mode("no")  # type: ignore[arg-type]
    elements = frame("").selectExpr("id", "array(1) v"), frame([1], schema="v array<int>")
    with pytest.raises(ValueError, match="do not have the same schema"):
        theirs.diff(*elements, "id")
    assert rows(spark_extension.diff(*elements, "id")) == [("N", 1, [1], [1])]
