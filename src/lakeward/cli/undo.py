"""``lakeward undo``: undo ops."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import command, confirmed, require_answerable
from lakeward.cli.output import add_row, console_on, count, emit, note, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import ConcernedOp, OpReport, UndoPlan
    from lakeward.cli.options import Invocation

_SHOWN = 20


@command("undo")
@click.argument("name", metavar="TABLE")
@click.option("--to-op", type=click.IntRange(min=0), metavar="OP", help="Op to go back to; 0: the empty table.")
@click.option(
    "--to-time", metavar="TIME", help="Day or time: go back to the last op without changes committed after it."
)
@click.option("--skip-file", multiple=True, metavar="PATH", help="Never read this change file again; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def undo(
    invocation: Invocation,
    name: str,
    to_op: int | None,
    to_time: str | None,
    skip_file: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Undo every op after a certain one: rows, deletes and the record of the files that were read.

    The next run reads their files again, unless --skip-file fences them. The undo is an op itself and can be undone: go
    back to the op before it.
    """
    if (to_op is None) == (to_time is None):
        msg = "use either --to-op or --to-time"
        raise click.UsageError(msg)
    if not dry_run:
        require_answerable(yes=yes)
    goal: dict[str, Any] = {"to_op": to_op, "to_time": to_time, "skip_files": skip_file}
    if dry_run or not yes:
        with invocation.lake() as lake:
            plan = lake.plan_undo(name, **goal, finish=not dry_run)
        if dry_run:
            _emit(invocation, plan, None)
            return
        if plan.op is not None:
            _draw(console_on(sys.stderr), plan, None)
            if not confirmed("Undo this?", yes=yes):
                note(invocation, "nothing was undone")
                return
        goal["newest_op"] = plan.newest_op
    with invocation.lake() as lake:
        done = lake.undo(name, **goal)
    _emit(invocation, done.plan, done.op)


def _emit(invocation: Invocation, plan: UndoPlan, op: OpReport | None) -> None:
    document = {"plan": plan.to_dict(), "op": asdict(op) if op else None}
    emit(invocation, document, lambda console: _draw(console, plan, op))


def _draw(console: Console, plan: UndoPlan, op: OpReport | None) -> None:
    if plan.op is None:
        console.print(f"{plan.table}: nothing to undo: {plan.reason}")
        return
    done = f"op {plan.op} undid" if op else f"op {plan.op} would undo"
    console.print(f"{plan.table}: {done} {count(plan.op_count, 'op')}; the table is as after op {plan.back_to}")
    console.print(f"  {plan.reason}")
    _draw_ops(console, plan.ops)
    if plan.ops_again:
        console.print("restored:")
        _draw_ops(console, plan.ops_again)
    _draw_files(console, plan)
    if plan.rows is not None:
        rows = plan.rows
        console.print(f"rows: {rows.inserted:,} inserted, {rows.updated:,} updated, {rows.deleted:,} deleted")
    if op is not None:
        console.print(f"the mirror has {count(op.mirror_rows or 0, 'row')} ({op.strategy}: {op.reason})")
    for mark in plan.marked:
        console.print(f"contains undone changes: {mark.kind} {mark.version} at op {mark.op}, {mark.location}")
    if op is not None:
        console.print(f"to undo this: lakeward undo {plan.table} --to-op {plan.newest_op}")


def _draw_ops(console: Console, ops: Sequence[ConcernedOp]) -> None:
    drawn = table("> op", "kind", "> generation", "> files", "> changes")
    for op in ops[:_SHOWN]:
        add_row(drawn, [op.op, op.kind, op.generation, op.files, op.changes])
    console.print(drawn)
    if len(ops) > _SHOWN:
        console.print(f"  and {len(ops) - _SHOWN:,} more; --output json lists 1,000")


def _draw_files(console: Console, plan: UndoPlan) -> None:
    fenced = set(plan.fenced)
    new = [path for path in plan.files if path not in fenced]
    console.print(f"{count(plan.file_count, 'file')} of these ops; new to the next run unless fenced:")
    for path in new[:_SHOWN]:
        console.print(f"  {path}")
    if len(new) > _SHOWN:
        console.print(f"  and {plan.file_count - len(fenced) - _SHOWN:,} more")
    for words, paths in (("fenced", plan.fenced), ("no longer fenced", plan.unfenced)):
        for path in paths:
            console.print(f"  {words}: {path}")
