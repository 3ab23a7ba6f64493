"""``lakeward discover``: find tables in landing."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote as quoted
from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import count, emit, note, warn

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.cli.invocation import Invocation
    from lakeward.controller.discovery import Discovery


@command("discover")
@click.option(
    "--read-transactions", is_flag=True,
    help="Read CDC_TXN files too, each from end to end, for tables that have no folder of their own.",
)  # fmt: skip
def discover(invocation: Invocation, read_transactions: bool) -> None:
    """Register tables found in landing; they stay inactive until someone sets their key and activates them.

    A table is a folder SCHEMA/TABLE under landing with a load part or change file below it. Folders of tables already
    known are not looked into. A table of which only CDC_TXN files tell has no folder: --read-transactions finds it.
    """
    with invocation.lake() as lake:
        found = lake.discover(read_transactions=read_transactions)
        known = [str(one.table) for one in lake.tables()]
        unread = bool(lake.config.transactions) and not read_transactions
    document = {
        "new": [str(table) for table in found.new],
        "unlanded": [str(table) for table in found.unlanded],
        "skipped": [asdict(one) for one in found.skipped],
        "tables": known,
    }
    emit(invocation, document, lambda console: _draw(console, found, len(known)))
    for one in found.skipped:
        warn(f"{one.path} was left out: {one.reason}")
    if found.stray is not None:
        warn(f"landing holds no table: files are looked for in SCHEMA/TABLE/, found was {found.stray}")
    if unread:
        note(invocation, "transaction files were not read: lakeward discover --read-transactions")


def _draw(console: Console, found: Discovery, known: int) -> None:
    console.print(f"{count(len(found.new), 'new table')}, {known:,} known")
    for table in found.new:
        where = "   (only in transaction files)" if table in found.unlanded else ""
        console.print(f"  {table}{where}   lakeward tables set {quoted(str(table))} --primary-key COLUMN --activate")
