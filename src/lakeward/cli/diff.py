"""``lakeward diff``: what changed between two snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.diff_options import diff_options, named_columns
from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import emit, note
from lakeward.cli.waiting import telling

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation

_MODES = ("column-by-column", "side-by-side", "left-side", "right-side", "structs")
_PLANS = ("auto", "join", "hash", "buckets", "iceberg")
_INPUTS = ("parquet", "orc", "json", "csv")
# Options that the library's function takes as they are.
_TAKEN = (
    "to", "format", "max_delete_share", "report", "limit", "plan", "exact", "schema", "past_schema", "current_schema",
    "past_format", "current_format", "folder", "incomplete_ok",
)  # fmt: skip


@command("diff")
@click.argument("past", metavar="PAST")
@click.argument("current", metavar="CURRENT")
@click.option("--keys", metavar="COLUMN,…", help="Columns that identify a row; '*': all.  [default: the manifest's]")
@click.option("--ignore", metavar="COLUMN,…", help="Columns that are shown, but not compared.")
@click.option(
    "--compare", "comparators", multiple=True, metavar="COLUMN=COMPARATOR",
    help="How values of a column are compared: epsilon:0.01, epsilon:1%, whitespace, duration:5m, map, bitwise, equal; "
    "'*=…' is for all columns that the comparator fits. Repeatable.",
)  # fmt: skip
@click.option(
    "--compare-type", "type_comparators", multiple=True, metavar="TYPE=COMPARATOR",
    help="The same for all columns of a type: double=epsilon:0.01. Repeatable.",
)  # fmt: skip
@click.option(
    "--duplicate-keys", type=click.Choice(("fail", "report")), default="fail", show_default=True,
    help="Where a key comes more than once on a side: refuse, or pair such rows by their values and count them.",
)  # fmt: skip
@click.option("--to", metavar="PATH", help="Write a change set below this folder, in incremental/year=…/…/minute=….")
@click.option(
    "--format", type=click.Choice(("parquet", "json", "csv")), default="parquet", show_default=True,
    help="Format of the change set.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(_MODES), default="column-by-column", show_default=True,
    help="Layout of the change set's columns.",
)  # fmt: skip
@click.option("--sparse", is_flag=True, help="Leave values out that are the same on both sides.")
@click.option(
    "--change-column", metavar="NAME", help="Add the list of changed columns.  [default with --sparse: changes]"
)
@click.option("--include-unchanged", is_flag=True, help="Write unchanged rows too.")
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse where more of the past's rows would be deleted.  [default with --to, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option(
    "--schema",
    metavar="DDL|FILE",
    help="Columns of JSON and CSV files, and types of what folders tell: 'id bigint, dept int'.",
)
@click.option("--past-schema", metavar="DDL|FILE", help="Those of the past alone.")
@click.option("--current-schema", metavar="DDL|FILE", help="Those of the current side alone.")
@click.option(
    "--past-format", type=click.Choice(_INPUTS), help="Format of the past's files, if their names do not tell."
)
@click.option("--current-format", type=click.Choice(_INPUTS), help="The same of the current side.")
@click.option(
    "--in", "folder", metavar="FOLDER", help="Folder of snapshots that 'latest', 'previous' or a date picks from."
)
@click.option("--incomplete-ok", is_flag=True, help="Take snapshots that were not finished.")
@click.option(
    "--plan",
    type=click.Choice(_PLANS),
    default="auto",
    show_default=True,
    help="How to compare; auto says why it does so.",
)
@click.option("--exact", is_flag=True, help="Let no checksum, hash or shared file stand for a comparison.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option("--report", metavar="FILE", help="Write a page with counts, bars and examples: diff.html.")
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=5,
    show_default=True,
    help="Examples to show of each kind.",
)
def diff(invocation: Invocation, past: str, current: str, **choices: Any) -> int:
    """Compare two snapshots and say, or write, what was inserted, changed and deleted.

    PAST and CURRENT are each a folder or file of Parquet, ORC, JSON or CSV; a published version; a snapshot set; below
    a folder of snapshots PATH/latest, PATH/previous, PATH/2026-11-15 or PATH/2026-11-15T10:30 (UTC);
    iceberg:schema.table@snapshot:ID, @tag:NAME or @TIME; mirror:schema.table@MOMENT. Only the last two need a
    lakeward.yaml.

    Without --to the differences are shown. With --to they are written as a change set that `lakeward patch` and others
    can apply.
    """
    from lakeward import diff_snapshots
    from lakeward.cli.diff_text import draw

    options, keys = diff_options(choices), named_columns(choices["keys"])
    taken = {name: choices[name] for name in _TAKEN}
    with telling(invocation) as during:
        result = diff_snapshots(
            past, current, keys=keys, options=options, config=invocation.config, during=during, **taken
        )
    note(invocation, f"compared by {result.plan}: {result.reason}")
    emit(invocation, result.to_document(), lambda console: draw(console, result, limit=choices["limit"]))
    return 1 if choices["exit_code"] and not result.summary.is_same else 0
