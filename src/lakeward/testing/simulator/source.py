"""A simulated source table: random inserts, updates, deletes and key changes, and the truth they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.model import Operation
from lakeward.testing.oracle import Key, Row, Truth
from lakeward.testing.simulator.files import nulls_are_values
from lakeward.testing.simulator.tables import maker_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec

Draft = tuple[Operation, Row, Row | None, frozenset[str]]

NULL_SHARE = 0.1
HOT_SHARE = 0.3
REBIRTH_SHARE = 0.3
ODD_SHARE = 0.1
KEPT_DELETED = 50
NOTHING_HIDDEN: frozenset[str] = frozenset()


class KeyPool:
    """A set of keys from which a key can be drawn fast and reproducibly."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Add a key that is not in the set."""
        self._places[key] = len(self._keys)
        self._keys.append(key)

    def remove(self, key: Key) -> None:
        """Remove a key by moving the last one to its place."""
        place, last = self._places.pop(key), self._keys.pop()
        if place < len(self._keys):
            self._keys[place] = last
            self._places[last] = place

    def draw(self, random: Random) -> Key:
        """Return any key."""
        return self._keys[random.randrange(len(self._keys))]


class SimulatedTable:
    """A table that changes at random; every change is returned as (operation, image, before, hidden columns)."""

    def __init__(self, spec: TableSpec, options: SimulatorOptions, random: Random) -> None:
        self.spec = spec
        self.options = options
        self.columns = spec.columns
        self.truth = Truth([column.name for column in spec.columns], spec.key)
        self.generation = 1
        self.parts = 0
        self._random = random
        self._makers = {column.name: maker_of(column.type, options) for column in spec.all_columns}
        self._keys = KeyPool()
        self._deleted: list[Key] = []
        self._next_key = 0
        self._hot: Key | None = None
        self._added = 0
        self._dropped: list[str] = []

    @property
    def pending_columns(self) -> bool:
        """Whether columns are still to be added."""
        return self._added < len(self.spec.added)

    def add_column(self) -> None:
        """Add the next column, null in every row."""
        column = self.spec.added[self._added]
        self._added += 1
        self.columns = (*self.columns, column)
        self.truth.add_column(column.name)

    def drop_column(self) -> None:
        """Drop a column that no setting names; the mirror keeps it with the values it had."""
        named = {*self.spec.key, *self.spec.null_unchanged}
        droppable = [column for column in self.columns if column.name not in named]
        if len(droppable) > 1:
            gone = self._random.choice(droppable)
            self._dropped.append(gone.name)
            self.columns = tuple(column for column in self.columns if column is not gone)

    def forget_dropped(self) -> None:
        """Lose the values of dropped columns, as a reload does: its files do not have them."""
        for name in self._dropped:
            self.truth.clear_column(name)

    def fill(self, rows: int) -> None:
        """Insert the first rows."""
        for _ in range(rows):
            self._insert()

    def change(self) -> Draft:
        """Make one random change."""
        choice = self._random.random()
        if not self.spec.key or not len(self._keys) or choice < 0.3:
            return self._insert()
        if not self.options.op_in_changes or choice < 0.8:
            return self._update(self._existing_key())
        if choice < 0.9 and self._may_change_keys:
            return self._change_key(self._existing_key())
        return self._delete(self._existing_key())

    def shuffle(self) -> list[Draft]:
        """Exchange the keys of rows in one statement: a swap, a cycle, or a shift that ends in a new key."""
        wanted = self._random.randint(2, 4)
        keys = list(dict.fromkeys(self._keys.draw(self._random) for _ in range(wanted))) if len(self._keys) else []
        if not self._may_change_keys or not keys:
            return []
        targets = [*keys[1:], self._new_key() if len(keys) == 1 or self._random.random() < 0.5 else keys[0]]
        befores = [self.truth.by_key[key] for key in keys]
        drafts = []
        for before, target in zip(befores, targets, strict=True):
            drafts.append(self._moved(before, target))
        for key in keys:
            self.truth.delete(key)
            self._keys.remove(key)
        for target, (_, row, _, _) in zip(targets, drafts, strict=True):
            self.truth.insert(row)
            self._keys.add(target)
        if targets[-1] != keys[0]:
            self._deleted = [*self._deleted[-KEPT_DELETED:], keys[0]]
        self._random.shuffle(drafts)
        return drafts

    @property
    def _may_change_keys(self) -> bool:
        """Whether keys may change: a NULL before image of a key column must then be a value."""
        return self.options.change_keys and (not self.spec.nullable_key or nulls_are_values(self.spec, self.options))

    def _insert(self) -> Draft:
        row = {column.name: self._value(column.name) for column in self.columns}
        if self.spec.key:
            key = self._new_key()
            row.update(zip(self.spec.key, key, strict=True))
            self._keys.add(key)
            self._hot = key
        self.truth.insert(row)
        return (self._odd(Operation.UPDATE, Operation.INSERT), row, None, NOTHING_HIDDEN)

    def _update(self, key: Key) -> Draft:
        before = self.truth.by_key[key]
        changed = self._changed_columns()
        row = {**before, **{name: self._value(name, before[name]) for name in changed}}
        self.truth.insert(row)
        operation = self._odd(Operation.INSERT, Operation.UPDATE)
        # DMS writes no before image for inserts, even where the key exists.
        image_before = None if operation is Operation.INSERT else before
        return (operation, row, image_before, self._hidden(changed))

    def _delete(self, key: Key) -> Draft:
        hidden = self._others() if self.options.key_only_deletes else ()
        if self.options.odd_operations and self._random.random() < ODD_SHARE:
            ghost = {column.name: None for column in self.columns}
            ghost.update(zip(self.spec.key, self._new_key(), strict=True))
            return (Operation.DELETE, ghost, ghost, frozenset(hidden))
        before = self.truth.by_key[key]
        self.truth.delete(key)
        self._forget(key)
        return (Operation.DELETE, before, before, frozenset(hidden))

    def _change_key(self, key: Key) -> Draft:
        before, new = self.truth.by_key[key], self._new_key()
        draft = self._moved(before, new)
        self.truth.change_key(key, new, draft[1])
        self._forget(key)
        self._keys.add(new)
        return draft

    def _moved(self, before: Row, new: Key) -> Draft:
        """Return the update that moves a row to another key; half of them change other columns as well."""
        changed = self._changed_columns() if self._random.random() < 0.5 else []
        values = {name: self._value(name, before[name]) for name in changed}
        row = {**before, **values, **dict(zip(self.spec.key, new, strict=True))}
        if self.options.changes_are_replayed:
            self._complete(row)
        hidden = NOTHING_HIDDEN if self.options.changes_are_replayed else self._hidden(changed)
        return (Operation.UPDATE, row, before, hidden)

    def _complete(self, row: Row) -> None:
        """Replace NULLs that mean unchanged: replayed, they would take the value of a later row with the old key."""
        for name in self.spec.null_unchanged:
            if row[name] is None:
                row[name] = self._makers[name](self._random)

    def _existing_key(self) -> Key:
        """Return any key, often the one that was changed last."""
        if self._hot is None or self._hot not in self._keys or self._random.random() >= HOT_SHARE:
            self._hot = self._keys.draw(self._random)
        return self._hot

    def _new_key(self) -> Key:
        """Return a key that no row has, sometimes one that a row had."""
        if self._deleted and self._random.random() < REBIRTH_SHARE:
            key = self._deleted.pop(self._random.randrange(len(self._deleted)))
            if key not in self._keys:
                return key
        self._next_key += 1
        return self.spec.key_at(self._next_key)

    def _forget(self, key: Key) -> None:
        self._keys.remove(key)
        self._deleted = [*self._deleted[-KEPT_DELETED:], key]

    def _value(self, name: str, before: Any = None) -> Any:
        """Draw a value; where NULL means unchanged, a value never becomes NULL."""
        may_be_null = before is None or (self.options.null_updates and name not in self.spec.null_unchanged)
        if may_be_null and self._random.random() < NULL_SHARE:
            return None
        return self._makers[name](self._random)

    def _others(self) -> list[str]:
        return [column.name for column in self.columns if column.name not in self.spec.key]

    def _changed_columns(self) -> list[str]:
        others = self._others()
        return self._random.sample(others, min(len(others), self._random.randint(1, 3)))

    def _hidden(self, changed: Sequence[str]) -> frozenset[str]:
        """Choose columns to leave out among those that did not change."""
        if self.options.unchanged is None and not self.spec.null_unchanged:
            return NOTHING_HIDDEN
        return frozenset(name for name in self._others() if name not in changed and self._random.random() < 0.6)

    def _odd(self, odd: Operation, usual: Operation) -> Operation:
        """Return the odd operation now and then: inserts and updates are both upserts."""
        is_odd = self.spec.key and self.options.odd_operations and self._random.random() < ODD_SHARE
        return odd if is_odd else usual
