"""``lakeward maintain``: compact, sort and clean up the tables of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import add_row, age, count, emit, error_line, note, size, styled, table
from lakeward.cli.run import byte_size, note_idle, time_limit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import MaintenanceReport, TableMaintenance, WorkReport
    from lakeward.cli.options import Invocation

_STYLES = {"failed": "red", "locked": "yellow", "done": "green"}
_SHOWN_PATHS = 20


@command("maintain")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--only", type=click.Choice(("compact", "cluster", "expire", "orphans")),
    help="Do only one kind of work: merge files of mirrors, sort changelogs by key, expire old snapshots, "
    "or remove files that no snapshot refers to.",
)  # fmt: skip
@click.option(
    "--max-seconds", callback=time_limit, metavar="SPAN",
    help="Begin no further slice after this time, over all tables, such as 10m.",
)  # fmt: skip
@click.option(
    "--max-bytes", callback=byte_size, metavar="SIZE",
    help="Begin no further slice after so many bytes were rewritten, over all tables, such as 5GB.",
)  # fmt: skip
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
    help="Wait for a table that another writer holds; otherwise it is skipped and reported.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what the first slice of each kind of work would do.")
def maintain(
    invocation: Invocation,
    names: tuple[str, ...],
    only: str | None,
    max_seconds: float | None,
    max_bytes: int | None,
    wait: float,
    dry_run: bool,
) -> int:
    """Maintain tables: all active ones, or those named.

    Mirrors are compacted, changelogs sorted by key, and snapshots older than the undo window removed, with the files
    that no snapshot refers to. A table is locked for one slice of the work at a time; a waiting run gets it in between.
    """
    with invocation.lake() as lake:
        if dry_run:
            report = lake.plan_maintenance(names, only=only)
        else:
            report = lake.maintain(names, only=only, max_seconds=max_seconds, max_bytes=max_bytes, wait=wait)
    if not report.tables:
        note_idle(invocation)
    emit(invocation, report.to_dict(), lambda console: _draw(console, report))
    for done in report.tables:
        if done.outcome == "failed":
            error_line(done.message or f"{done.table} failed", done.hint)
        elif done.message:
            note(invocation, f"{done.table}: {done.message}")
    return report.exit_code


def _draw(console: Console, report: MaintenanceReport) -> None:
    drawn = table(
        "table", "outcome", "work", "> slices", "> files gone", "> files new", "> deleted rows", "> snapshots",
        "> read", "> written", "> seconds",
    )  # fmt: skip
    for done in report.tables:
        outcome = "would be done" if done.dry_run and done.work else str(done.outcome)
        shown = styled(outcome, _STYLES.get(str(done.outcome), "dim"))
        for work in done.work:
            add_row(drawn, [done.table, shown, f"{work.kind} {work.target}", *_figures(work)])
        if not done.work:
            add_row(drawn, [done.table, shown, "nothing", *[None] * 8])
    console.print(drawn)
    for done in report.tables:
        _draw_debt(console, done)
    console.print(f"{count(len(report.tables), 'table')}, {age(report.seconds)}")


def _figures(work: WorkReport) -> list[object]:
    return [
        work.slices,
        work.removed_files,
        work.added_files,
        work.removed_deleted_rows,
        work.removed_snapshots,
        size(work.bytes_read) if work.bytes_read else None,
        size(work.bytes_written) if work.bytes_written else None,
        f"{work.seconds:.1f}",
    ]


def _draw_debt(console: Console, done: TableMaintenance) -> None:
    """Print the debt before and after, and orphan files by name."""
    if done.before and done.after and done.work and not done.dry_run:
        before, after = (
            f"{debt.deleted_share:.0%} deleted, {count(debt.data_files + debt.delete_files, 'file')}, "
            f"{count(debt.snapshots, 'snapshot')}"
            for debt in (done.before, done.after)
        )
        console.print(f"{done.table}: {before} before; {after} now")
    for path in [path for work in done.work for path in work.paths][:_SHOWN_PATHS]:
        console.print(f"  {path}")
