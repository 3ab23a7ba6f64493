"""``lakeward status``: how tables stand."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward import to_json
from lakeward.cli.optional_number import with_number
from lakeward.cli.options import LakewardCommand, command
from lakeward.cli.output import add_row, age, console_on, count, emit, emit_line, emit_text, size, styled, table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lakeward import Debt, Lakeward, TableStatus
    from lakeward.cli.invocation import Invocation

_WATCH = "--watch"
_STYLES = {"failed": "red", "interrupted": "yellow", "pending": "yellow", "current": "green"}


class _StatusCommand(LakewardCommand):
    """Lets ``--watch`` stand before a table's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a bare --watch its value."""
        return super().parse_args(ctx, with_number(args, _WATCH, "5"))


@command("status", cls=_StatusCommand)
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    _WATCH, type=click.FloatRange(min=0.1), metavar="[SECONDS]",
    help="Look again every so many seconds, without SECONDS every 5, until Ctrl-C; with --output json one line each.",
)  # fmt: skip
def status(invocation: Invocation, names: tuple[str, ...], watch: float | None) -> None:
    """Say how tables stand: rows, what waits and for how long, the last run, what needs a decision.

    Looks at listings, table metadata and the state store; nothing is written.
    """
    with invocation.lake() as lake:
        if watch is not None:
            _watch(invocation, lake, names, watch)
            return
        found = lake.status(names)
    emit(invocation, _document(found), partial(_draw, found=found))


def _watch(invocation: Invocation, lake: Lakeward, names: tuple[str, ...], seconds: float) -> None:
    """Look again and again: in place on a terminal, one below the other elsewhere."""
    if not invocation.is_json and console_on(sys.stdout).is_terminal:
        _watch_in_place(lake, names, seconds)
    while invocation.has_reader:
        found = lake.status(names)
        if invocation.is_json:
            emit_line(invocation, to_json(_document(found)))
        else:
            emit_line(invocation, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            emit_text(invocation, partial(_draw, found=found))
        time.sleep(seconds)


def _watch_in_place(lake: Lakeward, names: tuple[str, ...], seconds: float) -> None:
    from rich.live import Live

    with Live(console=console_on(sys.stdout), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_drawing(lake.status(names)), refresh=True)
            time.sleep(seconds)


def _document(found: list[TableStatus]) -> dict[str, Any]:
    from lakeward import status_totals

    return {"totals": status_totals(found).to_dict(), "tables": [one.to_dict() for one in found]}


def _draw(console: Console, found: list[TableStatus]) -> None:
    console.print(_drawing(found))


def _drawing(found: list[TableStatus]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines = [_totals(found), *(line for one in found for line in _remarks(one))]
    return Group(_table(found), *[Text(line) for line in lines])


def _table(found: list[TableStatus]) -> RenderableType:
    drawn = table(
        "table", "state", "> rows", "> generation", "> op", "> waiting", "lag", "> set aside", "last run", "> took",
        "> rows/s", "debt", "verified", "held by",
    )  # fmt: skip
    for one in found:
        waiting = f"{one.files_pending:,} ({size(one.bytes_pending)})" if one.files_pending else "0"
        speed = f"{one.rows_per_second:,.0f}" if one.rows_per_second is not None else None
        add_row(
            drawn,
            [
                one.table, styled(one.state, _STYLES.get(one.state, "dim")), one.rows, one.generation, one.op, waiting,
                _age(one.oldest_pending_seconds), one.quarantined, _to_the_second(one.last_run),
                _age(one.last_seconds), speed, _debt(one.debt), _verified(one), one.locked_by,
            ],
        )  # fmt: skip
    return drawn


def _totals(found: list[TableStatus]) -> str:
    from lakeward import status_totals

    totals = status_totals(found)
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(totals.states.items()))
    parts = [count(totals.tables, "table") + (f" ({states})" if states else ""), count(totals.rows, "row")]
    waiting = f"{count(totals.files_pending, 'file')} waiting"
    if totals.oldest_pending_seconds is not None:
        waiting += f" ({size(totals.bytes_pending)}, the oldest for {age(totals.oldest_pending_seconds)})"
    return ", ".join([*parts, waiting, f"{totals.quarantined:,} set aside"])


def _debt(debt: Debt | None) -> str | None:
    """Say in few words what maintenance would find."""
    if debt is None:
        return None
    return f"{debt.deleted_share:.0%} deleted, {count(debt.data_files + debt.delete_files, 'file')}"


def _verified(one: TableStatus) -> str | None:
    """Say through which op all rows were found right, and when."""
    found = one.verified
    return f"op {found.op}, {_to_the_second(found.at)}" if found is not None else None


def _age(seconds: float | None) -> str | None:
    return age(seconds) if seconds is not None else None


def _to_the_second(moment: str | None) -> str | None:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S}" if moment else None


def _remarks(one: TableStatus) -> list[str]:
    remarks = []
    if one.error:
        remarks.append(f"failed: {one.error}" + (f" (try: {one.hint})" if one.hint else ""))
    if one.unknown_files:
        more = one.unknown_count - len(one.unknown_files)
        names = ", ".join(one.unknown_files) + (f" and {more:,} more" if more else "")
        remarks.append(f"files whose names fit no rule: {names}")
    if one.unfinished_erasure is not None:
        remarks.append(f"the erasure of op {one.unfinished_erasure} is not finished")
    remarks += [f"warning: {warning}" for warning in one.warnings]
    if one.next_command:
        label = "decide" if one.waits_for_decision else "next"
        remarks.append(f"{label}: {one.next_command}")
    return [f"{one.table}: {remark}" for remark in remarks]
