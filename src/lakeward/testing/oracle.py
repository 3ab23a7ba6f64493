"""The truth in plain Python: what a table holds, and what a set of changes must fold to.

Nothing here shares code with the fold under test. Rows are dicts, a key is the tuple of its columns' values, and
the whole model is one dict that changes are applied to in total order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from lakeward.model import Operation, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]
Key = tuple[Any, ...]


class Truth:
    """One table as the source has it: rows by key, or a plain list of rows where there is no key."""

    def __init__(self, columns: Sequence[str], key: Sequence[str] = ()) -> None:
        self.columns = list(columns)
        self.key = tuple(key)
        self.by_key: dict[Key, Row] = {}
        self.keyless: list[Row] = []

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """Return the key of a row."""
        return tuple(row[name] for name in self.key)

    def rows(self) -> list[Row]:
        """Return every row, in no promised order."""
        return list(self.by_key.values()) if self.key else list(self.keyless)

    def insert(self, row: Mapping[str, Any]) -> None:
        """Insert a whole row, in place of one with the same key. Columns not given are null."""
        whole = {name: row.get(name) for name in self.columns}
        if self.key:
            self.by_key[self.key_of(whole)] = whole
        else:
            self.keyless.append(whole)

    def update(self, key: Key, values: Mapping[str, Any]) -> None:
        """Set the given columns; on a missing row the columns not given are null."""
        named_key = dict(zip(self.key, key, strict=True))
        self.insert({**self.by_key.get(key, {}), **values, **named_key})

    def delete(self, key: Key) -> None:
        """Remove a row if it exists."""
        self.by_key.pop(key, None)

    def change_key(self, old: Key, new: Key, values: Mapping[str, Any]) -> None:
        """Move a row to another key; columns not given keep what the old row had."""
        moved = self.by_key.pop(old, {})
        self.insert({**moved, **values, **dict(zip(self.key, new, strict=True))})

    def add_column(self, name: str) -> None:
        """Add a column that is null in every row."""
        self.columns.append(name)
        for row in self.rows():
            row[name] = None

    def clear_column(self, name: str) -> None:
        """Set a column to null in every row; rows returned earlier stay as they were."""
        self.by_key = {key: {**row, name: None} for key, row in self.by_key.items()}
        self.keyless = [{**row, name: None} for row in self.keyless]


@dataclass(frozen=True)
class ModelChange:
    """One change at its place in the total order.

    ``values`` may hold all columns; those in ``unchanged`` are not set by the change.
    ``moved_from`` is the old key on the second step of a key change, ``moved_to`` the new one on the first. ``before``
    is what the file shows of a removed row. Changes of one ``commit`` happen together.
    """

    place: Place
    operation: Operation
    key: Key
    values: Mapping[str, Any] = field(default_factory=dict)
    unchanged: frozenset[str] = frozenset()
    moved_from: Key | None = None
    moved_to: Key | None = None
    before: Row | None = None
    commit: object = None

    @property
    def set_values(self) -> Row:
        """The columns this change sets."""
        return {name: value for name, value in self.values.items() if name not in self.unchanged}


def move(
    place: Place,
    old: Key,
    new: Key,
    values: Mapping[str, Any],
    unchanged: frozenset[str] = frozenset(),
    *,
    before: Row | None = None,
    commit: object = None,
) -> tuple[ModelChange, ModelChange]:
    """Return the two linked steps of a key change: delete the old key, write the new one."""
    leave, arrive = replace(place, step=0), replace(place, step=1)
    return (
        ModelChange(leave, Operation.DELETE, old, moved_to=new, before=before, commit=commit),
        ModelChange(arrive, Operation.UPDATE, new, values, unchanged, moved_from=old, commit=commit),
    )


def fold(
    changes: Iterable[ModelChange],
    columns: Sequence[str],
    key: Sequence[str],
    load: Iterable[Mapping[str, Any]] = (),
) -> dict[Key, Row]:
    """Fold load rows and changes, given in any order, into the rows that must result.

    Two changes at the same place are one change that was delivered twice.
    """
    truth = Truth(columns, key)
    for row in load:
        truth.insert(row)
    removed_by: tuple[Place, Row] | None = None
    for change in in_order(changes):
        if change.operation is Operation.DELETE:
            removed_by = (change.place, truth.by_key.get(change.key, {}))
            truth.delete(change.key)
        elif change.moved_from is not None:
            carried = _carried_row(change, removed_by, truth)
            truth.delete(change.key)
            truth.update(change.key, {**carried, **change.set_values})
        else:
            truth.update(change.key, change.set_values)
    return truth.by_key


def fold_commits(
    changes: Iterable[ModelChange],
    columns: Sequence[str],
    key: Sequence[str],
    load: Iterable[Mapping[str, Any]] = (),
) -> dict[Key, Row]:
    """Fold like :func:`fold`, but with the changes of each commit happening together.

    Within a commit a key may have several rows. The row that a before image describes leaves, otherwise the earliest;
    at the end a key keeps the row that came last. A repeated change sequence is the same change.
    """
    truth = Truth(columns, key)
    for row in load:
        truth.insert(row)
    for _, together in groupby(_each_sequence_once(in_order(changes)), key=lambda change: change.commit):
        _apply_together(truth, list(together))
    return truth.by_key


def _apply_together(truth: Truth, changes: Sequence[ModelChange]) -> None:
    is_moving = {change.key for change in changes if change.moved_from is not None or change.moved_to is not None}
    occupants = {change.key: [truth.by_key[change.key]] if change.key in truth.by_key else [] for change in changes}
    left: dict[Place, Row] = {}
    for change in changes:
        rows = occupants[change.key]
        if change.moved_to is not None:
            gone = _pick(rows, change.before)
            left[change.place] = gone or {}
        elif change.operation is Operation.DELETE:
            is_alone = len(rows) == 1 or change.key not in is_moving
            if is_alone or _pick(rows, change.before, others=False) is None:
                rows.clear()
        else:
            taken = left.get(replace(change.place, step=0), {}) if change.moved_from is not None else None
            found = taken if taken is not None else (rows[-1] if rows else {})
            named_key = dict(zip(truth.key, change.key, strict=True))
            whole = {name: {**found, **change.set_values, **named_key}.get(name) for name in truth.columns}
            occupants[change.key] = [*rows, whole] if change.moved_from is not None else [whole]
    for key, rows in occupants.items():
        truth.by_key.pop(key, None)
        if rows:
            truth.by_key[key] = rows[-1]


def _pick(rows: list[Row], before: Row | None, *, others: bool = True) -> Row | None:
    """Remove and return the row that a before image describes; with ``others``, otherwise the earliest row."""
    for number, row in enumerate(rows):
        if before is not None and all(row.get(name) == value for name, value in before.items()):
            return rows.pop(number)
    return rows.pop(0) if rows and others else None


def _each_sequence_once(changes: Iterable[ModelChange]) -> list[ModelChange]:
    """Return the changes without those whose sequence came before; a commit time is not a sequence."""
    seen: set[tuple[str, int]] = set()
    once = []
    for change in changes:
        mark = (change.place.sequence, change.place.step)
        if mark in seen and change.place.sequence.isdigit():
            continue
        seen.add(mark)
        once.append(change)
    return once


@dataclass(frozen=True)
class KeylessFold:
    """A table without a key: its rows, the changes that were set aside, and how many were ignored."""

    rows: list[Row]
    set_aside: list[ModelChange] = field(default_factory=list)
    ignored: int = 0


def fold_by_rule(
    changes: Iterable[ModelChange],
    columns: Sequence[str],
    rule: Literal["stop", "quarantine", "inserts"],
    load: Iterable[Row] = (),
) -> KeylessFold:
    """Return what ``without_key`` makes of a table's changes.

    Raises:
        ValueError: the rule is ``stop``, and a change is an update or delete.
    """
    ordered = in_order(changes)
    inserts = [change for change in ordered if change.operation is Operation.INSERT]
    others = [change for change in ordered if change.operation is not Operation.INSERT]
    if rule == "stop":
        return KeylessFold(fold_keyless(ordered, columns, load))
    rows = fold_keyless(inserts, columns, load)
    return KeylessFold(rows, others) if rule == "quarantine" else KeylessFold(rows, ignored=len(others))


def fold_keyless(changes: Iterable[ModelChange], columns: Sequence[str], load: Iterable[Row] = ()) -> list[Row]:
    """Return the rows of a table without a key: every loaded and inserted row, as often as it was inserted."""
    truth = Truth(columns)
    for row in load:
        truth.insert(row)
    for change in in_order(changes):
        if change.operation is not Operation.INSERT:
            msg = f"a table without a key cannot take {change.operation.name} at {change.place}"
            raise ValueError(msg)
        truth.insert(change.values)
    return truth.rows()


def in_order(changes: Iterable[ModelChange]) -> list[ModelChange]:
    """Return the changes sorted by place, each place once."""
    by_place = {change.place: change for change in changes}
    return [by_place[place] for place in sorted(by_place)]


def _carried_row(change: ModelChange, removed_by: tuple[Place, Row] | None, truth: Truth) -> Row:
    """Return the old key's row just before the move, whose first step has removed it already."""
    assert change.moved_from is not None
    if removed_by is not None and removed_by[0] == replace(change.place, step=0):
        return removed_by[1]
    return truth.by_key.get(change.moved_from, {})
