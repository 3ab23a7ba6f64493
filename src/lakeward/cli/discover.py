"""``lakeward discover``: find tables in landing."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote as quoted
from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import count, emit, note, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from lakeward import Discovery, Proposal, TableId
    from lakeward.cli.invocation import Invocation

# New tables whose files are looked at for a key; a landing may hold thousands.
_LOOKED_AT = 20


@command("discover")
@click.option(
    "--read-transactions", is_flag=True,
    help="Read CDC_TXN files too, each from end to end, for tables that have no folder of their own.",
)  # fmt: skip
def discover(invocation: Invocation, read_transactions: bool) -> None:
    """Register tables found in landing; they stay inactive until someone sets their key and activates them.

    A table is a folder SCHEMA/TABLE under landing with a load part or change file below it; folders and files that are
    none are named with the reason. Folders of tables already known are not looked into. A table of which only CDC_TXN
    files tell has no folder: --read-transactions finds it. The command shown for a new table proposes a key that is
    unique in its load, where that is small and names its columns.
    """
    with invocation.lake() as lake:
        found = lake.discover(read_transactions=read_transactions)
        known = [str(one.table) for one in lake.tables()]
        unread = bool(lake.config.transactions) and not read_transactions
        proposals = {table: lake.propose_settings(str(table)) for table in found.new[:_LOOKED_AT]}
    document = {
        "new": [str(table) for table in found.new],
        "unlanded": [str(table) for table in found.unlanded],
        "skipped": [asdict(one) for one in found.skipped],
        "tables": known,
        "proposals": {str(table): proposal.to_dict() for table, proposal in proposals.items()},
    }
    emit(invocation, document, lambda console: _draw(console, found, len(known), proposals))
    for one in found.skipped:
        warn(f"{one.path} was left out: {one.reason}")
    if found.stray is not None and not found.skipped:
        warn(f"landing holds no table: files are looked for in SCHEMA/TABLE/, found was {found.stray}")
    if unread:
        note(invocation, "transaction files were not read: lakeward discover --read-transactions")


def _draw(console: Console, found: Discovery, known: int, proposals: Mapping[TableId, Proposal]) -> None:
    console.print(f"{count(len(found.new), 'new table')}, {known:,} known")
    for table in found.new:
        where = "   (only in transaction files)" if table in found.unlanded else ""
        console.print(f"  {table}{where}   {_command(table, proposals.get(table))}")
    if any(proposal.primary_key for proposal in proposals.values()):
        console.print("keys are proposed because they are unique in the load; make sure that they are the source's")


def _command(table: TableId, proposal: Proposal | None) -> str:
    """Return the command that activates a table, with what its files propose."""
    names = proposal.primary_key if proposal else ()
    # The option takes several names between commas.
    key = ",".join(names) if names and not any("," in name for name in names) else "COLUMN"
    options = ["--primary-key", quoted(key)]
    if proposal and proposal.timestamp_column:
        options += ["--set", quoted(f"timestamp_column={proposal.timestamp_column}")]
    return f"lakeward tables set {quoted(str(table))} {' '.join(options)} --activate"
