"""``lakeward tables repair``: bring a table's columns to what its settings say."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lakeward.cli.confirm import confirmed, require_answerable
from lakeward.cli.options import command
from lakeward.cli.output import console_on, emit, note

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import ColumnsRepair
    from lakeward.cli.invocation import Invocation


@command("repair")
@click.argument("name", metavar="TABLE")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(invocation: Invocation, name: str, dry_run: bool, yes: bool) -> None:
    """Bring the columns of a table that was run before to what its settings say now; its rows stay as they are.

    Columns get the names that `renames` declares: the way back for a mirror that cannot be read because names differ
    only in case or are those of Iceberg's own columns. A column that is now declared as `timestamp_column` (or
    `sequence_column`, `operation_column`) and stands in no `schema` is removed from the mirror.
    """
    if not dry_run:
        require_answerable(yes=yes)
    with invocation.lake() as lake:
        plan = lake.repair_table(name, dry_run=True)
        has_work = bool(plan.renamed or plan.dropped)
        if has_work and not dry_run and not yes:
            _draw(console_on(sys.stderr), plan, done=False)
            if not confirmed("Do this?", yes=yes):
                note(invocation, "nothing was changed")
                return
        if has_work and not dry_run:
            plan = lake.repair_table(name)
    document = {**plan.to_dict(), "done": has_work and not dry_run}
    emit(invocation, document, lambda console: _draw(console, plan, done=not dry_run))


def _draw(console: Console, plan: ColumnsRepair, *, done: bool) -> None:
    if not plan.renamed and not plan.dropped:
        console.print(f"{plan.table}: its columns are as its settings say; there is nothing to repair")
        return
    console.print(f"{plan.table}: {'repaired' if done else 'would be repaired'}")
    for old, new in plan.renamed.items():
        console.print(f"  column {old} {'is now named' if done else 'would be named'} {new}")
    for name in plan.dropped:
        console.print(f"  column {name} {'was' if done else 'would be'} removed: it is the capture's, not the source's")
    if plan.dropped:
        console.print(
            "files that were read before are not read again for it; to do that: "
            f"lakeward undo {plan.table} --to-op 0, then lakeward run {plan.table}"
        )
