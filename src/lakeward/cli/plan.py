"""``lakeward plan``: what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import count, emit, error_line, lines, size
from lakeward.cli.run_options import read_options, run_options

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import LoadDecision, OpReport, TablePlan
    from lakeward.cli.invocation import Invocation

_FILES_SHOWN = 5


@command("plan")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@run_options
def plan(invocation: Invocation, names: tuple[str, ...], **choices: object) -> int:
    """Say what a run would do next, table by table, without writing.

    A table whose run would be refused shows why, and the exit code is that of the run.
    """
    from lakeward.cli.run import note_idle

    with invocation.lake() as lake:
        tables, options = read_options(lake, names, choices)
        plans = lake.plan(tables, options=options)
    code = max((one.exit_code for one in plans), default=0)
    if not plans:
        note_idle(invocation)
    emit(
        invocation,
        {"exit_code": code, "tables": [one.to_dict() for one in plans]},
        lambda console: _draw(console, plans),
    )
    for one in plans:
        if one.exit_code:
            error_line(one.message or "the run would fail", one.hint)
    return code


def _draw(console: Console, plans: list[TablePlan]) -> None:
    for one in plans:
        if one.op is not None:
            _draw_op(console, one, one.op)
        elif one.exit_code:
            console.print(f"{one.table}: would be refused")
        else:
            reason = f"waits: {one.message}" if one.message else "nothing to do"
            console.print(f"{one.table}: {reason}")


def _draw_op(console: Console, one: TablePlan, op: OpReport) -> None:
    waiting = count(one.files_waiting, "waiting file")
    late = ", reaching back before changes already applied" if op.late else ""
    console.print(f"{one.table}: op {op.op} ({op.kind}, generation {op.generation}{late})")
    names = list(one.files[:_FILES_SHOWN])
    more = f" and {len(one.files) - len(names):,} more" if len(one.files) > len(names) else ""
    entries = [
        ("files", f"{op.files:,} of {waiting}, {size(op.size)}: {', '.join(names)}{more}"),
        ("rows", _rows(op)),
        ("schema", "; ".join(op.schema_changes) or "no change"),
        ("strategy", f"{op.strategy}: {op.reason}"),
    ]
    if op.writes is not None or op.removals is not None:
        entries.append(("mirror", f"{op.writes or 0:,} keys written, {op.removals or 0:,} removed"))
    if op.decision is not None:
        entries.append(("load", _decision(op.decision)))
    if one.replaces is not None:
        changes = one.replaces
        rows = f"{changes.inserted:,} inserted, {changes.updated:,} updated, {changes.deleted:,} deleted"
        entries.append(("replaces", f"rows of the mirror: {rows}"))
    if op.unstable_files:
        entries.append(("left", f"still being written: {', '.join(op.unstable_files)}"))
    lines(console, entries)


def _decision(decision: LoadDecision) -> str:
    """Say which change files follow a load, and from what that is known."""
    names = [("new content", decision.changed), ("kept", decision.kept), ("dropped", decision.dropped)]
    parts = "".join(f"; {label}: {', '.join(paths)}" for label, paths in names if paths)
    cut = f"change files named from {decision.cut} on follow it" if decision.cut else "every change file follows it"
    counts = f"{decision.before:,} before, {decision.after:,} after"
    return f"{cut}, by {decision.evidence} ({counts}){parts}"


def _rows(op: OpReport) -> str:
    read = op.read
    parts = [
        count(read.inserts, "insert"),
        count(read.updates, "update"),
        count(read.deletes, "delete"),
        *([f"{read.bad:,} bad"] if read.bad else []),
    ]
    return f"{read.rows:,}: {', '.join(parts)}"
