"""``lakeward undo``: asks, refuses to guess, and shows what it undid."""

import json
import sys
from dataclasses import replace
from inspect import signature

import pytest
from click.testing import CliRunner

from lakeward import Lakeward
from lakeward.cli import options
from lakeward.cli.main import cli
from lakeward.mirror.op.check import RowChanges
from lakeward.mirror.op.report import Marked, OpReport, RowCounts
from lakeward.mirror.undo import ConcernedOp, Undone, UndoPlan

TABLE = "sales.product"
UNDO, PLAN_UNDO = signature(Lakeward.undo), signature(Lakeward.plan_undo)
PLAN = UndoPlan(
    TABLE, 45, 44, 41, "op 41 was requested", 3, tuple(ConcernedOp(op, "batch", 1, 1, 10) for op in (42, 43, 44)),
    file_count=3, files=("a.csv", "b.csv", "c.csv"), fenced=("b.csv",), unfenced=("old.csv",),
    marked=(Marked("tag", "friday", "friday", 43),),
)  # fmt: skip
DONE = Undone(PLAN, OpReport(45, "undo", 1, 0, 0, RowCounts(), 3, 2, "full rewrite", "5 keys", mirror_rows=7))


class FakeUndo:
    """Answers as configured and records its calls."""

    def __init__(self, plan: UndoPlan = PLAN) -> None:
        self.answer = plan
        self.planned: list[dict] = []
        self.done: list[dict] = []

    def plan(self, name: str, **goal: object) -> UndoPlan:
        PLAN_UNDO.bind(self, name, **goal)
        self.planned.append({"name": name, **goal})
        return replace(self.answer, rows=RowChanges(2, 1, 2))

    def undo(self, name: str, **goal: object) -> Undone:
        UNDO.bind(self, name, **goal)
        self.done.append({"name": name, **goal})
        return DONE if self.answer.op else Undone(self.answer)


@pytest.fixture
def undo(project, monkeypatch) -> FakeUndo:
    fake = FakeUndo()
    monkeypatch.setattr(Lakeward, "undo", staticmethod(fake.undo))
    monkeypatch.setattr(Lakeward, "plan_undo", staticmethod(fake.plan))
    return fake


def test_either_an_op_or_a_time_and_a_consent_are_needed(undo, call):
    for arguments, message in (
        ((), "use either --to-op or --to-time"),
        (("--to-op", "1", "--to-time", "2024-01-01"), "use either --to-op or --to-time"),
        (("--to-op", "41"), "use --yes"),
    ):
        result = call("undo", TABLE, *arguments)
        assert result.exit_code == 2 and message in result.stderr
    assert undo.planned == undo.done == []


def test_a_dry_run_shows_ops_files_rows_and_what_holds_them(undo, call, call_json):
    result = call("undo", TABLE, "--to-op", "41", "--dry-run")
    assert result.exit_code == 0 and undo.done == []
    for words in (
        "op 45 would undo 3 ops; the table is as after op 41", "op 41 was requested", "3 files of these ops",
        "fenced: b.csv", "no longer fenced: old.csv", "rows: 2 inserted, 1 updated, 2 deleted",
        "contains undone changes: tag friday at op 43",
    ):  # fmt: skip
        assert words in result.stdout
    assert undo.planned[0]["finish"] is False
    document = call_json("undo", TABLE, "--to-time", "2024-01-01", "--dry-run")
    assert document["op"] is None and document["plan"]["rows"] == {"inserted": 2, "updated": 1, "deleted": 2}


def test_with_yes_it_is_done_without_a_question(undo, call):
    result = call("undo", TABLE, "--to-op", "41", "--skip-file", "b.csv", "--yes", "--output", "json")
    assert result.exit_code == 0 and undo.planned == []
    assert undo.done == [{"name": TABLE, "to_op": 41, "to_time": None, "skip_files": ("b.csv",)}]
    assert json.loads(result.stdout)["op"]["op"] == 45
    text = call("undo", TABLE, "--to-op", "41", "--yes").stdout
    assert "op 45 undid 3 ops" in text and "to undo this: lakeward undo sales.product --to-op 44" in text


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_shows_what_it_would_do_and_asks(undo, monkeypatch, answer):
    monkeypatch.setattr("lakeward.cli.corrections.require_answerable", lambda *, yes: None)
    result = CliRunner().invoke(cli, ["undo", TABLE, "--to-op", "41"], input=f"{answer}\n", prog_name="lakeward")
    assert result.exit_code == 0 and "Undo this?" in result.stderr
    assert "op 45 would undo 3 ops" in result.stderr and undo.planned[0]["finish"] is True
    if answer == "y":
        assert undo.done[0]["newest_op"] == 44 and "op 45 undid" in result.stdout
    else:
        assert undo.done == [] and result.stdout == ""


def test_nothing_to_undo_is_reported(undo, call):
    undo.answer = UndoPlan(TABLE, None, 41, 41, "op 41 was requested; it is the newest")
    result = call("undo", TABLE, "--to-op", "41", "--yes")
    assert result.exit_code == 0 and "nothing to undo: op 41 was requested; it is the newest" in result.stdout


def test_a_terminal_can_answer_questions(monkeypatch):
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    options.require_answerable(yes=False)
