"""``lakeward cassandra apply``: a change set written into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import cluster_option, limits_from, open_client, tasks_option, write_limits
from lakeward.cli.cassandra_written import show_written, writing_options
from lakeward.cli.options import command

if TYPE_CHECKING:
    from lakeward.cli.options import Invocation


@command("apply")
@click.argument("change_set", metavar="DIFF")
@cluster_option()
@writing_options
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), default=0.5, show_default=True, metavar="SHARE",
    help="Refuse where more of the past's rows would be deleted, from 1,000 rows on.",
)  # fmt: skip
@write_limits
@tasks_option
def apply(invocation: Invocation, change_set: str, **choices: Any) -> int:
    """Apply a change set to a table: what `lakeward cassandra diff`, `compare` or `lakeward diff --to` wrote.

    Inserted and changed rows are upserts, cell by cell: what changed to null is deleted, what did not change is not
    touched. Deleted rows are deleted by their full key. All of it has one time, so that what others wrote later
    survives, and applying it twice changes nothing. A change set is applied once and in order: what was applied is
    recorded beside the table.

    Files without a manifest are taken as well: Parquet, JSON or CSV with diff, the table's key, left_… and right_…
    columns, as the published recipe writes them. They need --timestamp, and their types are those of the table.

    Exit code 3 says that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        written = client.apply(change_set, limits=limits, **choices)
    return show_written(invocation, written)
