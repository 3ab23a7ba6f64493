"""What the commands that make or drop snapshots show."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from lakeward.cli.output import add_row, emit, error_line, note, styled, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import SnapshotReport
    from lakeward.cli.invocation import Invocation

_STYLES = {"failed": "red", "done": "green", "dropped": "green", "would drop": "yellow"}


def show_reports(invocation: Invocation, reports: Sequence[SnapshotReport]) -> int:
    """Write the reports, say why tables failed, and give the exit code."""
    from lakeward import snapshots_exit_code

    code = snapshots_exit_code(reports)
    document = {"exit_code": code, "snapshots": [asdict(one) for one in reports]}
    emit(invocation, document, lambda console: _draw(console, reports))
    for one in reports:
        if one.outcome == "failed":
            error_line(one.message or f"{one.table} failed", one.hint)
        for location in one.dropped:
            note(invocation, f"{one.table}: dropped {location}, as its settings say")
    return code


def _draw(console: Console, reports: Sequence[SnapshotReport]) -> None:
    drawn = table("table", "outcome", "version", "> rows", "> op", "place", "registered", "> seconds")
    for one in reports:
        outcome = styled(one.outcome, _STYLES.get(one.outcome, "dim"))
        seconds = f"{one.seconds:.1f}"
        add_row(drawn, [one.table, outcome, one.version, one.rows, one.op, one.location, one.registered, seconds])
    console.print(drawn)
