"""``lake.points``: moments at which all tables of a group show one state of their database, and their tags."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from lakeward.api.snapshots import SnapshotReport, apply_retention, publication_report, report_of, snapshots_exit_code
from lakeward.arguments import COUNT, FLAG, TEXT, TEXTS, takes
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.model import digits_micros
from lakeward.views.points.rule import Prevented, point_name, point_time, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.api.opened import OpenedLake
    from lakeward.config import Config
    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.runner.tables import KnownTable
    from lakeward.views.points.rule import Candidate

NEWEST = "newest"
# How many ends of files are examined for the newest point.
_SEARCHED = 100


@dataclass(frozen=True)
class Point(Document):
    """The end of the transaction files named up to a time, and whether all tables are known to be complete there.

    ``files_until`` is the time in the name of the last file that counts, ``committed`` that of the newest change.
    ``is_proven``: nothing prevents it. ``tags`` is ``none``, ``partial``, ``stale`` or ``complete``.
    """

    name: str
    files_until: str
    committed: str | None
    is_proven: bool
    tags: str
    prevented: tuple[Prevented, ...] = ()


@dataclass(frozen=True)
class PointsReport(Document):
    """The points of a group of tables, newest first; ``unnamed`` are tables that no transaction file has named yet."""

    tables: tuple[str, ...]
    points: tuple[Point, ...]
    unnamed: tuple[str, ...] = ()


@dataclass(frozen=True)
class PointTagReport(Document):
    """The tags of one point: the result for each table, and why the point is not complete where it is not."""

    point: str
    is_complete: bool
    snapshots: tuple[SnapshotReport, ...]
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0


# The class below has a method of this name.
Listed: TypeAlias = PointsReport


class Points:
    """List points and set their tags."""

    def __init__(self, lake: OpenedLake) -> None:
        self._lake = lake

    @takes(tables=TEXTS, limit=COUNT)
    def list(self, tables: Iterable[str] = (), *, limit: int = 20) -> Listed:
        """Return the ends of the newest transaction files, and all tagged points, each with what prevents it.

        Args:
            tables: names as ``schema.table``, the group; none: all active tables.
            limit: how many ends of files are examined, the newest ones.

        Raises:
            ConfigurationError: the tables are not read from transaction files.
        """
        from lakeward.views.points.evidence import collect
        from lakeward.views.points.tagging import PointTags

        chosen = require_group(self._lake.config, self._lake.active(tables))
        contexts = group_contexts(self._lake, chosen)
        tags = PointTags(contexts)
        found = collect(contexts, newest=limit, times=tags.times())
        points = [_point(candidate, tags.state(point_name(candidate.time))) for candidate in found.candidates]
        return PointsReport(_names(chosen), tuple(reversed(points)), found.unnamed)

    @takes(point=TEXT, tables=TEXTS, replace=FLAG)
    def tag(self, point: str, tables: Iterable[str] = (), *, replace: bool = False) -> PointTagReport:
        """Set the tags of a point on the mirrors of all its tables; the marks that they are complete come last.

        A repeated call completes one that was interrupted.

        Args:
            point: its name, or ``newest``.
            tables: names as ``schema.table``, the group; none: all active tables.
            replace: drop tags of this point that are stale, on all mirrors, and set them again.

        Raises:
            ConfigurationError: there is no such point, or the tables are not known to be complete there.
        """
        from lakeward.views.points.tagging import drop_outdated

        chosen = require_group(self._lake.config, self._lake.active(tables))
        moment = require_point(self._lake, chosen, point)
        bench = self._lake.workbench()
        if replace:
            for known in chosen:
                with bench.leased(known) as context:
                    drop_outdated(context, moment)
        reports = [report_of(known, partial(self._tag, known, moment)) for known in chosen]
        if code := snapshots_exit_code(reports):
            message = f"{moment.label} is not complete: some tables have no right tag of it"
            return PointTagReport(moment.label, False, tuple(reports), message, _repeat(moment), code)
        problem = self._complete(chosen, moment)
        hint = _repeat(moment) + " --replace" if problem else None
        return PointTagReport(moment.label, problem is None, tuple(reports), problem, hint, 3 if problem else 0)

    def _tag(self, known: KnownTable, moment: Moment) -> SnapshotReport:
        from lakeward.views.points.tagging import tag_table

        with self._lake.workbench().leased(known) as context:
            made, is_new = tag_table(context, moment)
            return publication_report(context, made, dropped=apply_retention(context) if is_new else ())

    def _complete(self, chosen: Sequence[KnownTable], moment: Moment) -> str | None:
        """Mark the point on every mirror, if it is still proven and all tags hold what they would hold now."""
        from lakeward.views.points.tagging import PointTags, mark_point

        contexts = group_contexts(self._lake, chosen)
        if problem := changed_since(contexts, moment):
            return problem
        tags = PointTags(contexts)
        if not tags.is_set(moment.label):
            return f"{moment.label} changed while it was tagged: some tag is stale or gone"
        mark_point(contexts, moment.label, tags.ids(moment.label))
        return None


def require_group(config: Config, chosen: Sequence[KnownTable]) -> Sequence[KnownTable]:
    """Return the tables of a group, which is not empty.

    Raises:
        ConfigurationError: no table is active, or the tables are not read from transaction files.
    """
    from lakeward.views.points.evidence import require_transactions

    require_transactions(config)
    if not chosen:
        msg = "there is no active table"
        raise ConfigurationError(msg, hint="lakeward tables list")
    return chosen


def group_contexts(lake: OpenedLake, chosen: Sequence[KnownTable]) -> list[TableContext]:
    """Return the contexts of tables that are queried together, in one session."""
    from lakeward.session.sessions import table_session

    bench = lake.workbench()
    session = table_session(bench.spark)
    return [bench.context(known, spark=session) for known in chosen]


def require_point(lake: OpenedLake, chosen: Sequence[KnownTable], point: str) -> Moment:
    """Return the moment of a point by its name, or of the newest one.

    Raises:
        ConfigurationError: there is no such point, or the tables are not known to be complete there.
    """
    from lakeward.views.points.evidence import collect
    from lakeward.views.points.tagging import point_moment

    contexts = group_contexts(lake, chosen)
    if point == NEWEST:
        candidates = collect(contexts, newest=_SEARCHED).candidates
        proven = [candidate for candidate in candidates if not candidate.prevented]
        if not proven:
            what = f"no point among the newest {_SEARCHED} ends of transaction files"
            raise _unproven(what, candidates[-1:])
        return point_moment(proven[-1].time)
    time = point_time(point)
    if time is None:
        msg = f"{point!r} is not the name of a point; expected point-2024-03-27T014303.888Z, or newest"
        raise ConfigurationError(msg, hint="lakeward points")
    candidates = collect(contexts, newest=0, times=[time]).candidates
    if candidates[0].prevented:
        what = f"{point} is not a point of these tables"
        raise _unproven(what, candidates)
    return point_moment(time)


def changed_since(contexts: Sequence[TableContext], moment: Moment) -> str | None:
    """Return why a point that was proven is so no longer, None where it still is."""
    from lakeward.views.points.evidence import collect

    [candidate] = collect(contexts, newest=0, times=[moment.digits]).candidates
    if not candidate.prevented:
        return None
    return f"{moment.label} is no longer a point: {_reasons(candidate)}"


def _unproven(what: str, candidates: Sequence[Candidate]) -> ConfigurationError:
    reasons = "; ".join(f"{point_name(found.time)}: {_reasons(found)}" for found in candidates)
    msg = f"{what}: {reasons}" if reasons else f"{what}: no transaction file was read yet"
    return ConfigurationError(msg, hint="lakeward points lists what prevents which point")


def _reasons(candidate: Candidate) -> str:
    return "; ".join(f"{found.table}: {found.reason}" if found.table else found.reason for found in candidate.prevented)


def _repeat(moment: Moment) -> str:
    return f"the same command again, for the same tables: lakeward points --tag {moment.label}"


def _point(candidate: Candidate, tags: str) -> Point:
    return Point(
        point_name(candidate.time),
        shown(digits_micros(candidate.time)),
        shown(candidate.committed) if candidate.committed is not None else None,
        not candidate.prevented,
        tags,
        candidate.prevented,
    )


def _names(chosen: Sequence[KnownTable]) -> tuple[str, ...]:
    return tuple(str(known.table) for known in chosen)
