"""The row on which each change of a key acts, where rows change their keys.

One statement may shift, swap or rotate keys. Its changes follow each other in the files, so that for a while a key
seems to have several rows: its *occupants*. Two readings are possible. As a **set**, the changes of one commit happen
together: a change acts on the occupant that its before image describes, otherwise on the earliest, and at the end of
the commit the key holds the one that arrived last. Read **single**, each change acts on the row that the change before
it left. Where it is unknown whether changes belong to one commit, the contents of the rows decide; where they do not
decide and the readings end differently, the key is in doubt.

This is plain Python for one key at a time: the occupants of one key never depend on those of another, however long a
chain of moves is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Reading = Literal["set", "single"]
# One comparable value per column outside the key, None where it is unknown.
Content = tuple[Any, ...]
_TWO = 2


class EventKind(IntEnum):
    """The effect of a change on its key."""

    BASE = 0
    WRITE = 1
    INSERT = 2
    ARRIVE = 3
    LEAVE = 4
    DELETE = 5


class Event(NamedTuple):
    """One change of a key, in the order of the changes.

    ``commit`` is equal for changes that may belong to one commit; with ``is_known`` they certainly do. ``token`` is the
    same for a change that was delivered twice. ``content`` is what a write leaves, what a delete names, or the before
    image of a departure. ``arrived`` is what a departing row became under its new key, ``is_partial`` whether the
    arrival takes columns over from it.

    ``has_landed`` marks a departure whose arrival found an equal row: the state that folding began with may be newer
    than the move.
    """

    kind: EventKind
    commit: object = None
    is_known: bool = False
    token: object = None
    content: Content | None = None
    arrived: Content | None = None
    is_partial: bool = False
    has_landed: bool = False


@dataclass
class Arrangement:
    """The outcome of a key's events.

    Applied in order, the ``kept`` ones leave the right row at the end of every commit. ``taken`` has, for each event
    that wrote to a row, the departure that removed the row. ``found`` is, for an arrival, whether an equal row was
    there from the beginning. ``doubt`` is the first event that nothing decides.
    """

    kept: list[bool]
    taken: list[int | None]
    found: list[bool]
    doubt: int | None = None


# The events that made a row, the last first; a chain, because there may be a million of them.
_Chain = tuple[int, "_Chain | None"]


@dataclass
class _Occupant:
    """A row under the key: the events that made it from ``first`` on, and what is known of its content."""

    first: int
    chain: _Chain
    content: Content | None
    is_base: bool = False
    # What an insert replaced: the source may have had both rows, if one of them leaves in the same commit.
    replaced: _Occupant | None = None

    def copy(self) -> _Occupant:
        return _Occupant(self.first, self.chain, self.content, self.is_base)

    def events(self, since: int = 0) -> Iterator[int]:
        """Yield the events from an index on, the last one first."""
        link: _Chain | None = self.chain
        while link is not None and link[0] >= since:
            yield link[0]
            link = link[1]


@dataclass
class _State:
    """The occupants of a key in the order of arrival, and which event removed which row."""

    occupants: list[_Occupant]
    removed: list[tuple[_Occupant, int]] = field(default_factory=list)
    found: set[int] = field(default_factory=set)
    doubt: int | None = None

    def suspect(self, index: int) -> None:
        """Note that nothing decides what an event acts on."""
        self.doubt = index if self.doubt is None else self.doubt

    def remove(self, occupant: _Occupant, index: int) -> None:
        self.occupants = [other for other in self.occupants if other is not occupant]
        self.removed.append((occupant, index))


def arrange(events: Sequence[Event], reading: Reading | None = None) -> Arrangement:
    """Return what becomes of one key's events; ``reading`` decides what otherwise the contents do."""
    result = Arrangement([True] * len(events), [None] * len(events), [False] * len(events))
    standing: _Occupant | None = None
    for _, group in groupby(range(len(events)), key=lambda index: events[index].commit):
        indices = list(group)
        if any(events[index].kind in (EventKind.ARRIVE, EventKind.LEAVE) for index in indices):
            indices = _each_once(events, indices, result)
        state = _read_commit(events, indices, standing, reading)
        standing = _finish(events, indices, state, result)
    return result


def matches(left: Content | None, right: Content | None) -> bool:
    """Whether two contents agree in every column that is known in both."""
    if left is None or right is None:
        return True
    return all(a is None or b is None or a == b for a, b in zip(left, right, strict=True))


def is_same(left: Content | None, right: Content | None) -> bool:
    """Whether two contents are fully known and equal."""
    return left is not None and left == right and None not in left


def _each_once(events: Sequence[Event], indices: Sequence[int], result: Arrangement) -> list[int]:
    """Drop changes that were delivered before; where no row moves, applying them twice changes nothing."""
    seen: set[object] = set()
    once = []
    for index in indices:
        event = events[index]
        if event.token is not None and event.token in seen:
            result.kept[index] = False
            continue
        seen.add(event.token)
        once.append(index)
    return once


def _read_commit(
    events: Sequence[Event], indices: Sequence[int], standing: _Occupant | None, reading: Reading | None
) -> _State:
    moves = any(events[index].kind in (EventKind.ARRIVE, EventKind.LEAVE) for index in indices)
    if reading == "single" or not moves:
        return _single(events, indices, standing)
    certain = reading == "set" or all(events[index].is_known for index in indices)
    state = _set(events, indices, standing, certain=certain)
    if state.doubt is None:
        return state
    other = _single(events, indices, standing)
    takes_over = any(events[index].kind is EventKind.LEAVE and events[index].is_partial for index in indices)
    if not takes_over and _ends_alike(state, other, indices[0]):
        state.doubt = None
    return state


def _ends_alike(first: _State, second: _State, since: int) -> bool:
    if not first.occupants or not second.occupants:
        return not first.occupants and not second.occupants
    left, right = first.occupants[-1], second.occupants[-1]
    is_one_row = left.first == right.first and [*left.events(since)] == [*right.events(since)]
    return is_one_row or is_same(left.content, right.content)


def _single(events: Sequence[Event], indices: Sequence[int], standing: _Occupant | None) -> _State:
    """Return the state where every change acts on the row that the change before it left."""
    state = _State([standing.copy()] if standing else [])
    for index in indices:
        event = events[index]
        present = state.occupants[0] if state.occupants else None
        if event.kind in (EventKind.LEAVE, EventKind.DELETE):
            if present is not None:
                state.remove(present, index)
        elif event.kind is EventKind.ARRIVE or present is None:
            state.occupants = [_arrival(event, index)]
        else:
            _write(present, event, index)
    return state


def _set(events: Sequence[Event], indices: Sequence[int], standing: _Occupant | None, *, certain: bool) -> _State:
    """Return the state where the changes of a commit act on the occupants that they describe."""
    state = _State([standing.copy()] if standing else [])
    for index in indices:
        event = events[index]
        if event.kind is EventKind.ARRIVE:
            if any(occupant.is_base and is_same(occupant.content, event.content) for occupant in state.occupants):
                state.found.add(index)
            state.occupants.append(_arrival(event, index))
        elif event.kind in (EventKind.LEAVE, EventKind.DELETE):
            _remove(state, event, index, certain=certain)
        elif not state.occupants:
            state.occupants = [_arrival(event, index)]
        else:
            if len(state.occupants) >= _TWO and not certain:
                state.suspect(index)
            # Not the statement that moved rows here: this one found a single row.
            state.occupants = state.occupants[-1:]
            _write(state.occupants[0], event, index)
    return state


def _arrival(event: Event, index: int) -> _Occupant:
    return _Occupant(index, (index, None), event.content, is_base=event.kind is EventKind.BASE)


def _write(occupant: _Occupant, event: Event, index: int) -> None:
    """Write to a row in place."""
    if event.kind is EventKind.INSERT:
        occupant.replaced = occupant.copy()
    occupant.is_base = False
    occupant.chain = (index, occupant.chain)
    known, old = event.content, occupant.content
    if known is not None:
        before = old if old is not None else (None,) * len(known)
        occupant.content = tuple(new if new is not None else kept for new, kept in zip(known, before, strict=True))


def _remove(state: _State, event: Event, index: int, *, certain: bool) -> None:
    if not state.occupants:
        return
    if len(state.occupants) == 1:
        _remove_only(state, event, index, certain=certain)
        return
    meant = (
        [occupant for occupant in state.occupants if matches(occupant.content, event.content)] if event.content else []
    )
    if len(meant) == 1 or (certain and meant and event.kind is EventKind.LEAVE):
        state.remove(meant[0], index)
    elif event.kind is EventKind.DELETE:
        # As with a write: a delete is a separate statement and found a single row.
        if not (certain or _all_alike(state)):
            state.suspect(index)
        state.occupants = []
    elif certain:
        state.remove(state.occupants[0], index)
    elif _all_alike(state):
        _remove_alike(state, event, index)
    else:
        _remove_first(state, event, index)


def _remove_first(state: _State, event: Event, index: int) -> None:
    """Remove the earliest row, in doubt unless what the departing row became confirms it.

    What it became is weaker evidence than what it was, because other columns may have changed with the key: it can
    confirm the usual order but no other.
    """
    alike = (
        [occupant for occupant in state.occupants if matches(occupant.content, event.arrived)] if event.arrived else []
    )
    if event.content is not None or len(alike) != 1 or alike[0] is not state.occupants[0]:
        state.suspect(index)
    state.remove(state.occupants[0], index)


def _remove_only(state: _State, event: Event, index: int, *, certain: bool) -> None:
    """Remove the only row, unless it was inserted over another row and that one is described."""
    present = state.occupants[0]
    earlier = present.replaced
    described = event.content if event.content is not None else event.arrived
    if earlier is None or event.kind is EventKind.DELETE or described is None or matches(present.content, described):
        state.remove(present, index)
    elif matches(earlier.content, described):
        if event.content is None and not certain:
            state.suspect(index)
        state.removed.append((earlier, index))
        _forget(present, earlier)
    else:
        state.remove(present, index)


def _forget(present: _Occupant, earlier: _Occupant) -> None:
    """Remove from a row's events those of the row that it replaced."""
    own = [*present.events(earlier.chain[0] + 1)]
    present.first, present.replaced = own[-1], None
    chain: _Chain | None = None
    for index in reversed(own):
        chain = (index, chain)
    assert chain is not None  # the insert at least
    present.chain = chain


def _all_alike(state: _State) -> bool:
    first = state.occupants[0]
    return all(is_same(first.content, occupant.content) for occupant in state.occupants[1:])


def _remove_alike(state: _State, event: Event, index: int) -> None:
    """Remove one of several equal rows, in doubt unless the row that leaves is none of them.

    It is none of them where it differs and is under its next key already: what is here came after it. An equal row
    there proves nothing about a row that is like those here, as it may be any of them or one more.
    """
    first = state.occupants[0]
    described = event.content if event.content is not None else event.arrived
    if not event.has_landed or matches(first.content, described):
        state.suspect(index)
    state.remove(first, index)


def _finish(events: Sequence[Event], indices: Sequence[int], state: _State, result: Arrangement) -> _Occupant | None:
    """End a commit: the row that arrived last remains, and the events of other rows are then dropped."""
    standing = state.occupants[-1] if state.occupants else None
    for occupant, index in state.removed:
        if events[index].kind is EventKind.LEAVE:
            for event in occupant.events():
                result.taken[event] = index
    own = {*standing.events(indices[0])} if standing else set(indices)
    for index in indices:
        result.found[index] = index in state.found
        # Removals before the remaining row arrived still count, because its first write may leave columns unset.
        removes = events[index].kind in (EventKind.LEAVE, EventKind.DELETE)
        result.kept[index] = index in own or (removes and standing is not None and index < standing.first)
    if state.doubt is not None and result.doubt is None:
        result.doubt = state.doubt
    return standing
