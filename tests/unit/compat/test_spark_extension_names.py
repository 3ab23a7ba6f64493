"""The names of spark-extension's Python package: all there, with the same arguments, and no trace without an import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from pyspark.sql.types import DateType, DoubleType, IntegerType, LongType, MapType, StringType, StructField
from tests.diffing.spark_extension import METHODS, python_package

import lakeward
from lakeward.compat import spark_extension
from lakeward.compat.spark_extension import DiffComparators, DiffMode, DiffOptions
from lakeward.errors import ConfigurationError


def script(text: str) -> str:
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout


def test_only_importing_it_adds_methods_to_dataframes() -> None:
    shown = f"print([hasattr(DataFrame, name) for name in {METHODS}])"
    first = (
        f"import lakeward; from pyspark.sql import DataFrame; [getattr(lakeward, n) for n in lakeward.__all__]; {shown}"
    )
    assert script(f"{first}; from lakeward.compat.spark_extension import Differ; {shown}").splitlines() == [
        "[False, False, False, False]",
        "[True, True, True, True]",
    ]


def test_a_star_import_has_the_names_that_users_call() -> None:
    names: dict[str, Any] = {}
    exec("from lakeward.compat.spark_extension import *", names)
    assert {*METHODS, "Differ", "DiffOptions", "DiffMode", "DiffComparators"} <= set(names)
    assert all(getattr(spark_extension, name).__doc__ for name in spark_extension.__all__)


def test_every_public_name_and_argument_of_the_original_is_there() -> None:
    package = python_package()
    theirs = {**_public(package), **_public(import_module("gresearch.spark.diff.comparator"))}
    assert len(theirs) == len(spark_extension.__all__)
    for name, original in theirs.items():
        ours = getattr(spark_extension, name)
        if not inspect.isclass(original):
            continue
        for member, call in inspect.getmembers(original, inspect.isfunction):
            if member.startswith("_"):
                continue
            wanted, found = (list(inspect.signature(one).parameters) for one in (call, getattr(ours, member)))
            assert found == wanted, f"{name}.{member}"
    assert [mode.name for mode in package.DiffMode] == [mode.name for mode in DiffMode]
    assert package.DiffMode.Default.name == DiffMode.Default.name


def _public(module: Any) -> dict[str, Any]:
    made = {name: found for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__}
    return {name: found for name, found in made.items() if not name.startswith("_") and name != "deprecated"}


def test_options_have_the_fields_and_defaults_of_the_original() -> None:
    original = python_package().DiffOptions()
    wanted = {field.name: getattr(original, field.name) for field in fields(original)}
    found = {field.name: getattr(DiffOptions(), field.name) for field in fields(DiffOptions)}
    # Lakeward's own option comes last, so that arguments by position mean the same.
    assert list(found) == [*wanted, "duplicate_keys"]
    differing = {name for name, value in wanted.items() if value != found[name]}
    assert differing == {"diff_mode", "default_comparator"}
    assert (found["diff_mode"].name, wanted["diff_mode"].name) == ("ColumnByColumn", "ColumnByColumn")
    assert type(found["default_comparator"]).__name__ == type(wanted["default_comparator"]).__name__


def test_each_with_method_changes_one_option_of_new_options() -> None:
    within, texts, day = DiffComparators.epsilon(0.01), DiffComparators.string(), DiffComparators.duration("PT24H")
    default = DiffOptions()
    changed = (
        default.with_diff_column("d")
        .with_left_column_prefix("l")
        .with_right_column_prefix("r")
        .with_insert_diff_value("i")
        .with_change_diff_value("c")
        .with_delete_diff_value("x")
        .with_nochange_diff_value("n")
        .with_change_column("what")
        .with_diff_mode(DiffMode.SideBySide)
        .with_sparse_mode(True)
        .with_default_comparator(day)
        .with_data_type_comparator(within, IntegerType(), LongType())
        .with_data_type_comparator(texts, StringType())
        .with_column_name_comparator(day, "at")
        .with_duplicate_keys(lakeward.DuplicateKeys.REPORT)
    )
    assert changed == DiffOptions(
        "d", "l", "r", "i", "c", "x", "n", "what", DiffMode.SideBySide, True, day,
        {IntegerType(): within, LongType(): within, StringType(): texts}, {"at": day}, lakeward.DuplicateKeys.REPORT,
    )  # fmt: skip
    assert changed.without_change_column().change_column is None
    assert default == DiffOptions()


def test_a_second_comparator_of_a_type_or_column_is_refused() -> None:
    plain = DiffComparators.default()
    options = (
        DiffOptions()
        .with_data_type_comparator(plain, DateType(), IntegerType())
        .with_column_name_comparator(plain, "first", "second")
    )
    with pytest.raises(ConfigurationError, match=r"already for data type date, int$"):
        options.with_data_type_comparator(plain, IntegerType(), StringType(), DateType())
    with pytest.raises(ConfigurationError, match=r"already for column second$"):
        options.with_column_name_comparator(plain, "second", "third")


def test_a_name_comes_before_a_type_and_that_before_the_default() -> None:
    default, by_type, by_name = (DiffComparators.epsilon(share) for share in (0.1, 0.2, 0.3))
    options = (
        DiffOptions()
        .with_default_comparator(default)
        .with_data_type_comparator(by_type, DoubleType())
        .with_column_name_comparator(by_name, "price")
    )
    found = [
        options.comparator_for(StructField(name, data_type))
        for name, data_type in (("price", DoubleType()), ("cost", DoubleType()), ("cost", IntegerType()))
    ]
    assert found == [by_name, by_type, default]


def test_comparators_are_those_of_lakeward() -> None:
    make = DiffComparators
    assert make.default().as_lakeward() == make.nullSafeEqual().as_lakeward() == lakeward.Equality()
    assert make.epsilon(0.1).as_lakeward() == lakeward.Epsilon(0.1)
    assert make.epsilon(0.1).as_absolute().as_exclusive().as_lakeward() == lakeward.Epsilon(
        0.1, relative=False, inclusive=False
    )
    assert make.epsilon(1).as_absolute().as_exclusive().as_relative().as_inclusive() == make.epsilon(1)
    assert make.string().as_lakeward() == lakeward.Whitespace()
    assert make.string(whitespace_agnostic=False).as_lakeward() == lakeward.Equality()
    day = make.duration("PT24H")
    assert day.as_lakeward() == lakeward.Duration(timedelta(days=1))
    assert day.as_exclusive().as_lakeward() == lakeward.Duration(timedelta(days=1), inclusive=False)
    assert day.as_exclusive().as_inclusive() == day
    maps = make.map(StringType(), IntegerType(), True).as_lakeward()
    assert isinstance(maps, lakeward.MapEntries) and maps.ordered
    assert maps.accepts(MapType(StringType(), IntegerType(), valueContainsNull=False))
    assert not maps.accepts(MapType(StringType(), LongType()))
    assert str(maps) == "map:ordered of map<string,int>"


LENGTHS = {
    "PT5M": timedelta(minutes=5),
    "pt1h30m": timedelta(hours=1, minutes=30),
    "P2D": timedelta(days=2),
    "P1DT0.5S": timedelta(days=1, milliseconds=500),
    "PT1,000001S": timedelta(seconds=1, microseconds=1),
    "PT0S": timedelta(0),
}


@pytest.mark.parametrize(("text", "length"), LENGTHS.items())
def test_durations_are_read_as_java_reads_them(text: str, length: timedelta) -> None:
    assert DiffComparators.duration(text).as_lakeward() == lakeward.Duration(length)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "5m", "PT5", "PT-5M", "P1M", "P1Y", "PT0.0000001S", "PT1.S", "T1H"]
)
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read; expected is an ISO 8601 one"):
        DiffComparators.duration(text)


WRONG: dict[str, Any] = {
    "a text where a comparator belongs": lambda: DiffOptions(default_comparator="epsilon:1%"),  # type: ignore[arg-type]
    "Lakeward's comparator": lambda: DiffOptions().with_default_comparator(lakeward.Epsilon(1)),  # type: ignore[arg-type]
    "Lakeward's mode": lambda: DiffOptions(diff_mode=lakeward.DiffMode.LEFT_SIDE),  # type: ignore[arg-type]
    "a text where a type belongs": lambda: DiffOptions().with_data_type_comparator(DiffComparators.default(), "int"),  # type: ignore[arg-type]
    "a type where a name belongs": lambda: DiffOptions().with_column_name_comparator(
        DiffComparators.default(),
        IntegerType(),  # type: ignore[arg-type]
    ),
    "no text": lambda: DiffOptions(diff_column=1),  # type: ignore[arg-type]
    "no flag": lambda: DiffOptions().with_sparse_mode("no"),  # type: ignore[arg-type]
    "no number": lambda: DiffComparators.epsilon("0.1"),  # type: ignore[arg-type]
    "no flag for texts": lambda: DiffComparators.string("yes"),  # type: ignore[arg-type]
    "no types for a map": lambda: DiffComparators.map("string", "int"),  # type: ignore[arg-type]
    "no options": lambda: spark_extension.Differ("id"),  # type: ignore[arg-type]
    "no frames": lambda: spark_extension.Differ().diff("left", "right"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=list(WRONG))
def test_an_argument_of_the_wrong_kind_is_refused(call: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be "):
        call()
