"""``lakeward cassandra count``, ``top-partitions``, ``delete`` and ``ttl``: the rows of a live table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import (
    both_limits,
    cluster_option,
    draw_written,
    limits_from,
    open_client,
    read_limits,
    tasks_option,
)
from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import MOST_SHOWN, command, span
from lakeward.cli.output import count, emit, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from lakeward import CountReport, EditReport, PartitionsReport
    from lakeward.cli.options import Invocation


def _where_option(what: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Add ``--where``."""
    example = "\"day < '2026-01-01' AND total > 10\""
    return click.option(
        "--where", required=required, metavar="SQL",
        help=f"{what}, a condition in SQL on the table's columns: {example}. A null is not true.",
    )  # fmt: skip


@command("count")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@cluster_option()
@_where_option("Also count the rows that meet this")
@read_limits
@tasks_option
def count_rows(invocation: Invocation, table: str, **choices: Any) -> None:
    """Count the rows of a table, and those that meet a condition.

    The whole table is read by token ranges, at LOCAL_QUORUM and within the limits: keys, and the columns of the
    condition. The result is exact if nobody writes to the table meanwhile.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.count(table, limits=limits, **choices)
    emit(invocation, found.to_dict(), lambda console: _draw_count(console, found))


def _draw_count(console: Console, found: CountReport) -> None:
    line = f"{found.table}: {count(found.rows, 'row')}"
    if found.partitions is not None:
        line += f" in {count(found.partitions, 'partition')}"
    if found.matching is not None:
        line += f", {found.matching:,} where {found.where}"
    console.print(line, markup=False, highlight=False)
    console.print(f"  {count(found.ranges, 'range')} in {found.seconds:,.1f} s, {found.read_units:,.0f} RCU")


@command("top-partitions")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@cluster_option()
@click.option(
    "--limit", type=click.IntRange(min=1, max=MOST_SHOWN), default=10, show_default=True,
    help="How many partitions to show.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(("rows", "bytes")), default="rows", show_default=True,
    help="Measure of a partition: its rows, or the bytes of all values as they are read, for which all columns are "
    "read.",
)  # fmt: skip
@read_limits
@tasks_option
def top_partitions(invocation: Invocation, table: str, **choices: Any) -> None:
    """Show the largest partitions of a table.

    The whole table is read by token ranges, within the limits. Partitions of the same size have no order.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.top_partitions(table, limits=limits, **choices)
    emit(invocation, found.to_dict(), lambda console: _draw_partitions(console, found))


def _draw_partitions(console: Console, found: PartitionsReport) -> None:
    rows, partitions = count(found.rows, "row"), count(found.partitions, "partition")
    console.print(f"{found.table}: {rows} in {partitions}", markup=False, highlight=False)
    for size in found.largest:
        key = ", ".join(f"{name}={value}" for name, value in size.key.items())
        bytes_ = "" if size.bytes is None else f", {count(size.bytes, 'byte')}"
        console.print(f"  {key}   {count(size.rows, 'row')}{bytes_}", markup=False, highlight=False)


def _editing_options(function: Any) -> Any:
    """Add the options of commands that edit rows."""
    for add in reversed(
        (
            click.option("--apply", is_flag=True, help="Write to the table.  [default: only count and estimate]"),
            click.option(
                "--timestamp", type=click.Choice(("read", "now")), default="read", show_default=True,
                help="Time of the writes: that at which reading begins, so that later writes by others survive; or "
                "now, for tables that do not accept times.",
            ),
            click.option(
                "--staging", metavar="URI",
                help="Folder for the rows while they are written; all tasks must reach it.  [default: a temporary "
                "folder if Spark runs on this machine alone]",
            ),
            click.option(
                "--ledger", metavar="KEYSPACE.TABLE",
                help="Table that records the progress.  [default: lakeward_applied beside the table]",
            ),
            click.option(
                "--dead-letters", metavar="FOLDER",
                help="Folder for rejected rows.  [default: ./lakeward-dead-letters]",
            ),
            click.option(
                "--max-rejected", type=click.IntRange(min=0), metavar="ROWS",
                help="Stop if more rows are rejected.  [default: 1,000, or 1 % of the rows if that is more]",
            ),
        )
    ):  # fmt: skip
        function = add(function)
    return function


@command("delete")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@cluster_option()
@_where_option("Delete the rows that meet this", required=True)
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), default=0.5, show_default=True, metavar="SHARE",
    help="Refuse if a larger share of the rows would be deleted, from 1,000 rows on.",
)  # fmt: skip
@_editing_options
@both_limits
@tasks_option
def delete(invocation: Invocation, table: str, **choices: Any) -> int:
    """Delete the rows of a table that meet a condition. Without --apply they are only counted.

    The table is read once by token ranges. The rows for which the condition is true are then deleted by their full
    keys, as of the time at which reading began: what others write later survives. The same command finishes a delete
    that was interrupted. Static values stay.

    Exit code 3 means that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.delete(table, limits=limits, **choices)
    return _show_edit(invocation, found)


@command("ttl")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@click.argument("ttl", metavar="SPAN", callback=span)
@cluster_option()
@_where_option("Write only the rows that meet this")
@_editing_options
@both_limits
@tasks_option
def ttl(invocation: Invocation, table: str, ttl: float, **choices: Any) -> int:
    """Write rows of a table again with a TTL, such as 30d, or 0 for none. Without --apply they are only counted.

    The table is read once by token ranges. All values of the rows for which the condition is true, and the rows
    themselves, are written again as of the time at which reading began: what others write later survives, without the
    TTL. The TTL counts from the write. Static values stay as they are.

    Exit code 3 means that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits, where = limits_from(choices), choices.pop("where") or "true"
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.set_ttl(table, ttl, where=where, limits=limits, **choices)
    return _show_edit(invocation, found)


def _show_edit(invocation: Invocation, found: EditReport) -> int:
    """Show which rows were edited and what was written; return the exit code."""
    for line in found.written.warnings:
        warn(line)
    emit(invocation, found.to_dict(), lambda console: _draw_edit(console, found))
    return FAILED if found.written.rejected else DONE


def _draw_edit(console: Console, found: EditReport) -> None:
    from lakeward import WriteStatus

    rows = f"{found.matching:,} of {count(found.rows, 'row')}"
    console.print(
        f"{found.table}: {rows} where {found.where}, {found.read_units:,.0f} RCU", markup=False, highlight=False
    )
    if found.matching:
        draw_written(console, found.written)
    if found.written.status is WriteStatus.DRY_RUN:
        console.print("  nothing was written; --apply does it")
