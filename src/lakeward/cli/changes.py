"""``lakeward changes``: the feed of a table's changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import count, emit, note, reader_may_leave
from lakeward.cli.rows import draw_rows, first_rows
from lakeward.cli.sql import safe_csv, write_csv

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation

_OP = "op:"


@command("changes", outputs=("text", "json", "csv"))
@click.argument("name", metavar="TABLE")
@click.option("--from", "since", metavar="MOMENT", help="Changes after this one.  [default: from the beginning]")
@click.option("--to", "until", metavar="MOMENT", help="Changes up to this one, itself included.  [default: now]")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=MOST_SHOWN),
    default=1000,
    show_default=True,
    help="Changes that are shown.",
)
@safe_csv
def changes(
    invocation: Invocation, name: str, since: str | None, until: str | None, limit: int, safe_csv: bool
) -> None:
    """List a table's changes between two moments: by op (op:41), or by commit time (2020-11-14, 2020-11-14T10:30:00).

    By op, rows of loads are listed as operation L, and T tells that a new generation begins with an empty table; by
    time they are left out. Ops that were undone are left out.

    A job that follows the table keeps the op that it has reached (position in the JSON output) and goes on with
    --from op:POSITION. csv is streamed whole, any number of rows.
    """
    with invocation.lake() as lake:
        by_op = all(one is None or one.startswith(_OP) for one in (since, until))
        if by_op and until is None:
            # What comes in while this command reads is left for the next one.
            until = f"{_OP}{lake.history.position(name)}"
        feed = lake.history.changes(name, since=since, until=until, ordered=True)
        rows, is_cut = first_rows(feed, limit) if invocation.output != "csv" else ([], False)
    if invocation.output == "csv":
        with reader_may_leave():
            write_csv(invocation, feed, safe=safe_csv)
        return
    position = int(until.removeprefix(_OP)) if by_op and until is not None and not is_cut else None
    document = {"table": name, "from": since, "to": until, "position": position, "changes": rows, "is_cut": is_cut}
    emit(invocation, document, lambda console: draw_rows(console, feed.columns, rows, "change"))
    if is_cut:
        note(
            invocation,
            f"only the first {count(limit, 'change is', 'changes are')} shown; --limit shows more, --output csv all",
        )
