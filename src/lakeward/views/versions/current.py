"""The current state as plain files: a new version is written beside the old, then one pointer is switched.

Dates whose rows did not change are not written again: their files are linked from the previous version.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.as_of import AsOf, point_in_time
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.steps import Step
from lakeward.storage.filesystem import open_filesystem
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
from lakeward.views.versions.folders import VersionPlace, place_of, publishing, put_in_place, table_root, tidy
from lakeward.views.versions.layouts import FileShape, VersionTarget
from lakeward.views.versions.manifest import PublicationKind, list_publications
from lakeward.views.versions.tags import remove_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.claims import Claim
    from lakeward.views.versions.dates import EarlierVersion
    from lakeward.views.versions.manifest import Manifest, Publication

POINTER, LINK = "_current.json", "current"
# Readers that opened the previous version before the switch can finish.
KEPT_VERSIONS = 2


def publish_current(context: TableContext) -> Publication | None:
    """Update the plain copy of a table to its mirror; return None where nothing changed or nothing is published.

    The caller holds the table's lease.
    """
    settings = context.settings.publish
    if settings is None:
        return None
    bases = capture(context)
    if bases.mirror is None or not bases.applied:
        return None
    to = context.config.resolve(settings.to)
    shape = FileShape(settings.format, settings.layout, settings.date_column or "", context.config.timezone)
    place = VersionPlace(
        open_filesystem(context.spark, context.config, to),
        table_root(to, context.table),
        op_moment(bases.applied).label,
    )
    known = _known(context, place.root)
    if not _is_published(place, shape, known):
        with publishing(context) as lease:
            tidy(place)
            return _publish(context, place, shape, lease.require)
    if len(known) > KEPT_VERSIONS:
        # A crash came after the switch and before the old versions were removed.
        with publishing(context):
            remove_versions(context, known[:-KEPT_VERSIONS])
    return None


def rebuild_current(context: TableContext, publication: Publication) -> Publication:
    """Rebuild the copy of the current state, and remove all older copies."""
    store = open_filesystem(context.spark, context.config, publication.location)
    former = place_of(store, publication.location)
    timezone = context.config.timezone
    shape = FileShape(publication.format, publication.layout, publication.date_column, timezone)
    place = replace(former, version=op_moment(capture(context).applied).label)
    with publishing(context) as lease:
        tidy(place)
        made = _publish(context, place, shape, lease.require, from_scratch=True)
        own = _known(context, place.root)
        remove_versions(context, [publication for publication in own if publication.id != made.id])
    return made


def _publish(
    context: TableContext,
    place: VersionPlace,
    shape: FileShape,
    before: Callable[[], None],
    *,
    from_scratch: bool = False,
) -> Publication:
    _require_own_pointer(place, str(context.table))
    while True:
        found = _current_rows(context)
        earlier = [] if from_scratch else _earlier(context, place, shape, found)
        require_erasures_applied(context, found.at.bases)
        context.reached(Step.PUBLISH_ROWS)
        made = _written(context, found, place, shape, earlier, before)
        _switch(context, place, made)
        from_scratch = is_erased_since(context, found.at.bases.logged)
        if not from_scratch:
            break
    remove_versions(context, _known(context, place.root)[:-KEPT_VERSIONS])
    return made


def _is_published(place: VersionPlace, shape: FileShape, known: Sequence[Publication]) -> bool:
    """Whether the mirror's newest op is published already, in the wanted shape."""
    manifest = place.manifest()
    if manifest is None or _pointed(place) != place.version:
        return False
    return manifest.shape == shape and any(publication.id == manifest.id for publication in known)


def _pointed(place: VersionPlace) -> str | None:
    """Return the version that the pointer names, None where there is no readable pointer."""
    text = place.store.read_text(f"{place.root}/{POINTER}")
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return str(found.get("version")) if isinstance(found, dict) else None


def _require_own_pointer(place: VersionPlace, table: str) -> None:
    """Refuse to replace a foreign file that has the pointer's name."""
    text = place.store.read_text(f"{place.root}/{POINTER}")
    if text is None:
        return
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("table") != table or "version" not in found:
        msg = f"{place.root}/{POINTER} exists and does not point to a version of {table}: it is not replaced"
        raise ConfigurationError(msg, hint="inspect it, and move it elsewhere, or publish to another folder")


def _known(context: TableContext, root: str) -> list[Publication]:
    """Return the recorded copies below a folder, oldest first."""
    found = list_publications(context.mirror.metadata())
    return [
        publication
        for publication in found
        if publication.kind is PublicationKind.CURRENT and publication.location.startswith(f"{root}/")
    ]


def _earlier(context: TableContext, place: VersionPlace, shape: FileShape, found: AsOf) -> list[EarlierVersion]:
    """Return the newest copy whose files can be shared, none for the flat layout."""
    if not shape.is_dated:
        return []
    locations = [publication.location for publication in reversed(_known(context, place.root))]
    return list(islice(earlier_versions(place.store, locations, shape, found.at.bases.columns), 1))


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
    shape: FileShape,
    earlier: Sequence[EarlierVersion],
    before: Callable[[], None],
) -> Publication:
    folder_column = shape.folder_column(str(context.table), found.at.bases.columns)
    head = describe(context, found, place.version, shape, folder_column)
    publications: list[Publication] = []

    def write(claim: Claim) -> Manifest:
        target = VersionTarget(claim.store, claim.folder, shape, found.at.bases.columns, folder_column)
        if folder_column:
            return write_dates(context, found.rows, target, head, earlier, claim)
        return written(context, found.rows, target, head, former=claim.store.files(claim.folder))

    def record(manifest: Manifest) -> None:
        before()
        made = publication_of(manifest, place.folder, PublicationKind.CURRENT)
        publications.append(record_instead(context, made))

    put_in_place(context, place, head.lineage.mirror_uuid, write, record)
    return publications[0]


def _switch(context: TableContext, place: VersionPlace, made: Publication) -> None:
    """Switch readers to the new version in one step."""
    pointer: Mapping[str, object] = {
        "table": str(context.table),
        "version": place.version,
        "path": place.name,
        "op": made.op,
        "rows": made.rows,
        "content_hash": made.content_hash,
        "created": made.created,
    }
    # The link comes first: where its name is taken by something else, the pointer must not be switched either.
    place.store.point(place.root, LINK, place.name)
    place.store.write_text(f"{place.root}/{POINTER}", json.dumps(pointer, ensure_ascii=False, indent=2) + "\n")
    context.reached(Step.PUBLISH_FLIPPED)
