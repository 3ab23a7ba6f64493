"""``lakeward diff`` and ``lakeward patch``: what changed between two snapshots, and applying it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import INPUTS, MOST_SHOWN, command, csv_columns_option, named_columns
from lakeward.cli.output import add_row, count, emit, lines, note, styled, table
from lakeward.cli.progress import announcing
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from lakeward import Applied, DiffOptions, DiffResult, Example
    from lakeward.cli.options import Invocation


ALL_COLUMNS = "*"
# In a sparse diff a change to null looks like no change, unless a list of changed columns is there.
_SPARSE_CHANGES = "changes"


def diff_options(choices: Mapping[str, Any]) -> DiffOptions:
    """Return the options of a comparison.

    Raises:
        ConfigurationError: a comparator is unknown, or its column or type is missing.
    """
    from lakeward import DiffMode, DiffOptions, DuplicateKeys

    by_column = dict(_comparators(choices["comparators"], "--compare"))
    change_column = choices["change_column"] or (_SPARSE_CHANGES if choices["sparse"] else None)
    return DiffOptions(
        change_column=change_column,
        diff_mode=DiffMode(choices["mode"]),
        sparse_mode=choices["sparse"],
        include_unchanged=choices["include_unchanged"],
        ignore_columns=named_columns(choices["ignore"]),
        duplicate_keys=DuplicateKeys(choices["duplicate_keys"]),
        default_comparator=by_column.pop(ALL_COLUMNS, None),
        column_comparators=by_column,
        type_comparators=dict(_comparators(choices["type_comparators"], "--compare-type")),
        evolve=True,
    )


def _comparators(texts: Iterable[str], option: str) -> Iterable[tuple[str, Any]]:
    from lakeward import parse_comparator

    for text in texts:
        name, sign, comparator = text.rpartition("=")
        if not sign or not name:
            msg = f"{option} {text!r} names no column or type; expected price=epsilon:0.01"
            raise ConfigurationError(msg)
        yield name, parse_comparator(comparator)


_ACTIONS = {"I": ("inserted", "green"), "C": ("changed", "yellow"), "D": ("deleted", "red")}


def draw_diff(console: Console, result: DiffResult, *, limit: int) -> None:
    """Print counts, columns that differ, and the first differences side by side."""
    summary = result.summary
    lines(
        console,
        [
            ("past", f"{result.past['address']}   {count(summary.past_rows, 'row')}"),
            ("current", f"{result.current['address']}   {count(summary.current_rows, 'row')}"),
            ("keys", ", ".join(result.keys)),
        ],
        indent="",
    )
    numbers = (("inserted", summary.inserted), ("changed", summary.changed), ("deleted", summary.deleted))
    shown = ", ".join(f"{number:,} {what}" for what, number in numbers)
    console.print(f"{'no differences' if summary.is_same else shown}; {summary.unchanged:,} unchanged")
    draw_differences(console, result, limit=limit)
    if result.report:
        console.print(f"report: {result.report}")


def draw_differences(console: Console, result: DiffResult, *, limit: int) -> None:
    """Print columns that differ, the first differences side by side, and where all of them are."""
    for line in _details(result):
        console.print(f"  {line}")
    if result.examples:
        _draw_examples(console, result)
    numbers = (result.summary.inserted, result.summary.changed, result.summary.deleted)
    if limit and max(numbers) > limit and result.examples:
        console.print(f"the first {limit} of each kind are shown; --limit shows more, --to PATH writes all")
    if result.change_set:
        console.print(f"change set: {result.change_set}")


def _details(result: DiffResult) -> list[str]:
    found = list(result.differences)
    columns = {name: number for name, number in result.summary.columns.items() if number}
    if columns:
        ordered = sorted(columns.items(), key=lambda column: -column[1])
        found.append(f"changed rows by column: {', '.join(f'{name} {number:,}' for name, number in ordered)}")
    if result.summary.duplicates:
        found.append(f"{count(result.summary.duplicates, 'row')} whose key came before on the same side")
    return found


def _draw_examples(console: Console, result: DiffResult) -> None:
    drawn = table("what", "key", "column", "past", "current")
    for example in result.examples:
        what, style = _ACTIONS[example.action]
        for at, (name, left, right) in enumerate(_cells(example)):
            first = (styled(what, style), _row(example.key)) if at == 0 else ("", "")
            add_row(drawn, [*first, name, left, right])
    console.print(drawn)


def _cells(example: Example) -> list[tuple[str, str, str]]:
    if example.left is None or example.right is None:
        return [
            (
                "",
                "" if example.left is None else _row(example.left),
                "" if example.right is None else _row(example.right),
            )
        ]
    return [(name, _text(example.left.get(name)), _text(example.right.get(name))) for name in example.changed]


def _row(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: str | None) -> str:
    """Return a value as text that distinguishes a null from the text NULL."""
    return "NULL" if value is None else repr(value)


_MODES = ("column-by-column", "side-by-side", "left-side", "right-side", "structs")
_PLANS = ("auto", "join", "hash", "buckets", "iceberg")
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
    help="If a key occurs more than once on a side: refuse, or pair such rows by their values and count them.",
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
@click.option("--sparse", is_flag=True, help="Leave out values that are the same on both sides.")
@click.option(
    "--change-column", metavar="NAME", help="Add the list of changed columns.  [default with --sparse: changes]"
)
@click.option("--include-unchanged", is_flag=True, help="Write unchanged rows as well.")
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse if a larger share of the past's rows would be deleted.  [default with --to, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option(
    "--schema",
    metavar="DDL|FILE",
    help="Columns of JSON and CSV files, and types of partition columns: 'id bigint, dept int'.",
)
@click.option("--past-schema", metavar="DDL|FILE", help="The same for the past only.")
@click.option("--current-schema", metavar="DDL|FILE", help="The same for the current side only.")
@click.option(
    "--past-format", type=click.Choice(INPUTS), help="Format of the past's files, if their names do not show it; "
    "spark-csv: CSV as Spark writes it, without a line of names, its columns in the order of the schema."
)  # fmt: skip
@click.option("--current-format", type=click.Choice(INPUTS), help="The same for the current side.")
@click.option(
    "--in", "folder", metavar="FOLDER", help="Folder of snapshots that 'latest', 'previous' or a date picks from."
)
@click.option("--incomplete-ok", is_flag=True, help="Accept snapshots that were not finished.")
@click.option(
    "--plan",
    type=click.Choice(_PLANS),
    default="auto",
    show_default=True,
    help="How to compare; auto reports its choice and the reason.",
)
@click.option("--exact", is_flag=True, help="Compare every value; accept no checksum, hash or shared file instead.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option("--report", metavar="FILE", help="Write an HTML page with counts, bars and examples: diff.html.")
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=5,
    show_default=True,
    help="Examples to show of each kind.",
)
def diff(invocation: Invocation, past: str, current: str, **choices: Any) -> int:
    """Compare two snapshots, and show or write what was inserted, changed and deleted.

    PAST and CURRENT are each a folder or file of Parquet, ORC, JSON or CSV; a published version; a snapshot set; below
    a folder of snapshots PATH/latest, PATH/previous, PATH/2026-11-15 or PATH/2026-11-15T10:30 (UTC);
    iceberg:schema.table@snapshot:ID, @tag:NAME or @TIME; mirror:schema.table@MOMENT. Only the last two need a
    lakeward.yaml.

    Without --to the differences are shown. With --to they are written as a change set that `lakeward patch` and others
    can apply.
    """
    from lakeward import diff_snapshots

    options, keys = diff_options(choices), named_columns(choices["keys"])
    taken = {name: choices[name] for name in _TAKEN}
    with announcing(invocation) as during:
        result = diff_snapshots(
            past, current, keys=keys, options=options, config=invocation.config, during=during, **taken
        )
    note(invocation, f"compared by {result.plan}: {result.reason}")
    emit(invocation, result.to_dict(), lambda console: draw_diff(console, result, limit=choices["limit"]))
    return 1 if choices["exit_code"] and not result.summary.is_same else 0


@command("patch")
@click.argument("past")
@click.argument("change_sets", metavar="CHANGE_SET…", nargs=-1, required=True)
@click.option("--to", metavar="PATH", help="Folder of the result, which must not exist. A path or a URI.")
@click.option("--check", is_flag=True, help="Only check that the change sets fit; write nothing.")
@click.option(
    "--keys", metavar="COLUMN,COLUMN",
    help="Columns that identify a row, for change sets without a manifest: Parquet, JSON or CSV files with diff, the "
    "keys, left_… and right_… columns, as the published recipe writes them.",
)  # fmt: skip
@click.option(
    "--format", type=click.Choice(INPUTS),
    help="Format of PAST's files, if their names do not show it; spark-csv: CSV as Spark writes it, without a line of "
    "names, its columns in the order of --schema.",
)  # fmt: skip
@csv_columns_option
@click.option("--schema", metavar="DDL|FILE", help="Columns of PAST, if it consists of JSON or CSV files.")
@click.option("--incomplete-ok", is_flag=True, help="Accept snapshots and change sets that were not finished.")
@click.option(
    "--force", is_flag=True,
    help="Apply even if the change sets were made from other snapshots: rows are inserted, replaced and deleted "
    "whatever is there.",
)  # fmt: skip
def patch(invocation: Invocation, past: str, change_sets: tuple[str, ...], **choices: Any) -> None:
    """Apply change sets of `lakeward diff … --to` to the snapshot PAST, and write the snapshot that results.

    Name the change sets in order, each once. One that was made from another snapshot is refused, and so is a result
    that differs from the snapshot that the last change set leads to. The result is a snapshot with _manifest.json and
    _SUCCESS, which can be compared and patched again. It appears complete or not at all. No lakeward.yaml is needed.
    """
    if bool(choices["to"]) == choices["check"]:
        msg = "name the folder of the result (--to PATH), or use --check alone"
        raise click.UsageError(msg)
    from lakeward import patch_snapshot

    keys, named = named_columns(choices["keys"]), named_columns(choices["csv_columns"])
    taken = {name: choices[name] for name in ("to", "format", "schema", "incomplete_ok", "force")}
    with announcing(invocation) as during:
        applied = patch_snapshot(
            past, change_sets, keys=keys, csv_columns=named, config=invocation.config, during=during, **taken
        )
    emit(invocation, applied.to_dict(), lambda console: _draw_applied(console, applied))


def _draw_applied(console: Console, applied: Applied) -> None:
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
