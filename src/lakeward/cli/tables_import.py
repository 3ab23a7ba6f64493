"""``lakeward tables import``: take over tables of another controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import command
from lakeward.cli.output import add_row, count, emit, error_line, note, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import ImportedTable
    from lakeward.cli.invocation import Invocation


@command("import")
@click.option("--dynamodb", required=True, metavar="TABLE", help="DynamoDB table of the deployment: DMSCDC_Controller.")
@click.option("--region", metavar="REGION", help="AWS region.  [default: as the environment says]")
@click.option("--endpoint", metavar="URL", help="Address of the service, where it is not AWS's own.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
def import_tables(
    invocation: Invocation, dynamodb: str, region: str | None, endpoint: str | None, dry_run: bool
) -> int:
    """Take over the tables of a DMS walkthrough deployment: key, partition and whether a table is active.

    Settings only: the landing files are read anew. Tables that are declared, active or set here already are left alone.
    A table that was active there and whose settings do not fit its files is taken over inactive; keys are not looked
    for in the loads, which lakeward tables check does. An item that cannot be understood is skipped, and the exit code
    is then 3.
    """
    with invocation.lake() as lake:
        found = lake.import_walkthrough(dynamodb, region=region, endpoint=endpoint, dry_run=dry_run)
    document = {"dry_run": dry_run, "tables": [one.to_dict() for one in found]}
    emit(invocation, document, lambda console: _draw(console, found, dry_run=dry_run))
    skipped = [one for one in found if one.outcome == "skipped"]
    for one in skipped:
        error_line(f"{one.path or 'an item without path'} was skipped: {one.reason}")
    if dry_run:
        note(invocation, "nothing was changed (--dry-run)")
    return FAILED if skipped else DONE


def _draw(console: Console, found: Sequence[ImportedTable], *, dry_run: bool) -> None:
    drawn = table("table", "outcome", "active", "primary key", "partition by", "path", "why")
    for one in found:
        keys, fields = (", ".join(one.settings.get(name, [])) for name in ("primary_key", "partition_by"))
        active = None if one.active is None else "yes" if one.active else "no"
        add_row(drawn, [one.table, one.outcome, active, keys, fields, one.path, one.reason])
    console.print(drawn)
    taken = sum(one.outcome == "imported" for one in found)
    console.print(f"{count(taken, 'table')} {'would be ' if dry_run else ''}taken over of {count(len(found), 'item')}")
