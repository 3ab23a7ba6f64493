"""``lake.snapshots``: versions of tables as of a moment, as files or tags."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lakeward.arguments import COUNT_OR_0, FLAG, NONE, OPTIONAL_TEXT, SPAN, TEXT, TEXTS, takes
from lakeward.documents import Document
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from lakeward.api.opened import OpenedLake
    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.report import ScheduledSnapshot
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.workbench import Workbench
    from lakeward.views.versions.foreign import ForeignVersion
    from lakeward.views.versions.layouts import FileShape
    from lakeward.views.versions.manage import Version
    from lakeward.views.versions.manifest import Publication
    from lakeward.views.versions.schedule import SnapshotSchedule

    Versions: TypeAlias = list[Version]
    Schedules: TypeAlias = list[SnapshotSchedule]


@dataclass(frozen=True)
class SnapshotReport(Document):
    """The result for one version: ``outcome`` is ``done``, ``renewed``, ``failed``, ``dropped`` or ``would drop``.

    For versions that another system wrote it is ``done``, ``would be done`` or ``there before`` when they are
    registered, and ``forgotten`` or ``would be forgotten`` when their record is removed.

    ``dropped`` names the versions that retention removed.
    """

    table: str
    outcome: str
    version: str | None = None
    kind: str | None = None
    location: str | None = None
    rows: int | None = None
    generation: int | None = None
    op: int | None = None
    registered: str | None = None
    dropped: tuple[str, ...] = ()
    message: str | None = None
    hint: str | None = None
    error_kind: str | None = None
    exit_code: int = 0
    seconds: float = 0.0


# The class below has a method of this name.
Reports: TypeAlias = list[SnapshotReport]


@dataclass(frozen=True)
class SnapshotRequest:
    """A version to create: in the folder ``to``, or as a ``tag``; an empty name means the default."""

    moment: Moment
    to: str | None = None
    shape: FileShape | None = None
    register: str | None = None
    tag: str | None = None
    replace: bool = False


class Snapshots:
    """Create, read, list, refresh and drop versions of tables, and make those of their schedules."""

    def __init__(self, lake: OpenedLake) -> None:
        self._lake = lake

    @takes(
        tables=TEXTS,
        as_of=OPTIONAL_TEXT,
        point=OPTIONAL_TEXT,
        to=OPTIONAL_TEXT,
        layout=TEXT,
        date_column=OPTIONAL_TEXT,
        format=TEXT,
        register=OPTIONAL_TEXT | FLAG,
        tag=OPTIONAL_TEXT,
        replace=FLAG,
    )
    def create(
        self,
        tables: Sequence[str] = (),
        *,
        as_of: str | None = None,
        point: str | None = None,
        to: str | None = None,
        layout: str = "flat",
        date_column: str | None = None,
        format: str = "parquet",  # noqa: A002 - the word that the command and the settings use
        register: str | bool | None = None,
        tag: str | None = None,
        replace: bool = False,
    ) -> Reports:
        """Create a version of tables as of a moment: of those named, or of all active ones at one common moment.

        Args:
            tables: names as ``schema.table``.
            as_of: ``2020-11-14``, ``2020-11-14T10:30:00``, ``op:41`` or ``sequence:NUMBER``; days count in the
                configured time zone.
            point: instead of a moment, a point of the tables as ``lake.points`` lists them, or ``newest``: files show
                all tables as they were after the same transaction.
            to: folder under which ``<schema>.<table>/version=…`` is written; a relative one counts from here.
            layout: ``flat``, or ``dated`` for one folder per date of ``date_column``.
            date_column: a date or timestamp column.
            format: ``parquet``, ``csv``, ``json`` or ``orc``.
            register: name ``database.table`` of an external table that points to the version; True or ``""`` for
                ``default.<table>_snapshot``. Refused where this lake started Spark and the catalog is in memory: pass a
                session to :class:`Lakeward` to have such a table in it.
            tag: name of a tag to set on the mirror instead of writing files; ``""`` for a name made from the moment.
            replace: replace an existing version.

        Raises:
            ConfigurationError: the arguments contradict each other. The failure of one table is reported instead.
        """
        from lakeward.mirror.op.checkpoints import parse_moment
        from lakeward.views.versions.layouts import FileShape

        chosen, config = self._lake.active(tables), self._lake.config
        shape = FileShape(format, layout, date_column or "", config.timezone)
        shape.require_usable()
        wanted = _table_to_register(register)
        if (to is None) == (tag is None):
            msg = "a snapshot is written as files or set as a tag: exactly one of the two is needed"
            raise ConfigurationError(msg, hint="--to PATH, or --tag")
        if tag is not None and (wanted is not None or shape != FileShape(timezone=config.timezone)):
            msg = "a tag has neither files nor a registered table"
            raise ConfigurationError(msg, hint="leave out --register, --format and --layout, or use --to PATH")
        if point is not None:
            request = SnapshotRequest(
                self._point(chosen, as_of, point, tag), _absolute(to), shape, wanted, tag, replace
            )
            reports = [report_of(known, partial(self._create, known, request)) for known in chosen]
            return _unless_changed(self._lake, chosen, request.moment, reports)
        if as_of is None:
            msg = "a snapshot needs a moment: exactly one of as_of and point"
            raise ConfigurationError(msg, hint="--as-of MOMENT, or --point POINT")
        moment = parse_moment(as_of, config.timezone)
        request = SnapshotRequest(moment, _absolute(to), shape, wanted, tag, replace)
        return [report_of(known, partial(self._create, known, request)) for known in chosen]

    @takes(path=TEXT)
    def read(self, path: str) -> DataFrame:
        """Read a version by its folder, which must hold exactly one complete version.

        Raises:
            DataError: there is none, it is unfinished or damaged, or the path holds several versions.
        """
        from lakeward.session.sessions import table_session
        from lakeward.views.versions.folders import read_version

        return read_version(table_session(self._lake.spark), self._lake.config, _absolute(path) or path)

    @takes(tables=TEXTS)
    def list(self, tables: Iterable[str] = ()) -> Versions:
        """Return the versions of tables, all known ones when none is named, and whether each is still current."""
        from lakeward.views.versions.manage import check_foreign, check_publications

        bench, found = self._lake.workbench(), []
        for table in self._lake.named(tables):
            context = bench.context(table)
            found += [checked.version(str(table.table)) for checked in check_publications(context)]
            found += check_foreign(context)
        return found

    @takes(table=TEXT, folder=TEXT, dry_run=FLAG)
    def adopt(self, table: str, folder: str, *, dry_run: bool = False) -> Reports:
        """Register versions that another system wrote: they are read, listed and compared, and never changed.

        Args:
            table: the table as ``schema.table``.
            folder: the folder of one version, or of a table's versions; Parquet files, possibly in folders by date.
            dry_run: only return what would be registered.

        Raises:
            ConfigurationError: the table has no mirror, or a version was registered with other content.
            DataError: the folder holds something else than versions.
        """
        from lakeward.views.versions.foreign import register_foreign

        context = self._lake.context(table)
        made = register_foreign(context, (_absolute(folder) or folder).rstrip("/"), dry_run=dry_run)
        done = "would be done" if dry_run else "done"
        return [_foreign_report(table, version, done if is_new else "there before") for version, is_new in made]

    @takes(tables=TEXTS, version=OPTIONAL_TEXT)
    def refresh(self, tables: Iterable[str] = (), *, version: str | None = None) -> Reports:
        """Create versions again that are stale or were undone; with ``version`` also those that are missing.

        Raises:
            ConfigurationError: none of the tables has a version of that name.
        """
        from lakeward.views.versions.manage import outdated_publications

        bench, chosen = self._lake.workbench(), self._lake.named(tables)
        if version is not None:
            _require_version([bench.context(known) for known in chosen], version)
        return [
            report_of(known, partial(_refresh, bench, known, checked.publication))
            for known in chosen
            for checked in outdated_publications(bench.context(known), version)
        ]

    @takes(table=TEXT, version=OPTIONAL_TEXT, keep=COUNT_OR_0 | NONE, older_than=SPAN | NONE, dry_run=FLAG)
    def drop(
        self,
        table: str,
        *,
        version: str | None = None,
        keep: int | None = None,
        older_than: float | None = None,
        dry_run: bool = False,
    ) -> Reports:
        """Drop one version by its name, or all but the newest ``keep``, or those made ``older_than`` seconds ago.

        Raises:
            ConfigurationError: there is no such version, or not exactly one choice is made.
        """
        from lakeward.views.versions.tags import beyond_retention, drop_versions

        if (version is not None) == (keep is not None or older_than is not None):
            msg = "choose the versions to drop: either one by name, or by number or age"
            raise ConfigurationError(msg, hint="--version NAME, or --keep N, or --older-than 30d")
        context = self._lake.context(table)
        if version is not None and (foreign := _foreign_named(context, version)):
            from lakeward.views.versions.foreign import forget_foreign

            if not dry_run:
                forget_foreign(context.mirror, foreign)
            outcome = "would be forgotten" if dry_run else "forgotten"
            return [_foreign_report(table, found, outcome) for found in foreign]
        found = _recorded(context)
        gone = (
            beyond_retention(found, keep=keep, older_than=older_than)
            if version is None
            else _named(table, found, version)
        )
        if not dry_run:
            drop_versions(context, gone)
        outcome = "would drop" if dry_run else "dropped"
        return [publication_report(context, publication, outcome=outcome) for publication in gone]

    def _point(self, chosen: Sequence[KnownTable], as_of: str | None, point: str, tag: str | None) -> Moment:
        from lakeward.api.points import require_group, require_point

        if as_of is not None:
            msg = "a snapshot is of a moment or of a point: exactly one of the two is needed"
            raise ConfigurationError(msg, hint="--as-of MOMENT, or --point POINT")
        if tag is not None:
            msg = "tags of a point have its name, and are complete once all its tables have them"
            raise ConfigurationError(msg, hint=f"lakeward points --tag {point}")
        return require_point(self._lake, require_group(self._lake.config, chosen), point)

    @takes(tables=TEXTS, since=OPTIONAL_TEXT)
    def schedule(self, tables: Iterable[str] = (), *, since: str | None = None) -> Schedules:
        """Return the schedules of tables, of all active ones when none is named: what is made, due and next.

        Args:
            tables: names as ``schema.table``.
            since: a day, such as ``2020-11-14``, from which on missing versions count as due, however long ago.

        Raises:
            ConfigurationError: a table is unknown or inactive, ``since`` is no day, or no table has a schedule.
        """
        from lakeward.views.versions.scheduled import schedule_of_table

        bench, chosen = self._lake.workbench(), self._scheduled(tables, since)
        found = [schedule_of_table(bench.context(known), since=since) for known in chosen]
        return [schedule for schedule in found if schedule is not None]

    @takes(tables=TEXTS, since=OPTIONAL_TEXT)
    def make_scheduled(self, tables: Iterable[str] = (), *, since: str | None = None) -> Reports:
        """Make the versions that are due by the schedules of tables, renew outdated ones, and drop those beyond keep.

        A run does the same for its tables, after it has applied what waits; a version is not made while files of its
        table wait. The table's lease is not taken: runs go on.

        Args:
            tables: as for ``schedule``.
            since: as for ``schedule``; with it earlier versions are made, too.

        Raises:
            ConfigurationError: as for ``schedule``. The failure of one table is reported instead.
        """
        chosen = self._scheduled(tables, since)
        return [report for known in chosen for report in self._make_scheduled(known, since)]

    def _scheduled(self, tables: Iterable[str], since: str | None) -> Sequence[KnownTable]:
        """Return the chosen tables that have a schedule."""
        names = list(tables)
        found = [known for known in self._lake.active(names) if known.settings.snapshots.every is not None]
        if since is not None:
            _require_day(since)
        if not found:
            which = "none of these tables" if names else "no active table"
            msg = f"{which} has a schedule of snapshots"
            raise ConfigurationError(msg, hint="tables: {…: {snapshots: {every: day, to: ./snapshots}}}")
        return found

    def _make_scheduled(self, known: KnownTable, since: str | None) -> Reports:
        """Return a report for each version that was made, renewed or dropped; an error becomes a report."""
        from lakeward.spark.errors import as_lakeward_error
        from lakeward.views.versions.schedule import now_micros
        from lakeward.views.versions.scheduled import make_scheduled

        name = str(known.table)
        try:
            bench = self._lake.workbench()
            own, began = bench.is_own_session, now_micros()
            made = make_scheduled(bench.context(known), is_own_session=own, since=since, began=began)
        except Exception as error:
            return [SnapshotReport(name, "failed", **as_lakeward_error(error, name).as_fields())]
        return [_report_of_scheduled(name, snapshot) for snapshot in made]

    def _create(self, known: KnownTable, request: SnapshotRequest) -> SnapshotReport:
        bench = self._lake.workbench()
        if request.tag is not None:
            from lakeward.views.versions.tags import create_tag

            with bench.leased(known) as context:
                name = request.tag or request.moment.label
                made = create_tag(context, request.moment, name, replacing=request.replace)
                return publication_report(context, made, dropped=apply_retention(context))
        if request.register is not None and bench.is_own_session:
            from lakeward.views.versions.register import require_lasting

            require_lasting(bench.spark, bench.config)
        context = bench.context(known)
        made = _create_files(context, known, request)
        return publication_report(context, made, dropped=apply_retention(context))


def _refresh(bench: Workbench, known: KnownTable, publication: Publication) -> SnapshotReport:
    from lakeward.views.versions.manage import rebuild_publication

    # Only a tag is written to the mirror; files are made while runs go on.
    with bench.leased(known) if publication.kind == "tag" else nullcontext(bench.context(known)) as context:
        return publication_report(context, rebuild_publication(context, publication))


def report_of(known: KnownTable, work: Callable[[], SnapshotReport]) -> SnapshotReport:
    """Return the report of the work on one table; an error becomes a report."""
    from lakeward.spark.errors import as_lakeward_error

    started = time.monotonic()
    try:
        report = work()
    except Exception as error:
        stopped = as_lakeward_error(error, str(known.table))
        report = SnapshotReport(
            str(known.table),
            "failed",
            **stopped.as_fields(),
        )
    return replaced(report, seconds=time.monotonic() - started)


def _unless_changed(lake: OpenedLake, chosen: Sequence[KnownTable], moment: Moment, reports: Reports) -> Reports:
    """Return the reports on versions of a point, failed where files that belong before it arrived meanwhile."""
    from lakeward.api.points import changed_since, group_contexts
    from lakeward.views.versions.manage import VersionState, check_publications

    contexts = group_contexts(lake, chosen)
    problem = changed_since(contexts, moment)
    current = {
        (str(context.table), checked.publication.location)
        for context in contexts
        for checked in check_publications(context)
        if checked.state is VersionState.CURRENT
    }
    late = "changes that belong before the point were applied while it was written"
    return [
        replaced(
            report,
            outcome="failed",
            message=f"{report.table}: {problem or late}; {report.location} may not fit the other tables",
            hint="lakeward points; then the same command with --replace",
            error_kind="conflict",
            exit_code=3,
        )
        if report.outcome == "done" and (problem or (report.table, report.location) not in current)
        else report
        for report in reports
    ]


def _require_version(contexts: Sequence[TableContext], version: str) -> None:
    """Refuse a name that no version of the tables has, instead of doing nothing."""
    found = [publication for context in contexts for publication in _recorded(context)]
    if not any(publication.is_called(version) for publication in found):
        msg = f"there is no version {version!r} of these tables"
        raise ConfigurationError(msg, hint="lakeward snapshot list shows those that exist")


def snapshots_exit_code(reports: Sequence[SnapshotReport]) -> int:
    """Return 0 when nothing failed, 3 when some were done, else the highest code of the failures."""
    codes = {report.exit_code for report in reports if report.outcome == "failed"}
    if not codes:
        return 0
    return max(codes) if all(report.outcome == "failed" for report in reports) else 3


def _table_to_register(register: object) -> str | None:
    """Return the name of the table to register, empty for the default name; None to register none."""
    if register is None or register is False:
        return None
    if register is True:
        return ""
    if not isinstance(register, str):
        msg = f"register={register!r} names no table; expected database.table, or True for the usual name"
        raise ConfigurationError(msg)
    return register


def _create_files(context: TableContext, known: KnownTable, request: SnapshotRequest) -> Publication:
    from lakeward.session.catalog import catalog_kind
    from lakeward.views.versions.create import FilesRequest, create_files
    from lakeward.views.versions.layouts import FileShape
    from lakeward.views.versions.register import Pointing, default_name, register, require_free_name, require_name

    name = ""
    if request.register is not None:
        name = require_name(request.register or default_name(known.table.name), catalog_kind(context.config))
        require_free_name(context, name, Pointing.REQUEST)
    order = FilesRequest(request.to or "", request.shape or FileShape(), name, replace=request.replace)
    made = create_files(context, request.moment, order)
    if name:
        register(context, made)
    return made


def apply_retention(context: TableContext) -> tuple[str, ...]:
    """Drop the versions that the table's settings no longer keep, and return their locations."""
    from lakeward.views.versions.manifest import list_publications
    from lakeward.views.versions.tags import beyond_retention, drop_versions

    settings = context.settings.snapshots
    if settings.every is not None:
        # They count for the versions of the schedule alone.
        return ()
    if settings.keep is None and settings.older_than is None:
        return ()
    found = list_publications(context.mirror.metadata())
    gone = beyond_retention(found, keep=settings.keep, older_than=settings.older_than)
    drop_versions(context, gone)
    return tuple(publication.location for publication in gone)


def publication_report(
    context: TableContext, made: Publication, *, outcome: str = "done", dropped: tuple[str, ...] = ()
) -> SnapshotReport:
    """Return the report on a version that was made or dropped."""
    return SnapshotReport(
        str(context.table),
        outcome,
        version=made.version,
        kind=made.kind,
        location=made.location,
        rows=made.rows,
        generation=made.generation,
        op=made.op,
        registered=made.registered or None,
        dropped=dropped,
    )


def _report_of_scheduled(table: str, found: ScheduledSnapshot) -> SnapshotReport:
    outcome = "done" if found.action == "made" else found.action
    return SnapshotReport(
        table, outcome, version=found.version, kind="files", location=found.location, rows=found.rows, op=found.op
    )


def _require_day(text: str) -> None:
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        msg = f"{text!r} is not a day; expected 2020-11-14"
        raise ConfigurationError(msg)


def _foreign_report(table: str, found: ForeignVersion, outcome: str) -> SnapshotReport:
    return SnapshotReport(
        table, outcome, version=found.version, kind="foreign", location=found.location, rows=found.rows
    )


def _foreign_named(context: TableContext, name: str) -> list[ForeignVersion]:
    """Return the registered versions of other systems of a name, unless an own version has that name, too."""
    from lakeward.views.versions.foreign import list_foreign

    mirror = context.mirror.find_metadata()
    if mirror is None or any(publication.is_called(name) for publication in _recorded(context)):
        return []
    return [found for found in list_foreign(mirror) if found.is_called(name)]


def _recorded(context: TableContext) -> list[Publication]:
    from lakeward.views.versions.manifest import list_publications

    mirror = context.mirror.find_metadata()
    return list_publications(mirror) if mirror else []


def _named(table: str, found: Sequence[Publication], version: str) -> list[Publication]:
    named = [publication for publication in found if publication.is_called(version)]
    if not named:
        shown = ", ".join(dict.fromkeys(publication.version for publication in found)) or "none"
        msg = f"{table} has no version {version!r}; it has {shown}"
        raise ConfigurationError(msg, hint=f"lakeward snapshot list {table}")
    # Readers open them, and they are named by their ops as other versions are: a name alone does not mean them.
    kept = _newest_copies(found) - {version}
    chosen = [publication for publication in named if publication.location not in kept]
    if not chosen:
        msg = f"{table}: {version!r} is the copy of the current state, which is dropped only by its location"
        raise ConfigurationError(msg, hint=f"lakeward snapshot drop {table} --version {named[-1].location}")
    return chosen


def _newest_copies(found: Sequence[Publication]) -> set[str]:
    """Return the location of the newest copy of the current state in each place."""
    from lakeward.views.versions.manifest import PublicationKind

    copies = [publication.location for publication in found if publication.kind is PublicationKind.CURRENT]
    return set({location.rpartition("/")[0]: location for location in copies}.values())


def _absolute(location: str | None) -> str | None:
    return location if location is None or "://" in location else str(Path(location).absolute())
