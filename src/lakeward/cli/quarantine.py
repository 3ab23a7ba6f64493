"""``lakeward quarantine``: list, retry and drop bad rows that were set aside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import MOST_SHOWN, command, group
from lakeward.cli.output import add_row, count, emit, error_line, note, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import BadRow, QuarantineReport
    from lakeward.cli.options import Invocation

# FILE:ROW=text; the name of a file may hold an equals sign.
_REPLACEMENT = re.compile(r"^(?P<id>.+?:\d+)=(?P<text>.*)$", re.DOTALL)


@group("quarantine")
def quarantine() -> None:
    """List bad rows that were set aside, retry them or drop them.

    A row's ID is FILE:ROW, as `lakeward quarantine list` shows it.
    """


@command("list")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=100,
    show_default=True,
    help="Rows per table; 0 for all.",
)
def list_rows(invocation: Invocation, names: tuple[str, ...], limit: int) -> None:
    """List the bad rows that wait for a decision."""
    with invocation.lake() as lake:
        chosen = [str(lake.table(name).table) for name in names] or [str(known.table) for known in lake.tables()]
        # One more than wanted, to know whether there are more.
        found = {name: list(lake.bad_rows(name, limit=limit + 1 if limit else None)) for name in chosen}
    for name, rows in found.items():
        if limit and len(rows) > limit:
            note(invocation, f"{name} has more than {count(limit, 'bad row')}; --limit shows more")
            del rows[limit:]
    document = [{"table": name, "rows": [row.to_dict() for row in rows]} for name, rows in found.items()]
    emit(invocation, {"tables": document}, lambda console: _draw_list(console, found))


@command("retry")
@click.argument("name", metavar="TABLE")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--replace", multiple=True, metavar="'ID=TEXT'", help="Repaired text of a row; repeatable.")
def retry(invocation: Invocation, name: str, ids: tuple[str, ...], replace: tuple[str, ...]) -> int:
    """Put bad rows back at their original place in the order: all of a table, or those named.

    Rows are read again with the current settings of the table, or with the text of --replace. Rows that are still bad
    stay, and the exit code is 3.
    """
    replacements = dict(_read_replacement(text) for text in replace)
    with invocation.lake() as lake:
        lake.table(name)
        report = lake.retry_bad_rows(name, ids, replacements)
    _emit_report(invocation, name, report, "put back")
    if report.still_bad:
        error_line(f"{count(len(report.still_bad), 'row')} of {name} did not fit", f"lakeward quarantine list {name}")
    return FAILED if report.still_bad else DONE


@command("drop")
@click.argument("name", metavar="TABLE")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Drop all bad rows of the table.")
def drop(invocation: Invocation, name: str, ids: tuple[str, ...], everything: bool) -> None:
    """Drop bad rows: they stay in the changelog and are no longer listed."""
    if bool(ids) == everything:
        msg = "name the rows to drop, or use --all" if everything is False else "use either row ids or --all"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        lake.table(name)
        report = lake.drop_bad_rows(name, ids)
    _emit_report(invocation, name, report, "dropped")


for _command in (list_rows, retry, drop):
    quarantine.add_command(_command)


def _read_replacement(text: str) -> tuple[str, str]:
    match = _REPLACEMENT.match(text)
    if match is None:
        msg = f"--replace {text!r}: expected FILE:ROW=text"
        raise click.UsageError(msg)
    return match["id"], match["text"]


def _emit_report(invocation: Invocation, name: str, report: QuarantineReport, done: str) -> None:
    from dataclasses import asdict

    document = {
        "table": name,
        "handled": report.handled,
        "still_bad": [row.to_dict() for row in report.still_bad],
        "ops": [asdict(op) for op in report.ops],
    }

    def text(console: Console) -> None:
        console.print(f"{name}: {count(report.handled, 'row')} {done}, {len(report.still_bad):,} still bad")
        if report.still_bad:
            _draw_rows(console, report.still_bad)

    emit(invocation, document, text)


def _draw_list(console: Console, found: dict[str, list[BadRow]]) -> None:
    for name, rows in found.items():
        console.print(f"{name}: {count(len(rows), 'bad row')}")
        if rows:
            _draw_rows(console, rows)


def _draw_rows(console: Console, rows: list[BadRow] | tuple[BadRow, ...]) -> None:
    drawn = table("id", "> op", "column", "value", "reason", "raw text")
    for row in rows:
        add_row(drawn, [row.id, row.op, row.column, row.value, row.reason, row.raw])
    console.print(drawn)
