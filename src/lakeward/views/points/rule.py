"""The rule by which a point is proven: a moment at which all tables of a group show one state of their database.

A candidate is the end of the transaction files named up to some time. It is a point if no transaction spans it and
every table is complete there. Plain values only: the evidence is collected in ``evidence.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import digits
from typing import TYPE_CHECKING

from lakeward.documents import Document
from lakeward.model import USUAL_LAG_US, digits_micros, utc_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model import Place

PREFIX = "point-"
_TIME_DIGITS = 20


@dataclass(frozen=True)
class Bar:
    """Why a table is complete at no point from a transaction file on; an empty ``time`` stands for all points."""

    time: str
    reason: str


@dataclass(frozen=True)
class LoadEnd:
    """The latest moment at which rows of a load may have been read at the source, in microseconds since 1970."""

    micros: int
    evidence: str
    is_declared: bool = False


@dataclass(frozen=True)
class GroupTable:
    """What is known of a table's load and its completeness, apart from single files.

    ``since``: the 20 digits before which it has no known state. ``load_end`` is None where it has no load.
    """

    name: str
    since: str = ""
    load_end: LoadEnd | None = None
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class HeldRows:
    """The good rows of one table in the files between one candidate and the next.

    ``oldest`` and ``newest`` are commit times in microseconds since 1970, None where no row has one. ``is_timed``:
    every row has one. ``first`` and ``last`` are places in the table's order, ``begins`` is the name time of the first
    file with rows.
    """

    oldest: int | None = None
    newest: int | None = None
    is_timed: bool = True
    first: Place | None = None
    last: Place | None = None
    begins: str | None = None


@dataclass(frozen=True)
class Prevented(Document):
    """Why a candidate is no point; ``table`` is None where the reason concerns the files themselves."""

    table: str | None
    reason: str


@dataclass(frozen=True)
class Candidate:
    """The end of the transaction files named up to ``time``, in 20 digits, and what prevents it from being a point.

    ``committed`` is the latest commit time of the group's changes up to it, in microseconds since 1970.
    """

    time: str
    committed: int | None = None
    prevented: tuple[Prevented, ...] = ()


def point_name(time: str) -> str:
    """Return a candidate's name, ``point-2024-03-27T014303.888Z``, which is the tag's name too."""
    fraction = time[14:].rstrip("0")
    clock = f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:14]}"
    return f"{PREFIX}{clock}{'.' if fraction else ''}{fraction}Z"


def point_time(name: str) -> str | None:
    """Return the 20 digits of a point's name, None for a text that is no such name."""
    time = "".join(character for character in name if character in digits).ljust(_TIME_DIGITS, "0")
    if len(time) != _TIME_DIGITS or point_name(time) != name:
        return None
    try:
        digits_micros(time)
    except ValueError:
        return None
    return time


def judge(
    times: Sequence[str], tables: Sequence[GroupTable], held: Mapping[tuple[str, int], HeldRows], *, declared: bool
) -> list[Candidate]:
    """Return the candidates at the given times, ascending, each with what prevents it.

    Args:
        times: ends of transaction files, ascending, in 20 digits.
        tables: the tables of the group.
        held: by table and number of candidate ``n``, the rows of files named after candidate ``n - 1`` and up to
            candidate ``n``; the number ``len(times)`` stands for all files after the last candidate.
        declared: the user declares that every transaction ends with its file and none is written twice.
    """
    return [_judged(time, tables, _sides(times, tables, held, number), declared) for number, time in enumerate(times)]


@dataclass(frozen=True)
class _Sides:
    """The rows of each table up to a candidate, and those after it, as far as they were read.

    ``unknown``: a table that did not take in all rows up to the first file with later ones, and why. It may hold more
    rows of the last transaction.
    """

    before: dict[str, HeldRows]
    after: dict[str, HeldRows]
    unknown: str | None = None

    @property
    def untimed(self) -> str | None:
        """A table with rows that have no commit time."""
        found = (name for side in (self.before, self.after) for name, rows in side.items() if not rows.is_timed)
        return min(found, default=None)

    @property
    def newest(self) -> int | None:
        return max((rows.newest for rows in self.before.values() if rows.newest is not None), default=None)

    @property
    def following(self) -> int | None:
        """The earliest commit time after the candidate, None where it is not known for all tables."""
        if self.unknown is not None:
            return None
        return min((rows.oldest for rows in self.after.values() if rows.oldest is not None), default=None)


def _sides(
    times: Sequence[str], tables: Sequence[GroupTable], held: Mapping[tuple[str, int], HeldRows], number: int
) -> _Sides:
    before, after = (
        {
            table.name: merged([held[table.name, span] for span in spans if (table.name, span) in held])
            for table in tables
        }
        for spans in (range(number + 1), range(number + 1, len(times) + 1))
    )
    begins = merged([*after.values()]).begins
    bars = ((bar.time, table.name, bar.reason) for table in tables for bar in table.bars)
    first = min((bar for bar in bars if begins is not None and times[number] < bar[0] <= begins), default=None)
    return _Sides(before, after, f"{first[1]}: {first[2]}" if first else None)


def merged(rows: Sequence[HeldRows]) -> HeldRows:
    """Return the summary of several ranges of files."""
    return HeldRows(
        min((part.oldest for part in rows if part.oldest is not None), default=None),
        max((part.newest for part in rows if part.newest is not None), default=None),
        all(part.is_timed for part in rows),
        min((part.first for part in rows if part.first is not None), default=None),
        max((part.last for part in rows if part.last is not None), default=None),
        min((part.begins for part in rows if part.begins is not None), default=None),
    )


def _judged(time: str, tables: Sequence[GroupTable], sides: _Sides, declared: bool) -> Candidate:
    spanned = None if declared else _spanned(sides)
    incomplete = [(table.name, _incomplete(time, table, sides)) for table in tables]
    prevented = [Prevented(name, reason) for name, reason in [(None, spanned), *incomplete] if reason]
    return Candidate(time, sides.newest, tuple(prevented))


def _spanned(sides: _Sides) -> str | None:
    """Return why a transaction may span a candidate: DMS divides large transactions among files.

    Rows of one transaction have one commit time, so that none spans a place between two different times.
    """
    if sides.untimed is not None:
        return (
            f"changes of {sides.untimed} have no commit times (timestamp_column), which would show that a transaction "
            "ends here; whole_transactions declares it"
        )
    newest, following = sides.newest, sides.following
    if sides.unknown is not None:
        return f"it is unknown whether the last transaction continues in the next file ({sides.unknown})"
    if following is None:
        return "no change that was committed later has arrived: the last transaction may continue in the next file"
    if newest is not None and following <= newest:
        return (
            f"a later file holds changes committed at {shown(following)}, and the files up to here hold some of "
            f"{shown(newest)}: a transaction may be in both, or files may repeat changes"
        )
    return None


def _incomplete(time: str, table: GroupTable, sides: _Sides) -> str | None:
    """Return why a table is not complete at a candidate; of several reasons the one that began first."""
    if time < table.since:
        return f"its state is known from {shown(digits_micros(table.since))} on"
    barring = [bar for bar in table.bars if bar.time <= time]
    if barring:
        return min(barring, key=lambda bar: bar.time).reason
    last, first = sides.before[table.name].last, sides.after[table.name].first
    if last is not None and first is not None and first <= last:
        return f"{first.file}, a later file, holds changes that precede some of those up to here"
    return _within_load(time, table.load_end, sides)


def _within_load(time: str, load: LoadEnd | None, sides: _Sides) -> str | None:
    """Return why a load may hold transactions that follow a candidate."""
    if load is None:
        return None
    added = ""
    if sides.untimed is not None or (sides.following is None and sides.newest is None):
        # Only the file's name shows a time, and what it holds was committed before.
        lag = 0 if load.is_declared else USUAL_LAG_US
        is_after, added = digits_micros(time) > load.micros + lag, ", and an hour is added for the lag" if lag else ""
    elif sides.following is not None:
        is_after = sides.following > load.micros
    else:
        is_after = (sides.newest or 0) > load.micros
    if is_after:
        return None
    return (
        f"its load may hold later transactions: it may have lasted until {shown(load.micros)} ({load.evidence}{added})"
    )


def shown(micros: int) -> str:
    """Return a time for messages."""
    return utc_time(micros).isoformat().replace("+00:00", "Z")
