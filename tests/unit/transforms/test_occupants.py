"""Which row a change acts on: against a table whose rows have an identity, and known cases by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.transforms.occupants import Event, EventKind, arrange

MANY = settings(max_examples=100, deadline=None)
BASE = object()


@dataclass
class Change:
    """A change of a table with rows (key → value), as a file shows it: which commit, from where, to where."""

    commit: int
    kind: str
    old: int | None
    new: int | None
    before: str | None
    after: str | None
    number: int = 0


@dataclass
class Log:
    """What a source did, and its rows after every commit."""

    states: list[dict[int, str]]
    changes: list[Change] = field(default_factory=list)


def moves(commit, *pairs):
    """Changes of keys: (old, new, content)."""
    return [Change(commit, "move", old, new, value, value) for old, new, value in pairs]


def events_of(key, base, changes, *, images=False, known=False, numbered=False, commits=True, flags=None):
    """Return what one key sees of a log."""
    found = [Event(EventKind.BASE, BASE, content=(base[key],))] if key in base else []
    for change in changes:
        common = {"commit": change.commit if commits else None, "is_known": known}
        token = (change.number,) if numbered else None
        if change.kind == "move":
            if change.old == key:
                image = (change.before,) if images else None
                found.append(
                    Event(
                        EventKind.LEAVE,
                        token=token and (*token, 0),
                        content=image,
                        arrived=(change.after,),
                        has_landed=(flags or {}).get(change.number, False),
                        **common,
                    )
                )
            if change.new == key:
                found.append(
                    Event(
                        EventKind.ARRIVE,
                        token=token and (*token, 1),
                        content=(change.after,),
                        **common,
                    )
                )
        elif key in (change.old, change.new):
            kind = {"insert": EventKind.INSERT, "update": EventKind.WRITE, "delete": EventKind.DELETE}[change.kind]
            content = (change.before if kind is EventKind.DELETE else change.after,)
            found.append(Event(kind, token=token, content=content, **common))
    return found


def read(events, reading=None):
    """Fold the events that are kept, one after the other; give the value (None: no row) and whether it is in doubt."""
    result = arrange(events, reading)
    value = None
    for event, kept in zip(events, result.kept, strict=True):
        if kept:
            value = None if event.kind in (EventKind.LEAVE, EventKind.DELETE) else event.content[0]
    return value, result.doubt is not None


def table(base, changes, reading=None, **options):
    """Fold every key; None for a key in doubt."""
    keys = {*base, *(change.old for change in changes), *(change.new for change in changes)} - {None}
    changes = [replace(change, number=number) for number, change in enumerate(changes)]
    if options.pop("evidence", False):
        options["flags"] = _flags(base, changes, keys, options)
    found = {key: read(events_of(key, base, changes, **options), reading) for key in keys}
    return {key: None if doubt else value for key, (value, doubt) in found.items() if doubt or value is not None}


def _flags(base, changes, keys, options):
    """Whether, as the first reading of the new keys shows, the row of each move was there already."""
    landed = {}
    for key in keys:
        own = events_of(key, base, changes, **options)
        found = arrange(own).found
        numbers = [change.number for change in changes if change.kind == "move" and change.new == key]
        arrivals = [at for at, event in enumerate(own) if event.kind is EventKind.ARRIVE]
        landed.update({number: found[at] for at, number in zip(arrivals, numbers, strict=True)})
    return landed


ABC = {1: "a", 2: "b", 3: "c"}
SHIFT = moves(7, (1, 2, "a"), (2, 3, "b"), (3, 4, "c"))


@pytest.mark.parametrize("options", [{}, {"known": True}, {"images": True}, {"commits": False}])
def test_shift_swap_and_cycle_keep_every_row(options):
    assert table(ABC, SHIFT, **options) == {2: "a", 3: "b", 4: "c"}
    assert table(ABC, SHIFT[::-1], **options) == {2: "a", 3: "b", 4: "c"}
    assert table(ABC, moves(7, (1, 2, "a"), (2, 1, "b")), **options) == {1: "b", 2: "a", 3: "c"}
    cycle = moves(7, (1, 2, "a"), (2, 3, "b"), (3, 1, "c"))
    assert table(ABC, cycle, **options) == {1: "c", 2: "a", 3: "b"}


@pytest.mark.parametrize("options", [{}, {"known": True}, {"images": True}, {"commits": False}])
def test_row_that_moves_twice_in_one_commit_is_under_its_last_key_alone(options):
    twice = moves(7, (1, 2, "a"), (2, 3, "a"))
    assert table({1: "a"}, twice, **options) == {3: "a"}


@pytest.mark.parametrize("options", [{}, {"known": True}, {"images": True}, {"numbered": True}])
def test_load_read_between_two_commits(options):
    two = [*moves(7, (1, 2, "a")), *moves(8, (2, 3, "a"))]
    for base in ({1: "a"}, {2: "a"}, {3: "a"}):
        assert table(base, two, **options) == {3: "a"}


# Logs of one commit time in which rows that are alike pass a key, and what a load holds of them: other commits and
# loads look the same and end differently.
ALIKE = {
    "the load is of the end, and the row that left was deleted under its next key": (
        {0: "a", 3: "a"},
        [*moves(7, (2, 0, "a"), (0, 1, "a")), Change(7, "delete", 1, None, "a", None)],
    ),
    "the load is of the end, and another row had left the next key": (
        {0: "b", 1: "a", 2: "b", 3: "a"},
        moves(7, (2, 0, "b"), (3, 2, "b"), (4, 1, "a"), (1, 3, "a")),
    ),
    "the load is of between two commits, and another row was under the next key": (
        {1: "a", 3: "a"},
        moves(7, (4, 1, "a"), (1, 3, "a"), (3, 5, "a")),
    ),
    "the load saw one row twice": ({2: "a", 4: "a"}, moves(7, (1, 2, "a"), (2, 4, "a"))),
    "the load is of between two commits, and the next key was empty": ({2: "a"}, moves(7, (1, 2, "a"), (2, 3, "a"))),
}


@pytest.mark.parametrize("options", [{}, {"images": True}, {"commits": False}])
@pytest.mark.parametrize("case", ALIKE)
def test_rows_that_are_alike_are_in_doubt_whatever_the_other_keys_hold(case, options):
    base, changes = ALIKE[case]
    assert None in table(base, changes, **options).values()
    assert None in table(base, changes, evidence=True, **options).values()


@pytest.mark.parametrize("options", [{}, {"images": True}, {"commits": False}])
def test_shift_that_the_load_has_already_is_recognised_by_the_rows_that_have_landed(options):
    after = {2: "a", 3: "b", 4: "c"}
    assert None in table(after, SHIFT, **options).values()
    assert table(after, SHIFT, evidence=True, **options) == after


def test_deferred_constraint_is_recognised_by_the_before_image():
    both = {1: "a", 2: "b"}
    on = moves(7, (1, 2, "a"), (2, 3, "a"))
    assert table(both, on, images=True) == {2: "b", 3: "a"}
    assert table(both, on, images=True, known=True) == {2: "b", 3: "a"}
    # The new image alone may be another row's after its other columns changed: nothing decides.
    assert table(both, on) == {2: None, 3: "a"}
    inserted = [Change(7, "insert", None, 2, None, "new"), *moves(7, (2, 3, "b"))]
    for options in ({"known": True}, {"images": True}):
        assert table({2: "b"}, inserted, **options) == {2: "new", 3: "b"}
    assert table({2: "b"}, inserted) == {2: None, 3: "b"}


def test_equal_neighbours_are_in_doubt_unless_the_commit_is_known():
    alike = {1: "a", 2: "a"}
    shift = moves(7, (1, 2, "a"), (2, 3, "a"))
    assert table(alike, shift, evidence=True) == {2: None, 3: "a"}
    assert table(alike, shift, known=True) == {2: "a", 3: "a"}
    assert table(alike, shift, "set") == {2: "a", 3: "a"}
    assert table(alike, shift, "single") == {3: "a"}


def test_columns_that_change_with_the_key_need_the_before_image_or_the_declaration():
    shift = [Change(7, "move", 1, 2, "a", "A"), Change(7, "move", 2, 3, "b", "B")]
    both = {1: "a", 2: "b"}
    assert table(both, shift) == {2: None, 3: "B"}
    for options in ({"images": True}, {"known": True}):
        assert table(both, shift, **options) == {2: "A", 3: "B"}
    assert table(both, shift, "set") == {2: "A", 3: "B"}


def test_a_change_delivered_twice_counts_once_by_its_sequence():
    changes = [replace(change, number=number) for number, change in enumerate([*SHIFT])]
    again = [*changes[:2], *changes[:2], *changes[2:], *changes]
    for key, value in {1: None, 2: "a", 3: "b", 4: "c"}.items():
        assert read(events_of(key, ABC, again, numbered=True)) == (value, False)
    assert table(ABC, [*SHIFT, *SHIFT], "set") == {2: "a", 3: "b", 4: "c"}


def test_changes_without_moves_are_read_one_after_the_other():
    changes = [Change(7, "insert", None, 1, None, "a"), Change(7, "delete", 1, None, "other", None)]
    for base in ({}, {1: "a"}, {1: "z"}):
        assert table(base, changes) == {}
    rename = [Change(7, "insert", None, 1, None, "a2"), *moves(7, (1, 2, "a2"))]
    assert table({1: "a"}, rename) == {2: "a2"}


def test_row_that_leaves_a_key_with_a_million_changes_is_found_quickly():
    events = [Event(EventKind.WRITE, commit=number, content=(number,)) for number in range(200_000)]
    result = arrange([*events, Event(EventKind.LEAVE, commit=-1, arrived=(199_999,))])
    assert result.taken[0] == len(events)
    assert result.kept[-1]


@st.composite
def logs(draw, *, values=6, changing=False):
    """A table with few keys: every commit inserts, updates, deletes, and moves rows among all keys in one statement.

    ``changing``: rows may change their value with their key.
    """
    value = st.integers(0, values).map(str)
    rows = draw(st.dictionaries(st.integers(0, 4), value, max_size=5))
    log = Log([dict(rows)])
    for commit in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 3))):
            log.changes += draw(_statement(rows, commit, value, changing))
        log.states.append(dict(rows))
    for number, change in enumerate(log.changes):
        change.number = number
    return log


@st.composite
def _statement(draw, rows, commit, value, changing):
    what = draw(st.sampled_from(["move", "move", "insert", "update", "delete"]))
    free = [key for key in range(6) if key not in rows]
    if what == "insert" and free:
        key = draw(st.sampled_from(free))
        rows[key] = draw(value)
        return [Change(commit, "insert", None, key, None, rows[key])]
    if what == "update" and rows:
        key, before = draw(st.sampled_from(sorted(rows.items())))
        rows[key] = draw(value)
        return [Change(commit, "update", key, key, before, rows[key])]
    if what == "delete" and rows:
        key = draw(st.sampled_from(sorted(rows)))
        return [Change(commit, "delete", key, None, rows.pop(key), None)]
    if what == "move" and rows:
        return draw(_shuffle(rows, commit, value, changing))
    return []


@st.composite
def _shuffle(draw, rows, commit, value, changing):
    """Move some rows to keys that are free once they have left, in any order."""
    movers = draw(st.lists(st.sampled_from(sorted(rows)), min_size=1, unique=True))
    free = [key for key in range(6) if key not in rows or key in movers]
    targets = draw(st.permutations(free))[: len(movers)]
    changes = [
        Change(commit, "move", old, new, rows[old], draw(value) if changing and draw(st.booleans()) else rows[old])
        for old, new in zip(movers, targets, strict=True)
        if old != new
    ]
    for change in changes:
        del rows[change.old]
    rows.update({change.new: change.after for change in changes})
    return changes


@st.composite
def loads(draw, log, *, torn=True):
    """What a load may hold: the rows after some commit, or (torn) each key as it was after some commit."""
    numbers = st.integers(0, len(log.states) - 1)
    if not torn:
        return log.states[draw(numbers)]
    seen = {key: log.states[draw(numbers)].get(key) for key in range(6)}
    return {key: value for key, value in seen.items() if value is not None}


@MANY
@given(logs(), st.data())
def test_known_commits_end_as_the_source_whatever_state_folding_began_with(log, data):
    base, images = data.draw(loads(log, torn=data.draw(st.booleans()))), data.draw(st.booleans())
    assert table(base, log.changes, known=True, images=images) == log.states[-1]
    assert table(base, log.changes, "set", images=images) == log.states[-1]


def coarse(log, ticks):
    """The changes of a log in which so many commits have one time."""
    return [replace(change, commit=change.commit // ticks) for change in log.changes]


def require_end(log, found):
    """Require each key as it is at the source, or in doubt."""
    for key in {*found, *log.states[-1]}:
        value = found.get(key, "")
        assert value is None or value == log.states[-1].get(key, ""), key


READINGS = st.fixed_dictionaries({"images": st.booleans(), "commits": st.booleans(), "evidence": st.booleans()})


@MANY
@given(logs(values=1), READINGS, st.integers(1, 3), st.data())
def test_unknown_commits_end_as_the_source_or_in_doubt(log, options, ticks, data):
    base = data.draw(loads(log, torn=data.draw(st.booleans())))
    require_end(log, table(base, coarse(log, ticks), **options))


@MANY
@given(logs(values=1, changing=True), READINGS, st.integers(1, 3), st.data())
def test_before_images_describe_rows_that_change_with_their_key(log, options, ticks, data):
    base = data.draw(loads(log))
    require_end(log, table(base, coarse(log, ticks), **{**options, "images": True}))


@MANY
@given(logs(values=1), st.booleans(), st.integers(1, 2), st.integers(1, 3), st.data())
def test_a_load_newer_than_the_first_of_two_batches_ends_as_the_source_or_in_doubt(log, images, ticks, second, data):
    changes, state = coarse(log, ticks), data.draw(loads(log, torn=False))
    earlier = [change for change in changes if change.commit < second]
    for batch in (earlier, changes[len(earlier) :]):
        state = table(state, batch, images=images, evidence=None in table(state, batch, images=images).values())
        if None in state.values():
            return  # the table stops
    require_end(log, state)


@MANY
@given(logs(), st.data())
def test_each_departure_takes_the_row_that_left(log, data):
    images = data.draw(st.booleans())
    for key in range(6):
        own = events_of(key, log.states[0], log.changes, known=True, images=images)
        result = arrange(own)
        for index, event in enumerate(own):
            if event.kind is EventKind.LEAVE:
                written = [at for at, taken in enumerate(result.taken) if taken == index]
                assert own[written[-1]].content == event.arrived
