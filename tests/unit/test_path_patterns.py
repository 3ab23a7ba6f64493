"""Patterns of files: what they match, which are refused because no file could fit, and what is proposed for a file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lakeward.config import TableSettings, merge_settings
from lakeward.path_patterns import path_pattern, proposed_pattern


@pytest.mark.parametrize(("pattern", "fitting", "others"), [
    ("part-*.parquet", ["part-.parquet", "part-1.parquet"], ["a/part-1.parquet", "part-1.csv", "Part-1.parquet"]),
    ("**/delta_*.csv", ["delta_1.csv", "2024/05/delta_2.csv"], ["xdelta_1.csv", "delta_1.csv/x.csv"]),
    ("2024/*/d.csv", ["2024/05/d.csv"], ["2024/d.csv", "2024/05/06/d.csv"]),
    ("a/**/d?.csv*", ["a/d1.csv", "a/b/c/d1.csv.gz"], ["a/d.csv", "d1.csv"]),
    ("[a-c][!0-9].csv", ["ax.csv", "c-.csv"], ["dx.csv", "a1.csv", "a/.csv"]),
    ("a].csv", ["a].csv"], ["a.csv"]), ("[]].csv", ["].csv"], ["[.csv"]), ("a+(b).csv", ["a+(b).csv"], ["aab.csv"]),
    ("delta_*", ["delta_1.csv", "delta_1\nx.csv"], ["x_delta_1.csv"]),
])  # fmt: skip
def test_patterns(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [path for path in (*fitting, *others) if path_pattern(pattern).fullmatch(path)] == fitting


@pytest.mark.parametrize(("pattern", "why"), [
    ("/a.csv", "slash"), ("a//b.csv", "slash"), ("", "slash"), ("a/", "slash"), ("../a.csv", "below the table's"),
    ("_a.csv", "temporary"), ("x/.a/*.csv", "temporary"), ("*.tmp", "temporary"), ("a/**", "stands for folders"),
    ("a**.csv", "whole folders"), ("a.json", "not read"), ("*.CSV", "not read"), ("a[z-a].csv", "brackets"),
    ("a[b--a].csv", "brackets"),
])  # fmt: skip
def test_patterns_that_no_file_fits_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TableSettings.model_validate({"files": {"load": pattern}})


@pytest.mark.parametrize("files", [{"changes": "delta_*.csv"}, {"order": "name"}, {"load": "*.csv", "order": "column"}])
def test_changes_and_order_are_set_together(files: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="must be set together"):
        TableSettings.model_validate({"files": files})


def test_a_table_adds_to_the_default_patterns() -> None:
    defaults = {"files": {"changes": "delta_*", "order": "name"}}
    assert merge_settings(defaults, {"files": {"order": "arrival"}})["files"] == {
        "changes": "delta_*", "order": "arrival",
    }  # fmt: skip


@pytest.mark.parametrize(("path", "pattern"), [
    ("delta_0042.csv", "delta_*.csv"), ("2024/05/part-00000-4f.c000.parquet", "**/part-*.parquet"),
    ("customers.csv.gz", "customers.csv.gz"), ("20240405-1.csv", "[0-9]*.csv"), ("a[1].csv", "a?*.csv"),
])  # fmt: skip
def test_what_is_proposed_fits_the_file(path: str, pattern: str) -> None:
    assert proposed_pattern(path) == pattern
    assert path_pattern(pattern).fullmatch(path)
