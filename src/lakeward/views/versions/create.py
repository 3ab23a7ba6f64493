"""Create a version as files: the rows as of a moment, written completely, described by a manifest and recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import __version__
from lakeward import schemas as S
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import Moment, MomentKind, file_moment, parse_moment
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.steps import Step
from lakeward.model import OpKind, utc_time
from lakeward.spark.workspace import Workspace
from lakeward.storage.checksum import CHECKSUM_VERSION
from lakeward.storage.claims import written_files
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import column
from lakeward.views.versions.dates import earlier_versions, write_dates
from lakeward.views.versions.folders import (
    VersionPlace,
    publishing,
    put_in_place,
    require_free,
    require_own,
    table_root,
    table_uuid,
    tidy,
)
from lakeward.views.versions.layouts import VersionTarget, require_rows, set_keys, write_rows, write_rows_as_set
from lakeward.views.versions.manifest import (
    Lineage,
    Manifest,
    Publication,
    PublicationKind,
    list_publications,
    new_id,
    record_publication,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from lakeward.mirror.op.as_of import AsOf
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.storage.claims import Claim
    from lakeward.views.versions.layouts import FileShape


# Versions by date share files with so many others: each one costs a listing.
_SOURCES = 3


@dataclass(frozen=True)
class FilesRequest:
    """A version to publish as files: ``to`` is the folder of all tables, ``registered`` a table that points to it.

    ``created`` is the time of the first creation of a version that is rebuilt: retention counts from then. ``period``
    is the day or hour of a version that a schedule makes.
    """

    to: str
    shape: FileShape
    registered: str = ""
    replace: bool = False
    created: str = ""
    period: str | None = None


def create_files(context: TableContext, moment: Moment, request: FilesRequest) -> Publication:
    """Publish a table as of a moment as files.

    The table's lease is not taken: rows are read from pinned snapshots, and an erasure in the meantime is noticed at
    the end.

    Raises:
        ConfigurationError: the version exists, or the table has no state for the moment.
        LeaseHeldError: another command is publishing the table.
    """
    store = open_filesystem(context.spark, context.config, request.to)
    place = VersionPlace(store, table_root(request.to, context.table), moment.label)
    with publishing(context) as lease:
        tidy(place)
        require_free(place, replace=request.replace)
        _require_made_by_hand(context, place)
        require_own(place, table_uuid(context))
        return publish_as_of(context, moment, place, request, before=lease.require)


def _require_made_by_hand(context: TableContext, place: VersionPlace) -> None:
    """Refuse to replace a version that a schedule made, which a table over all versions may hold as it is.

    Raises:
        ConfigurationError: it is one.
    """
    mirror = context.mirror.find_metadata()
    for known in list_publications(mirror) if mirror is not None else ():
        if known.location == place.folder and known.period is not None:
            msg = f"{place.folder} was made by the schedule of {context.table}, which renews it by itself"
            raise ConfigurationError(msg, hint=f"lakeward snapshot refresh {context.table} --version {place.version}")


def publish_as_of(
    context: TableContext, moment: Moment, place: VersionPlace, request: FilesRequest, *, before: Callable[[], None]
) -> Publication:
    """Publish the rows as of a moment, and repeat that if an erasure was logged meanwhile.

    Raises:
        ConflictError: an erasure is being applied.
    """
    while True:
        with Workspace() as workspace:
            found = rows_as_of(context, workspace, moment)
            require_erasures_applied(context, found.at.bases)
            context.reached(Step.PUBLISH_ROWS)
            published = _publish(context, found, place, request, before)
        if not is_erased_since(context, found.at.bases.logged):
            return published


def _publish(
    context: TableContext, found: AsOf, place: VersionPlace, request: FilesRequest, before: Callable[[], None]
) -> Publication:
    shape, columns = request.shape, found.at.bases.columns
    folder_column = shape.folder_column(str(context.table), columns)
    head = describe(context, found, place, shape, folder_column)
    publications: list[Publication] = []

    def write(claim: Claim) -> Manifest:
        former = claim.store.files(claim.folder)
        target = VersionTarget(claim.store, claim.folder, shape, columns, folder_column)
        if folder_column:
            locations = _nearest(context, place, shape, found.at.moment)
            earlier = list(islice(earlier_versions(place.store, locations, shape, columns), _SOURCES))
            return write_dates(context, found.rows, target, head, earlier, claim)
        return written(context, found.rows, target, head, former=former)

    def record(manifest: Manifest) -> None:
        before()
        made = publication_of(manifest, place.folder, PublicationKind.FILES, registered=request.registered)
        made = replace(made, created=request.created or made.created, period=request.period)
        publications.append(record_instead(context, made))

    put_in_place(context, place, head.lineage.mirror_uuid, write, record)
    return publications[0]


def _nearest(context: TableContext, place: VersionPlace, shape: FileShape, moment: Moment) -> list[str]:
    """Return the versions beside a version, its former self first, then by nearness of their moments, earlier first."""
    found = [
        (publication.location, moment_of(publication))
        for publication in list_publications(context.mirror.metadata())
        if publication.kind is PublicationKind.FILES
        and publication.location.rpartition("/")[0] == place.root
        and (publication.format, publication.date_column) == (shape.format, shape.date_column)
    ]
    own = [location for location, _ in found if location == place.folder]
    others = [entry for entry in found if entry[0] != place.folder and entry[1].kind is moment.kind]
    earlier = sorted((entry for entry in others if moment.is_after(entry[1])), key=_position, reverse=True)
    later = sorted((entry for entry in others if entry[1].is_after(moment)), key=_position)
    return [*own, *(location for location, _ in (*earlier, *later))]


def _position(entry: tuple[str, Moment]) -> tuple[int, str]:
    limit = entry[1].limit
    return (0, limit) if isinstance(limit, str) else (limit, "")


def written(
    context: TableContext, rows: DataFrame, target: VersionTarget, head: Manifest, *, former: dict[str, int]
) -> Manifest:
    """Write rows and return the manifest of the written files, after checking their content."""
    keys, layout = set_keys(context, target), None
    if keys:
        content, layout = write_rows_as_set(context, rows, target, keys)
    else:
        content = write_rows(context, rows, target)
    files = written_files(target.store, target.folder, former)
    manifest = replace(head, rows=content.rows, content_hash=content.text, files=files, set=layout)
    if layout is None:
        require_rows(context, target, sorted(files), rows, content)
    return manifest


def describe(context: TableContext, found: AsOf, place: VersionPlace, shape: FileShape, folder_column: str) -> Manifest:
    """Return a version's manifest, as far as it is known before anything is written.

    The table has the name that it had when its folder was made, and not the one after a renaming.
    """
    bases, checkpoint = found.at.bases, found.checkpoint
    lineage = Lineage(
        mirror_uuid=table_uuid(context),
        generation=found.at.generation.number,
        op=found.op,
        changelog_snapshot=bases.changelog.id if bases.changelog else 0,
        mirror_snapshot=bases.mirror.id if bases.mirror else 0,
        checkpoint=checkpoint.snapshot if checkpoint else None,
    )
    return Manifest(
        id=new_id(),
        table=place.table,
        version=place.version,
        as_of=moment_text(found.at.moment),
        rows=0,
        content_hash="",
        columns=bases.columns,
        primary_key=context.settings.primary_key,
        format=shape.format,
        layout=shape.layout,
        date_column=shape.date_column,
        folder_column=folder_column,
        timezone=shape.timezone,
        lineage=lineage,
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        lakeward=__version__,
        checksum_version=CHECKSUM_VERSION,
    )


def publication_of(manifest: Manifest, location: str, kind: PublicationKind, *, registered: str = "") -> Publication:
    """Return the record of a version that has a manifest."""
    return Publication(
        id=manifest.id,
        kind=kind,
        version=manifest.version,
        moment=manifest.as_of,
        location=location,
        generation=manifest.lineage.generation,
        op=manifest.lineage.op,
        rows=manifest.rows,
        content_hash=manifest.content_hash,
        created=manifest.created,
        changelog=manifest.lineage.changelog_snapshot,
        format=manifest.format,
        layout=manifest.layout,
        date_column=manifest.date_column,
        registered=registered,
    )


def record_instead(context: TableContext, made: Publication) -> Publication:
    """Record a publication in place of those at the same location."""
    known = list_publications(context.mirror.metadata())
    record_publication(
        context.mirror,
        made,
        instead_of=[publication.id for publication in known if publication.location == made.location],
    )
    return made


def moment_text(moment: Moment) -> str:
    """Return a moment as text that does not depend on the configured time zone."""
    if moment.micros is not None:
        return utc_time(moment.micros).isoformat(timespec="microseconds")
    limit = str(moment.limit)
    return f"{moment.kind}:{limit if moment.kind is MomentKind.FILE else limit.lstrip('0') or '0'}"


def moment_of(publication: Publication) -> Moment:
    """Return the moment that a publication was made for."""
    kind, _, limit = publication.moment.partition(":")
    moment = file_moment(limit) if kind == MomentKind.FILE else parse_moment(publication.moment)
    return replace(moment, label=publication.version)


def require_erasures_applied(context: TableContext, bases: Bases) -> None:
    """Refuse to publish while an erasure is logged and not yet applied.

    Raises:
        ConflictError: there is such an erasure.
    """
    if bases.applied < bases.logged and is_erased_since(context, bases.applied):
        msg = f"{context.table}: an erasure is logged and not yet applied; what it erases would be published"
        raise ConflictError(msg, hint=f"lakeward run {context.table} finishes it; then the same command")


def is_erased_since(context: TableContext, op: int) -> bool:
    """Whether an erasure was logged after an op: files written from before it may hold erased rows."""
    bases = capture(context)
    if bases.changelog is None or bases.logged == op:
        return False
    log = context.changelog.read(bases.changelog.id)
    is_erasure = F.get_json_object(column(S.DETAIL), "$.kind") == OpKind.ERASE
    own = (column(S.KIND) == S.KIND_CONTROL) & (column(S.OP) > op) & column(S.FILE).isNull()
    return bool(log.filter(own & is_erasure).take(1))
