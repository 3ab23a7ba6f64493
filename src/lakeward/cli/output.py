"""Results on standard output, as text for people or JSON for programs; messages on standard error."""

from __future__ import annotations

import base64
import json
import logging
import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lakeward
from lakeward import escape_text, event, logs_messages, redact, to_json
from lakeward.cli.process import drop_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from rich.console import Console, RenderableType
    from rich.table import Table

    from lakeward.cli.options import Invocation


logger = logging.getLogger(__name__)
# Commands import these from here with the other output helpers.
count, rate = lakeward.count, lakeward.rate
# Without a terminal, lines are as long as their content.
_UNLIMITED = 10_000
_KIB = 1024
# The heading of a column of numbers begins with this.
_RIGHT = "> "


def ignored_rows(number: int) -> str:
    """Return how many rows of a table without a key were left out."""
    return f"{count(number, 'update or delete', 'updates and deletes')} ignored (without_key: inserts)"


def emit(invocation: Invocation, document: Any, text: Callable[[Console], None]) -> None:
    """Write a command's result in the requested form."""
    if invocation.is_json:
        emit_json(invocation, document)
    else:
        emit_text(invocation, text)


def emit_json(invocation: Invocation, document: Any) -> None:
    """Write one JSON document."""
    _write(invocation, to_json(document, indent=2) + "\n")


def emit_json_line(invocation: Invocation, document: Any) -> None:
    """Write a JSON document on one line, as one of many."""
    emit_line(invocation, to_json(document))


def emit_line(invocation: Invocation, line: str) -> None:
    """Write one line of a result without an end."""
    _write(invocation, escape_text(line) + "\n")


def emit_text(invocation: Invocation, text: Callable[[Console], None]) -> None:
    """Call a function that draws on standard output."""
    console = console_on(sys.stdout)
    with console.capture() as drawn:
        text(console)
    _write(invocation, "\n".join(line.rstrip() for line in drawn.get().split("\n")))


def _write(invocation: Invocation, text: str) -> None:
    """Write a whole result; a reader that has gone does not change how the command ends."""
    invocation.has_output, invocation.has_reader = True, False
    with reader_may_leave():
        sys.stdout.write(text)
        sys.stdout.flush()
        invocation.has_reader = True


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Stop writing when the reader closes the pipe, as in ``lakeward sql … | head``."""
    try:
        yield
    except BrokenPipeError:
        drop_stdout()


def console_on(stream: Any) -> Console:
    """Return a console that shows data as it is: no markup, no highlighting, cut only on a terminal."""
    from lakeward.cli.console import DataConsole

    console = DataConsole(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    return console


def table(*headings: str) -> Table:
    """Return an empty table; a heading that starts with ``> `` is that of a column of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(
            heading.removeprefix(_RIGHT),
            justify="right" if heading.startswith(_RIGHT) else "left",
            overflow="fold",
        )
    return drawn


def add_row(drawn: Table, values: Iterable[Any], *, style: str | None = None) -> None:
    """Add a row of plain values: None is left empty, numbers are grouped."""
    drawn.add_row(*[_cell(value) for value in values], style=style)


def _cell(value: Any) -> RenderableType:
    from rich.text import Text

    if value is None:
        return ""
    if isinstance(value, Text):
        return value
    return Text(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))


def styled(text: str, style: str) -> RenderableType:
    """Return a text in a style."""
    from rich.text import Text

    return Text(text, style=style)


def lines(console: Console, entries: Sequence[tuple[str, str]], *, indent: str = "  ") -> None:
    """Print named values, one below the other."""
    width = max((len(name) for name, _ in entries), default=0)
    for name, value in entries:
        console.print(f"{indent}{name.ljust(width)}  {value}")


def note(invocation: Invocation, message: str) -> None:
    """Write a note that is not part of the result, unless --quiet is set."""
    if not invocation.quiet:
        _print_message("note", message)


def warn(message: str) -> None:
    """Write a warning."""
    _print_message("warning", message)


def error_line(message: str, hint: str | None = None) -> None:
    """Write an error and the command that helps."""
    if logs_messages():
        logger.error(message, extra=event("error", hint=hint))
        return
    _print_message("error", message)
    if hint:
        _print_message("try", hint)


def _print_message(level: str, message: str) -> None:
    from rich.text import Text

    if logs_messages():
        logger.log(logging.WARNING if level == "warning" else logging.INFO, message, extra=event(level))
        return

    style = {"error": "bold red", "warning": "bold yellow", "try": "bold cyan"}.get(level, "bold")
    console_on(sys.stderr).print(Text.assemble((f"{level}:", style), " ", redact(message)), soft_wrap=True)


def size(number: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < _KIB:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= _KIB
    return f"{number:.1f} TiB"


def age(seconds: float) -> str:
    """Return a number of seconds as a span of time with a unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def first_rows(frame: DataFrame, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the first rows as JSON objects, in the forms of ``lakeward sql``, and whether there are more."""
    from lakeward.cli.sql_values import json_rows

    texts = json_rows(frame.limit(limit + 1))
    found = [json.loads(row[0]) for row in texts.toLocalIterator()] if texts is not None else []
    return found[:limit], len(found) > limit


def draw_rows(console: Console, names: list[str], rows: list[dict[str, Any]], what: str) -> None:
    """Print rows as a table, NULL as distinct from an empty text."""
    drawn = table(*names)
    for row in rows:
        add_row(drawn, [_shown_value(row[name]) for name in names])
    if rows:
        console.print(drawn)
    console.print(count(len(rows), what))


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: binary values as base64, NaN and infinity as text."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _shown_value(value: Any) -> Any:
    if value is None:
        return styled("NULL", "dim")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
