"""``lakeward cassandra diff``: what changed in a table between two exports, as a change set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import open_client
from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import emit, note

if TYPE_CHECKING:
    from lakeward.cli.options import Invocation


@command("diff")
@click.argument("past", metavar="PAST")
@click.argument("current", metavar="CURRENT")
@click.option(
    "--in", "folder", metavar="FOLDER",
    help="Folder of a table's exports that 'latest', 'previous' or a date picks from: URI/KEYSPACE/TABLE.",
)  # fmt: skip
@click.option(
    "--to", metavar="URI",
    help="Write the change set below this folder, in KEYSPACE/TABLE/incremental/year=…/…/minute=….  "
    "[default: beside the exports]",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse where more of the past's rows would be deleted.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what differs; write nothing.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option(
    "--limit", type=click.IntRange(min=0, max=MOST_SHOWN), default=5, show_default=True,
    help="Examples to show of each kind, with --dry-run.",
)  # fmt: skip
def diff(invocation: Invocation, past: str, current: str, **choices: Any) -> int:
    """Compare two exports of a table and write what changed as a change set for `lakeward cassandra apply`.

    PAST and CURRENT are complete exports: their folders, or within the folder of a table's exports latest, previous,
    2026-11-15 or 2026-11-15T10:30 (UTC). The key is that of the exported table; columns may have been added or widened
    in between.
    """
    from lakeward.cli.diff import draw_diff

    limit, exit_code = choices["limit"], choices.pop("exit_code")
    with open_client(invocation) as client:
        result = client.diff(past, current, **choices)
    note(invocation, f"compared by {result.plan}: {result.reason}")
    emit(invocation, result.to_dict(), lambda console: draw_diff(console, result, limit=limit))
    return 1 if exit_code and not result.summary.is_same else 0
