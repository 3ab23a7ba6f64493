"""Drop versions: those named, those beyond a number, those of an age."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.pipeline.steps import Step
from lakeward.snapshots.versions.creating import table_uuid
from lakeward.snapshots.versions.files import place_of, publishing, remove_folder, tidy
from lakeward.snapshots.versions.publications import PublicationKind, forget_publications
from lakeward.snapshots.versions.tags import drop_tags
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.versions.publications import Publication


def beyond(found: Iterable[Publication], *, keep: int | None, older_than: float | None) -> list[Publication]:
    """Give the versions that retention lets go: in each folder, and among tags, all but the newest ``keep``.

    ``older_than`` is an age in seconds. Newest is what was made last. The copy of the current state is not counted: it
    has a rule of its own.
    """
    groups: dict[str, list[Publication]] = defaultdict(list)
    for one in found:
        if one.kind is not PublicationKind.CURRENT:
            groups[_group(one)].append(one)
    limit = datetime.now(UTC) - timedelta(seconds=older_than) if older_than is not None else None
    gone: list[Publication] = []
    for group in groups.values():
        newest_first = sorted(group, key=lambda one: (one.created, one.id), reverse=True)
        gone += [
            one
            for position, one in enumerate(newest_first)
            if (keep is not None and position >= keep) or (limit and datetime.fromisoformat(one.created) < limit)
        ]
    return sorted(gone, key=lambda one: (one.created, one.id))


def _group(one: Publication) -> str:
    return "" if one.kind is PublicationKind.TAG else one.location.rpartition("/")[0]


def drop_versions(context: TableContext, gone: Sequence[Publication]) -> None:
    """Remove versions and forget them. The table's lease is not needed: a tag goes by one commit of its own.

    Files go first and records last: what a crash leaves is still known, and is dropped by the next call.
    """
    if tags := [one for one in gone if one.kind is PublicationKind.TAG]:
        drop_tags(context, tags)
    folders = [one for one in gone if one.kind is not PublicationKind.TAG]
    if not folders:
        return
    with publishing(context) as lease:
        remove_versions(context, folders)
        lease.require()


def remove_versions(context: TableContext, folders: Sequence[Publication]) -> None:
    """Remove version folders one after the other; the caller holds the publishing lease."""
    mirror_uuid = table_uuid(context)
    for one in folders:
        place = place_of(open_filesystem(context.spark, context.config, one.location), one.location)
        tidy(place)
        remove_folder(place, mirror_uuid)
        context.reached(Step.PUBLISH_REMOVED)
        forget_publications(context.mirror, [one.id])
        context.reached(Step.PUBLISH_FORGOTTEN)
