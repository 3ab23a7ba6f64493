"""``lakeward run``: bring mirrors up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.optional_number import with_number
from lakeward.cli.options import LakewardCommand, command
from lakeward.cli.output import add_row, age, count, emit, error_line, note, rate, styled, table, warn
from lakeward.cli.run_limits import run_limits, with_limits
from lakeward.cli.run_options import read_options, run_options

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import RunReport, TableReport
    from lakeward.cli.invocation import Invocation

_WAIT = "--wait"
_STYLES = {"failed": "red", "locked": "yellow", "waiting": "yellow", "done": "green"}


class _RunCommand(LakewardCommand):
    """Lets ``--wait`` stand before a table's name: only a number after it is its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a bare --wait its value before click looks for one."""
        return super().parse_args(ctx, with_number(args, _WAIT, "inf"))


@command("run", cls=_RunCommand)
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    _WAIT, type=click.FloatRange(min=0), default=0.0, metavar="[SECONDS]",
    help="Wait for a table that another writer holds, without SECONDS as long as it takes; else it is skipped.",
)  # fmt: skip
@run_limits
@run_options
def run(invocation: Invocation, names: tuple[str, ...], wait: float, parallel: int | None, **choices: Any) -> int:
    """Bring mirrors up to date: all active tables, or those named.

    A table that fails does not stop the others. A table held by another writer is skipped and reported.
    """
    with invocation.lake() as lake:
        tables, options = read_options(lake, names, choices)
        report = lake.run(tables, options=with_limits(options, choices), wait=wait, parallel=parallel)
    if not report.tables:
        note_idle(invocation)
    emit(invocation, report.to_dict(), lambda console: draw_report(console, report))
    tell_reasons(invocation, report)
    return report.exit_code


def note_idle(invocation: Invocation) -> None:
    """Say why a run over all tables has none."""
    note(invocation, "no table is active; lakeward discover finds tables, lakeward tables set TABLE … --activate")


def tell_reasons(invocation: Invocation, report: RunReport) -> None:
    """Say on standard error why tables failed, wait or were skipped."""
    for one in report.tables:
        if one.outcome == "failed":
            error_line(one.message or f"{one.table} failed", one.hint)
        elif one.message:
            note(invocation, f"{one.table}: {one.message}")
        for warning in one.warnings:
            warn(f"{one.table}: {warning}")
        if one.maintenance is not None and one.maintenance.outcome == "failed":
            warn(f"{one.table}: maintenance failed: {one.maintenance.message}")


def draw_report(console: Console, report: RunReport) -> None:
    """Draw what a run did, one line per table."""
    drawn = table(
        "table", "outcome", "> ops", "> files", "> rows", "> inserts", "> updates", "> deletes", "> set aside",
        "> mirror rows", "> seconds", "> rows/s", "strategy",
    )  # fmt: skip
    for one in report.tables:
        add_row(drawn, [one.table, styled(one.outcome, _STYLES.get(one.outcome, "dim")), *_figures(one)])
    console.print(drawn)
    for one in report.tables:
        if one.maintenance is not None and one.maintenance.work:
            done = ", ".join(f"{work.kind} {work.target}" for work in one.maintenance.work)
            console.print(f"{one.table}: maintained: {done}")
    failed = f", {len(report.failed):,} failed" if report.failed else ""
    console.print(f"{count(len(report.tables), 'table')}{failed}, {age(report.seconds)}")


def _figures(one: TableReport) -> list[Any]:
    read = [op.read for op in one.ops]
    strategies = dict.fromkeys(op.strategy for op in one.ops)
    return [
        len(one.ops),
        sum(op.files for op in one.ops),
        one.rows_in,
        sum(counts.inserts for counts in read),
        sum(counts.updates for counts in read),
        sum(counts.deletes for counts in read),
        one.rows_quarantined,
        one.mirror_rows,
        f"{one.seconds:.1f}",
        rate(one.rows_in, sum(op.seconds for op in one.ops)).removesuffix(" rows/s"),
        ", ".join(strategies),
    ]
