"""Make versions anew that late changes or an undo left behind; the former ones stay until the new are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.pipeline.moments import MomentKind
from lakeward.snapshots.versions.creating import FilesOrder, moment_of, publish_as_of
from lakeward.snapshots.versions.current import rebuild_current
from lakeward.snapshots.versions.files import place_of, publishing, tidy
from lakeward.snapshots.versions.listing import VersionState, judge
from lakeward.snapshots.versions.publications import PublicationKind
from lakeward.snapshots.versions.registering import renew_registration
from lakeward.snapshots.versions.shapes import Shape
from lakeward.snapshots.versions.tags import create_tag
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.versions.listing import Judged
    from lakeward.snapshots.versions.publications import Publication

_LEFT_BEHIND = (VersionState.STALE, VersionState.UNDONE)


def wanting(context: TableContext, version: str | None) -> list[Judged]:
    """Give the versions to make anew: stale and undone ones, or those of one name, missing ones among them."""
    found = [one for one in judge(context) if one.publication.kind is not PublicationKind.CURRENT]
    if version is not None:
        named = [one for one in found if one.publication.is_called(version)]
        return [one for one in named if one.state is not VersionState.CURRENT]
    return [one for one in found if one.state in _LEFT_BEHIND and may_change(one.publication)]


def may_change(publication: Publication) -> bool:
    """Tell whether making a version anew can change it: the state after an op is what it is, undone or not."""
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
