"""A live display for terminals: a line for every table in progress, and a count of those that are done."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lakeward import Outcome, SilentObserver
from lakeward.cli.output import age, console_on, count, rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from lakeward import OpReport, RunReport, Step, TableReport
    from lakeward.errors import LakewardError

_SHOWN = 15
_REFRESHES_PER_SECOND = 8


@dataclass
class _Line:
    """A table in progress."""

    step: str = "looking"
    files: int = 0
    rows: int = 0
    op_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> str:
        """The files and rows of the table that this run has published."""
        if not self.files:
            return ""
        return f"{count(self.files, 'file')}  {count(self.rows, 'row')}  {rate(self.rows, self.op_seconds)}"


class LiveProgress(SilentObserver):
    """Progress as a display that is drawn only while there is something to show."""

    def __init__(self) -> None:
        self._spinner = Spinner("dots")
        self._lock = threading.RLock()
        self._lines: dict[str, _Line] = {}
        self._messages: list[str] = []
        self._expected: int | None = None
        self._outcomes: list[Outcome] = []
        self._live = Live(
            get_renderable=self._draw,
            console=console_on(sys.stderr),
            transient=True,
            redirect_stdout=False,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Show a message until the block ends."""
        with self._lock:
            self._messages.append(message)
        self._update()
        try:
            yield
        finally:
            with self._lock:
                self._messages.remove(message)
            self._update()

    def run_started(self, run_id: str, tables: Sequence[str]) -> None:
        """Start to count tables."""
        with self._lock:
            self._expected = len(tables)
            self._lines.clear()
            self._outcomes.clear()
        self._update()

    def table_started(self, table: str) -> None:
        """Show a table."""
        with self._lock:
            self._lines[table] = _Line()

    def on_step(self, table: str, step: Step) -> None:
        """Show what the table does next."""
        if step.work_after is None:
            return
        with self._lock:
            if table not in self._lines and self._expected is None:
                # Outside of a run tables are processed one after the other: the one before is done.
                self._lines.clear()
            self._lines.setdefault(table, _Line()).step = step.work_after
        self._update()

    def op_published(self, table: str, report: OpReport) -> None:
        """Add the op to the figures of the table."""
        with self._lock:
            line = self._lines.setdefault(table, _Line())
            line.step = f"op {report.op} published"
            line.files += report.files
            line.rows += report.read.rows
            line.op_seconds += report.seconds

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Show that the table waits."""
        with self._lock:
            self._lines.setdefault(table, _Line()).step = f"attempt {attempt} failed, next in {age(delay)}"

    def table_finished(self, report: TableReport) -> None:
        """Turn the table's line into a count."""
        with self._lock:
            self._lines.pop(report.table, None)
            self._outcomes.append(report.outcome)

    def run_finished(self, report: RunReport) -> None:
        """Remove the display."""
        with self._lock:
            self._expected = None
            self._lines.clear()
        self._update()

    def _update(self) -> None:
        """Show the display if there is something to show, and remove it otherwise."""
        with self._lock:
            is_wanted = bool(self._messages or self._lines or self._expected)
        if is_wanted:
            self._live.start(refresh=True)
        else:
            self._live.stop()

    def _draw(self) -> RenderableType:
        with self._lock:
            parts = [self._with_spinner(message) for message in self._messages]
            if self._expected is not None:
                parts.append(self._with_spinner(self._summary()))
            parts.append(self._table())
        return Group(*parts)

    def _with_spinner(self, message: str) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        row.add_row(self._spinner, Text(message))
        return row

    def _summary(self) -> str:
        failed = sum(1 for outcome in self._outcomes if outcome is Outcome.FAILED)
        text = f"{len(self._outcomes):,} of {count(self._expected or 0, 'table')} done"
        return f"{text}, {failed:,} failed" if failed else text

    def _table(self) -> RenderableType:
        """Return the tables that have been in progress the longest."""
        drawn = Table.grid(padding=(0, 2))
        now = time.monotonic()
        for name, line in list(self._lines.items())[:_SHOWN]:
            drawn.add_row(Text(f"  {name}"), line.step, line.done, age(now - line.began))
        if len(self._lines) > _SHOWN:
            drawn.add_row(Text(f"  … and {len(self._lines) - _SHOWN:,} more"))
        return drawn
