"""Which snapshots of a table nobody needs any more, and removing them with the files that only they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.lake.iceberg.table import IcebergTable


def expirable(
    snapshots: Mapping[int, Snapshot],
    *,
    branches: Mapping[str, int],
    tags: Mapping[str, int],
    before_ms: int,
    stamps: Collection[str],
) -> list[int]:
    """Give the snapshots that may go, oldest first.

    Kept is what a tag stands at, what was made since ``before_ms``, and of each branch its head, all that follows the
    state that held at that moment, that state itself, and whatever says one of ``stamps`` last.
    """
    kept = {*tags.values()}
    for head in branches.values():
        kept |= {one.id for one in _needed(snapshots, head, before_ms, stamps)}
    gone = [one for one in snapshots.values() if one.id not in kept and one.committed_ms < before_ms]
    return [one.id for one in sorted(gone, key=lambda one: (one.committed_ms, one.id))]


def _needed(
    snapshots: Mapping[int, Snapshot], head: int, before_ms: int, stamps: Collection[str]
) -> Iterator[Snapshot]:
    """Give a branch's snapshots from its head back to the state that held at a moment."""
    said: set[str] = set()
    wanted = {name for one in _lineage(snapshots, head) for name in stamps if name in one.summary}
    for one in _lineage(snapshots, head):
        yield one
        said |= wanted & set(one.summary)
        # Commits between an op's first and its last say nothing: no state that anybody saw.
        if one.committed_ms < before_ms and said == wanted and (not wanted or wanted & set(one.summary)):
            return


def _lineage(snapshots: Mapping[int, Snapshot], head: int) -> Iterator[Snapshot]:
    current = snapshots.get(head)
    while current is not None:
        yield current
        current = snapshots.get(current.parent) if current.parent is not None else None


def expire(table: IcebergTable, snapshot_ids: Sequence[int]) -> None:
    """Remove snapshots that no branch or tag stands at, and the files that no other snapshot needs."""
    with commit_errors(table.identifier):
        # Age decides nothing here: what is named goes, and nothing else does.
        expiry = table.load().expireSnapshots().expireOlderThan(0)
        for snapshot_id in snapshot_ids:
            expiry = expiry.expireSnapshotId(snapshot_id)
        expiry.cleanExpiredFiles(True).commit()
