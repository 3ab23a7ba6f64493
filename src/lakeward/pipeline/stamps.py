"""What Lakeward's commits on a mirror say of themselves, so that its metadata alone tells how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.lake.iceberg.attempt import ROWS_STAMP
from lakeward.lake.iceberg.define import (
    APPLIED_STAMP,
    BAD_ROWS_STAMP,
    COMMIT_STAMP,
    GENERATION_STAMP,
    LOAD_STAMP,
    LOGGED_STAMP,
    REPAIRED_STAMP,
)

if TYPE_CHECKING:
    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.pipeline.records import OpRecord

# Whoever commits to a branch of a mirror or to a changelog repeats these: older snapshots expire.
CARRIED = (
    APPLIED_STAMP,
    GENERATION_STAMP,
    COMMIT_STAMP,
    ROWS_STAMP,
    LOAD_STAMP,
    REPAIRED_STAMP,
    LOGGED_STAMP,
    BAD_ROWS_STAMP,
)


def applied_stamps(record: OpRecord) -> dict[str, str]:
    """Give the stamps of a mirror commit that brings an op."""
    progress = record.progress
    # Nothing is said as 0 and not left out: an older commit would be taken to say it, of ops that were undone since.
    return {
        APPLIED_STAMP: str(record.op),
        GENERATION_STAMP: str(progress.generation.number if progress.generation else 0),
        COMMIT_STAMP: str(progress.newest_commit or 0),
    }


def carried_stamps(table: TableMetadata, snapshot_id: int) -> dict[str, str]:
    """Give the stamps that hold at a snapshot, for a commit on top of it that changes no row."""
    found: dict[str, str] = {}
    # All at once: a stamp that no snapshot has is looked for in every one of them.
    snapshots = table.snapshots()
    current = snapshots.get(snapshot_id)
    while current is not None and len(found) < len(CARRIED):
        for name in CARRIED:
            # Further on, a state of main holds changes as well: one that says it too would be taken for the load.
            is_said = name != LOAD_STAMP or current.id == snapshot_id
            if is_said and name in current.summary:
                found.setdefault(name, current.summary[name])
        current = snapshots.get(current.parent) if current.parent is not None else None
    return found
