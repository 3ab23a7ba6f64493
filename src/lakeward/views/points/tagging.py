"""The tags of points on mirrors: which are there, setting one, and the mark of a point whose tags are all set."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.checkpoints import file_moment
from lakeward.mirror.op.steps import Step
from lakeward.views.points.rule import point_name, point_time
from lakeward.views.versions.create import moment_of
from lakeward.views.versions.manage import VersionState, check_publications
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.marks import PointMark, read_mark, remove_marks, set_mark
from lakeward.views.versions.tags import create_tag, drop_tags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.versions.manage import CheckedPublication
    from lakeward.views.versions.manifest import Publication


class TagState(StrEnum):
    """The state of a point's tags on the mirrors of a group.

    ``complete``: every mirror has the tag with the rows as they would be now, and the mark. ``stale``: some tag holds
    other rows than it would now, or is gone. ``partial``: some mirror lacks the tag, or the mark is missing.
    """

    NONE = "none"
    PARTIAL = "partial"
    STALE = "stale"
    COMPLETE = "complete"


def point_moment(time: str) -> Moment:
    """Return the moment of a point, called by its name."""
    return replace(file_moment(time), label=point_name(time))


class PointTags:
    """The point tags of a group's mirrors as they were when this was made: by tag and table."""

    def __init__(self, contexts: Sequence[TableContext]) -> None:
        self._tables = [str(context.table) for context in contexts]
        self._tags: dict[str, dict[str, CheckedPublication]] = {}
        self._marks: dict[tuple[str, str], PointMark | None] = {}
        for context in contexts:
            self._read(context)

    def _read(self, context: TableContext) -> None:
        mirror = context.mirror.find_metadata()
        if mirror is None or not any(map(is_point, list_publications(mirror))):
            return
        table = str(context.table)
        for checked in check_publications(context):
            if is_point(checked.publication):
                tag = checked.publication.location
                self._tags.setdefault(tag, {})[table] = checked
                self._marks[tag, table] = read_mark(mirror, tag)

    def times(self) -> list[str]:
        """Return the times of all tagged points."""
        return [time for tag in self._tags if (time := point_time(tag)) is not None]

    def of(self, tag: str) -> Mapping[str, CheckedPublication]:
        """Return, by table, the publications of one point."""
        return self._tags.get(tag, {})

    def ids(self, tag: str) -> dict[str, str]:
        """Return, by table, the ids of one point's publications."""
        return {table: checked.publication.id for table, checked in self.of(tag).items()}

    def is_set(self, tag: str) -> bool:
        """Whether every mirror has the tag with the rows as they would be now."""
        return self.of(tag).keys() == {*self._tables} and not self._outdated(tag)

    def state(self, tag: str) -> TagState:
        """Return the state of one point."""
        if not self.of(tag):
            return TagState.NONE
        if self._outdated(tag):
            return TagState.STALE
        marks = [self._marks.get((tag, table)) for table in self._tables]
        is_marked = self.is_set(tag) and all(mark is not None and _covers(mark, self.ids(tag)) for mark in marks)
        return TagState.COMPLETE if is_marked else TagState.PARTIAL

    def _outdated(self, tag: str) -> bool:
        return any(checked.state is not VersionState.CURRENT for checked in self.of(tag).values())


def is_point(publication: Publication) -> bool:
    """Whether a publication is the tag of a point."""
    return publication.kind is PublicationKind.TAG and publication.is_of_point


def _covers(mark: PointMark, ids: Mapping[str, str]) -> bool:
    return ids.items() <= mark.publications.items()


def tag_table(context: TableContext, moment: Moment) -> tuple[Publication, bool]:
    """Set a point's tag on one mirror and return its publication, and whether it was made now.

    The caller holds the table's lease. A tag that is there with the right rows stays, so that a repeated call completes
    one that was interrupted.

    Raises:
        ConfigurationError: a tag of this name is there that is stale, or is not of this point.
    """
    known = next((found for found in check_publications(context) if found.publication.location == moment.label), None)
    if known is None:
        return create_tag(context, moment, moment.label), True
    if moment_of(known.publication) != moment:
        msg = f"{context.table} has a snapshot {moment.label!r} that is not of this point"
        raise ConfigurationError(msg, hint=f"lakeward snapshot drop {context.table} --version {moment.label}")
    if known.state is not VersionState.CURRENT:
        msg = f"{context.table}: the tag {moment.label} is {known.state}: {known.reason}"
        raise ConfigurationError(msg, hint="the same command with --replace, which drops it on every mirror first")
    return known.publication, False


def drop_outdated(context: TableContext, moment: Moment) -> None:
    """Remove a point's mark and, where it is out of date, its tag. The caller holds the table's lease.

    All mirrors lose the tag before the first has the new one: a reader finds no tag instead of two different states.
    """
    found = [
        checked.publication
        for checked in check_publications(context)
        if checked.publication.location == moment.label and is_point(checked.publication)
        and checked.state is not VersionState.CURRENT
    ]  # fmt: skip
    remove_marks(context.mirror, [moment.label])
    if found:
        drop_tags(context, found)


def mark_point(contexts: Sequence[TableContext], tag: str, ids: Mapping[str, str]) -> None:
    """Mark a point whose tags are all set, on every mirror; a mark of a larger group stays."""
    mark = PointMark(dict(ids), datetime.now(UTC).isoformat(timespec="microseconds"))
    for context in contexts:
        present = read_mark(context.mirror.metadata(), tag)
        if present is None or not _covers(present, ids):
            set_mark(context.mirror, tag, mark)
        context.reached(Step.POINT_MARKED)
