"""``lakeward snapshot`` passes its options on and shows the result; no JVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeward import Lakeward
from lakeward.api.snapshots import SnapshotReport
from lakeward.views.versions.manage import Version, VersionState
from lakeward.views.versions.schedule import SnapshotSchedule

DONE = SnapshotReport(
    "sales.product", "done", version="2020-11-14", kind="files", location="/out/sales.product/version=2020-11-14",
    rows=12345, generation=1, op=41, registered="default.product_snapshot", dropped=("/out/old",),
)  # fmt: skip
FAILED = SnapshotReport("sales.other", "failed", message="it has no timestamp_column", hint="ask by op", exit_code=2)
STALE = Version(
    "sales.product", "2020-11-14", "files", VersionState.STALE, "2020-11-14T23:59:59.999999+00:00", 12345, 1, 41,
    "2020-12-01T10:00:00.000000+00:00", "/out", "parquet", "flat", "", "12345:a:1", "changes arrived later",
)  # fmt: skip


class FakeSnapshots:
    """Records calls and returns the configured answers."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            return self.answer

        return method


@pytest.fixture
def fake(monkeypatch):
    def let(answer: Any) -> FakeSnapshots:
        made = FakeSnapshots(answer)
        monkeypatch.setattr(Lakeward, "snapshots", made)
        return made

    return let


def test_create_shows_each_table_and_exits_with_3_when_one_failed_beside_another(project, call, call_json, fake):
    snapshots = fake([DONE, FAILED])
    result = call("snapshot", "create", "--all", "--as-of", "2020-11-14", "--to", "./out", "--register")
    assert result.exit_code == 3
    assert "12,345" in result.stdout and "default.product_snapshot" in result.stdout
    assert "it has no timestamp_column" in result.stderr and "dropped /out/old" in result.stderr
    [(name, arguments, options)] = snapshots.calls
    assert (name, arguments) == ("create", ((),))
    assert options == {
        "as_of": "2020-11-14", "point": None, "to": "./out", "tag": None, "format": "parquet", "layout": "flat",
        "date_column": None, "register": "", "replace": False,
    }  # fmt: skip
    document = call_json("snapshot", "create", "a.b", "--as-of", "op:1", "--tag")
    assert [snapshot["outcome"] for snapshot in document["snapshots"]] == ["done", "failed"]
    assert (document["exit_code"], snapshots.calls[-1][2]["tag"]) == (3, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--as-of", "op:1"),
        ("a.b", "--all", "--as-of", "op:1"),
        ("a.b",),
        ("a.b", "--as-of", "op:1", "--point", "newest"),
    ],
)
def test_create_without_tables_or_a_moment_is_a_usage_error(project, call, fake, arguments):
    fake([])
    assert call("snapshot", "create", *arguments).exit_code == 2


def test_list_marks_versions_that_would_be_different_now(project, call, call_json, fake):
    fake([STALE])
    result = call("snapshot", "list")
    assert "stale" in result.stdout and "changes arrived later" in result.stdout
    assert "lakeward snapshot refresh sales.product" in result.stderr
    assert call_json("snapshot", "list", "sales.product")["versions"][0]["state"] == "stale"


def test_list_does_not_suggest_a_refresh_that_does_nothing(project, call, fake):
    fake([replace(STALE, as_of="op:2", state=VersionState.UNDONE), replace(STALE, kind="current", as_of="op:3")])
    assert "refresh" not in call("snapshot", "list").stderr


def test_refresh_and_drop_report_when_there_is_nothing_to_do(project, call, fake):
    snapshots = fake([])
    assert "no snapshot needs a refresh" in call("snapshot", "refresh", "--version", "v").stderr
    assert "nothing to drop" in call("snapshot", "drop", "a.b", "--older-than", "30d", "--keep", "2").stderr
    assert snapshots.calls[0] == ("refresh", ((),), {"version": "v"})
    assert snapshots.calls[1][2] == {"version": None, "keep": 2, "older_than": 30 * 86_400.0, "dry_run": False}
    assert call("snapshot", "drop", "a.b", "--older-than", "soon").exit_code == 2


SCHEDULE = SnapshotSchedule(
    "sales.product", "day", "/out/sales.product", 2, "2020-11-14", ("2020-11-15", "2020-11-16"),
    "2020-11-16T00:30:00+00:00", True, "files that landed are not applied yet", "2020-11-17",
    "2020-11-18T00:30:00+00:00",
)  # fmt: skip


def test_the_schedule_shows_what_is_due_and_the_next(project, call, call_json, fake):
    snapshots = fake([SCHEDULE])
    result = call("snapshot", "schedule", "sales.product", "--from", "2020-11-13")
    assert result.exit_code == 0
    for text in ("2020-11-15, 2020-11-16", "not applied yet", "2020-11-17", "2020-11-18 00:30:00 UTC"):
        assert text in " ".join(result.stdout.split())
    assert snapshots.calls == [("schedule", (("sales.product",),), {"since": "2020-11-13"})]
    [shown] = call_json("snapshot", "schedule")["schedules"]
    assert shown == SCHEDULE.to_dict()


def test_making_what_is_due_shows_what_was_made_and_what_is_left(project, call, monkeypatch):
    class Answers:
        def make_scheduled(self, *_names: Any, **_options: Any) -> Any:
            return [replace(DONE, outcome="renewed", dropped=())]

        def schedule(self, *_names: Any, **_options: Any) -> Any:
            return [SCHEDULE]

    monkeypatch.setattr(Lakeward, "snapshots", Answers())
    result = call("snapshot", "schedule", "--make")
    assert (result.exit_code, "renewed" in result.stdout) == (0, True)
    assert "2 still due, 2020-11-15 first: files that landed are not applied yet" in result.stderr
