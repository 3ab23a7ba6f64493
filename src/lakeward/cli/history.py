"""``lakeward history``: what happened to one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import add_row, count, emit, note, styled, table
from lakeward.cli.rows import plain

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import HistoryEntry, RowHistory
    from lakeward.cli.invocation import Invocation

_STYLES = {"won": "green", "quarantined": "red", "undone": "yellow"}


@command("history")
@click.argument("name", metavar="TABLE")
@click.option(
    "--key", "keys", multiple=True, required=True, metavar="COLUMN=VALUE",
    help="The row's key, once per key column. NULL is no value, 'NULL' in single quotes that text.",
)  # fmt: skip
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=MOST_SHOWN),
    default=1000,
    show_default=True,
    help="The newest so many changes are told.",
)
def history(invocation: Invocation, name: str, keys: tuple[str, ...], limit: int) -> None:
    """Tell every change of one row in order, down to the row as it is now.

    Of each change: what it did (I, U, D, or L for the load), when it was committed, where it lies, which columns it
    changed, and what became of it: won (its values stood after its op), stale (a later change had come by an earlier
    op), superseded (overtaken in its own op, or its load was replaced), repeated (delivered before), quarantined
    (set aside as a bad row) or undone.
    """
    from dataclasses import asdict

    from lakeward import parse_key

    given = parse_key(keys)
    with invocation.lake() as lake:
        found = lake.history.row(name, given, limit=limit)
    emit(invocation, plain(asdict(found)), lambda console: _draw(console, found))
    if found.is_cut:
        note(invocation, f"only the newest {count(len(found.changes), 'change')} are told; --limit tells more")


def _draw(console: Console, found: RowHistory) -> None:
    key = ", ".join(f"{name}={_shown(value)}" for name, value in found.key.items())
    if not found.changes and found.now is None:
        console.print(f"{found.table} {key}: no such row, now or ever")
        return
    drawn = table("> op", "> generation", "did", "committed", "became", "changed", "file", "> row", "why")
    for one in found.changes:
        verdict = styled(one.verdict.value, _STYLES.get(one.verdict.value, "dim"))
        place = (one.file, one.row)
        add_row(
            drawn, [one.op, one.generation, one.operation, one.commit_time, verdict, _changed(one), *place, one.reason]
        )
    console.print(drawn)
    now = "no such row" if found.now is None else _values(found.now)
    console.print(f"{found.table} {key} now: {now}")


def _changed(one: HistoryEntry) -> str:
    """Say what a change did to the row, and where it moved it."""
    moved = [f"from {_values(one.moved_from)}"] if one.moved_from else []
    moved += [f"to {_values(one.moved_to)}"] if one.moved_to else []
    if one.raw is not None:
        return one.raw
    if one.before is None or one.after is None:
        whole = _values(one.after) if one.after is not None else "gone"
        return "; ".join([*moved, whole])
    steps = [f"{name}: {_shown(one.before[name])} → {_shown(value)}" for name, value in one.after.items()]
    return "; ".join([*moved, *(steps or ["nothing"])])


def _values(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in row.items())


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(plain(value))
