"""``lakeward points`` passes its options on and shows the result; no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward import Lakeward, Point, PointsReport, PointTagReport, Prevented, SnapshotReport

NAME = "point-2024-04-01T100010Z"
REPORT = PointsReport(
    ("bank.a", "bank.b"),
    (
        Point("point-2024-04-01T100020Z", "x", None, False, "stale", (Prevented("bank.b", "it has not read 2.csv"),)),
        Point(NAME, "x", "2024-04-01T10:00:05Z", True, "complete"),
    ),
    ("bank.b",),
)
TAGS = PointTagReport(
    NAME, False, (SnapshotReport("bank.b", "failed", message="a live writer has it", hint="wait", exit_code=3),),
    "not complete", "again", 3,
)  # fmt: skip


@pytest.fixture
def calls(monkeypatch):
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    class Fake:
        def list(self, *arguments: Any, **options: Any) -> PointsReport:
            made.append(("list", arguments, options))
            return REPORT

        def tag(self, *arguments: Any, **options: Any) -> PointTagReport:
            made.append(("tag", arguments, options))
            return TAGS

    monkeypatch.setattr(Lakeward, "points", Fake())
    return made


def test_the_list_shows_points_and_what_prevents_others(project, call, call_json, calls):
    result = call("points", "bank.a", "bank.b", "--limit", "3")
    assert result.exit_code == 0
    assert NAME in result.stdout and "bank.b: it has not read" in result.stdout and "complete" in result.stdout
    assert "no transaction file has named bank.b" in result.stderr
    assert calls == [("list", (("bank.a", "bank.b"),), {"limit": 3})]
    assert [point["is_proven"] for point in call_json("points")["points"]] == [False, True]


def test_tags_are_reported_by_table_with_the_reason_and_the_exit_code(project, call, call_json, calls):
    result = call("points", "--tag", "newest", "--replace")
    assert (result.exit_code, "bank.b" in result.stdout) == (3, True)
    assert "a live writer has it" in result.stderr and "not complete" in result.stderr
    assert calls == [("tag", ("newest", ()), {"replace": True})]
    assert call_json("points", "--tag", NAME)["exit_code"] == 3


@pytest.mark.parametrize("arguments", [("--replace",), ("--limit", "0"), ("--tag",)])
def test_options_that_do_not_fit_are_usage_errors(project, call, calls, arguments):
    assert call("points", *arguments).exit_code == 2
    assert calls == []


def test_without_transaction_files_the_command_is_refused_and_says_what_would_prove_a_point(project, call):
    result = call("points")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "transactions: is not set" in result.stderr and "PreserveTransactions" in result.stderr
    assert call("snapshot", "create", "--all", "--point", "newest", "--to", "x").exit_code == 2
