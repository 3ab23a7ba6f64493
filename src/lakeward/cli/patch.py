"""``lakeward patch``: a snapshot and the change sets after it, as the snapshot that they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.diff_options import named_columns
from lakeward.cli.options import command
from lakeward.cli.output import count, emit
from lakeward.cli.waiting import telling

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import Applied
    from lakeward.cli.invocation import Invocation


@command("patch")
@click.argument("past")
@click.argument("change_sets", metavar="CHANGE_SET…", nargs=-1, required=True)
@click.option("--to", metavar="PATH", help="Folder of the result, which must not exist. A path or a URI.")
@click.option("--check", is_flag=True, help="Only check that the change sets fit; write nothing.")
@click.option(
    "--keys", metavar="COLUMN,COLUMN",
    help="What identifies a row, for change sets without a manifest: Parquet, JSON or CSV files with diff, the keys, "
    "left_… and right_… columns, as the published recipe writes them.",
)  # fmt: skip
@click.option(
    "--format", type=click.Choice(("parquet", "orc", "json", "csv")),
    help="Format of PAST's files, where their names do not tell it.",
)  # fmt: skip
@click.option("--schema", metavar="DDL|FILE", help="Columns of PAST, if it is of JSON or CSV files.")
@click.option("--incomplete-ok", is_flag=True, help="Take snapshots and change sets that were not finished.")
@click.option(
    "--force", is_flag=True,
    help="Apply regardless of what the change sets were made of: rows are inserted, replaced and deleted whatever is "
    "there.",
)  # fmt: skip
def patch(invocation: Invocation, past: str, change_sets: tuple[str, ...], **choices: Any) -> None:
    """Apply change sets to a snapshot: PAST and what `lakeward diff … --to` wrote give the snapshot after them.

    The change sets are given in order, each once; one that was made of something else is refused, and so is a result
    that is not what the last one was made from. The result is a snapshot with _manifest.json and _SUCCESS, which can be
    compared and patched again. It appears complete or not at all. No lakeward.yaml is needed.
    """
    if bool(choices["to"]) == choices["check"]:
        msg = "say where the result shall be (--to PATH), or only --check"
        raise click.UsageError(msg)
    from lakeward import patch_snapshot

    keys = named_columns(choices["keys"])
    taken = {name: choices[name] for name in ("to", "format", "schema", "incomplete_ok", "force")}
    with telling(invocation) as during:
        applied = patch_snapshot(past, change_sets, keys=keys, config=invocation.config, during=during, **taken)
    emit(invocation, applied.to_dict(), lambda console: _draw(console, applied))


def _draw(console: Console, applied: Applied) -> None:
    sets = count(len(applied.change_sets), "change set")
    if applied.to is None:
        console.print(f"{sets} fit: they lead to {count(applied.rows, 'row')}, checksum {applied.checksum}")
    else:
        console.print(f"{sets} applied: {count(applied.rows, 'row')} in {applied.to}, checksum {applied.checksum}")
    if applied.verified:
        console.print("the checksum is the one that the last change set was made from")
    for change_set in applied.change_sets:
        counts = change_set["counts"]
        text = ", ".join(f"{counts[word]:,} {word}" for word in ("inserted", "changed", "deleted")) if counts else ""
        console.print(f"  {change_set['location']}{': ' if text else ''}{text}")
