"""The same diff as spark-extension gives, for everything that it does: both run on the same rows, several at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakeward.compat import spark_extension
from lakeward.diffing.frames.comparators import Comparator, Duration, Epsilon, Equality, MapEntries, Whitespace
from lakeward.diffing.frames.joining import diff
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.transforms.columns import columns
from tests.diffing.spark_extension import extension_diff, python_package
from tests.diffing.tables import frame_of, make_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

KEYS = ("id", "part")
SCHEMA = StructType(
    [
        StructField(name, data_type)
        for name, data_type in {
            "id": LongType(),
            "whole": IntegerType(),
            "long": LongType(),
            "real": DoubleType(),
            "short_real": FloatType(),
            "amount": DecimalType(12, 3),
            "part": StringType(),
            "name": StringType(),
            "raw": BinaryType(),
            "day": DateType(),
            "at": TimestampType(),
            "local": TimestampNTZType(),
            "list": ArrayType(DoubleType()),
            "pair": StructType([StructField("a", DoubleType()), StructField("b", StringType())]),
            "flag": BooleanType(),
            "dotted.name": IntegerType(),
            "entries": MapType(StringType(), IntegerType()),
            "by_number": MapType(IntegerType(), StringType()),
        }.items()
    ]
)
NO_MAPS = [field.name for field in SCHEMA.fields if field.name not in ("entries", "by_number")]
SIDES = [mode for mode in DiffMode if mode is not DiffMode.STRUCTS]
Case = tuple[tuple[str, ...], DiffOptions]


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Two states of a table of all types, each in one partition: a job of many joins needs no exchange then."""
    dice = random.Random(20)
    past = [*(_row(dice, at) for at in range(140)), _row(dice, None)]
    current = [_nudged(dice, row) for row in past if dice.random() > 0.1] + [_row(dice, at) for at in range(140, 155)]
    quick = spark.newSession()
    quick.conf.set("spark.sql.adaptive.enabled", "false")
    frames = [frame_of(quick, rows, SCHEMA, partitions=1).coalesce(1) for rows in (past, current)]
    # The columns of the current side come in another order.
    mixed = [*reversed(SCHEMA.names[:5]), *SCHEMA.names[5:]]
    return frames[0], frames[1].select(*columns(mixed))


def _row(dice: random.Random, at: int | None) -> tuple[Any, ...]:
    values = {field.name: make_value(dice, field.dataType) for field in SCHEMA.fields}
    values |= {"id": None if at is None else at % 70, "part": None if at is None else f"p{at // 70}"}
    # spark-extension finds no infinity or NaN equal to itself within an epsilon, nor two zeros within a share of them.
    values |= {"real": dice.choice((None, dice.uniform(1, 100))), "short_real": dice.choice((None, 0.5, 2.25, 1024.0))}
    values |= {"whole": dice.choice((None, dice.randint(1, 1000))), "long": dice.choice((None, dice.randint(1, 1000)))}
    values["name"] = dice.choice(("", " a", "a  b", "a\tb ", "\x00x\x7f", "x\u00a0", "a b", "b\r\n", None))
    return tuple(values[name] for name in SCHEMA.names)


def _nudged(dice: random.Random, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with some values a little different, some wholly, most not at all."""
    values = dict(zip(SCHEMA.names, row, strict=True))
    for field in SCHEMA.fields:
        value, roll = values[field.name], dice.random()
        if field.name in KEYS or roll < 0.5:
            continue
        if roll < 0.6:
            values[field.name] = None
        elif field.name in ("real", "whole", "long", "short_real") and value is not None:
            step = dice.choice((1, 2, 5)) if field.name in ("whole", "long") else dice.choice((0.5, 0.01, 0.0001))
            values[field.name] = value + step
        elif field.name in ("at", "local", "day") and value is not None:
            values[field.name] = value + timedelta(days=dice.randint(0, 3), seconds=dice.choice((0, 5, 300, 301)))
        elif field.name == "name" and value is not None:
            values[field.name] = dice.choice(
                (f" {value}", value.replace(" ", "  "), f"{value}\n", f"{value}\x1f", "other")
            )
        elif isinstance(value, dict) and roll < 0.8:
            values[field.name] = dict(reversed(value.items()))
        elif roll > 0.8:
            values[field.name] = make_value(dice, field.dataType)
    return tuple(values[name] for name in SCHEMA.names)


def compare(both: tuple[DataFrame, DataFrame], cases: Mapping[str, Case], names: Sequence[str] = NO_MAPS) -> None:
    """Run every case in both ways in one job, and expect no row that only one of them has."""
    past, current = (frame.select(*columns(name for name in frame.columns if name in names)) for frame in both)
    require_same(
        {
            title: (diff(past, current, keys, options), extension_diff(past, current, keys, options))
            for title, (keys, options) in cases.items()
        }
    )


def require_same(cases: Mapping[str, tuple[DataFrame, DataFrame]]) -> None:
    """Expect two frames with the same columns, types and rows in every case; one job reads all."""
    found = []
    for title, (ours, theirs) in cases.items():
        assert ours.columns == theirs.columns, title
        assert [column.dataType.simpleString() for column in ours.schema] == [
            column.dataType.simpleString() for column in theirs.schema
        ], title
        found += [_as_texts(title, ours, 1), _as_texts(title, theirs, -1)]
    every = reduce(lambda one, other: one.unionAll(other), found)
    counted = every.groupBy("case", "row").agg(F.sum("times").alias("times"), F.count("times").alias("rows"))
    rows = counted.collect()
    assert {row["case"] for row in rows} == set(cases), "every case has rows"
    assert [row.asDict() for row in rows if row["times"] != 0][:5] == []


def _as_texts(title: str, frame: DataFrame, times: int) -> DataFrame:
    row = F.to_json(F.struct(*columns(frame.columns)), {"ignoreNullFields": "false"})
    return frame.select(F.lit(title).alias("case"), row.alias("row"), F.lit(times).alias("times"))


@pytest.mark.parametrize("sparse", [False, True])
def test_modes_keys_and_ignored_columns(both: tuple[DataFrame, DataFrame], sparse: bool) -> None:
    plain = DiffOptions(sparse_mode=sparse, include_unchanged=True, change_column="what")
    ignored = ("pair", "day", "whole")
    cases: dict[str, Case] = {
        "ignored": (KEYS, replace(plain, ignore_columns=ignored, include_unchanged=False)),
        "no keys": ((), replace(plain, ignore_columns=("real", "flag"))),
    }
    for mode in SIDES:
        cases[mode] = (KEYS, replace(plain, diff_mode=mode, ignore_columns=() if mode is SIDES[0] else ignored))
    compare(both, cases)


def test_names_and_labels(both: tuple[DataFrame, DataFrame]) -> None:
    named = DiffOptions(
        diff_column="action", left_column_prefix="before", right_column_prefix="After", insert_value="new",
        change_value="", delete_value="I", nochange_value="C", change_column="diff", include_unchanged=True,
    )  # fmt: skip
    other_case = replace(named, ignore_columns=("PAIR",), include_unchanged=False)
    compare(both, {"named": (("part", "id"), named), "spelled otherwise": (("ID", "Part"), other_case)})


def test_comparators(both: tuple[DataFrame, DataFrame]) -> None:
    plain = DiffOptions(change_column="what", include_unchanged=True)
    cases: dict[str, Case] = {}
    for relative in (False, True):
        for inclusive in (False, True):
            each = Epsilon(0.01 if relative else 2.0, relative=relative, inclusive=inclusive)
            numbers = dict.fromkeys(("whole", "long", "real", "short_real", "amount"), each)
            cases[str(each)] = (KEYS, replace(plain, column_comparators=numbers))
    for limit, inclusive in ((timedelta(days=1), True), (timedelta(days=1), False), (timedelta(minutes=5), True)):
        # At a time of day that the sides share, one day apart is the limit itself.
        times = dict.fromkeys(("day", "at", "local"), Duration(limit, inclusive=inclusive))
        cases[str(times["day"])] = (KEYS, replace(plain, column_comparators={**times, "name": Whitespace()}))
    cases["by type"] = (
        KEYS,
        replace(
            plain,
            sparse_mode=True,
            type_comparators={"string": Whitespace(), "double": Epsilon(0.1, relative=False)},
            column_comparators={"name": Equality()},
        ),
    )
    compare(both, cases)


def test_maps(both: tuple[DataFrame, DataFrame]) -> None:
    cases: dict[str, Case] = {}
    for ordered in (False, True):
        each = dict.fromkeys(("entries", "by_number"), MapEntries(ordered=ordered))
        options = DiffOptions(change_column="what", include_unchanged=True, column_comparators=each)
        cases[f"ordered: {ordered}"] = (KEYS, options)
    compare(both, cases, [*KEYS, "entries", "by_number", "whole"])


# The same lines of a user's program, run with the names of either package.
Program = Callable[[Any, "DataFrame", "DataFrame"], "DataFrame"]
PROGRAMS: dict[str, Program] = {
    "ids": lambda its, left, right: its.diff(left, right, "part", "id"),
    "no ids": lambda its, left, right: its.diff(left, right, [], ["real", "flag"]),
    "options, ignored columns": lambda its, left, right: its.diff(
        left, right, its.DiffOptions().with_change_column("what").with_sparse_mode(True), KEYS, ["pair", "DAY", "whole"]
    ),
    "all names": lambda its, left, right: its.Differ(
        its.DiffOptions("d", "l", "r", "i", "c", "x", "n", "what", its.DiffMode.SideBySide, True)
    ).diff(left, right, "ID", "part"),
    "left side": lambda its, left, right: its.diff(
        left, right, its.DiffOptions(diff_mode=its.DiffMode.LeftSide), KEYS, ["flag"]
    ),
    "right side": lambda its, left, right: its.diff(
        left, right, its.DiffOptions(diff_mode=its.DiffMode.RightSide), KEYS, ["flag"]
    ),
    "epsilon": lambda its, left, right: its.diff(
        left,
        right,
        its.DiffOptions(change_column="what")
        .with_data_type_comparator(its.DiffComparators.epsilon(0.01), DoubleType(), FloatType(), DecimalType(12, 3))
        .with_data_type_comparator(its.DiffComparators.epsilon(0.5).as_absolute(), IntegerType())
        .with_column_name_comparator(its.DiffComparators.epsilon(2.0).as_absolute().as_exclusive(), "whole", "other")
        .with_column_name_comparator(its.DiffComparators.nullSafeEqual(), "real"),
        *KEYS,
    ),
    "own comparator": lambda its, left, right: its.diff(
        left,
        right,
        its.DiffOptions(change_column="what")
        .with_default_comparator(_finer(its))
        .with_data_type_comparator(_coarser(its), StringType(), BooleanType()),
        *KEYS,
    ),
    "structs": lambda its, left, right: its.diffwith(left, right, ["part", "ID"], []),
    "structs, options, ignored columns": lambda its, left, right: its.Differ(
        its.DiffOptions().with_diff_column("d").with_left_column_prefix("old").with_sparse_mode(True)
    ).diffwith(left, right, KEYS, ["pair", "day", "whole"]),
}


def _finer(its: Any) -> Any:
    """Return a comparator of a user's by which zeros of different signs differ, as do other texts of a number."""

    class ByText(its.DiffComparator):
        def equiv(self, left: Column, right: Column) -> Column:
            return F.to_json(F.struct(left.alias("v"))).eqNullSafe(F.to_json(F.struct(right.alias("v"))))

    return ByText()


def _coarser(its: Any) -> Any:
    """Return a comparator of a user's by which everything but null is equal."""

    class BothThere(its.DiffComparator):
        def equiv(self, left: Column, right: Column) -> Column:
            return left.isNull() == right.isNull()

    return BothThere()


def test_a_program_written_for_its_python_package_returns_the_same(both: tuple[DataFrame, DataFrame]) -> None:
    theirs = python_package()
    # Its Python classes cannot take a name with a dot.
    plain = [name for name in NO_MAPS if "." not in name]
    past, current = (frame.select(*columns(name for name in frame.columns if name in plain)) for frame in both)
    cases = {
        title: (program(spark_extension, past, current), program(theirs, past, current))
        for title, program in PROGRAMS.items()
    }
    require_same(cases)


def test_comparators_by_the_names_of_its_python_package(both: tuple[DataFrame, DataFrame]) -> None:
    """Its Python classes compare texts, times and maps plainly, whatever the comparator; its Scala ones do not."""
    make = spark_extension.DiffComparators
    made: dict[str, tuple[spark_extension.DiffComparator, Comparator]] = {
        "name": (make.string(), Whitespace()),
        "at": (make.duration("PT5M"), Duration(timedelta(minutes=5))),
        "local": (make.duration("P1DT0.5S"), Duration(timedelta(days=1, milliseconds=500))),
        "day": (make.duration("PT24H").as_exclusive(), Duration(timedelta(days=1), inclusive=False)),
        "entries": (make.map(StringType(), IntegerType()), MapEntries()),
        "by_number": (make.map(IntegerType(), StringType(), True), MapEntries(ordered=True)),
    }
    names = {name: pair[0] for name, pair in made.items()}
    options = DiffOptions(
        change_column="what",
        include_unchanged=True,
        column_comparators={name: pair[1] for name, pair in made.items()},
    )
    past, current = (frame.select(*columns([*KEYS, *made])) for frame in both)
    ours = spark_extension.diff(
        past, current, spark_extension.DiffOptions(change_column="what", column_name_comparators=names), *KEYS
    )
    require_same({"comparators": (ours, extension_diff(past, current, KEYS, options))})


def test_within_an_epsilon_a_value_equals_itself_and_no_infinity_a_number(spark: SparkSession) -> None:
    """The one place where the two differ on purpose: there a change to NaN or an infinity would be lost."""
    pairs = [(math.nan, math.nan), (math.inf, math.inf), (0.0, 0.0), (1.0, math.nan), (1.0, math.inf), (1.0, 1.05)]
    schema = StructType([StructField("id", LongType()), StructField("v", DoubleType())])
    past, current = (
        frame_of(spark, [(at, pair[side]) for at, pair in enumerate(pairs)], schema, partitions=1) for side in (0, 1)
    )
    verdicts = []
    for relative in (False, True):
        within = Epsilon(0.1, relative=relative)
        options = DiffOptions(default_comparator=within, include_unchanged=True)
        for way in (extension_diff, diff):
            rows = way(past, current, ("id",), options).sort("id").collect()
            verdicts.append("".join(row["diff"] for row in rows))
    assert verdicts == ["CCNCCN", "NNNCCN", "NCNNNN", "NNNCCN"]


WRONG: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "columns on one side only": ("id int, a int", "id int", ("id",), {}),
    "other names": ("id int, a int", "id int, b int", ("id",), {}),
    "other types": ("id int, a int", "id int, a string", ("id",), {}),
    "narrower type": ("id int, a int", "id int, a bigint", ("id",), {}),
    "no such key": ("id int, a int", "id int, a int", ("key",), {}),
    "no such ignored column": ("id int, a int", "id int, a int", ("id",), {"ignore_columns": ("b",)}),
    "key is ignored": ("id int, a int", "id int, a int", ("id",), {"ignore_columns": ("id",)}),
    "nothing to compare": ("a int", "a int", (), {"ignore_columns": ("a",)}),
    "diff column is a key": ("diff int, a int", "diff int, a int", ("diff",), {}),
    "diff column is a key in other capitals": ("Diff int, a int", "Diff int, a int", ("Diff",), {}),
    "change column is a key": ("id int, a int", "id int, a int", ("id",), {"change_column": "ID"}),
    "diff column is a left value": ("id int, diff int", "id int, diff int", ("id",), {"diff_mode": DiffMode.LEFT_SIDE}),
    "diff column is a right value": (
        "id int, diff int", "id int, diff int", ("id",), {"diff_mode": DiffMode.RIGHT_SIDE}),
    "change column is a value": (
        "id int, c int", "id int, c int", ("id",), {"diff_mode": DiffMode.RIGHT_SIDE, "change_column": "c"}),
    "prefix makes the diff column": ("id int, a int", "id int, a int", ("id",), {"diff_column": "left_a"}),
    "prefix makes the change column": ("id int, a int", "id int, a int", ("id",), {"change_column": "right_a"}),
    "prefix makes a key": ("left_a int, a int", "left_a int, a int", ("left_a",), {}),
    "no left prefix": ("id int, a int", "id int, a int", ("id",), {"left_column_prefix": ""}),
    "no right prefix": ("id int, a int", "id int, a int", ("id",), {"right_column_prefix": ""}),
    "one prefix": ("id int, a int", "id int, a int", ("id",), {"left_column_prefix": "Right"}),
    "one label": ("id int, a int", "id int, a int", ("id",), {"insert_value": "D"}),
    "one name": ("id int, a int", "id int, a int", ("id",), {"change_column": "DIFF"}),
    "text comparator for numbers": (
        "id int, a int", "id int, a int", ("id",), {"type_comparators": {"int": Whitespace()}}),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_input_refused_by_the_extension_is_refused_by_lakeward(
    spark: SparkSession, wrong: tuple[str, str, tuple[str, ...], dict[str, Any]]
) -> None:
    left, right, keys, settings = wrong
    past, current = spark.createDataFrame([], left), spark.createDataFrame([], right)
    options = DiffOptions(**settings)
    with pytest.raises(Exception, match=r"requirement failed|Comparator with input type"):
        extension_diff(past, current, keys, options)
    with pytest.raises((ConfigurationError, RefusedInputError)):
        diff(past, current, keys, options)


def test_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    twice = spark.createDataFrame([], "id int, a int").selectExpr("id", "a", "a")
    with pytest.raises(Exception, match="requirement failed"):
        extension_diff(twice, twice, ("id",), DiffOptions())
    with pytest.raises(RefusedInputError, match="more than one column called 'a'"):
        diff(twice, twice, ["id"])
