"""Arguments of the wrong kind are refused by the functions that are public, in words that name them."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import lakeward
from lakeward import (
    ConfigurationError,
    DiffOptions,
    Duration,
    Epsilon,
    History,
    Lakeward,
    MapEntries,
    RunOptions,
    Snapshots,
    Whitespace,
    compose,
    diff,
    load_config,
    patch,
    reverse,
)
from lakeward.arguments import TEXTS, checked
from lakeward.config import parse_config

# All that a check reads.
FRAME: Any = SimpleNamespace(sparkSession=None, schema=None)
WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (diff, (FRAME, FRAME, [1]), {}, r"diff: keys must be a column's name or a list of texts, found \[1\] \(list\)"),
    (diff, (FRAME, FRAME, 1), {}, "keys must be a column's name or a list of texts, found 1"),
    (diff, (FRAME, FRAME, None), {}, "keys must be"),
    (
        diff,
        (FRAME, FRAME, "id", {"diff_mode": "structs"}),
        {},
        "options must be DiffOptions or None, found {'diff_mode",
    ),
    (diff, ("/past", FRAME, "id"), {}, "past must be a DataFrame, found '/past'"),
    (diff, (FRAME, [(1, "a")], "id"), {}, "current must be a DataFrame"),
    (patch, (FRAME, FRAME, [None]), {}, "patch: keys must be"),
    (patch, (FRAME, FRAME), {"strict": "no"}, "strict must be True or False, found 'no'"),
    (reverse, (None,), {}, "reverse: diff must be a DataFrame, found None"),
    (compose, (FRAME, FRAME, b"id"), {}, "compose: keys must be"),
    (DiffOptions, (), {"diff_column": None}, "DiffOptions: diff_column must be a text, found None"),
    (DiffOptions, (), {"ignore_columns": [1]}, "ignore_columns must be"),
    (DiffOptions, (), {"sparse_mode": "yes"}, "sparse_mode must be True or False"),
    (DiffOptions, (), {"diff_mode": "sideways"}, "diff_mode cannot be 'sideways'"),
    (DiffOptions, (), {"default_comparator": "epsilon:1"}, "default_comparator must be a comparator or None"),
    (DiffOptions, (), {"column_comparators": {"a": 1}}, "column_comparators must be a mapping of names to comparators"),
    (DiffOptions, (), {"type_comparators": [Whitespace()]}, "type_comparators must be a mapping"),
    (Epsilon, ("0.1",), {}, "Epsilon: epsilon must be a number, found '0.1'"),
    (Epsilon, (True,), {}, "epsilon must be a number"),
    (Duration, (5,), {}, "Duration: limit must be a timedelta"),
    (MapEntries, ("yes",), {}, "ordered must be True or False"),
    (RunOptions, (), {"files": "a.csv"}, "RunOptions: files must be a list of texts, found 'a.csv'"),
    (RunOptions, (), {"max_files": "3"}, "max_files must be a whole number of 1 or more or None"),
    (load_config, (3,), {}, "load_config: path must be a path or None, found 3"),
    (Lakeward, ("lakeward.yaml",), {}, "config must be a Config, found 'lakeward.yaml'"),
    (Lakeward.open, ({"landing": "x"},), {}, "open: path must be"),
]


WRONG += [
    (RunOptions, (), {name: value}, f"RunOptions: {name} must be a .*number.* or None, found {value}")
    for name, value in [("max_files", 0), ("max_bytes", -1), ("attempts", -1), ("time_limit", 0), ("time_limit", -1)]
]
WRONG += [
    (RunOptions, (), {"time_limit": float("nan")}, "time_limit must be a number greater than 0 or None, found nan")
]


@pytest.mark.parametrize(("function", "args", "kwargs", "message"), WRONG)
def test_wrong_arguments_are_named_as_configuration_errors(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        function(*args, **kwargs)
    assert error.value.exit_code == 2


def test_correct_arguments_are_accepted() -> None:
    DiffOptions(ignore_columns="a", column_comparators={"a": Epsilon(1)}, default_comparator=Duration(timedelta(1)))
    RunOptions(files=frozenset({"a"}), max_files=3, time_limit=1.5)
    assert checked("f", "names", (found for found in "ab"), TEXTS) == ["a", "b"], "what can be read once is read once"


def test_options_of_a_run_keep_what_can_be_read_only_once() -> None:
    options = RunOptions(files=(name for name in ("a", "b")), keep_parts=["c"])  # type: ignore[arg-type]
    assert (options.files, options.keep_parts) == ({"a", "b"}, {"c"})
    columns: Any = (name for name in ("a", "b"))
    assert DiffOptions(ignore_columns=columns) == DiffOptions(ignore_columns=["a", "b"])


def test_a_text_for_a_list_of_texts_is_not_split_into_letters(tmp_path: Path) -> None:
    (tmp_path / "lakeward.yaml").write_text("landing: landing\n")
    (tmp_path / "landing").mkdir()
    with Lakeward.open(tmp_path / "lakeward.yaml") as lake:
        for call in (lake.run, lake.plan, lake.status, lake.check_tables, lake.maintain, lake.verify, lake.watch):
            with pytest.raises(ConfigurationError, match="tables must be a list of texts, found") as error:
                call("sales.product")
            assert error.value.hint == "tables=['sales.product']"
        with pytest.raises(ConfigurationError, match="keys must be a list of mappings"):
            lake.erase("sales.customer", {"id": 1}, reason="asked")
        with pytest.raises(ConfigurationError, match="name must be a text, found 3"):
            lake.table(3)  # type: ignore[arg-type]


def test_numbers_out_of_range_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("run", (), {"parallel": 0}), ("run", (), {"parallel": -1}), ("run", (), {"wait": -1}),
        ("run", (), {"wait": float("nan")}), ("runs", (), {"limit": 0}), ("bad_rows", ("a.b",), {"limit": -1}),
        ("verify", (), {"limit": -1}), ("undo", ("a.b",), {"to_op": -1}), ("plan_undo", ("a.b",), {"to_op": -1}),
        ("maintain", (), {"max_seconds": 0}), ("maintain", (), {"max_bytes": 0}), ("maintain", (), {"wait": -0.5}),
    ]  # fmt: skip
    with Lakeward(parse_config({"tables": {"a.b": {}}}, base=tmp_path)) as lake:
        calls = [(getattr(lake, method), args, options) for method, args, options in wrong]
        calls += [(lake.history.row, ("a.b", {"id": 1}), {"limit": 0})]
        calls += [(lake.snapshots.drop, ("a.b",), options) for options in ({"keep": -1}, {"older_than": -1})]
        for call, args, options in calls:
            [(name, value)] = options.items()
            with pytest.raises(ConfigurationError, match=f"{name} must be a .*number.*, found {value}"):
                call(*args, **options)
        assert not lake.has_spark()


@pytest.mark.parametrize("allow_writes", [False, True])
def test_a_wrong_query_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_writes: bool
) -> None:
    def wrong(*_: object) -> None:
        msg = "[UNRESOLVED_COLUMN] A column with name `nocol` cannot be resolved."
        raise AnalysisException(msg)

    monkeypatch.setattr("lakeward.session.statements.read_only", wrong)
    spark: Any = SimpleNamespace(sql=wrong)
    with (
        Lakeward(parse_config({}, base=tmp_path), spark=spark) as lake,
        pytest.raises(ConfigurationError, match=r"the query failed: .*nocol"),
    ):
        lake.sql("select nocol from a.b", allow_writes=allow_writes)


def test_former_spellings_work_and_warn(tmp_path: Path) -> None:
    (tmp_path / "lakeward.yaml").write_text("tables: {a.b: {}}")
    former = [("undo", "plan", "plan_undo"), ("erase", "plan", "plan_erasure"), ("erase", "resume", "resume_erasure")]
    former += [("maintain", "plan", "plan_maintenance")]
    with Lakeward.open(tmp_path / "lakeward.yaml") as lake:
        for method, name, now in former:
            with pytest.warns(DeprecationWarning, match=rf"{method}\.{name}\(\) is now {now}\(\)"):
                assert getattr(getattr(lake, method), name) == getattr(lake, now)
            assert not hasattr(getattr(lake, method), "resumed")
        with pytest.raises(ConfigurationError, match="either to an op or to a time"):
            lake.undo("a.b")
    assert inspect.isfunction(Lakeward.undo) and "Undo every op" in str(Lakeward.undo.__doc__)


def test_every_public_function_checks_what_it_takes() -> None:
    """A function or method that comes new has its arguments checked as well, or is named here with a reason."""
    # Take nothing, or only arguments from the library itself.
    free = {"close", "config_reference", "count_poison", "has_spark", "logs_messages", "query_errors", "tables"}
    free |= {"rebuild_state", "refresh_scd2", "snapshots_exit_code", "status_totals", "undecided_tables"}
    # Read or write texts, for programs around the library; an invalid value fails immediately.
    free |= {"count", "escape_text", "event", "log_to_stderr", "parse_comparator", "parse_span", "rate", "redact"}
    free |= {"redact_values", "to_json", "format_setting"}
    functions = [getattr(lakeward, name) for name in lakeward.__all__]
    found = [function for function in functions if inspect.isfunction(function)]
    for owner in (Lakeward, History, Snapshots):
        members = inspect.getmembers(owner, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
        found += [member for name, member in members if not name.startswith("_")]
    unchecked = {
        entry.__qualname__ for entry in found if not hasattr(entry, "__wrapped__") and entry.__name__ not in free
    }
    assert unchecked == set()
