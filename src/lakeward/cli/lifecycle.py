"""Commands of ``lakeward tables`` that change a table as a whole: ``reset``, ``rename`` and ``remove``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command, confirmed, require_answerable
from lakeward.cli.output import add_row, console_on, count, emit, lines, note, size, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import OpReport, RemovalPlan, RenamePlan, ResetPlan, StoredVersion, TableRemoval
    from lakeward.cli.options import Invocation

_SHOWN = 20
dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")


@command("reset")
@click.argument("name", metavar="TABLE")
@dry_run
@yes
def reset(invocation: Invocation, name: str, dry_run: bool, yes: bool) -> None:
    """Start over: read everything in the table's landing folder again, and publish the result in one step.

    Readers keep the former state until then. It stays tagged for `undo_window`, and `lakeward undo` restores it.
    Refused if a file that the table was made from is gone from landing or has other content. What was decided about
    load files, and fenced files, holds; rows that were repaired or put back one by one are read as the files have them.
    """
    if not dry_run:
        require_answerable(yes=yes)
    newest_op = None
    if dry_run or not yes:
        with invocation.lake() as lake:
            plan = lake.plan_reset_table(name, finish=not dry_run)
        if dry_run:
            _emit_reset(invocation, plan, ())
            return
        _draw_reset(console_on(sys.stderr), plan, ())
        if not confirmed("Reset this table?", yes=yes):
            note(invocation, "nothing was changed")
            return
        newest_op = plan.newest_op
    with invocation.lake() as lake:
        done = lake.reset_table(name, newest_op=newest_op)
    _emit_reset(invocation, done.plan, done.ops)


def _emit_reset(invocation: Invocation, plan: ResetPlan, ops: Sequence[OpReport]) -> None:
    document = {"plan": plan.to_dict(), "ops": [op.to_dict() for op in ops]}
    emit(invocation, document, lambda console: _draw_reset(console, plan, ops))


def _draw_reset(console: Console, plan: ResetPlan, ops: Sequence[OpReport]) -> None:
    files = f"{count(plan.file_count, 'file')} ({size(plan.size)}), {plan.new_files:,} of them for the first time"
    console.print(f"{plan.table}: {'read again' if ops else 'would read again'}: {files}")
    facts = [("begins with", f"op {plan.op}; ops 1 to {plan.newest_op} no longer count")]
    if plan.cut:
        facts.append(("change files", f"named from {plan.cut} on follow the load, as was decided before"))
    facts += [("left out", f"{path} is not part of the load") for path in plan.left_out[:_SHOWN]]
    facts += [("stays fenced", path) for path in plan.fenced[:_SHOWN]]
    if plan.retries:
        facts.append(("not kept", f"{count(plan.retries, 'op')} that put quarantined rows back or dropped them"))
    if plan.repairs:
        facts.append(("not kept", f"{count(plan.repairs, 'op')} that repaired rows"))
    if plan.erased_keys:
        facts.append(("erased", f"{count(plan.erased_keys, 'key')} of erased rows stay left out"))
    facts += [
        ("of former ops", f"{mark.kind} {mark.version} at op {mark.op}, {mark.location}")
        for mark in plan.marked[:_SHOWN]
    ]
    lines(console, facts)
    if ops:
        drawn = table("> op", "kind", "> files", "> rows", "strategy")
        for op in ops[:_SHOWN]:
            add_row(drawn, [op.op, op.kind, op.files, op.read.rows, op.strategy])
        console.print(drawn)
        console.print(f"the mirror had {count(plan.rows, 'row')} and has {ops[-1].mirror_rows or 0:,} now")
        console.print(f"to go back: lakeward undo {plan.table} --to-op {plan.newest_op}")
    else:
        console.print(f"the mirror has {count(plan.rows, 'row')}; readers see them until the new ones are complete")


@command("rename")
@click.argument("name", metavar="TABLE")
@click.argument("to", metavar="NEW_NAME")
@dry_run
@yes
def rename(invocation: Invocation, name: str, to: str, dry_run: bool, yes: bool) -> None:
    """Rename a table: mirror, changelog, history, settings and runs. It is read from the same folder as before.

    A declared table is renamed in the configuration file too. Published versions stay in their folders under the former
    name. If this is interrupted, no op is done on the table until the same command has finished it. A Hadoop catalog
    cannot rename tables.
    """
    if not dry_run:
        require_answerable(yes=yes)
    with invocation.lake() as lake:
        plan = lake.plan_rename_table(name, to)
        if not dry_run:
            if not yes:
                _draw_rename(console_on(sys.stderr), plan, done=False)
                if not confirmed("Rename it?", yes=yes):
                    note(invocation, "nothing was changed")
                    return
            plan = lake.rename_table(name, to)
    document = {**plan.to_dict(), "done": not dry_run}
    emit(invocation, document, lambda console: _draw_rename(console, plan, done=not dry_run))


def _draw_rename(console: Console, plan: RenamePlan, *, done: bool) -> None:
    finished = "; it was interrupted before" if plan.resumes else ""
    console.print(f"{plan.table} {'is now' if done else 'would become'} {plan.name}{finished}")
    facts = [("reads", f"{plan.path} under landing, as before")]
    facts += [("table", f"{before} {'is now' if done else 'becomes'} {after}") for before, after in plan.tables.items()]
    if plan.file:
        facts.append(("file", f"{plan.file}, line {plan.line}: the new name, and path: where it is not set"))
    facts += [("stays", _version(version)) for version in plan.versions[:_SHOWN]]
    lines(console, facts)


def _version(version: StoredVersion) -> str:
    registered = f", to which the table {version.registered} points" if version.registered else ""
    return f"{version.kind} {version.version}, {count(version.rows, 'row')}: {version.location}{registered}"


@command("remove")
@click.argument("name", metavar="TABLE")
@click.option(
    "--drop-data", is_flag=True, help="Also remove mirror, changelog, history, tags and published files: for good."
)
@dry_run
@yes
def remove(invocation: Invocation, name: str, drop_data: bool, dry_run: bool, yes: bool) -> None:
    """Remove a table from the registry, and its lines from the configuration file if it is declared there.

    Mirror and changelog stay unless --drop-data is set. Landing is never touched: while the table's folder is there,
    `lakeward discover` registers the table again, as inactive. Files of others among the published files stay and are
    named. If this is interrupted, the same command finishes it. A running `lakeward watch` must be restarted.
    """
    if not dry_run:
        require_answerable(yes=yes)
    with invocation.lake() as lake:
        plan = lake.plan_remove_table(name, drop_data=drop_data)
        removal = None
        if not dry_run:
            if not yes:
                _draw_removal(console_on(sys.stderr), plan, None)
                end = " This cannot be undone." if drop_data else ""
                if not confirmed(f"Remove {plan.table}?{end}", yes=yes):
                    note(invocation, "nothing was changed")
                    return
            removal = lake.remove_table(name, drop_data=drop_data)
            plan = removal.plan
    document = {"plan": plan.to_dict(), "done": removal is not None, "left": list(removal.left) if removal else []}
    emit(invocation, document, lambda console: _draw_removal(console, plan, removal))


def _draw_removal(console: Console, plan: RemovalPlan, removal: TableRemoval | None) -> None:
    was = "was" if removal else "would be"
    what = "the registry" if plan.registered or plan.file is None else "the configuration file"
    console.print(f"{plan.table}: {was} removed from {what}{', with its data' if plan.drop_data else ''}")
    if plan.file is not None:
        console.print(f"{plan.file}: {was} removed from line {plan.first_line} on:")
        for text in plan.lines:
            console.print(f"  {text}")
    if plan.tables:
        _draw_stored(console, plan, was if plan.drop_data else "stays" if removal else "would stay")
    for version in plan.versions:
        console.print(f"{was + ' removed' if plan.drop_data else 'stays'}: {_version(version)}")
    if plan.drop_data and plan.erased_keys:
        console.print(
            f"{count(plan.erased_keys, 'key')} were erased, which is forgotten with the changelog: if the table is "
            "read from landing again, their rows come back from files that still hold them"
        )
    if plan.returns:
        console.print(f"its folder is in landing: lakeward discover registers {plan.table} again, as inactive")
    for path in removal.left if removal else ():
        console.print(f"left, as it is not Lakeward's: {path}")


def _draw_stored(console: Console, plan: RemovalPlan, verb: str) -> None:
    console.print(f"{verb} removed:" if plan.drop_data else f"{verb} in the lake:")
    drawn = table("table", "role", "> rows", "> files", "> size", "> snapshots", "tags")
    for stored in plan.tables:
        tags = ", ".join(stored.tags)
        add_row(
            drawn,
            [stored.name, stored.role, stored.rows, stored.files, size(stored.size), stored.snapshots, tags],
        )
    console.print(drawn)
    console.print(count(plan.ops, "op"))
