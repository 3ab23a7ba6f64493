"""Progress: events in a log, a live display on a terminal, nothing when quiet."""

import io
import json

from rich.console import Console
from tests.unit.runner.reports import DONE, FAILED, OP, RUN

from lakeward.cli import live, progress
from lakeward.cli.process import set_up_logging
from lakeward.errors import RetriableError
from lakeward.mirror.op.steps import Step


def text_of(display: live.LiveProgress) -> list[str]:
    """What the display would draw now."""
    console = Console(file=io.StringIO(), width=120)
    console.print(display._draw())
    return [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_progress_is_events_in_a_log(capsys):
    set_up_logging(debug=False, quiet=False)
    with progress.open_progress(quiet=False) as observer:
        with observer.during("starting Spark"):
            observer.on_step("a.b", Step.CHOOSE_FILES)
        observer.on_step("a.b", Step.CHECK_READ)
        observer.op_published("a.b", OP)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [json.loads(line) for line in captured.err.splitlines()]
    assert [(line["event"], line["message"]) for line in lines] == [
        ("command", "starting Spark"),
        ("op.step", "a.b: folding changes"),
    ]


def test_quiet_progress_prints_nothing(capsys):
    set_up_logging(debug=False, quiet=True)
    with progress.open_progress(quiet=True) as observer:
        with observer.during("starting Spark"):
            observer.on_step("a.b", Step.CHECK_READ)
        observer.op_published("a.b", OP)
    assert capsys.readouterr().err == ""


def test_progress_is_drawn_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.open_progress(quiet=False) as observer:
        with observer.during("starting Spark"):
            pass
        observer.on_step("a.b", Step.CHECK_READ)
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in ("starting Spark", "a.b", "folding changes"):
        assert words in captured.err


def test_running_tables_have_a_line_each_and_the_others_are_counted():
    with live.LiveProgress() as display:
        display.run_started("r1", [DONE.table, FAILED.table, "a.c"])
        for table in (DONE.table, FAILED.table, "a.c"):
            display.table_started(table)
        display.on_step(DONE.table, Step.CHECK_READ)
        display.op_published(DONE.table, OP)
        display.op_published(DONE.table, OP)
        display.on_step(FAILED.table, Step.CHOOSE_FILES)
        display.retry("a.c", 2, 90, RetriableError("busy"))
        summary, *lines = text_of(display)
        assert summary.endswith("0 of 3 tables done")
        assert [line.rsplit("  ", 1)[0].split() for line in lines] == [
            ["sales.product", "op", "3", "published", "4", "files", "3,000", "rows", "500", "rows/s"],
            ["sales.customer", "reading", "files"],
            ["a.c", "attempt", "2", "failed,", "next", "in", "2", "min"],
        ]
        display.table_finished(DONE)
        display.table_finished(FAILED)
        summary, *lines = text_of(display)
        assert summary.endswith("2 of 3 tables done, 1 failed")
        assert len(lines) == 1
        display.run_finished(RUN)
        assert text_of(display) == [""] or text_of(display) == []


def test_many_tables_do_not_fill_the_screen():
    with live.LiveProgress() as display:
        display.run_started("r1", [f"a.t{number}" for number in range(40)])
        for number in range(40):
            display.table_started(f"a.t{number}")
        _, *lines = text_of(display)
        assert len(lines) == 16
        assert lines[-1] == "… and 25 more"


def test_outside_of_a_run_only_the_last_table_is_shown():
    with live.LiveProgress() as display:
        display.on_step("a.b", Step.CHOOSE_FILES)
        display.on_step("a.c", Step.CHOOSE_FILES)
        display.on_step("a.c", Step.APPLY_DROP)
        [line] = [line for line in text_of(display) if line]
        assert line.startswith("a.c")
