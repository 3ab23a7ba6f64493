"""Options and output shared by the commands for Cassandra, and the client that does their work."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.output import count, emit, note, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from lakeward import CassandraClient, RateLimits, WriteReport
    from lakeward.cli.options import Invocation


_POSITIVE = click.FloatRange(min=0, min_open=True)


@contextmanager
def open_client(invocation: Invocation, cluster: str | None = None) -> Iterator[CassandraClient]:
    """Open the client for a command, with progress on standard error and Ctrl-C working while Spark starts."""
    from lakeward import CassandraClient
    from lakeward.cli.progress import announcing

    with (
        announcing(invocation) as during,
        CassandraClient(
            invocation.config, cluster=cluster, on_progress=partial(note, invocation), during=during
        ) as client,
    ):
        yield client


def cluster_option() -> Callable[[Any], Any]:
    """Add ``--cluster``."""
    return click.option(
        "--cluster", metavar="NAME|URI",
        help="Cluster of the configuration, or cassandra://HOST:PORT, for a table that names none.  "
        "[default: the only one configured]",
    )  # fmt: skip


def read_limits(function: Any) -> Any:
    """Add the options that limit what is read."""
    return _limits(function, ("read_units", "--max-rcu", "RCU"), "read")


def write_limits(function: Any) -> Any:
    """Add the options that limit what is written."""
    return _limits(function, ("write_units", "--max-wcu", "WCU"), "written")


def both_limits(function: Any) -> Any:
    """Add the limits of a command that reads one table and writes another."""
    function = click.option(
        "--max-rcu", "read_units", type=_POSITIVE, metavar="RCU", help="Read units per second, of the whole job."
    )(function)
    return write_limits(function)


def tasks_option(function: Any) -> Any:
    """Add ``--tasks``."""
    return click.option(
        "--tasks", type=click.IntRange(min=1), metavar="N", help="Number of tasks at a time.  [default: all cores]"
    )(function)


def limits_from(choices: dict[str, Any]) -> RateLimits:
    """Remove the limits from a command's options and return them."""
    from lakeward import RateLimits

    return RateLimits(
        rows_per_second=choices.pop("rows_per_second", None),
        write_units=choices.pop("write_units", None),
        read_units=choices.pop("read_units", None),
    )


def _limits(function: Any, units: tuple[str, str, str], verb: str) -> Any:
    name, option, short = units
    for add in (
        click.option(option, name, type=_POSITIVE, metavar=short, help=f"{short} per second, of the whole job."),
        click.option(
            "--max-rows-per-second", "rows_per_second", type=_POSITIVE, metavar="ROWS",
            help=f"Rows {verb} per second, by all tasks of the job together.",
        ),
    ):  # fmt: skip
        function = add(function)
    return function


def writing_options(function: Any) -> Any:
    """Add the options of commands that write into a table."""
    for add in reversed(
        (
            click.option("--into", required=True, metavar="[CLUSTER/]KEYSPACE.TABLE", help="The table to write into."),
            click.option(
                "--timestamp", default="snapshot", show_default=True, metavar="snapshot|now|MICROSECONDS",
                help="Time of the writes: that of the export, so that newer writes by other clients survive; or now, "
                "for tables that do not accept times.",
            ),
            click.option("--dry-run", is_flag=True, help="Only show what would be written, its WCU and its duration."),
            click.option(
                "--force", is_flag=True,
                help="Write everything, whatever is recorded for the table. If it does not fit, the content of the "
                "table is unknown afterwards and recorded as such.",
            ),
            click.option(
                "--ledger", metavar="KEYSPACE.TABLE",
                help="Table that records what was written.  [default: lakeward_applied beside the table]",
            ),
            click.option(
                "--dead-letters", metavar="FOLDER",
                help="Folder for rejected rows.  [default: ./lakeward-dead-letters, or beside SNAPSHOT or "
                "DIFF in S3]",
            ),
            click.option(
                "--max-rejected", type=click.IntRange(min=0), metavar="ROWS",
                help="Stop if more rows are rejected.  [default: 1,000, or 1 % of the rows if that is more]",
            ),
        )
    ):  # fmt: skip
        function = add(function)
    return function


def show_written(invocation: Invocation, written: WriteReport) -> int:
    """Show what was written, and return the exit code: 3 where rows were rejected."""
    for line in written.warnings:
        warn(line)
    emit(invocation, written.to_dict(), lambda console: draw_written(console, written))
    return FAILED if written.rejected else DONE


def draw_written(console: Console, written: WriteReport) -> None:
    """Show what was written, or would be."""
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
        console.print(f"  resumed an earlier attempt, of which {count(written.resumed, 'unit')} were done")
    if written.skipped_expired:
        console.print(f"  {count(written.skipped_expired, 'row')} left out: expired")
    if written.rejected:
        where = f" in {written.dead_letters}" if written.dead_letters else ""
        console.print(f"  {count(written.rejected, 'row')} rejected{where}")
