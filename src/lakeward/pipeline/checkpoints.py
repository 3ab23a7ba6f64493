"""States of a table that the lake still holds whole, from which a past state is reached with few changes.

Told from the mirror's metadata alone. A checkpoint serves a question only if nothing in it was committed after the
moment asked for, every op in it still stands, and no load part or repair came after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import DataError
from lakeward.lake.iceberg.define import APPLIED_STAMP, COMMIT_STAMP, GENERATION_STAMP, LOAD_STAMP, REPAIRED_STAMP
from lakeward.lake.iceberg.metadata import MAIN
from lakeward.pipeline.moments import MomentKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.lake.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.model import Progress, TableId
    from lakeward.pipeline.moments import Moment

# On the head of a tag that was computed for a time: changes committed later are not in it, though their ops are.
AS_OF_STAMP = "lakeward.as-of"


@dataclass(frozen=True)
class Checkpoint:
    """A kept state: all changes of its generation that ops up to ``op`` logged, committed up to ``until`` if given."""

    snapshot: int
    op: int
    until: int | None = None


def is_undone(op: int, undone: Iterable[tuple[int, int]]) -> bool:
    """Tell whether an op no longer stands."""
    return any(first <= op <= last for first, last in undone)


def load_at(mirror: TableMetadata, generation: int, progress: Progress) -> Snapshot | None:
    """Give the newest kept snapshot of a generation's load that stood at a progress, None where there is none."""
    loads = [one for one in mirror.snapshots().values() if one.summary.get(LOAD_STAMP)]
    own = [one for one in loads if one.summary.get(GENERATION_STAMP) == str(generation)]
    standing = [one for one in own if _op(one, LOAD_STAMP) <= progress.op and not _is_gone(one, progress)]
    # Written anew since, to erase rows, a load has the same op; the newest commit counts.
    return max(standing, key=lambda one: (_op(one, LOAD_STAMP), one.committed_ms), default=None)


def require_load(table: TableId, generation: int, load: Snapshot | None, op: int | None) -> None:
    """Refuse a past state whose load is gone: ``op`` brought the newest part of it by then, None: it had none.

    Raises:
        DataError: the load grew or was undone since, and what it was is no longer kept.
    """
    if op is not None and (load is None or _op(load, LOAD_STAMP) != op):
        msg = f"{table}: the load of generation {generation} as op {op} left it is no longer kept"
        hint = f"choose another op; undo_window says how long past states are kept (lakeward status {table})"
        raise DataError(msg, hint=hint)


def best_checkpoint(
    mirror: TableMetadata, moment: Moment, generation: int, progress: Progress, load: Snapshot | None
) -> Checkpoint | None:
    """Give the newest kept state that serves a question, None where only the load does."""
    if moment.kind is MomentKind.SEQUENCE:
        return None
    floor = max(_op(load, LOAD_STAMP) if load else 0, _last_repair(mirror))
    found = [
        (reached, op, Checkpoint(snapshot.id, op, until))
        for snapshot, until in _candidates(mirror)
        if snapshot.summary.get(GENERATION_STAMP) == str(generation)
        if (op := _op(snapshot, APPLIED_STAMP)) >= floor and op <= progress.op and not is_undone(op, progress.undone)
        if (reached := _reached(snapshot, until, moment)) is not None
    ]
    return max(found, key=lambda one: one[:2], default=(0, 0, None))[2]


def _candidates(mirror: TableMetadata) -> Iterator[tuple[Snapshot, int | None]]:
    """Give the states that ``main`` went through and those that tags hold."""
    snapshots = mirror.snapshots()
    head = mirror.head(MAIN)
    current = snapshots.get(head.id) if head else None
    while current is not None:
        if APPLIED_STAMP in current.summary and AS_OF_STAMP not in current.summary:
            yield current, None
        current = snapshots.get(current.parent) if current.parent is not None else None
    yield from _tagged(mirror.tags(), snapshots)


def _tagged(tags: Mapping[str, int], snapshots: Mapping[int, Snapshot]) -> Iterator[tuple[Snapshot, int | None]]:
    for snapshot_id in tags.values():
        snapshot = snapshots[snapshot_id]
        # A load says the op that brought its newest part, and holds no change of that op or of those before it.
        if APPLIED_STAMP in snapshot.summary and LOAD_STAMP not in snapshot.summary:
            until = snapshot.summary.get(AS_OF_STAMP)
            yield snapshot, int(until) if until is not None else None


def _reached(snapshot: Snapshot, until: int | None, moment: Moment) -> int | None:
    """Give the commit time that a state reaches up to; None where the state cannot serve the moment."""
    if moment.micros is None:
        return 0 if until is None else None
    newest = until if until is not None else _op(snapshot, COMMIT_STAMP)
    return newest if newest <= moment.micros else None


def _last_repair(mirror: TableMetadata) -> int:
    head = mirror.head(MAIN)
    return int(mirror.stamp_at(REPAIRED_STAMP, head.id) or 0) if head else 0


def _is_gone(snapshot: Snapshot, progress: Progress) -> bool:
    return is_undone(_op(snapshot, LOAD_STAMP), progress.undone)


def _op(snapshot: Snapshot, stamp: str) -> int:
    return int(snapshot.summary.get(stamp, 0))
