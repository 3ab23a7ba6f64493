"""``lakeward cassandra import``: a snapshot written into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import cluster_option, limits_from, open_client, tasks_option, write_limits
from lakeward.cli.cassandra_written import show_written, writing_options
from lakeward.cli.options import command

if TYPE_CHECKING:
    from lakeward.cli.options import Invocation


@command("import")
@click.argument("snapshot", metavar="SNAPSHOT")
@cluster_option()
@click.option("--create-table", is_flag=True, help="Make the table as the export's was, where there is none.")
@writing_options
@click.option("--schema", metavar="DDL|FILE", help="Columns of JSON and CSV files that are no export.")
@click.option(
    "--format", type=click.Choice(("parquet", "orc", "json", "csv")),
    help="Format of files that are no export, where their names do not tell it.",
)  # fmt: skip
@write_limits
@tasks_option
def import_(invocation: Invocation, snapshot: str, **choices: Any) -> int:
    """Write a snapshot into a table: what `lakeward cassandra export` wrote, another snapshot, or plain files.

    SNAPSHOT is a folder, or PATH/latest, PATH/2026-11-15 below a folder of exports. Every cell gets the time and the
    time to live that the export recorded for it, else the time of the export's start; cells that have expired are left
    out, and so are nulls. Rows that the snapshot does not have stay. An import that was interrupted goes on with the
    same command.

    Exit code 3 says that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        written = client.import_(snapshot, limits=limits, **choices)
    return show_written(invocation, written)
