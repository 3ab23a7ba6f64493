"""``lakeward scd2``: every version of a table's rows, shown or kept as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import add_row, count, emit, error_line, note, table
from lakeward.cli.rows import draw_rows, first_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import HistoryReport
    from lakeward.cli.invocation import Invocation


@command("scd2")
@click.argument("name", metavar="[TABLE]", required=False)
@click.option("--track", metavar="COL,COL", help="Columns that make a new version when they change.  [default: all]")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Show the versions of one row.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=MOST_SHOWN),
    default=1000,
    show_default=True,
    help="Versions that are shown.",
)
@click.option(
    "--table", "keep", is_flag=True, help="Keep the versions as <schema>_history.<table>, or bring it up to date."
)
@click.option("--refresh", is_flag=True, help="Bring every history that the lake keeps up to date.")
def scd2(
    invocation: Invocation,
    name: str | None,
    track: str | None,
    keys: tuple[str, ...],
    limit: int,
    keep: bool,
    refresh: bool,
) -> int:
    """Show every version of a table's rows with the time in which it was valid (SCD type 2).

    A version begins with a change (valid_from) and ends before the next, or when the row was deleted (valid_to, NULL
    for the current one). Load rows are valid from cdc_start or from the beginning of their load. With --track the
    other columns are shown as they were at the start of a version.

    With --table the versions are kept in the lake. Later calls compute only rows that changed since; --track '*' goes
    back to all columns.
    """
    _require_sense(name, keys, keep=keep, refresh=refresh)
    tracked = [one.strip() for one in track.split(",")] if track is not None else None
    if name is None:
        with invocation.lake() as lake:
            reports = lake.history.refresh_scd2()
        return _emit_reports(invocation, reports)
    if keep:
        with invocation.lake() as lake:
            report = lake.history.keep_scd2(name, track=tracked)
        return _emit_reports(invocation, [report])
    return _show(invocation, name, tracked, keys, limit)


def _require_sense(name: str | None, keys: tuple[str, ...], *, keep: bool, refresh: bool) -> None:
    if (name is None) != refresh or (refresh and (keep or keys)):
        msg = "name a TABLE, or give --refresh alone for every history that is kept"
        raise click.UsageError(msg)
    if keep and keys:
        msg = "--table keeps the versions of all rows; --key only restricts what is shown"
        raise click.UsageError(msg)


def _show(invocation: Invocation, name: str, track: Sequence[str] | None, keys: tuple[str, ...], limit: int) -> int:
    from lakeward import parse_key

    key = parse_key(keys) if keys else None
    with invocation.lake() as lake:
        frame = lake.history.scd2(name, track=None if track == ["*"] else track, key=key, ordered=True)
        rows, is_cut = first_rows(frame, limit)
    document = {"table": name, "versions": rows, "is_cut": is_cut}
    emit(invocation, document, lambda console: draw_rows(console, frame.columns, rows, "version"))
    if is_cut:
        note(invocation, f"only the first {limit:,} versions are shown; --limit shows more, --table keeps all")
    return DONE


def _emit_reports(invocation: Invocation, reports: Sequence[HistoryReport]) -> int:
    from dataclasses import asdict

    def text(console: Console) -> None:
        drawn = table("history", "done", "> op", "> keys", "> written", "> versions", "why")
        for one in reports:
            add_row(drawn, [one.history, one.action, one.op, one.keys, one.versions, one.rows, one.reason])
        if reports:
            console.print(drawn)
        else:
            console.print(f"{count(0, 'history', 'histories')}; lakeward scd2 TABLE --table keeps one")

    emit(invocation, {"histories": [asdict(one) for one in reports]}, text)
    failed = [one for one in reports if one.action == "failed"]
    for one in failed:
        error_line(f"{one.history} could not be brought up to date: {one.reason}", f"lakeward scd2 {one.table} --table")
    return FAILED if failed else DONE
