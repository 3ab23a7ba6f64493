"""Every place that may hold rows of erased keys, scanned: before an erasure to tell what it would do, and as proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.lake.iceberg.define import APPLIED_STAMP, history_of
from lakeward.lake.iceberg.metadata import MAIN
from lakeward.lake.iceberg.purge import Stored, count_stored, stored_rows
from lakeward.pipeline.erased import keys_of_bad_rows
from lakeward.pipeline.kinds.erase import (
    CHANGELOG,
    MIRROR,
    doomed_in_changelog,
    doomed_in_mirror,
    references_by_snapshot,
)
from lakeward.snapshots.erasure.copies import HISTORY, doomed_in_history, published, rows_in_publication
from lakeward.snapshots.erasure.receipts import ErasedPlace
from lakeward.sources.dms.raw import TOLD
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.records import OpRecord


def found_places(context: TableContext, record: OpRecord) -> Iterator[ErasedPlace]:
    """Give the places that hold rows of the keys now; old snapshots, which expire whatever they hold, are left out."""
    for place, found in _scanned(context, record, only_heads=True):
        if found.files:
            yield ErasedPlace(place, found.rows, found.hidden, len(found.files))


def remaining(context: TableContext, record: OpRecord) -> Iterator[tuple[str, tuple[int, int]]]:
    """Give what every place holds of the keys' rows after the erasure: rows, hidden ones too, and files with them."""
    for place, found in _scanned(context, record, only_heads=False):
        yield place, (found.rows + found.hidden, len(found.files))


def untold_bad_rows(context: TableContext, record: OpRecord) -> int:
    """Count the bad rows whose text does not tell a key: whether they are of an erased one nobody knows."""
    head = context.changelog.require_head()
    log = context.changelog.read(head.id)
    bad = log.filter((column(S.KIND) == S.KIND_BAD) & (column(S.OP) < record.op))
    return keys_of_bad_rows(context, bad).filter(~column(TOLD)).count() if bad.take(1) else 0


def _scanned(context: TableContext, record: OpRecord, *, only_heads: bool) -> Iterator[tuple[str, Stored]]:
    """Scan the files of every kept snapshot, each once, and of every publication; hidden rows are found too."""
    mirror = context.mirror.metadata()
    for place, snapshot_id in _mirror_places(mirror, record, only_heads=only_heads):
        yield place, count_stored(doomed_in_mirror(context, record, snapshot_id))
    changelog = context.changelog.metadata()
    for number, snapshot_id in enumerate(_newest_first(changelog, only_heads=only_heads)):
        place = CHANGELOG if not number else f"{CHANGELOG} snapshot {snapshot_id}"
        yield place, count_stored(doomed_in_changelog(context, record, snapshot_id))
    history = history_of(context.spark, context.table)
    if (metadata := history.look()) is not None:
        for number, snapshot_id in enumerate(_newest_first(metadata, only_heads=only_heads)):
            place = HISTORY if not number else f"{HISTORY} snapshot {snapshot_id}"
            yield place, count_stored(doomed_in_history(context, record, stored_rows(history, snapshot_id)))
    for publication in published(context, record):
        yield f"publication {publication.location}", rows_in_publication(context, record, publication)


def _mirror_places(mirror: TableMetadata, record: OpRecord, *, only_heads: bool) -> Iterator[tuple[str, int]]:
    """Give the mirror's snapshots by what keeps them; states after the erasure hold new rows only."""
    names = {snapshot.id: references for snapshot, references in references_by_snapshot(mirror)}
    head = mirror.head(MAIN)
    for snapshot_id in mirror.snapshots():
        if int(mirror.stamp_at(APPLIED_STAMP, snapshot_id) or 0) > record.op:
            continue
        for name in names.get(snapshot_id, ()):
            yield f"{MIRROR} {name}", snapshot_id
        if head is not None and snapshot_id == head.id:
            yield MIRROR, snapshot_id
        elif snapshot_id not in names and not only_heads:
            yield f"{MIRROR} snapshot {snapshot_id}", snapshot_id


def _newest_first(metadata: TableMetadata, *, only_heads: bool) -> list[int]:
    """Give a table's snapshots, the head of ``main`` first or alone."""
    head = metadata.head(MAIN)
    if only_heads:
        return [head.id] if head else []
    return sorted(metadata.snapshots(), key=lambda one: (head is None or one != head.id, one))
