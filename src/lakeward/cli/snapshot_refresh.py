"""``lakeward snapshot refresh``: make versions anew that late changes or an undo left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import note
from lakeward.cli.snapshot_reports import show_reports

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation


@command("refresh")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option("--version", metavar="VERSION", help="Only the version of this name, also where its files are missing.")
def refresh(invocation: Invocation, names: tuple[str, ...], version: str | None) -> int:
    """Make stale and undone snapshots anew; each takes its place when it is whole.

    A snapshot by op is what the table was after that op, and stays as it is.
    """
    with invocation.lake() as lake:
        reports = lake.snapshots.refresh(names, version=version)
    if not reports:
        note(invocation, "no snapshot needs it")
    return show_reports(invocation, reports)
