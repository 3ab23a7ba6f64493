"""``lakeward points``: moments at which all tables show one state of their database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import MOST_SHOWN, command
from lakeward.cli.output import add_row, emit, error_line, note, styled, table
from lakeward.cli.snapshot import draw_reports

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import Point, PointsReport, PointTagReport
    from lakeward.cli.options import Invocation

_TAG_STYLES = {"complete": "green", "partial": "yellow", "stale": "yellow", "none": "dim"}


@command("points")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--limit", type=click.IntRange(1, MOST_SHOWN), default=20, show_default=True, metavar="N",
    help="Examine the ends of the newest N transaction files.",
)  # fmt: skip
@click.option(
    "--tag", metavar="POINT", help="Set the tags of a point on the mirrors of all tables: its name, or newest."
)
@click.option(
    "--replace", is_flag=True, help="With --tag: drop stale tags of the point on all mirrors, and set them again."
)
def points(invocation: Invocation, names: tuple[str, ...], limit: int, tag: str | None, replace: bool) -> int:
    """List points: moments at which all tables are complete and show one state of their database.

    A point is the end of a transaction file that no transaction spans, and that every table of the group has read with
    all files before it. What prevents a point is listed with it. Tables are those named, or all active ones.
    """
    if replace and tag is None:
        msg = "--replace belongs to --tag"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        if tag is not None:
            return _show_tags(invocation, lake.points.tag(tag, names, replace=replace))
        report = lake.points.list(names, limit=limit)
    emit(invocation, report.to_dict(), lambda console: _draw(console, report))
    if report.unnamed:
        named = ", ".join(report.unnamed)
        note(
            invocation, f"no transaction file has named {named}: complete only if the task that writes them captures it"
        )
    return 0


def _show_tags(invocation: Invocation, report: PointTagReport) -> int:
    emit(invocation, report.to_dict(), lambda console: draw_reports(console, report.snapshots))
    for snapshot in report.snapshots:
        if snapshot.outcome == "failed":
            error_line(snapshot.message or f"{snapshot.table} failed", snapshot.hint)
    if report.message:
        error_line(report.message, report.hint)
    return report.exit_code


def _draw(console: Console, report: PointsReport) -> None:
    drawn = table("point", "committed", "tags", "prevented by")
    for point in report.points:
        tags = styled(point.tags, _TAG_STYLES[point.tags])
        add_row(drawn, [point.name, point.committed, tags, "\n".join(_reasons(point))])
    console.print(drawn)


def _reasons(point: Point) -> list[str]:
    return [f"{found.table}: {found.reason}" if found.table else found.reason for found in point.prevented]
