"""``lakeward status`` and ``lakeward runs``: show the state of tables, and what runs did."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward import to_json
from lakeward.cli.options import MOST_SHOWN, command, with_bare_option
from lakeward.cli.output import (
    add_row,
    age,
    console_on,
    count,
    emit,
    emit_line,
    emit_text,
    ignored_rows,
    note,
    rate,
    size,
    styled,
    table,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lakeward import Debt, Lakeward, RunDetail, RunSummary, SnapshotSchedule, TableStatus
    from lakeward.cli.options import Invocation


_WATCH = "--watch"
_FRESHNESS_STYLES = {"on time": "green", "late": "red", "unknown": "yellow"}
# Files of which the reason why nobody reads them is shown.
_REASONS = 3
_STYLES = {"failed": "red", "interrupted": "yellow", "pending": "yellow", "current": "green"}


@command("status", cls=with_bare_option(_WATCH, "5"))
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    _WATCH, type=click.FloatRange(min=0.1), metavar="[SECONDS]",
    help="Repeat every so many seconds, without SECONDS every 5, until Ctrl-C; with --output json one line each time.",
)  # fmt: skip
@click.option(
    "--fail-late", is_flag=True,
    help="Exit with 1 when a table is late by its setting freshness, or when that is unknown.",
)  # fmt: skip
def status(invocation: Invocation, names: tuple[str, ...], watch: float | None, fail_late: bool) -> int:
    """Show the state of tables: rows, files that wait and for how long, the last run, decisions to be made.

    Reads listings, table metadata and the state store; nothing is written.
    """
    if watch is not None and fail_late:
        msg = "--watch and --fail-late do not go together: --watch ends only with Ctrl-C"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        if watch is not None:
            _watch(invocation, lake, names, watch)
            return 0
        found = lake.status(names)
    emit(invocation, _document(found), partial(_draw, found=found))
    return _late_code(found) if fail_late else 0


def _late_code(found: list[TableStatus]) -> int:
    """Return 1 when any table is not known to be on time, else 0.

    Raises:
        ConfigurationError: no table has an objective that it could miss.
    """
    from lakeward import ConfigurationError

    judged = [entry.freshness for entry in found if entry.freshness is not None]
    if not judged:
        msg = "--fail-late: none of these tables is active and has a freshness objective"
        raise ConfigurationError(msg, hint="defaults: {freshness: 5m}, or lakeward tables set TABLE --set freshness=5m")
    return 0 if all(freshness.is_on_time for freshness in judged) else 1


def _watch(invocation: Invocation, lake: Lakeward, names: tuple[str, ...], seconds: float) -> None:
    """Show the status repeatedly: in place on a terminal, one below the other elsewhere."""
    if not invocation.is_json and console_on(sys.stdout).is_terminal:
        _watch_in_place(lake, names, seconds)
    while invocation.has_reader:
        found = lake.status(names)
        if invocation.is_json:
            emit_line(invocation, to_json(_document(found)))
        else:
            emit_line(invocation, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            emit_text(invocation, partial(_draw, found=found))
        time.sleep(seconds)


def _watch_in_place(lake: Lakeward, names: tuple[str, ...], seconds: float) -> None:
    from rich.live import Live

    with Live(console=console_on(sys.stdout), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_drawing(lake.status(names)), refresh=True)
            time.sleep(seconds)


def _document(found: list[TableStatus]) -> dict[str, Any]:
    from lakeward import status_totals

    return {"totals": status_totals(found).to_dict(), "tables": [entry.to_dict() for entry in found]}


def _draw(console: Console, found: list[TableStatus]) -> None:
    console.print(_drawing(found))


def _drawing(found: list[TableStatus]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines = [_totals(found), *(line for entry in found for line in _remarks(entry))]
    return Group(_table(found), *[Text(line) for line in lines])


def _table(found: list[TableStatus]) -> RenderableType:
    has_objectives = any(entry.freshness is not None for entry in found)
    drawn = table(
        "table", "state", "> rows", "> generation", "> op", "> waiting", "lag", *["freshness"] * has_objectives,
        "> set aside", "last run", "> took", "> rows/s", "debt", "verified", "held by",
    )  # fmt: skip
    for entry in found:
        waiting = f"{entry.files_pending:,} ({size(entry.bytes_pending)})" if entry.files_pending else "0"
        speed = f"{entry.rows_per_second:,.0f}" if entry.rows_per_second is not None else None
        add_row(
            drawn,
            [
                entry.table, styled(entry.state, _STYLES.get(entry.state, "dim")), entry.rows, entry.generation,
                entry.op, waiting,
                _age(entry.oldest_pending_seconds), *[_freshness(entry)] * has_objectives, entry.quarantined,
                _to_the_second(entry.last_run),
                _age(entry.last_seconds), speed, _debt(entry.debt), _verified(entry), entry.locked_by,
            ],
        )  # fmt: skip
    return drawn


def _totals(found: list[TableStatus]) -> str:
    from lakeward import status_totals

    totals = status_totals(found)
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(totals.states.items()))
    parts = [count(totals.tables, "table") + (f" ({states})" if states else ""), count(totals.rows, "row")]
    waiting = f"{count(totals.files_pending, 'file')} waiting"
    if totals.oldest_pending_seconds is not None:
        waiting += f" ({size(totals.bytes_pending)}, the oldest for {age(totals.oldest_pending_seconds)})"
    judged = [f"{number:,} {verdict}" for verdict, number in sorted(totals.freshness.items()) if verdict != "on time"]
    ignored = [f"{totals.rows_ignored:,} ignored"] if totals.rows_ignored else []
    return ", ".join([*parts, waiting, f"{totals.quarantined:,} set aside", *ignored, *judged])


def _freshness(entry: TableStatus) -> Any:
    """Return the verdict on a table with an objective."""
    if entry.freshness is None:
        return None
    return styled(entry.freshness.verdict, _FRESHNESS_STYLES[entry.freshness.verdict])


def _debt(debt: Debt | None) -> str | None:
    """Return a short text on the work that maintenance would find."""
    if debt is None:
        return None
    return f"{debt.deleted_share:.0%} deleted, {count(debt.data_files + debt.delete_files, 'file')}"


def _verified(entry: TableStatus) -> str | None:
    """Return the op through which all rows were found correct, and when."""
    found = entry.verified
    return f"op {found.op}, {_to_the_second(found.at)}" if found is not None else None


def _age(seconds: float | None) -> str | None:
    return age(seconds) if seconds is not None else None


def _to_the_second(moment: str | None) -> str | None:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S}" if moment else None


def _remarks(entry: TableStatus) -> list[str]:
    remarks = []
    if entry.error:
        remarks.append(f"failed: {entry.error}" + (f" (try: {entry.hint})" if entry.hint else ""))
    if entry.freshness is not None and not entry.freshness.is_on_time:
        label = "late" if entry.freshness.verdict == "late" else "freshness unknown"
        remarks.append(f"{label}: {entry.freshness.reason}")
    if entry.schedule is not None and entry.schedule.due:
        remarks.append(_due(entry.schedule))
    if entry.unknown_files:
        more = entry.unknown_count - len(entry.unknown_files)
        names = ", ".join(entry.unknown_files) + (f" and {more:,} more" if more else "")
        remarks.append(f"files that nobody reads: {names}")
        remarks += [f"{found.path}: {found.reason}" for found in entry.unread_files[:_REASONS]]
    if entry.unfinished_erasure is not None:
        remarks.append(f"the erasure of op {entry.unfinished_erasure} is not finished")
    if entry.rows_ignored:
        remarks.append(f"{ignored_rows(entry.rows_ignored)} since its last load")
    remarks += [f"warning: {warning}" for warning in entry.warnings]
    if entry.next_command:
        label = "decide" if entry.waits_for_decision else "next"
        remarks.append(f"{label}: {entry.next_command}")
    return [f"{entry.table}: {remark}" for remark in remarks]


def _due(schedule: SnapshotSchedule) -> str:
    """Return which scheduled snapshots are due, and why they are not made."""
    label = "overdue" if schedule.overdue else "due"
    reason = f": {schedule.waits}" if schedule.waits else ""
    return f"{count(len(schedule.due), 'snapshot')} {label} ({schedule.due[0]} first){reason}"


_OUTCOME_STYLES = {"failed": "red", "waiting": "yellow", "done": "green"}


@command("runs")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--table", "table_name", metavar="TABLE", help="Show only what runs did to this table.")
@click.option(
    "--limit", type=click.IntRange(min=1, max=MOST_SHOWN), default=20, show_default=True, help="Number of runs to list."
)
def runs(invocation: Invocation, run_id: str | None, table_name: str | None, limit: int) -> None:
    """List the newest runs, or show one in detail.

    The history keeps runs for history_days, by default 90; tables that another writer held are not in it.
    """
    with invocation.lake() as lake:
        if run_id is not None:
            detail = lake.run_detail(run_id, table_name)
            emit(invocation, detail.to_dict(), lambda console: _draw_run(console, detail))
            return
        found = lake.runs(table_name, limit=limit)
    if not found:
        note(invocation, "the history has no runs")
    emit(invocation, {"runs": [run.to_dict() for run in found]}, lambda console: _draw_runs(console, found))


def _draw_runs(console: Console, found: list[RunSummary]) -> None:
    drawn = table(
        "run", "started", "> took", "> tables", "> done", "> idle", "> waiting", "> failed", "> files", "> rows",
        "> set aside",
    )  # fmt: skip
    for run in found:
        failed = styled(f"{run.failed:,}", "red") if run.failed else 0
        add_row(
            drawn,
            [
                run.run_id, _to_the_second(run.started), age(run.seconds), run.tables, run.done, run.idle, run.waiting,
                failed, run.files, run.rows_in, run.rows_quarantined,
            ],
        )  # fmt: skip
    console.print(drawn)
    for run in found:
        if run.rows_ignored:
            console.print(f"{run.run_id}: {ignored_rows(run.rows_ignored)}")
    console.print(count(len(found), "run"))


def _draw_run(console: Console, detail: RunDetail) -> None:
    run = detail.summary
    console.print(f"run {run.run_id}: started {_to_the_second(run.started)}, took {age(run.seconds)}")
    drawn = table(
        "table", "outcome", "> op", "kind", "> files", "> rows in", "> applied", "> set aside", "strategy", "> took",
        "> rows/s", "> changelog snapshot", "> mirror snapshot",
    )  # fmt: skip
    for report in detail.tables:
        outcome = styled(report["outcome"], _OUTCOME_STYLES.get(report["outcome"], "dim"))
        ops = report["ops"] or [None]
        for number, op in enumerate(ops):
            lead = [report["table"], outcome] if number == 0 else [None, None]
            add_row(drawn, [*lead, *(_op_figures(op) if op else [])])
    console.print(drawn)
    console.print(f"{count(run.tables, 'table')}, {run.failed:,} failed, {count(run.rows_applied, 'row')} applied")
    for report in detail.tables:
        if ignored := report.get("rows_ignored"):
            console.print(f"{report['table']}: {ignored_rows(ignored)}")
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
