"""``lakeward snapshot create``: tables as of a moment, as files or tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import command
from lakeward.cli.snapshot_reports import show_reports

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation


@command("create")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every active table, at one common moment.")
@click.option(
    "--as-of",
    required=True,
    metavar="MOMENT",
    help="A day (2020-11-14, to its end), a time (2020-11-14T10:30:00), op:41, or sequence:NUMBER. Days, and times "
    "without an offset, count in the configured timezone.",
)
@click.option("--to", metavar="PATH", help="Folder of the files: PATH/SCHEMA.TABLE/version=MOMENT/. A path or a URI.")
@click.option(
    "--tag",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Set a tag on the mirror instead of writing files. Without NAME it is named after the moment.",
)
@click.option(
    "--format",
    type=click.Choice(("parquet", "csv", "json", "orc")),
    default="parquet",
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--layout",
    type=click.Choice(("flat", "dated")),
    default="flat",
    show_default=True,
    help="dated: one folder per date of --date-column.",
)
@click.option("--date-column", metavar="COLUMN", help="Date or timestamp column of the dated layout.")
@click.option(
    "--register",
    is_flag=False,
    flag_value="",
    metavar="[DB.NAME]",
    help="Point an external table of Glue or of Spark's Hive metastore to the version.  "
    "[default name: default.TABLE_snapshot]",
)
@click.option("--replace", is_flag=True, help="Let the new version take the place of one that is there.")
def create(invocation: Invocation, names: tuple[str, ...], everything: bool, **choices: Any) -> int:
    """Create a snapshot of tables as of a moment.

    The rows are those committed at the source by the end of the moment, whatever arrived when. Files appear complete or
    not at all, with _SUCCESS and _manifest.json beside them. Options whose value may be left out stand last.
    """
    if bool(names) == everything:
        msg = "name the tables, or give --all" if not names else "give either tables or --all"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        reports = lake.snapshots.create(names, **choices)
    return show_reports(invocation, reports)
