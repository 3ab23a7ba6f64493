"""The schedule of a table's versions: what is kept of it with the mirror, and what is due.

:mod:`lakeward.views.versions.scheduled` makes, renews and drops the versions.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.documents import Document, Record, to_compact_json
from lakeward.errors import ConfigurationError
from lakeward.logs import event
from lakeward.mirror.op.as_of import first_digits
from lakeward.model import digits_micros, utc_time
from lakeward.storage.filesystem import open_filesystem
from lakeward.text import json_object, reading_property
from lakeward.views.versions.all_versions import VersionPart, is_of_other_shape, list_version, unlist_version
from lakeward.views.versions.create import moment_of
from lakeward.views.versions.folders import place_of, table_root
from lakeward.views.versions.layouts import FileShape
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.periods import Calendar, Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.config.tables import SnapshotSettings
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import Progress
    from lakeward.views.versions.manifest import Publication

logger = logging.getLogger(__name__)

_STATE, _CHECKED = "lakeward.schedule", "lakeward.schedule-checked"


def now_micros() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class ScheduleState(Record, ignores_unknown=True):
    """What is kept of a schedule, as a property of the mirror.

    ``through`` is the end of the newest period that was dealt with. ``unfinished`` is the period whose version is being
    made. ``listed`` is the table over all versions, complete, that ``column`` partitions; ``tables`` are all such
    tables there ever were: what is dropped is removed from each.
    """

    every: str
    root: str
    start: str | None
    through: int
    unfinished: str | None = None
    listed: str | None = None
    column: str = ""
    tables: tuple[str, ...] = ()


def schedule_state(mirror: TableMetadata) -> ScheduleState | None:
    """Return what is kept of a table's schedule, None where no run has seen one."""
    text = mirror.property(_STATE)
    if text is None:
        return None
    with reading_property(_STATE, of="mirror"):
        return ScheduleState.from_dict(json_object(text))


def keep_state(mirror: IcebergTable, state: ScheduleState) -> None:
    """Keep the state of a schedule; the caller holds the publishing lease."""
    mirror.set_properties({_STATE: to_compact_json(state)})


def checked_op(mirror: TableMetadata) -> int:
    """Return the op up to which late changes were looked for; 0 where none was."""
    text = mirror.property(_CHECKED)
    if text is None:
        return 0
    with reading_property(_CHECKED, of="mirror"):
        return int(text)


def keep_checked_op(mirror: IcebergTable, op: int) -> None:
    """Keep the op up to which no version is outdated; one that is too low only costs another look."""
    mirror.set_properties({_CHECKED: str(op)})


@dataclass(frozen=True)
class Schedule:
    """A table's schedule: its settings, its calendar, and the folder of its versions."""

    settings: SnapshotSettings
    calendar: Calendar
    root: str
    shape: FileShape
    registered: str
    register_all: str

    @classmethod
    def of(cls, context: TableContext) -> Schedule | None:
        """Return the schedule of a table, None without one."""
        settings, config, table = context.settings.snapshots, context.config, context.table
        calendar = Calendar.of(settings, config.timezone)
        if calendar is None or settings.to is None:
            return None
        names = [
            (name or "").replace("{schema}", table.schema).replace("{table}", table.name)
            for name in (settings.registered, settings.register_all)
        ]
        shape = FileShape(settings.format, settings.layout, settings.date_column or "", config.timezone)
        return cls(settings, calendar, table_root(config.resolve(settings.to), table), shape, *names)

    def state(self, stored: ScheduleState | None, now: int) -> ScheduleState:
        """Return the state for these settings: what is stored, or a beginning where they are new."""
        settings, every = self.settings, self.calendar.every
        mine = (every, self.root, settings.start)
        if stored is None or mine != (stored.every, stored.root, stored.start):
            through = self.calendar.first_of(settings.start) if settings.start is not None else now
            earlier = stored or ScheduleState(every, self.root, None, 0)
            stored = replace(earlier, every=every, root=self.root, start=settings.start, through=through)
        is_listed = bool(self.register_all) and (stored.listed, stored.column) == (
            self.register_all,
            settings.version_column,
        )
        return stored if is_listed else replace(stored, listed=None, column="")

    def versions(self, mirror: TableMetadata) -> list[Publication]:
        """Return the versions in the schedule's folder that it made, oldest first."""
        found = [publication for publication in self._in_folder(mirror) if publication.period is not None]
        return sorted(found, key=_position)

    def due(
        self, context: TableContext, mirror: TableMetadata, progress: Progress, now: int, *, since: int | None = None
    ) -> list[Period]:
        """Return the periods whose versions are to be made, oldest first; with ``since`` earlier ones are, too."""
        seen = [generation for generation in progress.generations if not generation.unseen]
        if not seen:
            return []
        earliest = seen[0].began
        if (start := context.settings.cdc_start) is not None:
            earliest = max(earliest, first_digits(start, context.config.timezone))
        through = self.state(schedule_state(mirror), now).through
        through = through if since is None else min(through, since)
        if earliest:
            through = max(through, digits_micros(earliest) - 1)
        return self.calendar.missing(
            now,
            through=through,
            earliest=earliest,
            known={publication.period or publication.version for publication in self._in_folder(mirror)},
            scheduled=[end_of(publication) for publication in self.versions(mirror)],
        )

    def surplus(self, mirror: TableMetadata, now: int) -> list[Publication]:
        """Return the versions that the schedule made and that do not stay."""
        found = self.versions(mirror)
        gone = self.calendar.surplus({end_of(publication) for publication in found}, now)
        return [publication for publication in found if end_of(publication) in gone]

    def _in_folder(self, mirror: TableMetadata) -> Iterator[Publication]:
        for publication in list_publications(mirror):
            if publication.kind is PublicationKind.FILES and publication.location.rpartition("/")[0] == self.root:
                yield publication


def end_of(publication: Publication) -> int:
    """Return the end of the period of a version."""
    return int(moment_of(publication).limit) + 1


def _position(publication: Publication) -> tuple[int, int]:
    return end_of(publication), turn_of(publication)


def turn_of(publication: Publication) -> int:
    """Return the number of folders that a period's version has had: it moves where folders cannot be renamed."""
    turn = publication.version.removeprefix(publication.period or "").lstrip(".")
    return int(turn) if turn.isdecimal() else 1


def require_commit_times(context: TableContext) -> None:
    """Refuse a schedule for a table whose changes have no commit time.

    Raises:
        ConfigurationError: it has no ``timestamp_column``.
    """
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: which changes belong to a day or an hour is unknown"
        hint = "name the column of the commit time, or leave the table out: snapshots: {every: null}"
        raise ConfigurationError(msg, hint=hint)


# Versions in the table over all of them.


def relist(context: TableContext, publication: Publication) -> None:
    """Renew a version in the table over all versions, if there is a complete one."""
    state = schedule_state(context.mirror.metadata())
    if state is not None and state.listed is not None and publication.period is not None:
        list_one(context, state.listed, state.column, publication)


def list_one(context: TableContext, name: str, column: str, publication: Publication) -> None:
    """Add a version to a table over all versions, or renew it there; where there is no such table, all are added.

    A version in the shape of former settings is passed over by the table of the present ones.
    """
    root = publication.location.rpartition("/")[0]

    def others() -> Iterator[VersionPart]:
        for other in list_publications(context.mirror.metadata()):
            is_like_it = other.location.rpartition("/")[0] == root and _shape(other) == _shape(publication)
            if other.period is not None and is_like_it and (part := _part_of(context, other)) is not None:
                yield part

    if (part := _part_of(context, publication)) is None:
        return
    if _is_of_former_shape(context, publication) and is_of_other_shape(context, name, column, part.manifest):
        text = (
            "%s has a former format or layout and is not in the table %s: lakeward snapshot drop %s --version %s, then "
            "lakeward snapshot schedule %s --make --from %s makes it as set now"
        )
        table, day = str(context.table), part.value[:10]
        named = event("snapshot.unlisted", table=table)
        logger.warning(text, part.location, name, table, publication.version, table, day, extra=named)
        return
    list_version(context, name, column, part, others)


def _is_of_former_shape(context: TableContext, publication: Publication) -> bool:
    schedule = Schedule.of(context)
    if schedule is None:
        return False
    shape = schedule.shape
    return _shape(publication) != (shape.format, shape.layout, shape.date_column)


def _part_of(context: TableContext, publication: Publication) -> VersionPart | None:
    """Return a version as a part of a table over all versions, None where it is missing."""
    store = open_filesystem(context.spark, context.config, publication.location)
    manifest = place_of(store, publication.location).manifest()
    if manifest is None:
        return None
    return VersionPart(publication.period or publication.version, publication.location, manifest)


def _shape(publication: Publication) -> tuple[str, str, str]:
    return publication.format, publication.layout, publication.date_column


def unlist(context: TableContext, publication: Publication) -> None:
    """Remove a version from the tables over all versions, unless another folder holds its period by now.

    That may be one below another ``to:``, where the schedule made its versions formerly or makes them now.
    """
    if publication.period is None:
        return
    mirror = context.mirror.metadata()
    state, root = schedule_state(mirror), publication.location.rpartition("/")[0]
    others = [
        other
        for other in list_publications(mirror)
        if other.id != publication.id and other.period == publication.period
    ]
    if any(other.location.rpartition("/")[0] == root for other in others):
        return
    instead = [part for other in reversed(others) if (part := _part_of(context, other)) is not None]
    for name in state.tables if state is not None else ():
        # The folder has the name that the table had, which is not its present one after a renaming.
        unlist_version(context, name, root.rpartition("/")[2], publication.period, instead)


# The schedule as status and `snapshot schedule` show it.


@dataclass(frozen=True)
class SnapshotSchedule(Document):
    """A table's schedule: the versions that it has made and that are due, and the next one.

    ``due_since`` is when the oldest of those became due, ``overdue`` whether that is longer ago than its day or hour
    lasted; ``waits`` is why it is not made yet.
    """

    table: str
    every: str
    to: str
    versions: int
    newest: str | None
    due: tuple[str, ...]
    due_since: str | None
    overdue: bool
    waits: str | None
    next_version: str
    next_at: str


def describe_schedule(
    context: TableContext,
    mirror: TableMetadata | None,
    progress: Progress,
    waiting_since: int | None,
    *,
    since: int | None = None,
) -> SnapshotSchedule | None:
    """Return a table's schedule as people see it, None without one.

    ``waiting_since`` is the earliest time of the files that are not applied, in microseconds since 1970.
    """
    schedule = Schedule.of(context)
    if schedule is None:
        return None
    now = now_micros()
    made = schedule.versions(mirror) if mirror is not None else []
    due = schedule.due(context, mirror, progress, now, since=since) if mirror is not None else []
    following = schedule.calendar.next_due(now)
    return SnapshotSchedule(
        str(context.table),
        schedule.calendar.every,
        schedule.root,
        len(made),
        made[-1].period if made else None,
        tuple(period.label for period in due),
        utc_time(due[0].due).isoformat() if due else None,
        bool(due) and now - due[0].due > due[0].end - due[0].begin,
        _obstacle(context, progress, due, waiting_since),
        following.label,
        utc_time(following.due).isoformat(),
    )


def _obstacle(
    context: TableContext, progress: Progress, due: Sequence[Period], waiting_since: int | None
) -> str | None:
    if context.settings.timestamp_column is None:
        return "the table has no timestamp_column"
    if progress.generation is None:
        return "nothing was loaded yet"
    if due and waiting_since is not None:
        return "files that landed are not applied yet"
    return None


def complete_periods(due: Iterable[Period], waiting_since: int | None, began: int = 0) -> list[Period]:
    """Return the periods whose changes are complete: all files are applied that landed before they were due.

    Of a run, ``began`` is its beginning: it has applied what landed before, and if it has not, a file that landed after
    a period was due may hold its changes as well.
    """
    return [period for period in due if waiting_since is None or waiting_since >= max(period.due, began)]
