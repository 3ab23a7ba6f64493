"""Options and output that commands which write tables of Cassandra share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.output import count, emit, warn

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import WriteReport
    from lakeward.cli.options import Invocation


def writing_options(function: Any) -> Any:
    """Add the options that say where and how rows are written."""
    for add in reversed(
        (
            click.option("--into", required=True, metavar="[CLUSTER/]KEYSPACE.TABLE", help="The table to write into."),
            click.option(
                "--timestamp", default="snapshot", show_default=True, metavar="snapshot|now|MICROSECONDS",
                help="Time of the writes: that of the export, which lets newer writes of others survive; or now, for "
                "tables that take no times.",
            ),
            click.option("--dry-run", is_flag=True, help="Only say what would be written, its WCU and how long."),
            click.option(
                "--force", is_flag=True,
                help="Write all of it, whatever is recorded of the table. Where it does not fit, nobody knows what the "
                "table holds afterwards, and the record says so.",
            ),
            click.option(
                "--ledger", metavar="KEYSPACE.TABLE",
                help="Table that records what was written.  [default: lakeward_applied beside the table]",
            ),
            click.option(
                "--dead-letters", metavar="FOLDER",
                help="Folder for rows that are rejected.  [default: ./lakeward-dead-letters, or beside SNAPSHOT or "
                "DIFF in S3]",
            ),
            click.option(
                "--max-rejected", type=click.IntRange(min=0), metavar="ROWS",
                help="End where more rows are rejected.  [default: 1,000, or 1 % of the rows if that is more]",
            ),
        )
    ):  # fmt: skip
        function = add(function)
    return function


def show_written(invocation: Invocation, written: WriteReport) -> int:
    """Show what was written, and return the exit code: 3 where rows were rejected."""
    for line in written.warnings:
        warn(line)
    emit(invocation, written.to_dict(), lambda console: _draw(console, written))
    return FAILED if written.rejected else DONE


def _draw(console: Console, written: WriteReport) -> None:
    from lakeward import WriteStatus

    if written.status is WriteStatus.NOTHING_TO_DO:
        console.print(f"{written.into}: nothing to do, it was written before")
        return
    rows = f"{count(written.upserted, 'row')} upserted, {written.deleted:,} deleted"
    if written.status is WriteStatus.DRY_RUN:
        console.print(f"{written.into}: would be {rows}; {written.units:,.0f} WCU, about {written.seconds:,.0f} s")
    else:
        console.print(f"{written.into}: {rows} in {written.seconds:,.1f} s, {written.units:,.0f} WCU")
    if written.resumed:
        console.print(f"  went on with an earlier attempt, of which {count(written.resumed, 'unit')} were done")
    if written.skipped_expired:
        console.print(f"  {count(written.skipped_expired, 'row')} left out: expired")
    if written.rejected:
        where = f" in {written.dead_letters}" if written.dead_letters else ""
        console.print(f"  {count(written.rejected, 'row')} rejected{where}")
