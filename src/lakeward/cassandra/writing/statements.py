"""The statements that write a table: each cell and each delete at a time that the caller gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.names import TableName, quoted
from lakeward.cassandra.retrying import call_again, is_refusal, is_rejection, told
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(StrEnum):
    """What a statement does with the row or the cells it names."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True)
class Shape:
    """A kind of statement: what it does, with which cells, found by which key, and whether it says when.

    A delete without cells deletes the row; the key is always the whole one, or a partition's for its static cells.
    ``is_timed`` is false for the one kind of table that takes no times from its clients.
    """

    verb: Verb
    keys: tuple[str, ...]
    cells: tuple[str, ...] = ()
    expires: bool = False
    is_timed: bool = True

    def cql(self, table: TableName) -> str:
        """Give the statement as CQL."""
        said = [*(["TIMESTAMP ?"] if self.is_timed else []), *(["TTL ?"] if self.expires else [])]
        using = f" USING {' AND '.join(said)}" if said else ""
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
        """Where the timestamp is among the bound values."""
        return len(self.keys) + len(self.cells) if self.verb is Verb.INSERT else 0

    def bound(self, keys: Sequence[Any], cells: Sequence[Any], timestamp: bytes, ttl: bytes) -> list[Any]:
        """Put values in the order in which the statement takes them."""
        using = [*([timestamp] if self.is_timed else []), *([ttl] if self.expires else [])]
        if self.verb is Verb.INSERT:
            return [*keys, *cells, *using]
        if self.verb is Verb.UPDATE:
            return [*using, *cells, *keys]
        return [*using, *keys]


class Statements:
    """Statements of one table, prepared when first asked for."""

    def __init__(self, session: Any, table: TableName) -> None:
        self._session, self._table = session, table
        self._known: dict[Shape, Any] = {}

    def prepared(self, shape: Shape) -> Any:
        """Give the prepared statement of a shape.

        Raises:
            DataError: the server does not take it: the table is not what it was.
            RetriableError: it does not answer.
        """
        if shape not in self._known:
            statement = self._prepare(shape.cql(self._table))
            # Every statement carries its time: done twice, it is done once.
            statement.is_idempotent = True
            self._known[shape] = statement
        return self._known[shape]

    def _prepare(self, query: str) -> Any:
        try:
            return call_again(lambda: self._session.prepare(query), what="preparing a statement")
        except Exception as error:
            if not (is_rejection(error) or is_refusal(error)):
                raise
            msg = f"the cluster does not take rows of {self._table}: {told(error)}"
            raise DataError(msg, hint="check whether the table was changed, and who may write it") from error
