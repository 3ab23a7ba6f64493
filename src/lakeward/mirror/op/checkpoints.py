"""Moments, and checkpoints: complete states that the lake still holds, from which past states need few changes.

A moment is a day, a time, an op or a position in the source's change sequence. Checkpoints are found from the mirror's
metadata alone. One can be used only if nothing in it was committed after the moment, no op in it is undone, and no load
part or repair came after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError
from lakeward.formats.dms.changes import SEQUENCE_DIGITS
from lakeward.iceberg.define import APPLIED_STAMP, COMMIT_STAMP, GENERATION_STAMP, LOAD_STAMP, REPAIRED_STAMP
from lakeward.iceberg.metadata import MAIN
from lakeward.model import micros_of, time_digits
from lakeward.text import time_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from zoneinfo import ZoneInfo

    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.model import Progress, TableId


_OP = re.compile(r"op:(\d{1,18})", re.ASCII)
_SEQUENCE = re.compile(rf"sequence:(\d{{1,{SEQUENCE_DIGITS}}})", re.ASCII)
_DMS_SEQUENCE_DIGITS = 35
# Python accepts more forms of ISO 8601, such as days without dashes and weeks, and reads them as midnight.
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(rf"{_DAY.pattern}[T ]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)


class MomentKind(StrEnum):
    """The kinds of moments."""

    TIME = "time"
    OP = "op"
    SEQUENCE = "sequence"
    FILE = "file"


@dataclass(frozen=True)
class Moment:
    """The end of a moment: everything up to ``limit`` counts, ``limit`` included.

    ``limit`` is microseconds since 1970, an op number, a change sequence padded as the changelog keeps it, or the time
    in the name of a file, in 20 digits: then all changes of files named up to it count, whatever their commit times.
    ``label`` names the moment in files and lists.
    """

    kind: MomentKind
    limit: int | str
    label: str

    def is_after(self, other: Moment) -> bool:
        """Whether it comes after another moment of its kind."""
        # Sequences are padded to one length, so that their texts are in their order.
        mine, others = self.limit, other.limit
        return mine > others if isinstance(mine, str) and isinstance(others, str) else int(mine) > int(others)

    @property
    def op(self) -> int | None:
        """The op, where the moment is an op."""
        return int(self.limit) if self.kind is MomentKind.OP else None

    @property
    def micros(self) -> int | None:
        """The time in microseconds since 1970, where the moment is a time."""
        return int(self.limit) if self.kind is MomentKind.TIME else None

    @property
    def digits(self) -> str:
        """The moment as the 20 digits of file name times; empty for an op."""
        if self.kind is MomentKind.TIME:
            return time_digits(int(self.limit))
        if self.kind is MomentKind.FILE:
            return str(self.limit)
        if self.kind is MomentKind.SEQUENCE:
            # A DMS change sequence has 35 digits and begins with the time of the commit, YYYYMMDDHHMMSS and hundredths;
            # any other number can only be of the newest generation.
            number = str(self.limit).lstrip("0")
            return number[:16].ljust(20, "9") if len(number) == _DMS_SEQUENCE_DIGITS else "9" * 20
        return ""


def op_moment(op: int) -> Moment:
    """Return the moment after an op."""
    return Moment(MomentKind.OP, op, f"op-{op}")


def file_moment(digits: str) -> Moment:
    """Return the moment after all files whose names have a time, as 20 digits, up to this one."""
    return Moment(MomentKind.FILE, digits, f"file-{digits}")


def parse_moment(text: str, timezone: str = "UTC") -> Moment:
    """Parse ``2020-11-14`` (the whole day), ``2020-11-14T10:30:00``, ``op:41`` or ``sequence:20201114103000…``.

    Days, and times without an offset, count in ``timezone``.

    Raises:
        ConfigurationError: the text is no moment.
    """
    if match := _OP.fullmatch(text):
        return op_moment(int(match[1]))
    if match := _SEQUENCE.fullmatch(text):
        return Moment(MomentKind.SEQUENCE, match[1].rjust(SEQUENCE_DIGITS, "0"), f"sequence-{match[1]}")
    zone = time_zone(timezone, "timezone")
    try:
        if _DAY.fullmatch(text):
            return _day(text, zone)
        if _TIME.fullmatch(text):
            return _time(text, zone)
    except (ValueError, OverflowError) as error:
        raise _no_moment(text) from error
    raise _no_moment(text)


def _no_moment(text: str) -> ConfigurationError:
    msg = f"{text!r} is not a moment; expected 2020-11-14, 2020-11-14T10:30:00, op:41 or sequence:NUMBER"
    return ConfigurationError(msg)


def _day(text: str, zone: ZoneInfo) -> Moment:
    following = date.fromisoformat(text) + timedelta(days=1)
    midnight = datetime.combine(following, time(), tzinfo=zone)
    return Moment(MomentKind.TIME, micros_of(midnight) - 1, text)


def _time(text: str, zone: ZoneInfo) -> Moment:
    found = datetime.fromisoformat(text)
    instant = (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    fraction = f".{instant.microsecond:06d}" if instant.microsecond else ""
    return Moment(MomentKind.TIME, micros_of(instant), f"{instant.year:04d}-{instant:%m-%dT%H%M%S}{fraction}Z")


# On the head of a tag that was computed for a time: later commits of the ops that it covers are not in it.
AS_OF_STAMP = "lakeward.as-of"


@dataclass(frozen=True)
class Checkpoint:
    """A kept state: all changes of its generation logged up to ``op`` and, if set, committed up to ``until``."""

    snapshot: int
    op: int
    until: int | None = None


def is_undone(op: int, undone: Iterable[tuple[int, int]]) -> bool:
    """Whether an op is undone."""
    return any(first <= op <= last for first, last in undone)


def load_at(mirror: TableMetadata, generation: int, progress: Progress) -> Snapshot | None:
    """Return the newest kept snapshot of a generation's load at a progress, None where there is none."""
    loads = [snapshot for snapshot in mirror.snapshots().values() if snapshot.summary.get(LOAD_STAMP)]
    own = [load for load in loads if load.summary.get(GENERATION_STAMP) == str(generation)]
    standing = [load for load in own if _op(load, LOAD_STAMP) <= progress.op and not _is_gone(load, progress)]
    # A load that an erasure rewrote keeps its op; the newest commit counts.
    return max(standing, key=lambda load: (_op(load, LOAD_STAMP), load.committed_ms), default=None)


def require_load(table: TableId, generation: int, load: Snapshot | None, op: int | None) -> None:
    """Refuse a past state whose load is gone. ``op`` read its newest part by then, None if it had none.

    Raises:
        DataError: the load grew or was undone since, and its earlier state is no longer kept.
    """
    if op is not None and (load is None or _op(load, LOAD_STAMP) != op):
        msg = f"{table}: the load of generation {generation} as op {op} left it is no longer kept"
        hint = f"choose another op; undo_window sets how long past states are kept (lakeward status {table})"
        raise DataError(msg, hint=hint)


def best_checkpoint(
    mirror: TableMetadata,
    moment: Moment,
    generation: int,
    progress: Progress,
    load: Snapshot | None,
    *,
    newest_op: int | None = None,
) -> Checkpoint | None:
    """Return the newest kept state that can be used for a moment, None where only the load can.

    ``newest_op`` is the newest op up to which every change counts at the moment, where the metadata does not show it.
    """
    if moment.kind is MomentKind.SEQUENCE:
        return None
    last = progress.op if newest_op is None else min(newest_op, progress.op)
    floor = max(_op(load, LOAD_STAMP) if load else 0, _last_repair(mirror))
    found = [
        (reached, op, Checkpoint(snapshot.id, op, until))
        for snapshot, until in _candidates(mirror)
        if snapshot.summary.get(GENERATION_STAMP) == str(generation)
        if (op := _op(snapshot, APPLIED_STAMP)) >= floor and op <= last and not is_undone(op, progress.undone)
        if (reached := _reached(snapshot, until, moment)) is not None
    ]
    return max(found, key=lambda candidate: candidate[:2], default=(0, 0, None))[2]


def _candidates(mirror: TableMetadata) -> Iterator[tuple[Snapshot, int | None]]:
    """Yield the past states of ``main`` and those that tags hold."""
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
        # A load is stamped with the op of its newest part, but holds no changes of that op or earlier ones.
        if APPLIED_STAMP in snapshot.summary and LOAD_STAMP not in snapshot.summary:
            until = snapshot.summary.get(AS_OF_STAMP)
            yield snapshot, int(until) if until is not None else None


def _reached(snapshot: Snapshot, until: int | None, moment: Moment) -> int | None:
    """Return the newest commit time in a state, None where the state cannot be used for the moment."""
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
