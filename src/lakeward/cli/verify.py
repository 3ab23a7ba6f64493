"""``lakeward verify``: recompute mirrors and compare them row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import add_row, age, count, emit, error_line, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import RowFinding, TableVerification, VerifyReport
    from lakeward.cli.options import Invocation


@command("verify")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--basis", type=click.Choice(("auto", "files", "changelog")), default="auto", show_default=True,
    help="What to compute the rows from: the landing files, or load and changelog; auto uses the files if all are "
    "still there and unchanged.",
)  # fmt: skip
@click.option(
    "--sample", type=click.FloatRange(min=0, max=1, min_open=True), metavar="SHARE",
    help="Compare only this share of the keys, the same ones every time: 0.01 is one in a hundred.",
)  # fmt: skip
@click.option(
    "--key-range", "key_ranges", multiple=True, metavar="'COLUMN=LOW..HIGH'",
    help="Compare only keys in this range, ends included; one end may be left out. Repeatable.",
)  # fmt: skip
@click.option(
    "--against", metavar="LOCATION",
    help="Compare with another copy instead: a jdbc: address (user and password from LAKEWARD_AGAINST_USER and "
    "LAKEWARD_AGAINST_PASSWORD), a folder of Parquet, ORC, CSV or JSON files, or a published version.",
)  # fmt: skip
@click.option(
    "--against-table", metavar="NAME",
    help="The table's name in that database, or a query in parentheses with an alias.  [default: schema.table]",
)  # fmt: skip
@click.option(
    "--cut-off", metavar="TIME",
    help="With --against: leave out keys with changes after this day or time, which may not have arrived yet.",
)  # fmt: skip
@click.option("--changed-at", metavar="COLUMN", help="The other copy's column with the time of a row's last change.")
@click.option("--repair", is_flag=True, help="Repair what is found: only the differing keys, as one op per table.")
@click.option(
    "--limit", type=click.IntRange(min=0, max=MOST_SHOWN), default=20, show_default=True,
    help="Findings to show per table.",
)  # fmt: skip
def verify(invocation: Invocation, names: tuple[str, ...], **choices: object) -> int:
    """Recompute mirrors independently and compare them row by row: all active tables, or those named.

    A complete verification that finds nothing is kept on record and shown by `lakeward status`. The exit code is 1
    when anything was found, repaired or not, and 3 when a table could not be verified.
    """
    with invocation.lake() as lake:
        report = lake.verify(names, **choices)  # type: ignore[arg-type]
    emit(invocation, report.to_dict(), lambda console: _draw(console, report))
    for entry in report.tables:
        if entry.message and entry.exit_code:
            error_line(entry.message, entry.hint)
    return report.exit_code


def _draw(console: Console, report: VerifyReport) -> None:
    for entry in report.tables:
        console.print(f"{entry.table}: {_summary(entry)}")
        for line in _details(entry):
            console.print(f"  {line}")
        if entry.findings:
            _draw_findings(console, entry.findings)
    if not report.tables:
        console.print("no active tables")


def _summary(entry: TableVerification) -> str:
    if entry.verdict == "failed":
        return "could not be verified"
    if entry.verdict == "skipped":
        return entry.message or "nothing to verify"
    rows = count(entry.rows_found or 0, "row")
    if entry.verdict == "clean":
        return f"clean: {rows} at op {entry.op} ({age(entry.seconds)})"
    kinds = {"missing": entry.missing, "extra": entry.extra, "different": entry.different}
    shown = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number)
    return f"{shown}: {rows} found, {entry.rows_expected or 0:,} expected at op {entry.op} ({age(entry.seconds)})"


def _details(entry: TableVerification) -> list[str]:
    lines = []
    if entry.basis:
        with_what = {"files": "its landing files", "changelog": "its load and changelog"}.get(entry.basis)
        lines.append(f"compared with {with_what} ({entry.reason})" if with_what else f"compared with {entry.reason}")
    if entry.part:
        lines.append(f"only a part was compared: {entry.part}")
    if entry.left_out:
        lines.append(f"{count(entry.left_out, 'key')} changed after the cut-off and left out")
    names = {
        "only in the mirror": entry.only_here,
        "only in the other copy": entry.only_there,
        "not compared": entry.not_compared,
    }
    lines += [f"columns {what}: {', '.join(columns)}" for what, columns in names.items() if columns]
    if entry.columns:
        shown = ", ".join(f"{name} {number:,}" for name, number in entry.columns.items())
        lines.append(f"rows that differ by column: {shown}")
    lines += [f"fault: {finding}" for finding in entry.landing]
    lines += entry.notes
    if entry.repair is not None:
        lines.append(f"repaired by op {entry.repair.op}: {entry.repair.reason}")
    if entry.verified is not None:
        lines.append(f"verified through op {entry.verified.op} at {entry.verified.at}")
    return lines


def _draw_findings(console: Console, findings: tuple[RowFinding, ...]) -> None:
    drawn = table("finding", "key", "column", "expected", "found", "> times")
    for finding in findings:
        key = _row(finding.key)
        if finding.row is not None:
            values = _row({name: value for name, value in finding.row.items() if name not in finding.key})
            expected, found = (values, "") if finding.kind == "missing" else ("", values)
        else:
            expected, found = _text(finding.expected), _text(finding.found)
        add_row(drawn, [finding.kind, key, finding.column, expected, found, finding.times])
    console.print(drawn)


def _row(values: dict[str, str | None]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: str | None) -> str:
    """Return a value as text that distinguishes a null from the text NULL."""
    return "NULL" if value is None else repr(value)
