"""The versions of a table: listing them with their state, and rebuilding those that are out of date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError
from lakeward.iceberg.define import GENERATION_STAMP, LOAD_STAMP, REPAIRED_STAMP
from lakeward.iceberg.metadata import MAIN
from lakeward.mirror.op.checkpoints import MomentKind, is_undone
from lakeward.mirror.op.effect import bases_of
from lakeward.mirror.op.ledger import applied_progress
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_from_load, is_standing
from lakeward.views.versions.create import FilesRequest, moment_of, publish_as_of
from lakeward.views.versions.current import missing_from_its_place, rebuild_current
from lakeward.views.versions.folders import find_version, place_of, publishing, tidy
from lakeward.views.versions.foreign import FOREIGN, list_foreign, why_missing
from lakeward.views.versions.layouts import FileShape
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.register import points_to, renew_registration
from lakeward.views.versions.schedule import relist, schedule_state, turn_of
from lakeward.views.versions.tags import create_tag, remove_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Progress
    from lakeward.views.versions.foreign import ForeignVersion
    from lakeward.views.versions.manifest import Publication


class VersionState(StrEnum):
    """Whether a version is what it would be if it were created now; ``FOREIGN``: another system wrote it."""

    CURRENT = "current"
    STALE = "stale"
    UNDONE = "undone"
    MISSING = "missing"
    FORMER = "former"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Version(Document):
    """One version of a table as lists show it; ``reason`` is why it is not current."""

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
    period: str | None = None


@dataclass(frozen=True)
class CheckedPublication:
    """A publication and its state."""

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
            period=found.period,
        )


def check_publications(context: TableContext) -> list[CheckedPublication]:
    """Return every publication of a table with its state, oldest first; one Spark job for all of them."""
    mirror = context.mirror.find_metadata()
    found = list_publications(mirror) if mirror else []
    if mirror is None or not found:
        return []
    bases = bases_of(context.changelog.find_metadata(), mirror)
    progress = applied_progress(context, bases)
    late = _arrived_late(context, bases, progress, found)
    newest = {
        publication.location.rpartition("/")[0]: publication.id
        for publication in found
        if publication.kind is PublicationKind.CURRENT
    }
    return [_checked(context, mirror, bases, progress, publication, late, newest) for publication in found]


def check_foreign(context: TableContext) -> list[Version]:
    """Return the registered versions of other systems as lists show them."""
    mirror = context.mirror.find_metadata()
    return [_foreign(context, version) for version in list_foreign(mirror)] if mirror else []


def _foreign(context: TableContext, found: ForeignVersion) -> Version:
    missing = why_missing(context, found)
    return Version(
        table=str(context.table),
        version=found.version,
        kind=FOREIGN,
        state=VersionState.MISSING if missing else VersionState.FOREIGN,
        as_of="",
        rows=found.rows,
        generation=0,
        op=0,
        created=found.registered,
        location=found.location,
        format="parquet",
        layout="dated" if found.date_column else "flat",
        registered="",
        content_hash=found.content_hash,
        reason=missing,
    )


def _checked(
    context: TableContext,
    mirror: TableMetadata,
    bases: Bases,
    progress: Progress,
    publication: Publication,
    late: set[str],
    newest: dict[str, str],
) -> CheckedPublication:
    if problem := _missing(context, mirror, publication, newest):
        return CheckedPublication(publication, VersionState.MISSING, problem)
    if publication.kind is PublicationKind.CURRENT:
        if newest[publication.location.rpartition("/")[0]] != publication.id:
            return CheckedPublication(publication, VersionState.FORMER, "a newer copy took its place")
        behind = f"the mirror is at op {bases.applied}" if bases.applied != publication.op else None
        return CheckedPublication(publication, VersionState.STALE if behind else VersionState.CURRENT, behind)
    if is_undone(publication.op, progress.undone):
        return CheckedPublication(
            publication, VersionState.UNDONE, f"it holds op {publication.op} or ops before it that were undone since"
        )
    if reason := _outdated(mirror, progress, publication, late):
        return CheckedPublication(publication, VersionState.STALE, reason)
    return CheckedPublication(publication, VersionState.CURRENT)


def _missing(
    context: TableContext, mirror: TableMetadata, publication: Publication, newest: Mapping[str, str]
) -> str | None:
    if publication.kind is PublicationKind.TAG:
        return None if publication.location in mirror.tags() else "the tag is gone"
    try:
        found = find_version(open_filesystem(context.spark, context.config, publication.location), publication.location)
    except (DataError, ConfigurationError) as error:
        return error.message
    if found.manifest.id != publication.id:
        return "the version there is not the recorded one"
    if publication.id not in newest.values():
        return None
    return missing_from_its_place(context, publication, found.manifest)


def _outdated(mirror: TableMetadata, progress: Progress, publication: Publication, late: set[str]) -> str | None:
    """Return why a version would be different if created now; a version by op never is."""
    moment = moment_of(publication)
    if moment.kind is MomentKind.OP:
        return None
    if publication.id in late:
        return "changes that belong to it arrived later"
    begun = [generation.number for generation in progress.generations if generation.began <= moment.digits]
    if begun and begun[-1] != publication.generation:
        return f"load {begun[-1]}, which arrived later, had begun by then"
    if _has_later_load(mirror, progress, publication):
        return "a part of its load arrived later"
    head = mirror.head(MAIN)
    if head is not None and int(mirror.stamp_at(REPAIRED_STAMP, head.id) or 0) > publication.op:
        return "rows of the mirror were repaired since"
    return None


def _has_later_load(mirror: TableMetadata, progress: Progress, publication: Publication) -> bool:
    loads = (
        int(snapshot.summary[LOAD_STAMP])
        for snapshot in mirror.snapshots().values()
        if LOAD_STAMP in snapshot.summary and snapshot.summary.get(GENERATION_STAMP) == str(publication.generation)
    )
    return any(op > publication.op and not is_undone(op, progress.undone) for op in loads)


def _arrived_late(context: TableContext, bases: Bases, progress: Progress, found: Sequence[Publication]) -> set[str]:
    """Return the ids of versions that lack changes of later ops, by one pass over those ops."""
    asked = [
        publication
        for publication in found
        if moment_of(publication).kind is not MomentKind.OP and publication.op < progress.op
    ]
    if not asked or bases.changelog is None:
        return set()
    log = context.changelog.read(bases.changelog.id)
    is_later = (column(S.OP) > min(publication.op for publication in asked)) & (column(S.OP) <= progress.op)
    checks = [F.max(_belongs_into(publication)).alias(publication.id) for publication in asked]
    later = log.filter((column(S.KIND) == S.KIND_CHANGE) & is_later & is_standing(progress.undone))
    answer = later.agg(*checks).collect()[0]
    return {publication.id for publication in asked if answer[publication.id]}


def _belongs_into(publication: Publication) -> Column:
    moment = moment_of(publication)
    if moment.kind is MomentKind.SEQUENCE:
        counts = column(S.SEQUENCE).isNull() | (column(S.SEQUENCE) <= F.lit(moment.limit))
    elif moment.kind is MomentKind.FILE:
        counts = is_from_load() | (column(S.FILE_TIME) <= F.lit(moment.limit))
    else:
        until = F.timestamp_micros(F.lit(moment.micros))
        counts = column(S.COMMIT_TIME).isNull() | (column(S.COMMIT_TIME) <= until)
    return counts & (column(S.OP) > publication.op) & (column(S.GENERATION) >= publication.generation)


# Rebuilding versions that late changes or an undo made outdated; the former ones stay until the new are complete.


_OUTDATED = (VersionState.STALE, VersionState.UNDONE)


def outdated_publications(context: TableContext, version: str | None) -> list[CheckedPublication]:
    """Return the versions to rebuild: stale and undone ones, or those with a name, including missing ones."""
    found = check_publications(context)
    if version is not None:
        named = [checked for checked in found if checked.publication.is_called(version)]
        if any(checked.publication.is_of_point for checked in named):
            msg = f"{version} is of a point, which concerns several tables: it is not refreshed for one of them"
            raise ConfigurationError(msg, hint=f"lakeward points --tag {version} --replace; files: snapshot create")
        return [checked for checked in named if _is_to_rebuild(context, checked)]
    return [
        checked
        for checked in found
        if checked.publication.kind is not PublicationKind.CURRENT
        and checked.state in _OUTDATED
        and can_change(checked.publication)
    ]


def _is_to_rebuild(context: TableContext, checked: CheckedPublication) -> bool:
    """Whether a version that was named is rebuilt; of the copies of the current state the newest one only."""
    if checked.publication.kind is not PublicationKind.CURRENT or checked.state is not VersionState.CURRENT:
        return checked.state not in (VersionState.CURRENT, VersionState.FORMER)
    name = checked.publication.registered
    return bool(name) and not points_to(context, name, checked.publication.location)


def can_change(publication: Publication) -> bool:
    """Whether a refresh rebuilds a version: the state after an op never changes.

    A point's versions are made again for all its tables together.
    """
    return not publication.is_of_point and moment_of(publication).kind is not MomentKind.OP


def rebuild_publication(context: TableContext, publication: Publication) -> Publication:
    """Rebuild a publication from the present state of the lake, and return its new record.

    The caller holds the table's lease, unless the publication is of kind files. The files of the replaced version are
    gone when this returns.
    """
    if publication.kind is PublicationKind.TAG:
        return create_tag(context, moment_of(publication), publication.location, former=publication)
    if publication.kind is PublicationKind.CURRENT:
        return rebuild_current(context, publication)
    with publishing(context) as lease:
        return rebuild_files(context, publication, before=lease.require)


def rebuild_files(context: TableContext, publication: Publication, *, before: Callable[[], None]) -> Publication:
    """Rebuild a version of kind files as :func:`rebuild_publication` does; the caller holds the publishing lease."""
    store = open_filesystem(context.spark, context.config, publication.location)
    former_place = place_of(store, publication.location)
    former, place = former_place.manifest(), former_place
    if former is not None and _is_read_by_catalog(context, publication) and not store.can_rename:
        # Its files would be read together with the new ones while these are written.
        place = replace(former_place, version=f"{publication.period}.{turn_of(publication) + 1}")
    timezone = former.timezone if former else context.config.timezone
    shape = FileShape(publication.format, publication.layout, publication.date_column, timezone)
    request = FilesRequest(
        place.root, shape, publication.registered, replace=True, created=publication.created, period=publication.period
    )
    tidy(place)
    made = publish_as_of(context, moment_of(publication), place, request, before=before)
    if made.registered:
        renew_registration(context, made, publication.location)
    relist(context, made)
    if place != former_place:
        remove_versions(context, [publication])
    return made


def _is_read_by_catalog(context: TableContext, publication: Publication) -> bool:
    state = schedule_state(context.mirror.metadata())
    is_listed = state is not None and state.listed is not None
    return publication.period is not None and (is_listed or bool(publication.registered))


def outdated_since(
    context: TableContext, bases: Bases, progress: Progress, found: Sequence[Publication], op: int
) -> list[Publication]:
    """Return which versions are stale or undone, where none was up to an op; missing files are not looked for."""
    mirror = context.mirror.metadata()
    earliest = _earliest_since(context, bases, progress, op)
    behind = [
        publication for publication in found if earliest is not None and int(moment_of(publication).limit) >= earliest
    ]
    late = _arrived_late(context, bases, progress, behind)
    return [
        publication
        for publication in found
        if is_undone(publication.op, progress.undone) or _outdated(mirror, progress, publication, late)
    ]


def _earliest_since(context: TableContext, bases: Bases, progress: Progress, op: int) -> int | None:
    """Return the earliest commit time of changes of later ops, 0 where one has none; None without such changes."""
    if bases.changelog is None:
        return None
    log = context.changelog.read(bases.changelog.id)
    is_later = (column(S.OP) > op) & (column(S.OP) <= progress.op)
    later = log.filter((column(S.KIND) == S.KIND_CHANGE) & is_later & is_standing(progress.undone))
    commit = F.coalesce(F.unix_micros(column(S.COMMIT_TIME)), F.lit(0))
    found: int | None = later.agg(F.min(commit)).collect()[0][0]
    return found
