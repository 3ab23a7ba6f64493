"""``lakeward init``, ``doctor``, ``discover`` and ``state``: set up a project and check it."""

from __future__ import annotations

from shlex import quote as quoted
from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, REFUSED
from lakeward.cli.options import command, group
from lakeward.cli.output import count, emit, note, styled, warn
from lakeward.cli.progress import announcing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from lakeward import Check, Discovery, Proposal, TableId
    from lakeward.cli.options import Invocation


@command("init")
@click.option("--landing", default="./landing", show_default=True, help="Folder that the capture tool writes to.")
@click.option("--force", is_flag=True, help="Replace a configuration file that exists.")
def init(invocation: Invocation, landing: str, force: bool) -> None:
    """Write a commented lakeward.yaml to start from."""
    from lakeward import write_configuration

    file = write_configuration(invocation.config, landing=landing, force=force)

    def text(console: Console) -> None:
        console.print(f"wrote {file}")
        console.print(f"next: put change files under {landing}, then lakeward doctor, lakeward discover")

    emit(invocation, {"file": str(file), "landing": landing}, text)


_SIGNS = {"ok": ("ok", "green"), "problem": ("problem", "bold red"), "skipped": ("skipped", "dim")}


@command("doctor")
@click.option("--no-spark", is_flag=True, help="Do not start Spark.")
def doctor(invocation: Invocation, no_spark: bool) -> int:
    """Check Java, jars, configuration, landing, lake and state, and do a round trip through Spark and Iceberg.

    The exit code is 0 if there is no problem, otherwise 2; every problem is shown with its remedy.
    """
    from lakeward import doctor as examine

    with announcing(invocation) as during:
        checks = examine(invocation.config, start_spark=not no_spark, during=during)
    is_ok = all(check.status != "problem" for check in checks)
    document = {"ok": is_ok, "checks": [check.to_dict() for check in checks]}
    emit(invocation, document, lambda console: _draw_checks(console, checks))
    return DONE if is_ok else REFUSED


def _draw_checks(console: Console, checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        word, style = _SIGNS[check.status]
        console.print(styled(word.ljust(8), style), f"{check.name.ljust(width)}  {check.detail}")
        if check.remedy:
            console.print(f"         {' ' * width}  try: {check.remedy}")


# New tables for which a key is proposed: landing may hold thousands of tables.
_LOOKED_AT = 20


@command("discover")
@click.option(
    "--read-transactions", is_flag=True,
    help="Also read all CDC_TXN files, completely, to find tables without their own folder.",
)  # fmt: skip
def discover(invocation: Invocation, read_transactions: bool) -> None:
    """Register tables found in landing; they stay inactive until someone sets their key and activates them.

    A table is a folder SCHEMA/TABLE under landing with a load part or change file below it; other folders and files are
    listed with the reason. Folders of known tables are not read. A table that occurs only in CDC_TXN files has no
    folder: --read-transactions finds it. The command shown for a new table proposes a key that is unique in its load,
    if the load is small and names its columns.
    """
    with invocation.lake() as lake:
        found = lake.discover(read_transactions=read_transactions)
        known = [str(entry.table) for entry in lake.tables()]
        unread = bool(lake.config.transactions) and not read_transactions
        proposals = {table: lake.propose_settings(str(table)) for table in found.new[:_LOOKED_AT]}
    document = {
        **found.to_dict(),
        "tables": known,
        "proposals": {str(table): proposal.to_dict() for table, proposal in proposals.items()},
    }
    emit(invocation, document, lambda console: _draw_discovered(console, found, len(known), proposals))
    for entry in found.skipped:
        warn(f"{entry.path} was left out: {entry.reason}")
    if found.stray is not None and not found.skipped:
        warn(f"landing holds no table: expected files in SCHEMA/TABLE/, found {found.stray}")
    if unread:
        note(invocation, "transaction files were not read: lakeward discover --read-transactions")


def _draw_discovered(console: Console, found: Discovery, known: int, proposals: Mapping[TableId, Proposal]) -> None:
    console.print(f"{count(len(found.new), 'new table')}, {known:,} known")
    for table in found.new:
        where = "   (only in transaction files)" if table in found.unlanded else ""
        console.print(f"  {table}{where}   {_activation(table, proposals.get(table))}")
    if any(proposal.primary_key for proposal in proposals.values()):
        console.print("keys are proposed because they are unique in the load; make sure that they are the source's")


def _activation(table: TableId, proposal: Proposal | None) -> str:
    """Return the command that activates a table, with the settings proposed for it."""
    names = proposal.primary_key if proposal else ()
    # The option takes several names between commas.
    key = ",".join(names) if names and not any("," in name for name in names) else "COLUMN"
    options = ["--primary-key", quoted(key)]
    if proposal and proposal.timestamp_column:
        options += ["--set", quoted(f"timestamp_column={proposal.timestamp_column}")]
    return f"lakeward tables set {quoted(str(table))} {' '.join(options)} --activate"


@group("state")
def state() -> None:
    """Manage the state store."""


@command("rebuild")
def rebuild(invocation: Invocation) -> None:
    """Rebuild the state store from the lake; only the history of runs cannot be restored."""
    with invocation.lake() as lake:
        found = lake.rebuild_state()

    def text(console: Console) -> None:
        console.print(f"{count(len(found), 'table')} found in the lake")
        for name in found:
            console.print(f"  {name}")

    emit(invocation, {"tables": found}, text)


state.add_command(rebuild)
