"""Plan the statements that write the rows of a table.

Per cell: a value is written; null is written only where a value became null; what did not change is left unset, so
that neither its write time changes nor a tombstone is created. The row marker is written with every new row, and with
a row of which only the key is left: without the marker such a row would disappear.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName, quoted
from lakeward.cassandra.retry import call_again, error_text, is_refusal, is_rejection
from lakeward.cassandra.write_plan import INSERTED
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakeward.cassandra.write_plan import WritePlan


class Verb(StrEnum):
    """The kind of a statement."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True)
class StatementShape:
    """The shape of a statement: its verb, key columns and cells, and whether it has a TTL and a timestamp.

    A delete without cells deletes the row; the key is always complete, or the partition key for static cells.
    ``is_timed`` is false for tables that accept no timestamps from clients.
    """

    verb: Verb
    keys: tuple[str, ...]
    cells: tuple[str, ...] = ()
    expires: bool = False
    is_timed: bool = True

    def cql(self, table: TableName) -> str:
        """Return the statement as CQL."""
        options = [*(["TIMESTAMP ?"] if self.is_timed else []), *(["TTL ?"] if self.expires else [])]
        using = f" USING {' AND '.join(options)}" if options else ""
        where = " AND ".join(f"{quoted(name)} = ?" for name in self.keys)
        if self.verb is Verb.INSERT:
            names = [quoted(name) for name in (*self.keys, *self.cells)]
            return f"INSERT INTO {table.cql} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}){using}"
        if self.verb is Verb.UPDATE:
            cells = ", ".join(f"{quoted(name)} = ?" for name in self.cells)
            return f"UPDATE {table.cql}{using} SET {cells} WHERE {where}"
        what = f" {', '.join(quoted(name) for name in self.cells)}" if self.cells else ""
        return f"DELETE{what} FROM {table.cql}{using} WHERE {where}"

    @property
    def time_place(self) -> int:
        """The position of the timestamp among the bound values."""
        return len(self.keys) + len(self.cells) if self.verb is Verb.INSERT else 0

    def bound(self, keys: Sequence[Any], cells: Sequence[Any], timestamp: bytes, ttl: bytes) -> list[Any]:
        """Return the values in the order in which the statement binds them."""
        using = [*([timestamp] if self.is_timed else []), *([ttl] if self.expires else [])]
        if self.verb is Verb.INSERT:
            return [*keys, *cells, *using]
        if self.verb is Verb.UPDATE:
            return [*using, *cells, *keys]
        return [*using, *keys]


class Statements:
    """The prepared statements of one table, each prepared at first use."""

    def __init__(self, session: Any, table: TableName) -> None:
        self._session, self._table = session, table
        self._known: dict[StatementShape, Any] = {}

    def prepared(self, shape: StatementShape) -> Any:
        """Return the prepared statement of a shape.

        Raises:
            DataError: the server refuses it because the table has changed.
            RetriableError: it does not answer.
        """
        if shape not in self._known:
            statement = self._prepare(shape.cql(self._table))
            # Every statement has its timestamp, so that executing it twice changes nothing.
            statement.is_idempotent = True
            self._known[shape] = statement
        return self._known[shape]

    def _prepare(self, query: str) -> Any:
        try:
            return call_again(lambda: self._session.prepare(query), what="preparing a statement")
        except Exception as error:
            if not (is_rejection(error) or is_refusal(error)):
                raise
            msg = f"the cluster does not accept rows of {self._table}: {error_text(error)}"
            raise DataError(msg, hint="check whether the table was changed, and who may write it") from error


# Tries of a statement within one attempt at a unit, and attempts at a unit within one run.
TRIES, ATTEMPTS = 32, 31
_RUN = 1_000


class WriteOperation:
    """A statement with its values; ``base`` is the timestamp of a list, to which each try adds."""

    __slots__ = ("base", "shape", "values")

    def __init__(self, shape: StatementShape, values: list[Any], base: int | None = None) -> None:
        self.shape, self.values, self.base = shape, values, base

    def at(self, shift: int) -> list[Any]:
        """Return the values of a try; only the timestamp of a list differs between tries."""
        if self.base is None:
            return self.values
        values = list(self.values)
        values[self.shape.time_place] = packed_time(self.base + shift)
        return values


class Row:
    """A row to write: its position in the batch, its action, and its statements."""

    __slots__ = ("action", "batch", "index", "is_rejected", "operations", "partition", "size")

    def __init__(
        self,
        batch: pa.RecordBatch,
        index: int,
        action: str,
        partition: tuple[bytes, ...],
        operations: list[WriteOperation],
        size: int,
    ) -> None:
        self.batch, self.index, self.action, self.partition = batch, index, action, partition
        self.operations, self.size, self.is_rejected = operations, size, False


def list_shift(run_attempt: int, unit_attempt: int) -> int:
    """Return what is added to the timestamp of lists, in microseconds.

    The server assigns ids to the elements of a list. Written again with the same timestamp, they are added to the
    existing ones; with a later one they replace them.
    """
    return run_attempt * _RUN + min(unit_attempt, ATTEMPTS - 1) * TRIES


def packed_time(microseconds: int) -> bytes:
    """Return the bytes of a timestamp as a bound value."""
    return struct.pack(">q", microseconds)


class RowPlanner:
    """Plans the statements of rows for the columns of one plan."""

    def __init__(self, plan: WritePlan, unset: Any) -> None:
        self._plan, self._unset = plan, unset
        self._values = plan.values
        self._positions = {column.name: number for number, column in enumerate(self._values)}
        self._keys = tuple(column.name for column in plan.keys)
        self._partition = tuple(column.name for column in plan.partition_key)
        self._plain = {is_static: self._pieces(is_static=is_static) for is_static in (False, True)}
        self._statics = tuple(number for number, column in enumerate(self._values) if column.is_static)
        self._regulars = tuple(number for number, column in enumerate(self._values) if not column.is_static)
        self._lists = frozenset(number for number, column in enumerate(self._values) if column.is_list)
        self._known_changes: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._time = packed_time(plan.timestamp)

    @property
    def insert(self) -> StatementShape | None:
        """The single statement that inserts any row; None where rows need several or different ones."""
        plan = self._plan
        is_plain = not (plan.has_actions or plan.has_writetimes or plan.expires or self._statics or self._lists)
        pieces = self._plain[False]
        if not is_plain or len(pieces) > 1:
            return None
        return self._shape(Verb.INSERT, self._keys, pieces[0] if pieces else ())

    def _pieces(self, *, is_static: bool) -> list[tuple[int, ...]]:
        """Return the columns of each statement; a server may limit their number."""
        found = [n for n, column in enumerate(self._values) if column.is_static == is_static and not column.is_list]
        size = self._plan.columns_at_once or len(found) or 1
        return [tuple(found[at : at + size]) for at in range(0, len(found), size)]

    def _shape(self, verb: Verb, keys: tuple[str, ...], places: Iterable[int]) -> StatementShape:
        expires = self._plan.expires and verb is not Verb.DELETE
        return StatementShape(verb, keys, self._names(places), expires, is_timed=self._plan.is_timed)

    def _names(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._values[position].name for position in positions)

    def why_unwritable(self, keys: Sequence[Any], values: Sequence[Any]) -> str | None:
        """Return why a row without its complete key cannot be written or deleted; None where it can."""
        width = len(self._partition)
        absent = [name for name, value in zip(self._keys, keys, strict=True) if value is None]
        if not absent or (self.is_static_row(keys) and None not in keys[:width]):
            regular = [
                v for v, column in zip(values, self._values, strict=True) if v is not None and not column.is_static
            ]
            return "values of regular columns without a clustering key" if absent and regular else None
        return f"no value for the key column {', '.join(absent)}: nothing is written or deleted by a partial key"

    def is_static_row(self, keys: Sequence[Any]) -> bool:
        """Whether this is the static row of a partition: all its clustering columns are null."""
        rest = keys[len(self._partition) :]
        return self._plan.has_static_rows and bool(rest) and all(key is None for key in rest)

    def deleting(self, keys: Sequence[Any]) -> list[WriteOperation]:
        """Return the statement that deletes a row by its full key, or a partition's static cells, if it has any."""
        if self.is_static_row(keys):
            if not self._statics:
                # A statement without columns would delete the whole partition.
                return []
            keys = keys[: len(self._partition)]
            shape = self._shape(Verb.DELETE, self._partition, self._statics)
        else:
            shape = self._shape(Verb.DELETE, self._keys, ())
        return [WriteOperation(shape, shape.bound(keys, (), self._time, b""))]

    def writing(
        self,
        action: str,
        changes: Sequence[str] | None,
        keys: Sequence[Any],
        values: Sequence[Any],
        times: Sequence[int | None] = (),
        expiries: Sequence[int | None] = (),
        now: int = 0,
    ) -> list[WriteOperation] | None:
        """Return the statements that insert or change a row; None where all of it has expired."""
        is_new = action == INSERTED
        places = range(len(values)) if is_new else self._changed(changes or ())
        cells = _Cells(self._plan.timestamp, is_new=is_new, ttl=self._plan.ttl or 0)
        for place in places:
            cells.add(place, values[place], times[place] if times else None, expiries[place] if expiries else None, now)
        if is_new and cells.has_expired and not cells.groups:
            return None
        operations: list[WriteOperation] = []
        if not self.is_static_row(keys):
            is_marked = is_new or (bool(cells.groups) and all(values[column] is None for column in self._regulars))
            operations += self._parts(cells, keys, self._keys, is_static=False, is_marked=is_marked)
        if self._statics:
            width = len(self._partition)
            operations += self._parts(cells, keys[:width], self._partition, is_static=True, is_marked=False)
        return operations

    def _changed(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the positions of changed columns; a cell may also have only a new write time."""
        from lakeward.cassandra.snapshots import WRITETIME

        known = tuple(names)
        if known not in self._known_changes:
            found = {self._positions.get(name, self._positions.get(name.removeprefix(WRITETIME))) for name in known}
            self._known_changes[known] = tuple(sorted(position for position in found if position is not None))
        return self._known_changes[known]

    def _parts(
        self, cells: _Cells, keys: Sequence[Any], names: tuple[str, ...], *, is_static: bool, is_marked: bool
    ) -> list[WriteOperation]:
        operations = []
        groups = {
            when: {place: value for place, value in group.items() if self._values[place].is_static == is_static}
            for when, group in cells.groups.items()
        }
        marker = cells.marker() if is_marked else None
        if marker is not None:
            groups.setdefault(marker, {})
        for when, group in groups.items():
            operations += self._plain_cells(when, group, keys, names, is_static=is_static, is_marked=when == marker)
            operations += self._list_cells(when, group, keys, names)
        return operations

    def _plain_cells(
        self,
        when: tuple[int, int],
        group: Mapping[int, Any],
        keys: Sequence[Any],
        names: tuple[str, ...],
        *,
        is_static: bool,
        is_marked: bool,
    ) -> list[WriteOperation]:
        """Return the statements for cells of one time; the first one, an INSERT, writes the row marker."""
        operations = []
        time, ttl = packed_time(when[0]), struct.pack(">i", when[1])
        for number, piece in enumerate(self._plain[is_static] or [()]):
            is_insert = is_marked and number == 0
            if not is_insert and not any(place in group for place in piece):
                continue
            shape = self._shape(Verb.INSERT if is_insert else Verb.UPDATE, names, piece)
            bound = [group.get(place, self._unset) for place in piece]
            operations.append(WriteOperation(shape, shape.bound(keys, bound, time, ttl)))
        return operations

    def _list_cells(
        self, when: tuple[int, int], group: Mapping[int, Any], keys: Sequence[Any], names: tuple[str, ...]
    ) -> list[WriteOperation]:
        operations = []
        ttl = struct.pack(">i", when[1])
        for place in self._lists & group.keys():
            shape = self._shape(Verb.UPDATE, names, [place])
            values = shape.bound(keys, [group[place]], b"", ttl)
            operations.append(WriteOperation(shape, values, base=when[0] if shape.is_timed else None))
        return operations


class _Cells:
    """The cells of a row by write time and TTL (0: forever); ``ttl`` is that of a row without cells."""

    def __init__(self, timestamp: int, *, is_new: bool, ttl: int) -> None:
        self._timestamp, self._is_new, self._ttl = timestamp, is_new, ttl
        self.groups: dict[tuple[int, int], dict[int, Any]] = {}
        self.has_expired = False

    def add(self, place: int, value: Any, written: int | None, expiry: int | None, now: int) -> None:
        if value is not None and expiry is not None and expiry <= now:
            # In an existing row, the earlier value of the cell must not outlive the expired one.
            self.has_expired, value = True, None
        if value is None and self._is_new:
            return
        ttl = expiry - now if value is not None and expiry is not None else 0
        when = (self._timestamp if written is None else written, ttl)
        self.groups.setdefault(when, {})[place] = value

    def marker(self) -> tuple[int, int]:
        """Return the write time and the TTL of the row marker, which lives as long as the last of the cells."""
        if not self.groups:
            return self._timestamp, self._ttl
        lives = [ttl for _, ttl in self.groups]
        return min(time for time, _ in self.groups), 0 if 0 in lives else max(lives)
