"""Progress on standard error: a live display on a terminal, one line per event elsewhere, or none."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lakeward.cli.output import console_on, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import TaskID

    from lakeward.pipeline.report import OpReport

# What goes on once a step is passed.
_NEXT = {
    "choose.progress": "listing files",
    "choose.files": "reading files",
    "check.read": "folding changes",
    "check.fold": "writing changelog",
    "log.tables": "writing changelog",
    "log.publish": "logged, writing mirror",
    "log.ledger": "writing mirror",
    "apply.publish": "published",
    "load.publish": "writing mirror",
}
# The steps that a log shows: a line for each would bury the rest.
_LOGGED = ("check.read", "log.publish")


class Progress(Protocol):
    """Hears what a run does."""

    def on_step(self, table: str, step: str) -> None:
        """Hear that a table's op passed a step."""

    def on_op(self, table: str, report: OpReport) -> None:
        """Hear that an op is published."""

    def say(self, message: str) -> None:
        """Hear what the command does beside tables, such as starting Spark."""


@contextmanager
def open_progress(*, quiet: bool) -> Iterator[Progress]:
    """Give the progress that fits standard error."""
    if quiet:
        yield NoProgress()
    elif console_on(sys.stderr).is_terminal:
        with _Live() as live:
            yield live
    else:
        yield PlainProgress()


class NoProgress:
    """Says nothing."""

    def on_step(self, table: str, step: str) -> None:
        """Do nothing."""

    def on_op(self, table: str, report: OpReport) -> None:
        """Do nothing."""

    def say(self, message: str) -> None:
        """Do nothing."""


class PlainProgress:
    """One line per event, for logs."""

    def on_step(self, table: str, step: str) -> None:
        """Write a line for steps that take time."""
        if step in _LOGGED:
            self.say(f"{table}: {_NEXT[step]}")

    def on_op(self, table: str, report: OpReport) -> None:
        """Write what the op did."""
        self.say(f"{table}: {op_line(report)}")

    def say(self, message: str) -> None:
        """Write a line."""
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


class _Live:
    """A line per table with step, files, rows and rows per second, drawn while the work goes on."""

    def __init__(self) -> None:
        from rich.progress import Progress as RichProgress
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = ("{task.description}", "{task.fields[step]}", "{task.fields[done]}")
        self._display = RichProgress(
            SpinnerColumn(finished_text="·"),
            *[TextColumn(column, markup=False) for column in columns],
            TimeElapsedColumn(),
            console=console_on(sys.stderr),
            transient=True,
            redirect_stdout=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, tuple[int, int, float]] = {}

    def __enter__(self) -> _Live:
        self._display.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._display.stop()

    def on_step(self, table: str, step: str) -> None:
        """Show what the table does next."""
        if step in _NEXT:
            self._display.update(self._task(table), step=_NEXT[step])

    def on_op(self, table: str, report: OpReport) -> None:
        """Add the op to the table's totals."""
        files, rows, seconds = self._totals.get(table, (0, 0, 0.0))
        files, rows, seconds = files + report.files, rows + report.read.rows, seconds + report.seconds
        self._totals[table] = (files, rows, seconds)
        done = f"{count(files, 'file')}  {count(rows, 'row')}  {rate(rows, seconds)}"
        self._display.update(self._task(table), step=f"op {report.op} published", done=done)

    def say(self, message: str) -> None:
        """Show what goes on beside tables."""
        self._finish_all()
        self._tasks[""] = self._display.add_task(message, total=None, step="", done="")

    def _task(self, table: str) -> TaskID:
        if table not in self._tasks:
            self._finish_all()
            self._tasks[table] = self._display.add_task(table, total=None, step="", done="")
        return self._tasks[table]

    def _finish_all(self) -> None:
        """Tables run one after the other: what came before the newest line is done."""
        for task in self._tasks.values():
            self._display.update(task, total=1, completed=1)


def op_line(report: OpReport) -> str:
    """Describe a published op in one line."""
    files, rows = count(report.files, "file"), count(report.read.rows, "row")
    bad = f" ({report.read.bad:,} set aside)" if report.read.bad else ""
    speed = f"{rate(report.read.rows, report.seconds)}, {report.seconds:.1f} s"
    return f"op {report.op} ({report.kind}) published: {files}, {rows}{bad}, {speed}, {report.strategy}"


def rate(rows: int, seconds: float) -> str:
    """Give rows per second for eyes."""
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "- rows/s"
