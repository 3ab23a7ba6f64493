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
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console

    from lakeward import Check, Discovery, Proposal, TakenProposal, WrittenProposals
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


# New tables for which settings are proposed unasked: landing may hold thousands of tables.
_LOOKED_AT = 20


@command("discover")
@click.option(
    "--read-transactions", is_flag=True,
    help="Also read all CDC_TXN files, completely, to find tables without their own folder.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Add the proposals to the configuration file, with their evidence.")
@click.option("--activate", is_flag=True, help="Activate tables as proposed where nothing is in doubt.")
def discover(invocation: Invocation, read_transactions: bool, write: bool, activate: bool) -> None:
    """Register tables found in landing; they stay inactive until someone sets their key and activates them.

    A table is a folder SCHEMA/TABLE under landing with a load part or change file below it; other folders and files are
    listed with the reason. Folders of known tables are not read. A table that occurs only in CDC_TXN files has no
    folder: --read-transactions finds it.

    The command shown for a new table proposes its settings by its files: a key that is unique in the load, the commit
    time's column, and for CSV header, delimiter, quote, null token and schema. With --write or --activate that is done
    for all tables that discovery found and nobody has set yet. --write adds the proposals to the configuration file:
    tables about which nothing is in doubt are declared, others written in comments; the rest of the file stays as it
    is. --activate leaves tables with a doubt inactive and names the reason; types of CSV files are always in doubt.
    """
    with invocation.lake() as lake:
        found = lake.discover(read_transactions=read_transactions)
        known = [str(entry.table) for entry in lake.tables()]
        unread = bool(lake.config.transactions) and not read_transactions
        all_tables = [str(entry.table) for entry in lake.undecided_tables()] if write or activate else []
        names = all_tables or [str(table) for table in found.new[:_LOOKED_AT]]
        proposals = {name: lake.propose_settings(name) for name in names}
        taken = lake.activate_proposed(proposals) if activate else []
        written = lake.write_proposals(proposals) if write else None
    document = {
        **found.to_dict(),
        "tables": known,
        "proposals": {name: proposal.to_dict() for name, proposal in proposals.items()},
        "activated": [entry.to_dict() for entry in taken],
        "written": written.to_dict() if written else None,
    }
    emit(invocation, document, lambda console: _draw_discovered(console, found, len(known), proposals, taken, written))
    for entry in found.skipped:
        warn(f"{entry.path} was left out: {entry.reason}")
    for left in found.unread:
        first = left.files[0]
        more = f" and {left.count - 1:,} more" if left.count > 1 else ""
        warn(f"{left.folder}: nobody reads {first.path}{more}: {first.reason}")
    if found.stray is not None and not found.skipped:
        warn(f"landing holds no table: expected files in SCHEMA/TABLE/, found {found.stray}")
    if unread:
        note(invocation, "transaction files were not read: lakeward discover --read-transactions")


def _draw_discovered(
    console: Console,
    found: Discovery,
    known: int,
    proposals: Mapping[str, Proposal],
    taken: Sequence[TakenProposal],
    written: WrittenProposals | None,
) -> None:
    console.print(f"{count(len(found.new), 'new table')}, {known:,} known")
    unlanded = {str(table) for table in found.unlanded}
    for name in dict.fromkeys((*map(str, found.new), *proposals)):
        where = "   (only in transaction files)" if name in unlanded else ""
        proposal = proposals.get(name)
        console.print(f"  {name}{where}   {_activation(name, proposal)}")
        if proposal:
            _draw_proposal(console, proposal)
    if any(proposal.primary_key for proposal in proposals.values()):
        console.print("keys are proposed because they are unique in the load; make sure that they are the source's")
    for entry in taken:
        console.print(f"{entry.table}: {'activated' if entry.activated else f'left inactive: {entry.reason}'}")
    if written is not None:
        _draw_written(console, written, {entry.table for entry in taken if entry.activated})


def _draw_proposal(console: Console, proposal: Proposal) -> None:
    if proposal.partition_candidates:
        fields = "; ".join(f"{found.partition} ({found.evidence})" for found in proposal.partition_candidates)
        console.print(f"    may be partitioned by: {fields}")
    for doubt in proposal.doubts:
        console.print(f"    in doubt: {doubt}")


def _draw_written(console: Console, written: WrittenProposals, active: Collection[str]) -> None:
    for name in written.declared:
        inactive = "" if name in active else f", inactive until: lakeward tables activate {quoted(name)}"
        console.print(f"{written.file}: {name}: declared{inactive}")
    for name in written.commented:
        console.print(f"{written.file}: {name}: written in comments, as something is in doubt")
    for name in written.present:
        console.print(f"{written.file}: {name}: there already, left as it is")


def _activation(table: str, proposal: Proposal | None) -> str:
    """Return the command that activates a table, with the settings proposed for it."""
    from lakeward import format_setting

    names = proposal.primary_key if proposal else ()
    # The option takes several names between commas.
    key = ",".join(names) if names and not any("," in name for name in names) else "COLUMN"
    options = ["--primary-key", quoted(key)]
    settings = dict(proposal.settings) if proposal else {}
    settings.pop("primary_key", None)
    csv = settings.pop("csv", {})
    assignments = [*settings.items(), *((f"csv.{name}", value) for name, value in csv.items())]
    options += [part for name, value in assignments for part in ("--set", quoted(f"{name}={format_setting(value)}"))]
    return f"lakeward tables set {quoted(table)} {' '.join(options)} --activate"


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
