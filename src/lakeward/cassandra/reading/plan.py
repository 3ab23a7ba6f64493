"""What is read of a table, and the statement that reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lakeward.cassandra.names import quoted
from lakeward.cassandra.retrying import call_again
from lakeward.cassandra.snapshot_columns import EXPIRES, WRITETIME, snapshot_columns
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

    from lakeward.cassandra.budget import BudgetAddress, BudgetClient, RateLimits
    from lakeward.cassandra.connecting import ClusterAddress
    from lakeward.cassandra.schema import CqlColumn, TableSchema
    from lakeward.cassandra.types import CqlType

# What would take rows away, or put them together, without anyone being told.
_MORE_THAN_A_CONDITION = re.compile(r"\b(LIMIT|ORDER\s+BY|GROUP\s+BY|ALLOW\s+FILTERING)\b|;|--|/\*", re.IGNORECASE)
# Where reading is limited, pages are small: those that all tasks ask for at first come at once.
_FEWEST_ROWS, _PAGE_SECONDS = 100, 0.1
# Of some 1 KB each; a unit is 4 KB.
_ROWS_PER_UNIT = 4
# What a query is given each time: the tokens behind which and up to which it reads.
_TOKENS = 2
CHANGED = "if the table or what this login may was changed just now: the same command again, an export with --restart"
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


class Part(Enum):
    """What a cell of the answer is of a column."""

    VALUE = ""
    WRITETIME = WRITETIME
    EXPIRES = EXPIRES


@dataclass(frozen=True)
class Cell:
    """One place in the rows that come back."""

    column: CqlColumn
    part: Part

    @property
    def field(self) -> str:
        """The column of the snapshot that holds it."""
        return self.part.value + self.column.name


@dataclass(frozen=True)
class ReadPlan:
    """A table, and what of it is read; ``columns`` are those besides the key, none meaning all of them.

    ``element_times`` says that the server tells the times of collections, as Cassandra does from 5.0 on, and
    ``frozen_times`` that it tells those of frozen ones; where it does not, a collection gets the latest time of the
    other values in its row. ``page_rows`` is how many rows a page has at
    most, where it is not as configured.
    """

    address: ClusterAddress
    schema: TableSchema
    columns: tuple[str, ...] = ()
    where: str | None = None
    writetime: bool = False
    ttl: bool = False
    budget: BudgetAddress | None = None
    element_times: bool = True
    frozen_times: bool = True
    page_rows: int | None = None

    @property
    def selected(self) -> tuple[CqlColumn, ...]:
        """The columns that are read, keys first."""
        return snapshot_columns(self.schema, self.columns or None)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What is asked for, in order."""
        found = [Cell(one, Part.VALUE) for one in self.selected]
        values = [one for one in self.selected if not one.kind.is_key and one not in self.untold]
        if self.writetime or self.ttl:
            found += [Cell(one, Part.WRITETIME) for one in values]
        if self.ttl:
            found += [Cell(one, Part.EXPIRES) for one in values]
        return tuple(found)

    @property
    def untold(self) -> tuple[CqlColumn, ...]:
        """Columns whose times the server does not tell, though they are wanted."""
        if not (self.writetime or self.ttl):
            return ()
        return tuple(one for one in self.selected if not one.kind.is_key and not self._is_told(one.type))

    def _is_told(self, cql: CqlType) -> bool:
        if cql.is_multi_cell:
            return self.element_times
        return self.frozen_times or not cql.is_collection

    @property
    def needs_slow_reader(self) -> bool:
        """Whether the answer holds lists with nulls in them, which the driver's fast reader cannot take."""
        return any(one.part is Part.EXPIRES and one.column.type.is_multi_cell for one in self.cells)

    @property
    def statement(self) -> str:
        """The query of one range; it takes the tokens behind which and up to which it reads."""
        token = f"token({', '.join(quoted(one.name) for one in self.schema.partition_key)})"
        what = ", ".join(_expression(one) for one in self.cells)
        condition = f" AND {self.where} ALLOW FILTERING" if self.where else ""
        return f"SELECT {what} FROM {self.schema.name.cql} WHERE {token} > ? AND {token} <= ?{condition}"

    def prepare(self, session: Session, budget: BudgetClient | None = None) -> PreparedStatement:
        """Let the server look at the query, and again where it does not answer.

        Raises:
            ConfigurationError: it refuses it, mostly because of the condition.
            RetriableError: it did not answer, however often it was asked.
        """
        from cassandra import InvalidRequest, Unauthorized
        from cassandra.protocol import SyntaxException

        require_condition(self.where)
        try:
            found = call_again(lambda: session.prepare(self.statement), budget=budget, what="preparing the query")
        except (InvalidRequest, SyntaxException, Unauthorized) as error:
            what = f"the condition {self.where!r}" if self.where else "the query"
            msg = f"{self.schema.name}: the server does not take {what}: {error}"
            hint = "conditions are on clustering and other columns, as in --where \"day >= '2026-11-01' AND n > 3\""
            raise ConfigurationError(msg, hint=hint if self.where else CHANGED) from error
        if len(found.column_metadata) != _TOKENS:
            msg = f"the condition {self.where!r} leaves a value open, by ? or by a name after a colon"
            raise ConfigurationError(msg, hint="write the value itself into the condition")
        return found


def page_rows(address: ClusterAddress, limits: RateLimits) -> int | None:
    """Give how many rows a page may have where reading is limited: a tenth of a second's, and no more than usual."""
    allowed = [limits.rows_per_second, None if limits.read_units is None else limits.read_units * _ROWS_PER_UNIT]
    rates = [one for one in allowed if one is not None]
    return min(address.settings.page_size, max(_FEWEST_ROWS, int(min(rates) * _PAGE_SECONDS))) if rates else None


def require_condition(where: str | None) -> None:
    """Refuse what is more than a condition.

    Raises:
        ConfigurationError: naming what is in the way.
    """
    found = _MORE_THAN_A_CONDITION.search(_QUOTED.sub("''", where or ""))
    if found:
        msg = f"the condition {where!r} holds {found.group()!r}, which is no part of a condition"
        raise ConfigurationError(msg, hint="only conditions joined by AND; ALLOW FILTERING is added anyway")


def _expression(cell: Cell) -> str:
    name = cell.column.cql
    if cell.part is Part.VALUE:
        return name
    if cell.part is Part.EXPIRES:
        return f"ttl({name})"
    # A collection has a time for each of its elements.
    return f"maxwritetime({name})" if cell.column.type.is_multi_cell else f"writetime({name})"
