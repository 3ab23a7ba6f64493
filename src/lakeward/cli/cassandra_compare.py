"""``lakeward cassandra compare``: a table held against its copy in another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import cluster_option, limits_from, open_client, read_limits, tasks_option
from lakeward.cli.options import MOST_SHOWN, command, span
from lakeward.cli.output import count, emit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import ComparisonReport
    from lakeward.cli.options import Invocation


@command("compare")
@click.argument("table", metavar="TABLE")
@click.argument("copy", metavar="COPY")
@cluster_option()
@click.option(
    "--to", metavar="URI",
    help="Write what makes COPY like TABLE as a change set below this folder, in KEYSPACE/TABLE/incremental/….",
)  # fmt: skip
@click.option(
    "--recheck", type=click.IntRange(min=0), default=1, show_default=True, metavar="TIMES",
    help="Look so many times again at rows that differ: what was only on its way is then the same.",
)  # fmt: skip
@click.option(
    "--pause", callback=span, default="3s", show_default=True, metavar="SPAN", help="Wait before each further look."
)
@click.option("--ranges", type=click.IntRange(min=1), metavar="N", help="Cut the ring into about so many ranges.")
@click.option(
    "--staging", metavar="URI",
    help="Where rows that differ are put while they are compared, seen by all tasks.  [default: --to, or a temporary "
    "folder where Spark runs on this machine alone]",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Write no change set that would delete more of COPY.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=5,
    show_default=True,
    help="Examples to show of each kind.",
)
@tasks_option
@read_limits
def compare(invocation: Invocation, table: str, copy: str, **choices: Any) -> int:
    """Compare two tables, mostly of two clusters, range of tokens by range of tokens.

    TABLE and COPY are [CLUSTER/]KEYSPACE.TABLE. Every range of both is read for a digest; only rows of ranges that
    differ are then compared one by one. Limits are for each of the clusters.

    With --to, `lakeward cassandra apply` can make COPY like TABLE.
    """
    limits, limit, exit_code = limits_from(choices), choices["limit"], choices.pop("exit_code")
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.compare(table, copy, rechecks=choices.pop("recheck"), limits=limits, **choices)
    emit(invocation, found.to_dict(), lambda console: _draw(console, found, limit))
    return 1 if exit_code and not found.is_same else 0


def _draw(console: Console, found: ComparisonReport, limit: int) -> None:
    from lakeward.cli.diff import draw_differences

    console.print(f"table  {found.table}   {count(found.rows[0], 'row')}")
    console.print(f"copy   {found.copy}   {count(found.rows[1], 'row')}")
    for line in found.schema_differences:
        console.print(f"  {line}")
    counts = ", ".join(f"{number:,} {word}" for word, number in found.counts.items())
    differing = f"{found.differing:,} of {count(found.ranges, 'range')}"
    if found.lacking:
        console.print(f"the copy lacks {', '.join(found.lacking)}, whose values were not compared")
    if found.has_same_rows:
        console.print(f"no differences in {count(found.ranges, 'range')}")
    else:
        console.print(f"in the copy: {counts}; {differing} differ")
    if found.result is not None:
        draw_differences(console, found.result, limit=limit)
