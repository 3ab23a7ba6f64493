"""The truth in plain Python: what a table holds, and what a set of changes must fold to.

Nothing here shares code with the fold under test. Rows are dicts, a key is the tuple of its columns' values, and
the whole model is one dict that changes are applied to in total order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
        """Give the key of a row."""
        return tuple(row[name] for name in self.key)

    def rows(self) -> list[Row]:
        """Give every row, in no promised order."""
        return list(self.by_key.values()) if self.key else list(self.keyless)

    def insert(self, row: Mapping[str, Any]) -> None:
        """Put a whole row in; one of the same key is replaced. Columns not given are null."""
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
        """Take a row out; a missing one is none the less gone."""
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
        """Set a column to null in every row; rows that were given out before stay as they were."""
        self.by_key = {key: {**row, name: None} for key, row in self.by_key.items()}
        self.keyless = [{**row, name: None} for row in self.keyless]


@dataclass(frozen=True)
class ModelChange:
    """One change at its place in the total order.

    ``values`` are the columns the change speaks of or more; those in ``unchanged`` it does not speak of.
    ``moved_from`` is the old key on the second step of a key change.
    """

    place: Place
    operation: Operation
    key: Key
    values: Mapping[str, Any] = field(default_factory=dict)
    unchanged: frozenset[str] = frozenset()
    moved_from: Key | None = None

    @property
    def spoken(self) -> Row:
        """The columns this change sets."""
        return {name: value for name, value in self.values.items() if name not in self.unchanged}


def move(
    place: Place, old: Key, new: Key, values: Mapping[str, Any], unchanged: frozenset[str] = frozenset()
) -> tuple[ModelChange, ModelChange]:
    """Give the two linked steps of a key change: delete the old key, write the new one."""
    return (
        ModelChange(replace(place, step=0), Operation.DELETE, old),
        ModelChange(replace(place, step=1), Operation.UPDATE, new, values, unchanged, moved_from=old),
    )


def fold(
    changes: Iterable[ModelChange],
    columns: Sequence[str],
    key: Sequence[str],
    load: Iterable[Mapping[str, Any]] = (),
) -> dict[Key, Row]:
    """Fold load rows and changes, in whatever order they come, to the rows they must give.

    Two changes at one place are one change that was delivered twice.
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
            truth.update(change.key, {**carried, **change.spoken})
        else:
            truth.update(change.key, change.spoken)
    return truth.by_key


def fold_keyless(changes: Iterable[ModelChange], columns: Sequence[str], load: Iterable[Row] = ()) -> list[Row]:
    """Give the rows of a table without a key: every loaded and inserted row, as often as it was inserted."""
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
    """Sort by place, each place once."""
    by_place = {change.place: change for change in changes}
    return [by_place[place] for place in sorted(by_place)]


def _carried_row(change: ModelChange, removed_by: tuple[Place, Row] | None, truth: Truth) -> Row:
    """Find the old key's row just before the move: its first step has removed it already."""
    assert change.moved_from is not None
    if removed_by is not None and removed_by[0] == replace(change.place, step=0):
        return removed_by[1]
    return truth.by_key.get(change.moved_from, {})
