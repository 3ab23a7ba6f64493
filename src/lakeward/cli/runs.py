"""``lakeward runs``: what runs did."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import add_row, age, count, emit, note, rate, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import RunDetail, RunSummary
    from lakeward.cli.invocation import Invocation

_STYLES = {"failed": "red", "waiting": "yellow", "done": "green"}


@command("runs")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--table", "table_name", metavar="TABLE", help="Only what runs did to this table.")
@click.option(
    "--limit", type=click.IntRange(min=1, max=MOST_SHOWN), default=20, show_default=True, help="Runs to list."
)
def runs(invocation: Invocation, run_id: str | None, table_name: str | None, limit: int) -> None:
    """List the newest runs, or show one in detail.

    Runs stay in the history for history_days, 90 unless configured; tables that another writer held are not in it.
    """
    with invocation.lake() as lake:
        if run_id is not None:
            detail = lake.run_detail(run_id, table_name)
            emit(invocation, detail.to_dict(), lambda console: _draw_detail(console, detail))
            return
        found = lake.runs(table_name, limit=limit)
    if not found:
        note(invocation, "no run is in the history")
    emit(invocation, {"runs": [asdict(one) for one in found]}, lambda console: _draw_list(console, found))


def _draw_list(console: Console, found: list[RunSummary]) -> None:
    drawn = table(
        "run", "started", "> took", "> tables", "> done", "> idle", "> waiting", "> failed", "> files", "> rows",
        "> set aside",
    )  # fmt: skip
    for one in found:
        failed = styled(f"{one.failed:,}", "red") if one.failed else 0
        add_row(
            drawn,
            [
                one.run_id, _to_the_second(one.started), age(one.seconds), one.tables, one.done, one.idle, one.waiting,
                failed, one.files, one.rows_in, one.rows_quarantined,
            ],
        )  # fmt: skip
    console.print(drawn)
    console.print(count(len(found), "run"))


def _draw_detail(console: Console, detail: RunDetail) -> None:
    one = detail.summary
    console.print(f"run {one.run_id}: started {_to_the_second(one.started)}, took {age(one.seconds)}")
    drawn = table(
        "table", "outcome", "> op", "kind", "> files", "> rows in", "> applied", "> set aside", "strategy", "> took",
        "> rows/s", "> changelog snapshot", "> mirror snapshot",
    )  # fmt: skip
    for report in detail.tables:
        outcome = styled(report["outcome"], _STYLES.get(report["outcome"], "dim"))
        ops = report["ops"] or [None]
        for number, op in enumerate(ops):
            lead = [report["table"], outcome] if number == 0 else [None, None]
            add_row(drawn, [*lead, *(_op_figures(op) if op else [])])
    console.print(drawn)
    console.print(f"{count(one.tables, 'table')}, {one.failed:,} failed, {count(one.rows_applied, 'row')} applied")
    for report in detail.tables:
        _draw_message(console, report)


def _op_figures(op: dict[str, Any]) -> list[Any]:
    read = op["read"]
    return [
        op["op"],
        op["kind"],
        op["files"],
        read["rows"],
        read["rows"] - read["bad"],
        read["bad"],
        op["strategy"],
        age(op["seconds"]),
        rate(read["rows"], op["seconds"]).removesuffix(" rows/s"),
        # Ids are not amounts: they are shown without grouping.
        str(op["changelog_snapshot"] or ""),
        str(op["mirror_snapshot"] or ""),
    ]


def _draw_message(console: Console, report: dict[str, Any]) -> None:
    if report["message"]:
        console.print(f"{report['table']}: {report['outcome']}: {report['message']}")
    if report["hint"]:
        console.print(f"{report['table']}: try: {report['hint']}")


def _to_the_second(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S}"
