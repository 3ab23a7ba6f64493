"""Versions of a table listed, made anew where they are out of date, and dropped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.iceberg.define import GENERATION_STAMP, LOAD_STAMP, REPAIRED_STAMP
from lakeward.iceberg.metadata import MAIN
from lakeward.mirror.op.checkpoints import MomentKind, is_undone
from lakeward.mirror.op.effect import bases_of
from lakeward.mirror.op.ledger import applied_progress
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_standing
from lakeward.views.versions.create import FilesOrder, moment_of, publish_as_of
from lakeward.views.versions.current import rebuild_current
from lakeward.views.versions.folders import find_version, place_of, publishing, tidy
from lakeward.views.versions.layouts import Shape
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.register import renew_registration
from lakeward.views.versions.tags import create_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Progress
    from lakeward.views.versions.manifest import Publication


# Which versions of a table there are, and whether each still says what it would say today.


class VersionState(StrEnum):
    """Whether a version still says what it would say if it were made now."""

    CURRENT = "current"
    STALE = "stale"
    UNDONE = "undone"
    MISSING = "missing"
    FORMER = "former"


@dataclass(frozen=True)
class Version:
    """One version of a table as lists show it; ``reason`` says why it is not current."""

    table: str
    version: str
    kind: str
    state: VersionState
    as_of: str
    rows: int
    generation: int
    op: int
    created: str
    location: str
    format: str
    layout: str
    registered: str
    content_hash: str
    reason: str | None = None


@dataclass(frozen=True)
class Judged:
    """A publication and what became of it."""

    publication: Publication
    state: VersionState
    reason: str | None = None

    def version(self, table: str) -> Version:
        """Return it as lists show it."""
        found = self.publication
        return Version(
            table=table,
            version=found.version,
            kind=found.kind,
            state=self.state,
            as_of=found.moment,
            rows=found.rows,
            generation=found.generation,
            op=found.op,
            created=found.created,
            location=found.location,
            format=found.format,
            layout=found.layout,
            registered=found.registered,
            content_hash=found.content_hash,
            reason=self.reason,
        )


def judge(context: TableContext) -> list[Judged]:
    """Return every publication of a table with its state, oldest first; one Spark job for all of them."""
    mirror = context.mirror.look()
    found = list_publications(mirror) if mirror else []
    if mirror is None or not found:
        return []
    bases = bases_of(context.changelog.look(), mirror)
    progress = applied_progress(context, bases)
    late = _arrived_late(context, bases, progress, found)
    newest = {one.location.rpartition("/")[0]: one.id for one in found if one.kind is PublicationKind.CURRENT}
    return [_judged(context, mirror, bases, progress, one, late, newest) for one in found]


def _judged(
    context: TableContext,
    mirror: TableMetadata,
    bases: Bases,
    progress: Progress,
    one: Publication,
    late: set[str],
    newest: dict[str, str],
) -> Judged:
    if problem := _missing(context, mirror, one):
        return Judged(one, VersionState.MISSING, problem)
    if one.kind is PublicationKind.CURRENT:
        if newest[one.location.rpartition("/")[0]] != one.id:
            return Judged(one, VersionState.FORMER, "a newer copy took its place")
        behind = f"the mirror is at op {bases.applied}" if bases.applied != one.op else None
        return Judged(one, VersionState.STALE if behind else VersionState.CURRENT, behind)
    if is_undone(one.op, progress.undone):
        return Judged(one, VersionState.UNDONE, f"it holds op {one.op} or ops before it that were undone since")
    if reason := _outdated(mirror, progress, one, late):
        return Judged(one, VersionState.STALE, reason)
    return Judged(one, VersionState.CURRENT)


def _missing(context: TableContext, mirror: TableMetadata, one: Publication) -> str | None:
    if one.kind is PublicationKind.TAG:
        return None if one.location in mirror.tags() else "the tag is gone"
    try:
        found = find_version(open_filesystem(context.spark, context.config, one.location), one.location)
    except (DataError, ConfigurationError) as error:
        return error.message
    return None if found.manifest.id == one.id else "another version than the recorded one lies there"


def _outdated(mirror: TableMetadata, progress: Progress, one: Publication, late: set[str]) -> str | None:
    """Return why a version would come out differently now; one by op never does."""
    moment = moment_of(one)
    if moment.kind is MomentKind.OP:
        return None
    if one.id in late:
        return "changes that belong into it arrived later"
    begun = [generation.number for generation in progress.generations if generation.began <= moment.digits]
    if begun and begun[-1] != one.generation:
        return f"load {begun[-1]}, which arrived later, had begun by then"
    if _has_later_load(mirror, progress, one):
        return "a part of its load arrived later"
    head = mirror.head(MAIN)
    if head is not None and int(mirror.stamp_at(REPAIRED_STAMP, head.id) or 0) > one.op:
        return "rows of the mirror were repaired since"
    return None


def _has_later_load(mirror: TableMetadata, progress: Progress, one: Publication) -> bool:
    loads = (
        int(found.summary[LOAD_STAMP])
        for found in mirror.snapshots().values()
        if LOAD_STAMP in found.summary and found.summary.get(GENERATION_STAMP) == str(one.generation)
    )
    return any(op > one.op and not is_undone(op, progress.undone) for op in loads)


def _arrived_late(context: TableContext, bases: Bases, progress: Progress, found: Sequence[Publication]) -> set[str]:
    """Return the ids of versions into which changes of later ops belong, by one pass over those ops."""
    asked = [one for one in found if moment_of(one).kind is not MomentKind.OP and one.op < progress.op]
    if not asked or bases.changelog is None:
        return set()
    log = context.changelog.read(bases.changelog.id)
    is_later = (column(S.OP) > min(one.op for one in asked)) & (column(S.OP) <= progress.op)
    checks = [F.max(_belongs_into(one)).alias(one.id) for one in asked]
    later = log.filter((column(S.KIND) == S.KIND_CHANGE) & is_later & is_standing(progress.undone))
    answer = later.agg(*checks).collect()[0]
    return {one.id for one in asked if answer[one.id]}


def _belongs_into(one: Publication) -> Column:
    moment = moment_of(one)
    if moment.kind is MomentKind.SEQUENCE:
        counts = column(S.SEQUENCE).isNull() | (column(S.SEQUENCE) <= F.lit(moment.limit))
    else:
        until = F.timestamp_micros(F.lit(moment.micros))
        counts = column(S.COMMIT_TIME).isNull() | (column(S.COMMIT_TIME) <= until)
    return counts & (column(S.OP) > one.op) & (column(S.GENERATION) >= one.generation)


# Make versions anew that late changes or an undo left behind; the former ones stay until the new are whole.


_LEFT_BEHIND = (VersionState.STALE, VersionState.UNDONE)


def wanting(context: TableContext, version: str | None) -> list[Judged]:
    """Return the versions to make anew: stale and undone ones, or those of one name, missing ones among them."""
    found = [one for one in judge(context) if one.publication.kind is not PublicationKind.CURRENT]
    if version is not None:
        named = [one for one in found if one.publication.is_called(version)]
        return [one for one in named if one.state is not VersionState.CURRENT]
    return [one for one in found if one.state in _LEFT_BEHIND and may_change(one.publication)]


def may_change(publication: Publication) -> bool:
    """Return whether making a version anew can change it: the state after an op is what it is, undone or not."""
    return moment_of(publication).kind is not MomentKind.OP


def rebuild_publication(context: TableContext, publication: Publication) -> Publication:
    """Make a publication anew from what the lake holds now, whatever its state, and give its new record.

    The caller holds the table's lease, unless the publication is of files. Files of the replaced version are gone when
    this returns.
    """
    if publication.kind is PublicationKind.TAG:
        return create_tag(context, moment_of(publication), publication.location, former=publication)
    if publication.kind is PublicationKind.CURRENT:
        return rebuild_current(context, publication)
    store = open_filesystem(context.spark, context.config, publication.location)
    place = place_of(store, publication.location)
    former = place.manifest()
    timezone = former.timezone if former else context.config.timezone
    shape = Shape(publication.format, publication.layout, publication.date_column, timezone)
    order = FilesOrder(place.root, shape, publication.registered, replace=True, created=publication.created)
    with publishing(context) as lease:
        tidy(place)
        made = publish_as_of(context, moment_of(publication), place, order, before=lease.require)
    if made.registered:
        renew_registration(context, made)
    return made
