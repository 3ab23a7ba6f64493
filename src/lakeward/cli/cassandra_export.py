"""``lakeward cassandra export``: a table of a cluster as a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import cluster_option, limits_from, open_client, read_limits, tasks_option
from lakeward.cli.options import command
from lakeward.cli.output import count, emit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import ExportReport
    from lakeward.cli.options import Invocation


@command("export")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@click.option(
    "--to", required=True, metavar="URI",
    help="Folder of exports: a path, s3://bucket/prefix or another URI. The export is below it, in "
    "KEYSPACE/TABLE/snapshot/year=…/…/minute=… of its start (UTC).",
)  # fmt: skip
@cluster_option()
@click.option(
    "--format", "format_", type=click.Choice(("parquet", "json", "csv")), default="parquet", show_default=True,
    help="Format of the files. CSV holds no collections, tuples or user-defined types.",
)  # fmt: skip
@click.option(
    "--layout", type=click.Choice(("set", "plain")),
    help="set: in buckets by key with checksums, which compares fast; plain: files as they were read, which costs less "
    "to write.  [default: set; plain for JSON and CSV]",
)  # fmt: skip
@click.option("--where", metavar="CQL", help="Only rows that meet a condition: \"day >= '2026-11-01' AND state = 3\".")
@click.option("--columns", metavar="COLUMN,…", help="Only these columns, and the key.  [default: all]")
@click.option("--with-writetime", "writetime", is_flag=True, help="Keep when each value was written.")
@click.option("--with-ttl", "ttl", is_flag=True, help="Keep when each value expires too.")
@click.option("--counters", is_flag=True, help="Export counters too; they cannot be imported again.")
@read_limits
@tasks_option
@click.option(
    "--splits", type=click.IntRange(min=1), metavar="N",
    help="Ranges of tokens to read, more for large tables.  [default: by cores and the table's size]",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Begin anew instead of going on with an interrupted export.")
def export(invocation: Invocation, table: str, **choices: Any) -> None:
    """Export a table as a snapshot with _manifest.json and _SUCCESS: complete, or not there.

    The key and the types are the cluster's own, and every value is kept exactly. An export that was interrupted goes
    on with the same command: what was read is not read again. Exports are compared by `lakeward cassandra diff` and
    loaded by `lakeward cassandra import`. No lakeward.yaml is needed: --cluster cassandra://127.0.0.1:9042.
    """
    if choices["layout"] == "set" and choices["format_"] != "parquet":
        msg = f"--layout set needs --format parquet, not {choices['format_']}"
        raise click.UsageError(msg)
    limits, names = limits_from(choices), (choices.pop("columns") or "").split(",")
    with open_client(invocation, choices.pop("cluster")) as client:
        exported = client.export(
            table,
            format=choices.pop("format_"),
            layout=choices.pop("layout") or "set",
            columns=[name.strip() for name in names if name.strip()],
            limits=limits,
            **choices,
        )
    emit(invocation, exported.to_dict(), lambda console: _draw(console, exported))


def _draw(console: Console, exported: ExportReport) -> None:
    seconds = (exported.ended - exported.started).total_seconds()
    console.print(
        f"{exported.table}: {count(exported.rows, 'row')} of {count(exported.ranges, 'range')} in {seconds:,.0f} s"
    )
    if exported.resumed:
        console.print(f"  went on with the export of {exported.started:%Y-%m-%d %H:%M} UTC")
    if exported.checksum:
        console.print(f"  checksum {exported.checksum}")
    console.print(f"  {exported.folder}")
