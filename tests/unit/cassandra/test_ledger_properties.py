"""What is recorded of a copy is what it holds, whatever is imported, applied, forced and killed, in any order.

The cells of the copy are a model: of each cell the latest write wins, deletes leave marks, and a row is there by its
own mark or by a cell. What is recorded, refused and decided is the real thing.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from tests.cassandra.ledger_server import Server

from lakeward.cassandra import apply, imports
from lakeward.cassandra.apply import ApplyRequest
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.imports import ImportRequest
from lakeward.cassandra.jobs import JobEffect
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import TableSchema
from lakeward.cassandra.snapshots import ExportOrigin
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.stored.addresses import Side
from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest
from lakeward.errors import RefusedInputError

INTO = TableName("ks", "t")
MINUTE = 60_000_000
SCHEMA = TableSchema(INTO, ())
Rows = dict[int, dict[str, int]]
# A source at seven moments: rows come, change, lose a value, go and come back.
SOURCE: list[Rows] = [
    {},
    {1: {"a": 1, "b": 1}, 2: {"a": 1}, 3: {"a": 1, "b": 2}},
    {1: {"a": 2, "b": 1}, 2: {"a": 1, "b": 5}, 4: {"a": 9}},
    {1: {"a": 2}, 4: {"a": 9, "b": 1}, 5: {}},
    {1: {"a": 2, "b": 7}, 3: {"a": 4}, 4: {"a": 9, "b": 1}},
    {1: {"a": 2, "b": 7}, 3: {"a": 4}, 4: {"a": 9, "b": 1}},
    {2: {"b": 3}, 3: {"a": 4, "b": 4}},
]
NEWEST = len(SOURCE) - 1


@dataclass
class Row:
    """A row of the copy: when it was inserted and deleted last, and its cells with their times; None is a delete."""

    inserted: int = 0
    deleted: int = 0
    cells: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def set(self, name: str, at: int, value: int | None) -> None:
        self.cells[name] = max(self.cells.get(name, (0, 0)), (at, value), key=_rank)

    @property
    def values(self) -> dict[str, int]:
        return {name: value for name, (at, value) in self.cells.items() if value is not None and at > self.deleted}

    @property
    def is_there(self) -> bool:
        return self.inserted > self.deleted or bool(self.values)


def _rank(cell: tuple[int, int | None]) -> tuple[int, int, int]:
    at, value = cell
    return (at, 1, 0) if value is None else (at, 0, value)


class CopyServer(Server):
    """A ledger's server whose target has rows if the model has."""

    def __init__(self, rows: dict[int, Row]) -> None:
        self.copy = rows
        super().__init__()

    @property
    def has_rows(self) -> bool:
        return any(row.is_there for row in self.copy.values())

    @has_rows.setter
    def has_rows(self, _: bool) -> None:
        """The model decides."""


class World:
    """A copy, and what is recorded of it."""

    def __init__(self) -> None:
        self.copy: dict[int, Row] = {}
        self.server = CopyServer(self.copy)
        self.ledger = Ledger(self.server, INTO)
        self.repair: tuple[ChangeSet, Rows] | None = None
        # The export from which on a copy that was repaired is equal to an export again.
        self.equal_from = 0
        self.numbers = 0

    @property
    def held(self) -> Rows:
        return {key: row.values for key, row in self.copy.items() if row.is_there}

    def import_(self, number: int, *, kill: int | None = None, **choices: Any) -> JobEffect | None:
        side = Side(f"/{number}", _NO_FRAME, rows=len(SOURCE[number]), identity=identity(number))
        request = ImportRequest(side.label, INTO, **choices)
        imports._forget_lost(self.ledger)
        found = imports.decide(request, side, origin(number), self.ledger, has_recorded_times=False)
        if found is None:
            return None
        writes = [("I", key, values) for key, values in SOURCE[number].items()]
        self.write(found, writes, kill, anew=request.force)
        if kill is None and found.outcome.effect is JobEffect.LEADS:
            self.equal_from = 0
        return found.outcome.effect

    def apply(self, past: int, current: int, *, kill: int | None = None, **choices: Any) -> JobEffect | None:
        return self._apply(change_set(past, current), SOURCE[past], SOURCE[current], kill, **choices)

    def _apply(
        self, changes: ChangeSet, past: Rows, current: Rows, kill: int | None, **choices: Any
    ) -> JobEffect | None:
        assert changes.manifest is not None
        request = ApplyRequest("/changes", INTO, max_delete_share=1.0, **choices)
        started = changes.manifest.current["started"]
        parents: dict[str, ExportOrigin | None] = {"past": origin(started), "current": origin(started)}
        found = apply.decide(request, changes, parents, self.ledger)
        if found is None:
            return None
        self.write(found, differences(past, current), kill, anew=request.force)
        return found.outcome.effect

    def compare(self) -> None:
        """Compare with the source as it is now, which is later than all exports but one of now."""
        self.numbers += 1
        now = datetime.now(UTC).isoformat()
        live = {"kind": "live", "location": "prod/ks.t", "created": now, "started": NEWEST + 0.5}
        self.repair = make(f"repair-{self.numbers}", (live, self.held), (live, SOURCE[NEWEST])), self.held

    def apply_repair(self, *, kill: int | None = None, **choices: Any) -> JobEffect | None:
        if self.repair is None:
            return None
        changes, past = self.repair
        found = self._apply(changes, past, SOURCE[NEWEST], kill, **choices)
        if found is not None and kill is None:
            self.equal_from = NEWEST
        return found

    def write(self, found: Any, writes: list[tuple[str, int, dict[str, Any]]], kill: int | None, *, anew: bool) -> None:
        """Write what was decided; a job that is killed writes so many rows, and 0 is killed before the first."""
        self.ledger.begin(found.job, anew=anew, doubt=found.outcome.why)
        for action, key, values in writes[:kill]:
            self.ledger.claim(found.job, 0)
            self._write(action, key, values, found.job.timestamp)
        if kill is None:
            self.ledger.finish(found.job, found.outcome)

    def _write(self, action: str, key: int, values: dict[str, int | None], at: int) -> None:
        row = self.copy.setdefault(key, Row())
        if action == "D":
            row.deleted = max(row.deleted, at)
            return
        if action == "I":
            row.inserted = max(row.inserted, at)
        for name, value in values.items():
            row.set(name, at, value)

    def purge(self) -> None:
        """Let time pass: tombstones disappear, and what they hid."""
        self.server.gc_grace_seconds = 0
        for row in self.copy.values():
            row.inserted = row.inserted if row.inserted > row.deleted else 0
            row.cells = {name: cell for name, cell in row.cells.items() if name in row.values}
            row.deleted = 0

    def empty(self) -> None:
        self.copy.clear()

    def require_truth(self) -> None:
        last = self.ledger.last()
        if last is None or last.unknown or self.ledger.lost() or self.ledger.under_way() is not None:
            return
        if last.identity["kind"] == "live":
            assert self.held == SOURCE[NEWEST]
            return
        number = int(last.identity["id"])
        if number < self.equal_from:
            return
        if last.doubt is None:
            assert self.held == SOURCE[number], last
        else:
            kept = {key: self.held.get(key, {}) for key in SOURCE[number]}
            assert all(values.items() <= kept[key].items() for key, values in SOURCE[number].items()), last


_NO_FRAME: Any = None


def identity(number: int) -> dict[str, Any]:
    # Two exports of the same rows have the same checksum.
    known = {"kind": "export", "location": f"/{number}", "id": str(number), "rows": len(SOURCE[number])}
    return {**known, "checksum": repr(sorted(SOURCE[number].items())), "started": number}


def origin(number: float) -> ExportOrigin:
    started = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    return ExportOrigin("prod", SCHEMA, started, started, writetime=False, ttl=False)


def make(name: str, past: tuple[dict[str, Any], Rows], current: tuple[dict[str, Any], Rows]) -> ChangeSet:
    found = [action for action, _, _ in differences(past[1], current[1])]
    counts = {word: found.count(action) for word, action in (("inserted", "I"), ("changed", "C"), ("deleted", "D"))}
    manifest = ChangeSetManifest(
        id=name,
        created="2026-11-15T10:30:00+00:00",
        past=past[0],
        current=current[0],
        keys=("k",),
        past_schema=StructType(),
        current_schema=StructType(),
        options=DiffOptions(),
        exact=True,
        counts={**counts, "unchanged": len(past[1]) - counts["changed"] - counts["deleted"]},
    )
    return ChangeSet("/changes", _NO_FRAME, manifest, ("k",), DiffOptions())


def change_set(past: int, current: int) -> ChangeSet:
    return make(f"{past}-{current}", (identity(past), SOURCE[past]), (identity(current), SOURCE[current]))


def differences(past: Rows, current: Rows) -> list[tuple[str, int, dict[str, Any]]]:
    found: list[tuple[str, int, dict[str, Any]]] = []
    for key in sorted(past.keys() | current.keys()):
        if key not in past:
            found.append(("I", key, dict(current[key])))
        elif key not in current:
            found.append(("D", key, {}))
        else:
            names = past[key].keys() | current[key].keys()
            changed = {name: current[key].get(name) for name in sorted(names)}
            changed = {name: value for name, value in changed.items() if value != past[key].get(name)}
            found += [("C", key, changed)] if changed else []
    return found


def at(minutes: float) -> str:
    return str(int(minutes * MINUTE))


NUMBERS = st.integers(1, NEWEST)
# Mostly the time of the export; else some other one, between exports.
TIMES = st.one_of(st.just("snapshot"), st.just("snapshot"), st.integers(0, NEWEST + 2).map(lambda n: at(n + 0.25)))
KILLS = st.one_of(st.none(), st.none(), st.integers(0, 4))
WRITING = {"force": st.booleans(), "timestamp": TIMES, "kill": KILLS}
STEPS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"do": st.just("import_"), "number": NUMBERS, **WRITING}),
        st.fixed_dictionaries({"do": st.just("apply"), "past": NUMBERS, "current": NUMBERS, **WRITING}),
        st.fixed_dictionaries({"do": st.just("apply"), "past": NUMBERS, "current": NUMBERS, "force": st.just(True)}),
        NUMBERS.filter(lambda past: past < NEWEST).map(lambda past: {"do": "apply", "past": past, "current": past + 1}),
        st.sampled_from([{"do": "compare"}, {"do": "empty"}, {"do": "purge"}]),
        st.fixed_dictionaries({"do": st.just("apply_repair"), "force": st.booleans(), "kill": KILLS}),
    ),
    max_size=12,
)


def chain(*numbers: int) -> list[dict[str, Any]]:
    steps = [{"do": "apply", "past": past, "current": current} for past, current in pairwise(numbers)]
    return [{"do": "import_", "number": numbers[0]}, *steps]


@settings(max_examples=400)
@given(STEPS)
@example([*chain(1, 2, 3), {"do": "apply", "past": 1, "current": 2, "force": True}])
@example([*chain(1, 2, 3), {"do": "import_", "number": 2, "force": True}])
@example([*chain(1, 2, 3), {"do": "purge"}, {"do": "import_", "number": 2, "force": True}])
@example(
    [*chain(3, 4), {"do": "apply", "past": 1, "current": 2, "force": True}, {"do": "apply", "past": 4, "current": 6}]
)
@example([*chain(4), {"do": "import_", "number": 1, "force": True, "timestamp": at(9)}])
@example([{**chain(1)[0], "timestamp": at(7), "kill": 1}, {"do": "compare"}, {"do": "apply_repair", "force": True}])
@example([*chain(4), {"do": "compare"}, {"do": "empty"}, {"do": "apply_repair", "force": True, "kill": None}])
def test_the_record_is_what_the_copy_holds_or_unknown(steps: list[dict[str, Any]]) -> None:
    world = World()
    for step in steps:
        choices = dict(step)
        do = choices.pop("do")
        if do == "apply" and not _is_sensible(world, choices):
            continue
        with contextlib.suppress(RefusedInputError):
            getattr(world, do)(**choices)
        world.require_truth()


def _is_sensible(world: World, choices: dict[str, Any]) -> bool:
    """What is assumed without proof: that a copy of which nothing is recorded is a change set's past."""
    if choices["past"] == choices["current"]:
        return False
    return world.ledger.last() is not None or world.ledger.lost() is not None or world.held == SOURCE[choices["past"]]


def test_a_target_to_which_change_sets_are_applied_in_order_is_always_known() -> None:
    world = World()
    assert world.import_(1) is JobEffect.LEADS
    for past, current in pairwise(range(1, NEWEST + 1)):
        world.apply(past, current, kill=1)
        # The job that was begun is resumed, and leaves no doubt.
        found = world.apply(past, current)
        assert found is JobEffect.LEADS or (found is None and SOURCE[past] == SOURCE[current])
        last = world.ledger.last()
        assert last is not None
        assert (last.unknown, last.doubt, world.held) == (None, None, SOURCE[current])
    assert world.apply(NEWEST - 1, NEWEST) is None, "the same one again is nothing to do"


def test_forcing_what_was_written_before_leaves_the_record_unchanged() -> None:
    world = World()
    world.import_(1)
    for past, current in ((1, 2), (2, 3)):
        world.apply(past, current)
    before = world.ledger.last()
    # A change set and exports of the past: the state of export 2 was reached by a change set.
    assert world.apply(1, 2, force=True) is JobEffect.KEEPS
    assert world.import_(1, force=True) is JobEffect.KEEPS
    assert world.import_(2, force=True) is JobEffect.KEEPS
    # Killed in between, and forced to its end.
    world.apply(1, 2, force=True, kill=1)
    assert world.apply(1, 2, force=True) is JobEffect.KEEPS
    assert (world.ledger.last(), world.held) == (before, SOURCE[3])
    assert world.apply(3, 4) is JobEffect.LEADS
    # Once tombstones may be gone, rows of the past can reappear.
    world.purge()
    assert world.import_(2, force=True) is JobEffect.MIXES
    assert world.held != SOURCE[4]


@pytest.mark.parametrize("timestamp", ["snapshot", at(3), at(7)], ids=["older", "equal", "newer"])
def test_a_copy_with_parts_of_two_states_accepts_no_change_set_until_it_is_repaired(timestamp: str) -> None:
    world = World()
    world.import_(3)
    assert world.apply(1, 2, force=True, timestamp=timestamp) is JobEffect.MIXES
    last = world.ledger.last()
    assert last is not None
    assert last.unknown is not None and "1-2" in last.unknown
    assert last.identity["id"] == "3", "the last one that was known"
    for refused in (lambda: world.apply(3, 4), lambda: world.import_(3), lambda: world.apply(1, 2)):
        with pytest.raises(RefusedInputError, match="what the target holds is not known: the change set 1-2") as error:
            refused()
        assert "lakeward cassandra compare" in str(error.value.hint)
        assert "--timestamp" not in str(error.value.hint)
    assert world.apply(3, 4, force=True) is JobEffect.MIXES, "forced twice is not known either"
    world.compare()
    if timestamp == at(7):
        with pytest.raises(RefusedInputError, match="which wins"):
            world.apply_repair()
        assert world.apply_repair(force=True) is JobEffect.KEEPS
        assert world.ledger.last().unknown is not None  # type: ignore[union-attr]
        return
    assert world.apply_repair() is JobEffect.LEADS
    assert world.held == SOURCE[NEWEST]
    assert world.apply(3, NEWEST, timestamp=at(9)) is JobEffect.LEADS
    assert world.held == SOURCE[NEWEST]


def test_a_repair_of_what_the_copy_held_before_is_refused() -> None:
    world = World()
    world.import_(1)
    world.compare()
    world.import_(2, force=True)
    with pytest.raises(RefusedInputError, match="was made by a comparison of"):
        world.apply_repair()
    assert world.apply_repair(force=True) is JobEffect.MIXES
    # What was applied in order does not matter.
    world = World()
    world.import_(1)
    world.compare()
    world.apply(1, 2)
    assert world.apply_repair() is JobEffect.LEADS
    world.apply(2, NEWEST)
    assert world.held == SOURCE[NEWEST]


def test_an_export_over_another_records_what_may_be_left_until_it_is_compared() -> None:
    world = World()
    world.import_(1)
    assert world.import_(3, force=True) is JobEffect.LEADS
    assert (world.held == SOURCE[3], set(SOURCE[3]) <= set(world.held)) == (False, True)
    found = apply.decide(
        ApplyRequest("/changes", INTO), change_set(3, 4), {"past": None, "current": origin(4)}, world.ledger
    )
    assert found is not None
    assert "may still have rows of location /1" in found.warnings[0]
    world.apply(3, 4)
    last = world.ledger.last()
    assert last is not None and last.doubt is not None
    world.compare()
    world.apply_repair()
    last = world.ledger.last()
    assert last is not None and last.doubt is None
    world.empty()
    assert world.import_(4) is JobEffect.LEADS
    assert world.held == SOURCE[4]


def test_a_change_set_without_a_manifest_makes_the_content_unknown() -> None:
    world = World()
    world.import_(1)
    recipe = ChangeSet("/recipe", _NO_FRAME, None, ("k",), DiffOptions())
    for minute in (8, 9):
        request = ApplyRequest("/recipe", INTO, timestamp=at(minute))
        found = apply.decide(request, recipe, {"past": None, "current": None}, world.ledger)
        assert found is not None, "the next one of its kind is taken"
        world.write(found, differences(SOURCE[1], SOURCE[2]), None, anew=False)
    assert "does not record the state it leads to" in str(world.ledger.last().unknown)  # type: ignore[union-attr]
    with pytest.raises(RefusedInputError, match="what the target holds is not known"):
        world.apply(1, 2, timestamp=at(10))


def test_a_record_that_an_earlier_version_set_back_is_corrected_by_the_same_change_set() -> None:
    """It recorded the older export as of the later time; `--timestamp now` would have written over newer cells."""
    world = World()
    world.import_(1)
    for past, current in ((1, 2), (2, 3)):
        world.apply(past, current)
    last = world.ledger.last()
    assert last is not None
    world.ledger.record(identity(2))
    assert world.ledger.last().timestamp == last.timestamp  # type: ignore[union-attr]
    assert world.apply(2, 3) is JobEffect.LEADS
    assert world.held == SOURCE[3]
    assert world.ledger.last().identity == identity(3)  # type: ignore[union-attr]


def test_a_sync_writes_an_export_over_what_is_there_only_where_it_wins() -> None:
    world = World()
    world.import_(3)
    world.apply(1, 2, force=True)
    # The export that is there loses to no later cell, but does not take away what is too much either.
    for number in (2, 3):
        with pytest.raises(RefusedInputError, match="would be hidden by newer cells") as error:
            world.import_(number, over=True)
        assert "--timestamp now" in str(error.value.hint)
    assert world.import_(4, over=True) is JobEffect.LEADS
    last = world.ledger.last()
    assert last is not None
    assert (last.unknown, last.identity["id"]) == (None, "4")
    assert last.doubt is not None
