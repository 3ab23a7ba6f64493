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
_CARRIED = (
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
    stamps = {APPLIED_STAMP: str(record.op)}
    if progress.generation is not None:
        stamps[GENERATION_STAMP] = str(progress.generation.number)
    if progress.newest_commit is not None:
        stamps[COMMIT_STAMP] = str(progress.newest_commit)
    return stamps


def carried_stamps(table: TableMetadata, snapshot_id: int) -> dict[str, str]:
    """Give the stamps that hold at a snapshot, for a commit on top of it that changes no row."""
    found: dict[str, str] = {}
    for snapshot in table.lineage(snapshot_id):
        for name in _CARRIED:
            if name in snapshot.summary:
                found.setdefault(name, snapshot.summary[name])
        if len(found) == len(_CARRIED):
            break
    return found
