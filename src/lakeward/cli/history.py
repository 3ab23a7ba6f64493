"""``lakeward history``, ``changes`` and ``scd2``: what happened to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import (
    add_row,
    count,
    draw_rows,
    emit,
    error_line,
    first_rows,
    note,
    plain,
    reader_may_leave,
    styled,
    table,
)
from lakeward.cli.sql import safe_csv, write_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from lakeward import HistoryEntry, HistoryReport, RowHistory
    from lakeward.cli.options import Invocation


_STYLES = {"won": "green", "quarantined": "red", "undone": "yellow"}


def _limit(help_text: str) -> Callable[[Any], Any]:
    return click.option(
        "--limit", type=click.IntRange(min=1, max=MOST_SHOWN), default=1000, show_default=True, help=help_text
    )


@command("history")
@click.argument("name", metavar="TABLE")
@click.option(
    "--key", "keys", multiple=True, required=True, metavar="COLUMN=VALUE",
    help="The row's key, once per key column. NULL is the null value, 'NULL' in single quotes the text.",
)  # fmt: skip
@_limit("Number of changes to show, the newest ones.")
def history(invocation: Invocation, name: str, keys: tuple[str, ...], limit: int) -> None:
    """Show every change of one row in order, down to the row as it is now.

    For each change: what it did (I, U, D, or L for the load), when it was committed, its file and row, the columns it
    changed, and the verdict: won (the row had its values after its op), stale (an earlier op had applied a later
    change), superseded (by a later change of its own op, or by a new load), repeated (delivered before), quarantined
    (set aside as a bad row) or undone.
    """
    from lakeward import parse_key

    key = parse_key(keys)
    with invocation.lake() as lake:
        found = lake.history.row(name, key, limit=limit)
    emit(invocation, plain(found.to_dict()), lambda console: _draw_history(console, found))
    if found.is_cut:
        note(invocation, f"only the newest {count(len(found.changes), 'change')} are shown; --limit shows more")


def _draw_history(console: Console, found: RowHistory) -> None:
    key = ", ".join(f"{name}={_shown(value)}" for name, value in found.key.items())
    if not found.changes and found.now is None:
        console.print(f"{found.table} {key}: no such row, now or in the past")
        return
    drawn = table("> op", "> generation", "operation", "committed", "verdict", "changed", "file", "> row", "why")
    for entry in found.changes:
        verdict = styled(entry.verdict.value, _STYLES.get(entry.verdict.value, "dim"))
        place = (entry.file, entry.row)
        add_row(
            drawn,
            [
                entry.op,
                entry.generation,
                entry.operation,
                entry.commit_time,
                verdict,
                _changed(entry),
                *place,
                entry.reason,
            ],
        )
    console.print(drawn)
    now = "no such row" if found.now is None else _values(found.now)
    console.print(f"{found.table} {key} now: {now}")


def _changed(entry: HistoryEntry) -> str:
    """Return how a change modified the row, and the keys it moved the row from or to."""
    moved = [f"from {_values(entry.moved_from)}"] if entry.moved_from else []
    moved += [f"to {_values(entry.moved_to)}"] if entry.moved_to else []
    if entry.raw is not None:
        return entry.raw
    if entry.before is None or entry.after is None:
        whole = _values(entry.after) if entry.after is not None else "gone"
        return "; ".join([*moved, whole])
    steps = [f"{name}: {_shown(entry.before[name])} → {_shown(value)}" for name, value in entry.after.items()]
    return "; ".join([*moved, *(steps or ["nothing"])])


def _values(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in row.items())


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(plain(value))


_OP = "op:"


@command("changes", outputs=("text", "json", "csv"))
@click.argument("name", metavar="TABLE")
@click.option(
    "--from", "since", metavar="MOMENT", help="Show changes after this moment.  [default: from the beginning]"
)
@click.option("--to", "until", metavar="MOMENT", help="Show changes up to this moment, inclusive.  [default: now]")
@_limit("Number of changes to show.")
@safe_csv
def changes(
    invocation: Invocation, name: str, since: str | None, until: str | None, limit: int, safe_csv: bool
) -> None:
    """List a table's changes between two moments: by op (op:41), or by commit time (2020-11-14, 2020-11-14T10:30:00).

    By op, rows of loads are listed as operation L, and operation T marks a new generation that begins with an empty
    table; by time both are left out. Ops that were undone are left out.

    A job that follows the table keeps the op that it has reached (position in the JSON output) and continues with
    --from op:POSITION. csv is streamed, with any number of rows.
    """
    with invocation.lake() as lake:
        by_op = all(moment is None or moment.startswith(_OP) for moment in (since, until))
        if by_op and until is None:
            # What comes in while this command reads is left for the next one.
            until = f"{_OP}{lake.history.position(name)}"
        feed = lake.history.changes(name, since=since, until=until, ordered=True)
        rows, is_cut = first_rows(feed, limit) if invocation.output != "csv" else ([], False)
    if invocation.output == "csv":
        with reader_may_leave():
            write_csv(invocation, feed, safe=safe_csv)
        return
    position = int(until.removeprefix(_OP)) if by_op and until is not None and not is_cut else None
    document = {"table": name, "from": since, "to": until, "position": position, "changes": rows, "is_cut": is_cut}
    emit(invocation, document, lambda console: draw_rows(console, feed.columns, rows, "change"))
    if is_cut:
        note(
            invocation,
            f"only the first {count(limit, 'change is', 'changes are')} shown; --limit shows more, --output csv all",
        )


@command("scd2")
@click.argument("name", metavar="[TABLE]", required=False)
@click.option("--track", metavar="COL,COL", help="Columns whose changes start a new version.  [default: all]")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Show the versions of one row.")
@_limit("Number of versions to show.")
@click.option(
    "--table",
    "keep",
    is_flag=True,
    help="Keep the versions in the table <schema>_history.<table>, or bring it up to date.",
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
    """Show every version of a table's rows with the period in which it was valid (SCD type 2).

    A version begins with a change (valid_from) and ends before the next one, or when the row was deleted (valid_to,
    NULL for the current version). Load rows are valid from cdc_start or from the start of their load. With --track the
    other columns are shown as they were at the start of a version.

    With --table the versions are kept in the lake. Later calls compute only the rows that changed since then;
    --track '*' tracks all columns again.
    """
    _require_fitting(name, keys, keep=keep, refresh=refresh)
    tracked = [column.strip() for column in track.split(",")] if track is not None else None
    if name is None:
        with invocation.lake() as lake:
            reports = lake.history.refresh_scd2()
        return _emit_reports(invocation, reports)
    if keep:
        with invocation.lake() as lake:
            report = lake.history.keep_scd2(name, track=tracked)
        return _emit_reports(invocation, [report])
    return _show(invocation, name, tracked, keys, limit)


def _require_fitting(name: str | None, keys: tuple[str, ...], *, keep: bool, refresh: bool) -> None:
    if (name is None) != refresh or (refresh and (keep or keys)):
        msg = "name a TABLE, or use --refresh alone for every history that is kept"
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
    def text(console: Console) -> None:
        drawn = table("history", "done", "> op", "> keys", "> written", "> versions", "why")
        for report in reports:
            add_row(
                drawn,
                [report.history, report.action, report.op, report.keys, report.versions, report.rows, report.reason],
            )
        if reports:
            console.print(drawn)
        else:
            console.print(f"{count(0, 'history', 'histories')}; lakeward scd2 TABLE --table keeps one")

    emit(invocation, {"histories": [report.to_dict() for report in reports]}, text)
    failed = [report for report in reports if report.action == "failed"]
    for report in failed:
        error_line(
            f"{report.history} could not be brought up to date: {report.reason}",
            f"lakeward scd2 {report.table} --table",
        )
    return FAILED if failed else DONE
