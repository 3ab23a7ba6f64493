"""Make the versions that a table's schedule asks for, renew those that late changes made outdated, drop the oldest.

Every version is noted as unfinished before it is made or renewed: after a crash the next call finishes it, in the
folder and in the catalog. Versions that a user made are neither renewed nor dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.mirror.op.choose import Earliest, pending_files
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.ledger import applied_progress, progress_of
from lakeward.mirror.op.report import ScheduledSnapshot
from lakeward.mirror.op.steps import Step
from lakeward.session.catalog import catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.views.versions.all_versions import is_listed
from lakeward.views.versions.create import FilesRequest, publish_as_of
from lakeward.views.versions.folders import VersionPlace, place_of, publishing, require_own, table_uuid, tidy
from lakeward.views.versions.manage import outdated_since, rebuild_files
from lakeward.views.versions.manifest import list_publications, record_publication
from lakeward.views.versions.register import (
    Pointing,
    points_to,
    register,
    renew_registration,
    require_free_name,
    require_lasting,
    require_name,
    unregister,
)
from lakeward.views.versions.schedule import (
    Schedule,
    checked_op,
    complete_periods,
    describe_schedule,
    keep_checked_op,
    keep_state,
    list_one,
    now_micros,
    relist,
    require_commit_times,
    schedule_state,
    turn_of,
)
from lakeward.views.versions.tags import remove_versions

if TYPE_CHECKING:
    from typing import Any

    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Progress
    from lakeward.state.leases import HeldLease
    from lakeward.views.versions.manifest import Publication
    from lakeward.views.versions.periods import Period
    from lakeward.views.versions.schedule import ScheduleState, SnapshotSchedule


def make_scheduled(
    context: TableContext, *, is_own_session: bool, since: str | None = None, began: int = 0
) -> tuple[ScheduledSnapshot, ...]:
    """Make, renew and drop the versions that a table's schedule asks for, and return what was done.

    The table's lease is not needed. ``began`` is when the run began that this belongs to. ``since`` is a day from which
    on missing versions are made, too, however long ago.

    Raises:
        ConfigurationError: the table has no commit times, or a table to register cannot be made.
        LeaseHeldError: another command is publishing the table.
    """
    schedule = Schedule.of(context)
    if schedule is None or context.mirror.find_metadata() is None:
        return ()
    require_commit_times(context)
    schedule.shape.require_usable()
    for name in filter(None, (schedule.registered, schedule.register_all)):
        require_name(name, catalog_kind(context.config))
        require_free_name(context, name, Pointing.SCHEDULE)
        if is_own_session:
            require_lasting(context.spark, context.config)
    return _Work(context, schedule, began).done(since)


def schedule_of_table(context: TableContext, *, since: str | None = None) -> SnapshotSchedule | None:
    """Return a table's schedule with what is due, None without one; ``since`` as for :func:`make_scheduled`."""
    schedule = Schedule.of(context)
    if schedule is None:
        return None
    mirror, bases = context.mirror.find_metadata(), capture(context)
    first = schedule.calendar.first_of(since) if since is not None else None
    waiting = _waiting_since(context, progress_of(context, bases))
    return describe_schedule(context, mirror, applied_progress(context, bases), waiting, since=first)


def _waiting_since(context: TableContext, progress: Progress) -> int | None:
    """Return the earliest time of the files that no op has taken, whichever files the run is restricted to."""
    earliest = Earliest()
    for file in pending_files(replace(context, options=RunOptions()), progress):
        earliest.add(file)
    return earliest.micros


class _Work:
    """One call's work on a table's versions; each version is published under the lease for it."""

    def __init__(self, context: TableContext, schedule: Schedule, began: int) -> None:
        self._context = context
        self._began = began
        self._schedule = schedule
        self._reports: list[ScheduledSnapshot] = []

    def done(self, since: str | None) -> tuple[ScheduledSnapshot, ...]:
        """Do what is to be done now, and return it."""
        context, schedule = self._context, self._schedule
        bases = capture(context)
        progress = applied_progress(context, bases)
        if not progress.generations:
            return ()
        now, mirror = now_micros(), context.mirror.metadata()
        self._begin(schedule_state(mirror), now)
        self._finish()
        versions = self._versions()
        for publication in self._outdated(bases, progress, versions):
            self._renew(publication)
        first = schedule.calendar.first_of(since) if since is not None else None
        for period in self._due(progress, now, first):
            self._make(period)
        self._catalogue()
        self._drop_surplus(now)
        self._keep_checked(progress.op, {publication.id for publication in versions})
        return tuple(self._reports)

    def _begin(self, stored: ScheduleState | None, now: int) -> None:
        """Keep the state of a schedule that is new or has other settings."""
        if self._schedule.state(stored, now) != stored:
            with publishing(self._context):
                self._note(now)

    def _outdated(self, bases: Bases, progress: Progress, versions: list[Publication]) -> list[Publication]:
        checked = checked_op(self._context.mirror.metadata())
        if progress.op <= checked or not versions:
            return []
        return outdated_since(self._context, bases, progress, versions, checked)

    def _keep_checked(self, op: int, examined: set[str]) -> None:
        """Keep the op up to which no version is outdated; one that came since may hold fewer ops than that."""
        mirror = self._context.mirror.metadata()
        others = [found.op for found in self._schedule.versions(mirror) if found.id not in examined]
        wanted, known = min([op, *others]), checked_op(mirror)
        if wanted > known or (others and wanted < known):
            keep_checked_op(self._context.mirror, wanted)

    def _due(self, progress: Progress, now: int, since: int | None) -> list[Period]:
        context = self._context
        due = self._schedule.due(context, context.mirror.metadata(), progress, now, since=since)
        return complete_periods(due, _waiting_since(context, progress), self._began) if due else []

    def _versions(self) -> list[Publication]:
        return self._schedule.versions(self._context.mirror.metadata())

    def _note(self, now: int | None = None, **changes: Any) -> None:
        """Keep changes of the schedule's state; the caller holds the publishing lease."""
        stored = schedule_state(self._context.mirror.metadata())
        state = self._schedule.state(stored, now_micros() if now is None else now)
        if "through" in changes:
            changes["through"] = max(changes["through"], state.through)
        keep_state(self._context.mirror, replace(state, **changes))
        self._context.reached(Step.PUBLISH_NOTED)

    def _make(self, period: Period) -> None:
        """Make the version of a period, unless somebody else has done so meanwhile."""
        context, schedule = self._context, self._schedule
        with publishing(context) as lease:
            locations = {publication.location for publication in list_publications(context.mirror.metadata())}
            place = VersionPlace(
                open_filesystem(context.spark, context.config, schedule.root), schedule.root, period.label
            )
            if place.folder in locations:
                return
            self._note(unfinished=period.label)
            tidy(place)
            require_own(place, table_uuid(context))
            request = FilesRequest(schedule.root, schedule.shape, period=period.label)
            made = publish_as_of(context, period.moment, place, request, before=lease.require)
            relist(context, made)
            self._note(unfinished=None, through=period.end)
        self._report("made", made)

    def _renew(self, publication: Publication) -> None:
        """Make a version again, unless somebody else has done so meanwhile."""
        with publishing(self._context) as lease:
            if publication not in self._versions():
                return
            self._note(unfinished=publication.period)
            made = rebuild_files(self._context, publication, before=lease.require)
            self._note(unfinished=None)
        self._report("renewed", made)

    def _finish(self) -> None:
        """Finish the version at which a crash interrupted an earlier call: its folder, then the catalog."""
        state = schedule_state(self._context.mirror.metadata())
        if state is None or state.unfinished is None:
            return
        with publishing(self._context) as lease:
            own = [publication for publication in self._versions() if publication.period == state.unfinished]
            if own:
                self._finish_version(max(own, key=turn_of), own, lease)
            self._note(unfinished=None)

    def _finish_version(self, newest: Publication, own: list[Publication], lease: HeldLease) -> None:
        context = self._context
        place = place_of(open_filesystem(context.spark, context.config, newest.location), newest.location)
        tidy(place)
        manifest = place.manifest()
        if manifest is None or manifest.id != newest.id:
            # In its place: no reader was led there yet, or the former files are still there complete.
            newest = rebuild_files(context, newest, before=lease.require)
            self._report("made", newest)
        relist(context, newest)
        if newest.registered:
            for former in own:
                renew_registration(context, newest, former.location)
        remove_versions(context, [former for former in own if former.location != newest.location])

    def _catalogue(self) -> None:
        """Complete the table over all versions where it is new, and point the other to the newest version."""
        context, schedule = self._context, self._schedule
        # First: only the records name them, and that of the newest version is about to name another one.
        self._drop_former_tables(schedule.registered)
        versions = self._versions()
        if not versions:
            return
        if schedule.registered:
            self._point_to_newest(versions[-1], schedule.registered)
        state = schedule_state(context.mirror.metadata())
        if schedule.register_all and state is not None and state.listed is None:
            with publishing(context):
                self._list_all(state, schedule.register_all, schedule.settings.version_column, versions)

    def _point_to_newest(self, newest: Publication, name: str) -> None:
        """Point the external table to the newest version, also where the one it pointed to was dropped."""
        context, pointed = self._context, replace(newest, registered=name)
        if pointed == newest and points_to(context, name, newest.location):
            return
        with publishing(context):
            register(context, pointed)
            record_publication(context.mirror, pointed)

    def _drop_former_tables(self, kept: str) -> None:
        """Drop the external tables of former settings, and remove them from the records of versions."""
        context = self._context
        known = [found for found in list_publications(context.mirror.metadata()) if found.period is not None]
        former = [found for found in known if found.registered and found.registered.lower() != kept.lower()]
        if not former:
            return
        with publishing(context):
            for name in {found.registered for found in former}:
                unregister(context, name, [found.location for found in known])
            for found in former:
                record_publication(context.mirror, replace(found, registered=""))

    def _list_all(self, state: ScheduleState, name: str, column: str, versions: list[Publication]) -> None:
        # Noted first: what is dropped after a crash must leave this table, too.
        self._note(tables=tuple(dict.fromkeys([*state.tables, name])))
        for publication in versions if is_listed(self._context, name) else versions[-1:]:
            list_one(self._context, name, column, publication)
        self._note(listed=name, column=column)

    def _drop_surplus(self, now: int) -> None:
        context = self._context
        if not self._schedule.surplus(context.mirror.metadata(), now):
            return
        with publishing(context) as lease:
            gone = self._schedule.surplus(context.mirror.metadata(), now)
            remove_versions(context, gone)
            lease.require()
        for publication in gone:
            self._report("dropped", publication)

    def _report(self, action: str, publication: Publication) -> None:
        made = ScheduledSnapshot(
            publication.period or publication.version, action, publication.location, publication.rows, publication.op
        )
        self._reports.append(made)
