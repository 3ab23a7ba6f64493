"""``lakeward snapshot``: keep tables as they were at a moment, as files or tags."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.options import command, group, span
from lakeward.cli.output import add_row, emit, error_line, note, styled, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import SnapshotReport, SnapshotSchedule, Version
    from lakeward.cli.options import Invocation


_OUTCOME_STYLES = {
    "failed": "red", "done": "green", "renewed": "green", "dropped": "green", "would drop": "yellow",
    "forgotten": "green",
}  # fmt: skip


def show_reports(invocation: Invocation, reports: Sequence[SnapshotReport]) -> int:
    """Write the reports and the reasons of failures, and return the exit code."""
    from lakeward import snapshots_exit_code

    code = snapshots_exit_code(reports)
    document = {"exit_code": code, "snapshots": [report.to_dict() for report in reports]}
    emit(invocation, document, lambda console: draw_reports(console, reports))
    for report in reports:
        if report.outcome == "failed":
            error_line(report.message or f"{report.table} failed", report.hint)
        for location in report.dropped:
            note(invocation, f"{report.table}: dropped {location}, as its settings require")
    return code


def draw_reports(console: Console, reports: Sequence[SnapshotReport]) -> None:
    """Draw the reports on versions as a table."""
    drawn = table("table", "outcome", "version", "> rows", "> op", "place", "registered", "> seconds")
    for report in reports:
        outcome = styled(report.outcome, _OUTCOME_STYLES.get(report.outcome, "dim"))
        seconds = f"{report.seconds:.1f}"
        add_row(
            drawn,
            [
                report.table,
                outcome,
                report.version,
                report.rows,
                report.op,
                report.location,
                report.registered,
                seconds,
            ],
        )
    console.print(drawn)


@command("create")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every active table, at one common moment.")
@click.option(
    "--as-of",
    metavar="MOMENT",
    help="A day (2020-11-14, to its end), a time (2020-11-14T10:30:00), op:41, or sequence:NUMBER. Days, and times "
    "without an offset, count in the configured timezone.",
)
@click.option(
    "--point",
    metavar="POINT",
    help="Instead of a moment: a point of the tables, as lakeward points lists them, or newest. Only with --to.",
)
@click.option("--to", metavar="PATH", help="Folder of the files: PATH/SCHEMA.TABLE/version=MOMENT/. A path or a URI.")
@click.option(
    "--tag",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Set a tag on the mirror instead of writing files. Without NAME it is named after the moment.",
)
@click.option(
    "--format",
    type=click.Choice(("parquet", "csv", "json", "orc")),
    default="parquet",
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--layout",
    type=click.Choice(("flat", "dated")),
    default="flat",
    show_default=True,
    help="dated: one folder per date of --date-column.",
)
@click.option("--date-column", metavar="COLUMN", help="Date or timestamp column of the dated layout.")
@click.option(
    "--register",
    is_flag=False,
    flag_value="",
    metavar="[DB.NAME]",
    help="Point an external table of Glue or of Spark's Hive metastore to the version.  "
    "[default name: default.TABLE_snapshot]",
)
@click.option("--replace", is_flag=True, help="Replace the version if it exists.")
def create(invocation: Invocation, names: tuple[str, ...], everything: bool, **choices: Any) -> int:
    """Create a snapshot of tables as of a moment.

    The rows are those committed at the source by the end of the moment, no matter when they arrived. Files appear
    complete or not at all, with _SUCCESS and _manifest.json beside them. Put options whose value you leave out last.
    """
    if bool(names) == everything:
        msg = "name the tables, or use --all" if not names else "use either tables or --all"
        raise click.UsageError(msg)
    if (choices["as_of"] is None) == (choices["point"] is None):
        msg = "a snapshot is of a moment or of a point: use either --as-of or --point"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        reports = lake.snapshots.create(names, **choices)
    return show_reports(invocation, reports)


_STATE_STYLES = {"current": "green", "stale": "yellow", "undone": "yellow", "missing": "red"}
_SECONDS = len("2020-11-14T10:30:00")


@command("list")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
def list_versions(invocation: Invocation, names: tuple[str, ...]) -> None:
    """List snapshots, and mark those whose content would be different now.

    current: nothing has changed. stale: changes that belong to it arrived later. undone: it contains ops that were
    undone since. missing: its files or its tag are gone. former: a newer copy of the current state replaced it.
    foreign: another system wrote it, and it is as it was when it was adopted.
    """
    with invocation.lake() as lake:
        found = lake.snapshots.list(names)
    emit(
        invocation,
        {"versions": [version.to_dict() for version in found]},
        lambda console: _draw_versions(console, found),
    )
    if behind := [version for version in found if _can_refresh(version)]:
        tables = " ".join(dict.fromkeys(version.table for version in behind))
        note(invocation, f"{len(behind)} would be different now: lakeward snapshot refresh {tables}")


def _can_refresh(version: Version) -> bool:
    """Whether a refresh replaces a version.

    A run renews copies of the current state, those by op stay, and those of points are renewed with ``points``.
    """
    return (
        version.state in ("stale", "undone")
        and version.kind != "current"
        and not version.as_of.startswith(("op:", "file:"))
    )


def _draw_versions(console: Console, found: Sequence[Version]) -> None:
    drawn = table("table", "version", "kind", "state", "> rows", "> op", "created", "place", "reason")
    for version in found:
        state = styled(version.state, _STATE_STYLES.get(version.state, "dim"))
        created = version.created[:_SECONDS]
        add_row(
            drawn,
            [
                version.table,
                version.version,
                version.kind,
                state,
                version.rows,
                version.op,
                created,
                version.location,
                version.reason,
            ],
        )
    console.print(drawn)


@command("adopt")
@click.argument("name", metavar="TABLE")
@click.argument("folder", metavar="FOLDER")
@click.option("--dry-run", is_flag=True, help="Read everything, and register nothing.")
def adopt(invocation: Invocation, name: str, folder: str, dry_run: bool) -> int:
    """Register snapshots of a table that another system wrote, such as the Spark CDC snapshot generator.

    FOLDER holds the Parquet files of one snapshot, a folder for each of several, or folders by date
    (hire_date=2020-11-13). Every file is read, and rows, checksum and a fingerprint of the files are recorded with the
    mirror. Such snapshots are listed, and compared by lakeward diff with their folder; nothing ever changes or removes
    them. lakeward snapshot drop TABLE --version NAME forgets one.
    """
    with invocation.lake() as lake:
        reports = lake.snapshots.adopt(name, folder, dry_run=dry_run)
    return show_reports(invocation, reports)


@command("refresh")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--version", metavar="VERSION", help="Refresh only the version of this name, even if its files are missing."
)
def refresh(invocation: Invocation, names: tuple[str, ...], version: str | None) -> int:
    """Make stale and undone snapshots again; each is replaced once the new one is complete.

    A snapshot by op is what the table was after that op, and stays as it is.
    """
    with invocation.lake() as lake:
        reports = lake.snapshots.refresh(names, version=version)
    if not reports:
        note(invocation, "no snapshot needs a refresh")
    return show_reports(invocation, reports)


@command("drop")
@click.argument("name", metavar="TABLE")
@click.option(
    "--version",
    metavar="VERSION",
    help="Drop the version of this name: its files, its tag, or both; the current copy only by its location.",
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="Drop all but the newest N of each folder, and of the tags."
)
@click.option("--older-than", callback=span, metavar="SPAN", help="Drop those made longer ago than this: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
def drop(invocation: Invocation, name: str, **choices: Any) -> int:
    """Drop snapshots of a table: one by its name, or by number and age.

    Files and tags are removed; a registered table that points to a dropped version is dropped with it.
    """
    with invocation.lake() as lake:
        reports = lake.snapshots.drop(name, **choices)
    if not reports:
        note(invocation, "there is nothing to drop")
    return show_reports(invocation, reports)


@command("schedule")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option("--make", is_flag=True, help="Make what is due, renew what is outdated, drop what is beyond keep.")
@click.option(
    "--from", "since", metavar="DAY",
    help="Missing snapshots from this day on are due, too; runs make only those since the schedule began.",
)  # fmt: skip
def schedule(invocation: Invocation, names: tuple[str, ...], *, make: bool, since: str | None) -> int:
    """Show the snapshots that tables have by their schedule, those that are due, and the next; or make what is due.

    Runs make what is due by themselves, once all files are applied that landed before. Schedules are set under
    snapshots: of a table or of defaults.
    """
    with invocation.lake() as lake:
        if make:
            reports = lake.snapshots.make_scheduled(names, since=since)
            left = lake.snapshots.schedule(names, since=since)
            _note_left(invocation, left, is_idle=not reports)
            return show_reports(invocation, reports)
        found = lake.snapshots.schedule(names, since=since)
    emit(
        invocation,
        {"schedules": [entry.to_dict() for entry in found]},
        lambda console: _draw_schedules(console, found),
    )
    return 0


def _note_left(invocation: Invocation, left: Sequence[SnapshotSchedule], *, is_idle: bool) -> None:
    """Print which tables have snapshots that are still due, and why."""
    due = [entry for entry in left if entry.due]
    for entry in due:
        reason = entry.waits or "see the failure of the table"
        note(invocation, f"{entry.table}: {len(entry.due)} still due, {entry.due[0]} first: {reason}")
    if is_idle and not due:
        note(invocation, "nothing is due")


_DUE_SHOWN = 5


def _draw_schedules(console: Console, found: Sequence[SnapshotSchedule]) -> None:
    drawn = table("table", "every", "> made", "newest", "due", "waits", "next", "at", "place")
    for entry in found:
        more = f" and {len(entry.due) - _DUE_SHOWN} more" if len(entry.due) > _DUE_SHOWN else ""
        due = styled(", ".join(entry.due[:_DUE_SHOWN]) + more, "red" if entry.overdue else "yellow")
        at = f"{datetime.fromisoformat(entry.next_at):%Y-%m-%d %H:%M:%S} UTC"
        add_row(
            drawn,
            [
                entry.table,
                entry.every,
                entry.versions,
                entry.newest,
                due,
                entry.waits,
                entry.next_version,
                at,
                entry.to,
            ],
        )
    console.print(drawn)


@group("snapshot")
def snapshot() -> None:
    """Keep tables as they were at a moment: as plain files, or as tags of the mirror."""


for _command in (create, list_versions, adopt, refresh, drop, schedule):
    snapshot.add_command(_command)
