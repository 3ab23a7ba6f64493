"""``lakeward status``: how tables stand."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import add_row, age, count, emit, size, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.cli.invocation import Invocation
    from lakeward.controller.status import TableStatus

_STYLES = {"failed": "red", "interrupted": "yellow", "pending": "yellow", "current": "green"}


@command("status")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
def status(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Say how tables stand: rows, what waits, what nobody can read, what needs a decision."""
    with invocation.lake() as lake:
        found = lake.status(names)
    emit(invocation, {"tables": [one.to_dict() for one in found]}, lambda console: _draw(console, found))


def _draw(console: Console, found: list[TableStatus]) -> None:
    drawn = table(
        "table", "state", "> rows", "> generation", "> op", "> files taken", "> waiting", "oldest", "> set aside",
        "> unknown files", "last run",
    )  # fmt: skip
    for one in found:
        waiting = f"{one.files_pending:,} ({size(one.bytes_pending)})" if one.files_pending else "0"
        oldest = age(one.oldest_pending_seconds) if one.oldest_pending_seconds is not None else None
        state = styled(one.state, _STYLES.get(one.state, "dim"))
        add_row(
            drawn,
            [
                one.table, state, one.rows, one.generation, one.op, one.files_consumed, waiting, oldest,
                one.quarantined, one.unknown_count, _to_the_second(one.last_run),
            ],
        )  # fmt: skip
    console.print(drawn)
    console.print(count(len(found), "table"))
    for one in found:
        _draw_remarks(console, one)


def _to_the_second(time: str | None) -> str | None:
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M:%S}" if time else None


def _draw_remarks(console: Console, one: TableStatus) -> None:
    remarks = []
    if one.error:
        remarks.append(f"failed: {one.error}")
    if one.locked_by:
        remarks.append(f"held by {one.locked_by}")
    if one.unknown_files:
        more = one.unknown_count - len(one.unknown_files)
        names = ", ".join(one.unknown_files) + (f" and {more:,} more" if more else "")
        remarks.append(f"files whose names fit no rule: {names}")
    if one.next_command:
        remarks.append(f"next: {one.next_command}")
    for remark in remarks:
        console.print(f"{one.table}: {remark}")
