"""The current state as plain files: a new version is written beside the old, then readers are switched to it.

Where readers find it is in :mod:`lakeward.views.versions.places`. Dates whose rows did not change are not written
again: their files are linked from the previous version.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING

from lakeward.errors import BugError, DataError
from lakeward.logs import event
from lakeward.mirror.op.as_of import AsOf, point_in_time
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.steps import Step
from lakeward.session.catalog import catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.publish import not_as_written
from lakeward.transforms.columns import columns
from lakeward.views.versions.create import (
    describe,
    is_erased_since,
    publication_of,
    record_instead,
    require_erasures_applied,
    written,
)
from lakeward.views.versions.dates import earlier_versions, write_dates
from lakeward.views.versions.folders import VersionPlace, place_of, publishing, put_in_place, table_uuid, tidy
from lakeward.views.versions.layouts import PARTITIONED, SINGLE, FileShape, VersionTarget
from lakeward.views.versions.manifest import PublicationKind, list_publications, record_publication
from lakeward.views.versions.places import (
    CopyPlace,
    Pointer,
    is_as_written,
    misplaced,
    place_version,
    require_free_names,
    retire_unpointed,
    withdraw,
)
from lakeward.views.versions.register import (
    Pointing,
    register,
    require_free_name,
    require_lasting,
    require_name,
    unregister,
)
from lakeward.views.versions.schedule import Schedule
from lakeward.views.versions.tags import remove_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.config import PublishSettings
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.storage.claims import Claim
    from lakeward.views.versions.dates import EarlierVersion
    from lakeward.views.versions.manifest import Manifest, Publication

logger = logging.getLogger(__name__)

# Readers that opened the previous version before the switch can finish.
KEPT_VERSIONS = 2


@dataclass(frozen=True)
class WantedCopy:
    """A copy of the current state: its place, its shape, and the external table that points to it (or empty)."""

    place: CopyPlace
    shape: FileShape
    registered: str = ""


def publish_current(context: TableContext) -> Publication | None:
    """Update the plain copy of a table to its mirror; return None where nothing changed or nothing is published.

    The caller holds the table's lease.
    """
    settings = context.settings.publish
    if settings is None:
        _drop_tables(context, _taken_by_schedule(context))
        return None
    bases = capture(context)
    if bases.mirror is None or not bases.applied:
        return None
    wanted = _wanted(context, settings)
    if not (former := _unwanted(context, wanted)):
        return _updated(context, wanted, bases)
    pointer = wanted.place.pointer()
    # Only their records name these tables, and records of the same op are about to be replaced.
    _drop_tables(context, [found for found in former if not pointer or found.registered != pointer.registered])
    made = _updated(context, wanted, bases)
    _drop_tables(context, _unwanted(context, wanted))
    return made


def _updated(context: TableContext, wanted: WantedCopy, bases: Bases) -> Publication | None:
    """Update a copy to the mirror, and return it where it is new."""
    known = _known(context, wanted.place)
    if not _is_published(wanted, bases.applied, known):
        with publishing(context) as lease:
            return _publish(context, wanted, lease.require)
    if superseded := _superseded(wanted, known):
        # A crash came after the switch and before the old versions were removed.
        with publishing(context):
            remove_versions(context, superseded)
    return None


def _registered(context: TableContext) -> list[Publication]:
    """Return the recorded copies, of all places, that an external table was made for."""
    metadata = context.mirror.find_metadata()
    known = list_publications(metadata) if metadata else []
    return [found for found in known if found.kind is PublicationKind.CURRENT and found.registered]


def _unwanted(context: TableContext, wanted: WantedCopy) -> list[Publication]:
    """Return the copies whose external table the settings no longer name; catalogs do not distinguish case."""
    return [found for found in _registered(context) if found.registered.lower() != wanted.registered.lower()]


def _taken_by_schedule(context: TableContext) -> list[Publication]:
    """Return the copies of former settings whose external table the schedule is to point to its own versions."""
    schedule = Schedule.of(context)
    taken = {schedule.registered.lower(), schedule.register_all.lower()} if schedule else set()
    return [found for found in _registered(context) if found.registered.lower() in taken]


def _drop_tables(context: TableContext, former: Sequence[Publication]) -> None:
    """Drop the external tables of copies, where they still point to one, and remove them from the records."""
    if not former:
        return
    with publishing(context):
        locations = [found.location for found in _registered(context)]
        for name in {found.registered for found in former}:
            unregister(context, name, locations)
        for found in former:
            record_publication(context.mirror, replace(found, registered=""))


def rebuild_current(context: TableContext, publication: Publication) -> Publication:
    """Rebuild the copy of the current state, and remove all older copies."""
    place = _place_of(context, publication)
    # The newest may be one that a crash left without files.
    complete = [
        (manifest.shape, known.registered)
        for known in _known(context, place)
        if (manifest := place_of(place.store, known.location).manifest()) is not None
    ]
    if not complete:
        msg = f"{context.table}: no copy of the current state below {place.root} is complete"
        raise DataError(msg, hint=f"lakeward run {context.table}")
    wanted = _configured(context, place) or WantedCopy(place, *complete[-1])
    with publishing(context) as lease:
        made = _publish(context, wanted, lease.require, from_scratch=True)
        own = _known(context, place)
        remove_versions(context, [publication for publication in own if publication.id != made.id])
    return made


def _configured(context: TableContext, place: CopyPlace) -> WantedCopy | None:
    """Return the copy that the settings ask for, if it is in this place; a column of the present one may be gone."""
    if context.settings.publish is None:
        return None
    wanted = _wanted(context, context.settings.publish)
    return wanted if (wanted.place.root, wanted.place.table) == (place.root, place.table) else None


def missing_from_its_place(context: TableContext, publication: Publication, manifest: Manifest) -> str | None:
    """Return why readers do not find the newest copy where they look for it; None where they do."""
    place = _place_of(context, publication)
    return misplaced(place, place_of(place.store, publication.location), manifest)


def shape_of(settings: PublishSettings, timezone: str) -> FileShape:
    """Return the shape of the files that settings ask for."""
    layout = SINGLE if settings.single_file else PARTITIONED if settings.partition_by else settings.layout
    return FileShape(
        settings.format,
        layout,
        settings.date_column or "",
        timezone,
        settings.partition_by,
        settings.columns,
        settings.single_file or "",
        settings.header,
    )


def _wanted(context: TableContext, settings: PublishSettings) -> WantedCopy:
    to = context.config.resolve(settings.to)
    store = open_filesystem(context.spark, context.config, to)
    place = CopyPlace(store, to.rstrip("/"), str(context.table), table_uuid(context))
    registered = ""
    if settings.registered:
        usual = f"default.{context.table.name}_current"
        name = usual if settings.registered is True else settings.registered
        registered = require_name(name, catalog_kind(context.config))
        require_free_name(context, registered, Pointing.CURRENT)
        require_lasting(context.spark, context.config)
    return WantedCopy(place, shape_of(settings, context.config.timezone), registered)


def _is_published(wanted: WantedCopy, op: int, known: Sequence[Publication]) -> bool:
    """Whether the mirror's newest op is published already, in the wanted shape, and readers find it."""
    place, pointer = wanted.place, wanted.place.pointer()
    if pointer is None or (pointer.registered or "") != wanted.registered:
        return False
    version = place.version(pointer.version)
    manifest = version.manifest() if pointer.path == place.path_of(version) else None
    if manifest is None or _finished(manifest, wanted, op, known) is None:
        return False
    if misplaced(place, version, manifest) is not None:
        return False
    # One listing: a file that somebody removed or cut is written again by the run, not by the next change.
    return not_as_written(manifest.files, version.store.files(version.folder)) is None


def _finished(manifest: Manifest, wanted: WantedCopy, op: int, known: Sequence[Publication]) -> Publication | None:
    """Return the record of a complete version if it is the newest one, of an op in the wanted shape."""
    if manifest.shape != wanted.shape or manifest.lineage.op != op:
        return None
    # Of two versions of an op, in shapes that settings had one after the other, the older one may be removed.
    return known[-1] if known and known[-1].id == manifest.id else None


def _publish(
    context: TableContext, wanted: WantedCopy, before: Callable[[], None], *, from_scratch: bool = False
) -> Publication:
    """Write the newest op's rows, switch readers to them, and remove older versions.

    A version that is complete already, because a crash came before the switch, is not written again.
    """
    pointer = _require_own_names(context, wanted)
    tidy(VersionPlace(wanted.place.store, wanted.place.root, ""))
    while True:
        found = _current_rows(context)
        require_erasures_applied(context, found.at.bases)
        context.reached(Step.PUBLISH_ROWS)
        tidy(wanted.place.version(op_moment(found.op).label))
        made = None if from_scratch else _finished_before(context, wanted, found)
        if made is None:
            place = _free(wanted.place.version(op_moment(found.op).label))
            earlier = [] if from_scratch else _earlier(context, wanted, found)
            made = _written(context, found, place, wanted, earlier, before)
        _switch(context, wanted, place_of(wanted.place.store, made.location), made, pointer, found)
        pointer = wanted.place.own_pointer()
        from_scratch = is_erased_since(context, found.at.bases.logged)
        if not from_scratch:
            break
    remove_versions(context, _superseded(wanted, _known(context, wanted.place)))
    return made


def _require_own_names(context: TableContext, wanted: WantedCopy) -> Pointer | None:
    pointer = wanted.place.own_pointer()
    manifests = _manifests(context, wanted.place)
    # The file may be that of a version whose switch was interrupted.
    digests = {found.digest for found in manifests if found.digest and found.single_file}
    digests |= {pointer.digest} if pointer and pointer.digest else set()
    require_free_names(wanted.place, wanted.shape, pointer, digests)
    retire_unpointed(wanted.place, manifests, pointer, wanted=wanted.shape.single_file)
    return pointer


def _manifests(context: TableContext, place: CopyPlace) -> list[Manifest]:
    """Return the manifests of a copy's complete versions."""
    found = [place_of(place.store, publication.location).manifest() for publication in _known(context, place)]
    return [manifest for manifest in found if manifest is not None]


def _finished_before(context: TableContext, wanted: WantedCopy, found: AsOf) -> Publication | None:
    """Return a version that is complete because a crash came before the switch; it is recorded as wanted now."""
    known = _known(context, wanted.place)
    if not known or wanted.place.is_former_layout(known[-1].location):
        return None
    place = place_of(wanted.place.store, known[-1].location)
    manifest = place.manifest()
    made = None if manifest is None else _finished(manifest, wanted, found.op, known)
    if manifest is None or made is None or not is_as_written(place, manifest):
        return None
    if made.registered == wanted.registered:
        return made
    return record_instead(context, replace(made, registered=wanted.registered))


def _free(place: VersionPlace) -> VersionPlace:
    """Return a place where nothing is that readers may have open.

    A folder that is renamed replaces another one in a step. Elsewhere files are written in place, and readers who are
    led there by a link or a catalog would find those of both versions.
    """
    if place.store.can_rename:
        return place
    for number in count(1):
        free = place if number == 1 else replace(place, version=f"{place.version}.{number}")
        tidy(free)
        if not place.store.files(free.folder):
            return free
    raise AssertionError


def withdraw_current(context: TableContext, publication: Publication, removed: Sequence[Publication]) -> None:
    """Remove what readers of a table's current state open, and the external table that points to it.

    Only where it leads to a version that is being removed: another table may have the former name of this one, and
    publish there.
    """
    place = _place_of(context, publication)
    pointer = place.pointer()
    if pointer is None and replace(place, mirror_uuid="").pointer() is not None:
        text = "%s is no longer that of %s: it was left"
        logger.warning(text, place.root, context.table, extra=event("publish.left"))
        return
    if pointer is not None and not any(_leads_to(pointer, version) for version in removed):
        return
    if pointer is not None and pointer.registered:
        unregister(context, pointer.registered, place.examples)
    retire_unpointed(place, _manifests(context, place), pointer)
    withdraw(place, pointer, [known.location for known in _known(context, place)])


def _leads_to(pointer: Pointer, version: Publication) -> bool:
    """Whether a pointer leads to this very version: one of another table may have the same name, and its folder."""
    return pointer.location in (None, version.location) and pointer.created in ("", version.created)


def _place_of(context: TableContext, publication: Publication) -> CopyPlace:
    """Return the place of the copy of which a publication is a version."""
    store = open_filesystem(context.spark, context.config, publication.location)
    return CopyPlace.of(store, publication.location, table_uuid(context))


def _known(context: TableContext, place: CopyPlace) -> list[Publication]:
    """Return the recorded versions of a copy, oldest first."""
    return [
        publication
        for publication in list_publications(context.mirror.metadata())
        if publication.kind is PublicationKind.CURRENT and place.holds(publication.location)
    ]


def _superseded(wanted: WantedCopy, known: Sequence[Publication]) -> list[Publication]:
    """Return the versions to remove: all but the newest ones, and those of the former layout, which readers scan."""
    kept = 1 if wanted.shape.single_file and not wanted.registered else KEPT_VERSIONS
    newest = {publication.id for publication in known[-kept:]}
    return [
        publication
        for publication in known
        if publication.id not in newest or wanted.place.is_former_layout(publication.location)
    ]


def _earlier(context: TableContext, wanted: WantedCopy, found: AsOf) -> list[EarlierVersion]:
    """Return the newest copy whose files can be shared, none where there is no folder for each date."""
    shape = wanted.shape
    if not shape.is_dated:
        return []
    locations = [publication.location for publication in reversed(_known(context, wanted.place))]
    chosen = shape.published_columns(str(context.table), found.at.bases.columns)
    return list(islice(earlier_versions(wanted.place.store, locations, shape, chosen), 1))


def _current_rows(context: TableContext) -> AsOf:
    """Return the mirror's rows at its newest snapshot, the state after its newest op."""
    bases = capture(context)
    at = point_in_time(context, op_moment(bases.applied))
    head = context.mirror.require_head().id if at.bases.mirror is None else at.bases.mirror.id
    return AsOf(at, context.mirror.read(head).select(*columns(at.names)), None, head)


def _written(
    context: TableContext,
    found: AsOf,
    place: VersionPlace,
    wanted: WantedCopy,
    earlier: Sequence[EarlierVersion],
    before: Callable[[], None],
) -> Publication:
    shape = wanted.shape
    chosen = shape.published_columns(str(context.table), found.at.bases.columns)
    folder_column = shape.folder_column(str(context.table), chosen)
    head = _described(context, found, place, shape, folder_column)
    rows = found.rows.select(*columns([lake_column.name for lake_column in chosen]))
    publications: list[Publication] = []

    def write(claim: Claim) -> Manifest:
        target = VersionTarget(claim.store, claim.folder, shape, chosen, folder_column)
        if folder_column:
            return write_dates(context, rows, target, head, earlier, claim)
        manifest = written(context, rows, target, head, former=claim.store.files(claim.folder))
        return _with_digest(claim, manifest) if shape.single_file else manifest

    def record(manifest: Manifest) -> None:
        before()
        made = publication_of(manifest, place.folder, PublicationKind.CURRENT, registered=wanted.registered)
        publications.append(record_instead(context, made))

    put_in_place(context, place, head.lineage.mirror_uuid, write, record)
    return publications[0]


def _described(
    context: TableContext, found: AsOf, place: VersionPlace, shape: FileShape, folder_column: str
) -> Manifest:
    """Return a copy's manifest as far as it is known before anything is written."""
    chosen = shape.published_columns(str(context.table), found.at.bases.columns)
    key, names = context.settings.primary_key, {lake_column.name for lake_column in chosen}
    return replace(
        describe(context, found, place, shape, folder_column),
        columns=chosen,
        primary_key=key if names.issuperset(key) else (),
        partition_by=shape.partition_by or None,
        chosen=shape.chosen or None,
        header=None if shape.header else False,
        single_file=shape.single_file or None,
    )


def _with_digest(claim: Claim, manifest: Manifest) -> Manifest:
    if len(manifest.files) != 1:
        msg = f"{claim.folder}: expected one file, and Spark wrote {len(manifest.files)}"
        raise BugError(msg)
    (file,) = manifest.files
    return replace(manifest, digest=claim.store.digest(f"{claim.folder}/{file}"))


def _switch(
    context: TableContext,
    wanted: WantedCopy,
    place: VersionPlace,
    made: Publication,
    pointer: Pointer | None,
    found: AsOf,
) -> None:
    """Switch readers to a version; the pointer is last, and shows the next run that nothing is left to do."""
    manifest = place.manifest()
    if manifest is None:
        msg = f"{place.folder} was published and has no manifest"
        raise BugError(msg)
    known = [publication.location for publication in _known(context, wanted.place)]
    place_version(wanted.place, place, manifest, pointer, known)
    context.reached(Step.PUBLISH_PLACED)
    if wanted.registered:
        comments = {field.name: text for field in found.rows.schema if (text := field.metadata.get("comment"))}
        register(context, made, comments)
    if pointer is not None and pointer.registered and pointer.registered.lower() != wanted.registered.lower():
        # It would go on pointing to a version that is about to be removed.
        unregister(context, pointer.registered, wanted.place.examples)
    wanted.place.write_pointer(
        Pointer(
            table=wanted.place.table,
            version=place.version,
            path=wanted.place.path_of(place),
            location=place.folder,
            file=manifest.single_file,
            digest=manifest.digest,
            registered=wanted.registered or None,
            symlinks=True if not (manifest.single_file or place.store.can_point) else None,
            op=made.op,
            rows=made.rows,
            content_hash=made.content_hash,
            created=made.created,
            mirror_uuid=manifest.lineage.mirror_uuid,
        )
    )
    context.reached(Step.PUBLISH_FLIPPED)
