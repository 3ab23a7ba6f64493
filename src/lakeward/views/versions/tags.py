"""Versions as tags of the mirror, and dropping versions.

No file is copied for a tag: what differs from a kept snapshot is written on a branch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.iceberg.attempt import BRANCH_PREFIX, Attempt, drop_abandoned
from lakeward.iceberg.define import APPLIED_STAMP, COMMIT_STAMP, GENERATION_STAMP, empty_snapshot
from lakeward.iceberg.metadata import EMPTY_TAG, MAIN
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import AS_OF_STAMP, MomentKind
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import finish_interrupted
from lakeward.spark.workspace import Workspace
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import columns
from lakeward.transforms.fold import is_delete
from lakeward.views.versions.create import moment_text, record_instead
from lakeward.views.versions.folders import place_of, publishing, remove_folder, table_uuid, tidy
from lakeward.views.versions.manifest import (
    Publication,
    PublicationKind,
    forget_publications,
    list_publications,
    new_id,
)
from lakeward.views.versions.marks import remove_marks
from lakeward.views.versions.register import points_to, unregister
from lakeward.views.versions.schedule import unlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.as_of import AsOf
    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.fold import Folded


# Prefixes of Lakeward's own branches and tags.
_RESERVED = (BRANCH_PREFIX, "load-", "undone-", "lakeward-")


def create_tag(
    context: TableContext, moment: Moment, name: str, *, replacing: bool = False, former: Publication | None = None
) -> Publication:
    """Tag a table as of a moment. The caller holds the table's lease, because a branch of the mirror is written.

    ``former`` is the record of a tag that is rebuilt: retention counts from its first creation.

    Raises:
        ConfigurationError: the name cannot be used or is taken, or the table has no state for the moment.
    """
    _require_usable(name)
    metadata = drop_abandoned(context.mirror)
    known = list_publications(metadata) if metadata else []
    if metadata is not None:
        _require_free(context, name, metadata.references(), known, replacing=replacing or former is not None)
    # No other process can under the lease, and the tag would lack what the changelog already has.
    finish_interrupted(context)
    with Workspace() as workspace:
        found = rows_as_of(context, workspace, moment)
        context.reached(Step.PUBLISH_ROWS)
        made = _publication(found, name)
        made = replace(made, created=former.created) if former else made
        if found.folded is None and found.start is not None:
            head = next(context.mirror.lineage(found.start))
            return _set(context, made, head)
        return _written(context, found, made)


def _written(context: TableContext, found: AsOf, made: Publication) -> Publication:
    """Apply the differences to the kept snapshot, on a branch that never becomes ``main``."""
    base = found.start if found.start is not None else empty_snapshot(context.mirror)
    with Attempt(context.mirror, op=found.op, base=base) as attempt:
        if found.folded is None:
            attempt.append(found.rows, _stamps(found), expected=found.rows.count())
        else:
            _apply_differences(context, attempt, found, found.folded)
        context.reached(Step.PUBLISH_BRANCH)
        return _set(context, made, attempt.checked_head())


def _apply_differences(context: TableContext, attempt: Attempt, found: AsOf, folded: Folded) -> None:
    keys = context.settings.primary_key
    attempt.delete_keys(folded.rows.select(*columns(keys)), keys, without_nulls=folded.bounds)
    if folded.writes:
        writes = folded.rows.filter(~is_delete()).select(*columns(found.at.names))
        attempt.append(writes, _stamps(found), expected=folded.writes)
    else:
        attempt.stamp(_stamps(found))


def _stamps(found: AsOf) -> dict[str, str]:
    """Return the stamps by which later queries can start from this state.

    A state by sequence or by file cannot be used so: neither an op nor a commit time describes it.
    """
    moment = found.at.moment
    if moment.kind in (MomentKind.SEQUENCE, MomentKind.FILE):
        return {}
    stamps = {APPLIED_STAMP: str(found.op), GENERATION_STAMP: str(found.at.generation.number)}
    if moment.micros is not None:
        return {**stamps, COMMIT_STAMP: str(moment.micros), AS_OF_STAMP: str(moment.micros)}
    newest = found.at.progress.newest_commit
    return {**stamps, COMMIT_STAMP: str(newest)} if newest is not None else stamps


def _set(context: TableContext, made: Publication, head: Snapshot) -> Publication:
    """Set the tag and record it; after a crash in between, the version is listed as missing or as it was before."""
    context.permission.require()
    made = replace(made, rows=head.rows)
    if made.location in context.mirror.metadata().tags():
        context.mirror.replace_tag(made.location, head.id)
        context.reached(Step.PUBLISH_TAGGED)
        return record_instead(context, made)
    record_instead(context, made)
    context.reached(Step.PUBLISH_RECORDED)
    context.mirror.create_tag(made.location, head.id)
    return made


def drop_tags(context: TableContext, gone: Sequence[Publication]) -> None:
    """Remove tags, then their records. A point that loses a tag loses its mark first."""
    remove_marks(context.mirror, [publication.location for publication in gone])
    for publication in gone:
        context.mirror.drop_tag(publication.location)
        context.reached(Step.PUBLISH_UNTAGGED)
    forget_publications(context.mirror, [publication.id for publication in gone])


def _publication(found: AsOf, name: str) -> Publication:
    changelog = found.at.bases.changelog
    return Publication(
        id=new_id(),
        kind=PublicationKind.TAG,
        version=found.at.moment.label,
        moment=moment_text(found.at.moment),
        location=name,
        generation=found.at.generation.number,
        op=found.op,
        rows=0,
        content_hash="",
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        changelog=changelog.id if changelog else 0,
    )


def _require_usable(name: str) -> None:
    problem = None
    if not name.strip() or name in (MAIN, EMPTY_TAG) or name.startswith(_RESERVED):
        problem = f"Lakeward uses names such as main, {', '.join(_RESERVED)} itself"
    elif re.fullmatch(r"\d+", name):
        problem = "Spark would take it for the number of a snapshot"
    if problem:
        msg = f"a tag cannot be named {name!r}: {problem}"
        raise ConfigurationError(msg, hint="--tag ANOTHER-NAME")


def _require_free(
    context: TableContext, name: str, references: Sequence[str], known: Sequence[Publication], *, replacing: bool
) -> None:
    if name not in references:
        return
    if not any(publication.kind is PublicationKind.TAG and publication.location == name for publication in known):
        msg = f"{context.table} has a branch or tag {name!r} that is not a snapshot of Lakeward"
        raise ConfigurationError(msg, hint="--tag ANOTHER-NAME")
    if not replacing:
        msg = f"{context.table} has a tag {name!r} already; a version is overwritten only on request"
        raise ConfigurationError(msg, hint="the same command with --replace")


# Dropping versions: by name, by number and by age.


def beyond_retention(found: Iterable[Publication], *, keep: int | None, older_than: float | None) -> list[Publication]:
    """Return the versions to drop: in each folder, and among tags, all but the newest ``keep``, and those too old.

    ``older_than`` is an age in seconds. The newest version is the one created last. Copies of the current state have
    their own rule and are not counted.
    """
    groups: dict[str, list[Publication]] = defaultdict(list)
    for publication in found:
        if publication.kind is not PublicationKind.CURRENT:
            groups[_group(publication)].append(publication)
    limit = datetime.now(UTC) - timedelta(seconds=older_than) if older_than is not None else None
    gone: list[Publication] = []
    for group in groups.values():
        newest_first = sorted(group, key=lambda publication: (publication.created, publication.id), reverse=True)
        gone += [
            publication
            for position, publication in enumerate(newest_first)
            if (keep is not None and position >= keep)
            or (limit and datetime.fromisoformat(publication.created) < limit)
        ]
    return sorted(gone, key=lambda publication: (publication.created, publication.id))


def _group(publication: Publication) -> str:
    if publication.kind is not PublicationKind.TAG:
        return publication.location.rpartition("/")[0]
    # Tags of points count by themselves: other tags of one table must not decide which points all tables keep.
    return "points" if publication.is_of_point else ""


def drop_versions(context: TableContext, gone: Sequence[Publication]) -> None:
    """Remove versions and their records. The table's lease is not needed: a tag is removed by a single commit.

    Files are removed before records: what a crash leaves is still recorded, and the next call drops it.
    """
    if tags := [publication for publication in gone if publication.kind is PublicationKind.TAG]:
        drop_tags(context, tags)
    folders = [publication for publication in gone if publication.kind is not PublicationKind.TAG]
    if not folders:
        return
    with publishing(context) as lease:
        remove_versions(context, folders)
        lease.require()


def remove_versions(context: TableContext, folders: Sequence[Publication]) -> None:
    """Remove version folders one after the other; the caller holds the publishing lease.

    A version leaves the tables over all versions before its files go, and an external table that points to it, too.
    """
    mirror_uuid = table_uuid(context)
    for folder in folders:
        unlist(context, folder)
        if folder.registered and points_to(context, folder.registered, folder.location):
            unregister(context, folder.registered)
        place = place_of(open_filesystem(context.spark, context.config, folder.location), folder.location)
        tidy(place)
        remove_folder(place, mirror_uuid)
        context.reached(Step.PUBLISH_REMOVED)
        forget_publications(context.mirror, [folder.id])
        context.reached(Step.PUBLISH_FORGOTTEN)
