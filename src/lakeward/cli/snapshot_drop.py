"""``lakeward snapshot drop``: let versions go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import command
from lakeward.cli.output import note
from lakeward.cli.snapshot_reports import show_reports
from lakeward.cli.spans import span

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation


@command("drop")
@click.argument("name", metavar="TABLE")
@click.option("--version", metavar="VERSION", help="The version of this name: its files, its tag, or both.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the newest N of each folder, and tags.")
@click.option("--older-than", callback=span, metavar="SPAN", help="Those made longer ago than this: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only say what would be dropped.")
def drop(invocation: Invocation, name: str, **choices: Any) -> int:
    """Drop snapshots of a table: one by its name, or by number and age.

    Files and tags go; a registered table that points to a dropped version is left as it is.
    """
    with invocation.lake() as lake:
        reports = lake.snapshots.drop(name, **choices)
    if not reports:
        note(invocation, "there is nothing to drop")
    return show_reports(invocation, reports)
