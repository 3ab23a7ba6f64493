"""What is read of a table: the ring of tokens cut into ranges, the columns, and the statement that reads a range."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from lakeward.cassandra.cql import quoted
from lakeward.cassandra.keyspaces import require_partitioner
from lakeward.cassandra.retry import call_again, rows_of
from lakeward.cassandra.snapshots import EXPIRES, WRITETIME, snapshot_columns
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

    from lakeward.cassandra.budget import BudgetAddress, RateLimits
    from lakeward.cassandra.budget_server import BudgetClient
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import CqlType, TableName
    from lakeward.cassandra.schema import CqlColumn, TableSchema

# With so many times more pieces than were asked for, neighbours are read together though they have other replicas.
_TOO_MANY = 2


@dataclass(frozen=True, order=True)
class TokenRange:
    """Tokens behind ``start`` up to and with ``end``; no range goes beyond the end of the ring."""

    start: int
    end: int

    @property
    def width(self) -> int:
        """How many tokens are in it."""
        return self.end - self.start


@dataclass(frozen=True)
class Partitioner:
    """How a cluster makes tokens of keys: all of them are in ``ring``."""

    name: str
    ring: TokenRange


# The lowest number of each is no key's token: of Murmur3's by definition, of the other's because it is no MD5 sum.
MURMUR3 = Partitioner("Murmur3Partitioner", TokenRange(-(2**63), 2**63 - 1))
RANDOM = Partitioner("RandomPartitioner", TokenRange(-1, 2**127))
_KNOWN = {partitioner.name: partitioner for partitioner in (MURMUR3, RANDOM)}


def partitioner_of(session: Session) -> Partitioner:
    """Return the partitioner of a cluster.

    Raises:
        ConfigurationError: tables of this one cannot be read in ranges.
    """
    metadata = session.cluster.metadata
    return _KNOWN[require_partitioner(str(metadata.partitioner), cluster=str(metadata.cluster_name))]


def ring_ranges(session: Session, name: TableName, *, splits: int) -> list[TokenRange]:
    """Cut the ring into about so many ranges; each token is in exactly one of them.

    Ranges end where the data of one set of replicas do, as far as that makes not many more of them. Those with the
    same first replica come one behind the other.

    Raises:
        ConfigurationError: the partitioner is not known.
    """
    partitioner = partitioner_of(session)
    found = session.cluster.metadata.token_map
    owners: dict[int, tuple[str, ...]] = {}
    for token in found.ring if found is not None else ():
        owners[int(token.value)] = tuple(str(host.endpoint) for host in found.get_replicas(name.keyspace, token))
    return cut(partitioner.ring, owners, splits)


def cut(ring: TokenRange, owners: Mapping[int, tuple[str, ...]], splits: int) -> list[TokenRange]:
    """Cut a ring into about ``splits`` ranges; ``owners`` has the replicas of the tokens up to each one of its keys."""
    pieces = _by_owner(ring, owners)
    if len(pieces) > _TOO_MANY * splits:
        pieces = _joined(pieces, ring.width // splits)
    cuts = [(part, owner) for piece, owner in pieces for part in _parts(piece, ring, splits)]
    return [token_range for token_range, _ in sorted(cuts, key=lambda part: (part[1], part[0]))]


def grouped(ranges: Sequence[TokenRange], groups: int) -> list[tuple[TokenRange, ...]]:
    """Share ranges out, in their order, to up to so many groups that are about equally wide."""
    whole = sum(token_range.width for token_range in ranges)
    found: list[tuple[TokenRange, ...]] = []
    group: list[TokenRange] = []
    done = 0
    for token_range in ranges:
        group.append(token_range)
        done += token_range.width
        if done * groups >= whole * (len(found) + 1):
            found.append(tuple(group))
            group = []
    return [*found, tuple(group)] if group else found


def estimated_size(session: Session, name: TableName, partitioner: Partitioner) -> tuple[int, int] | None:
    """Estimate the partitions and bytes of a table from what one node tells of its own; None where it tells nothing."""
    from cassandra import InvalidRequest, Unauthorized

    try:
        rows = rows_of(
            session,
            "SELECT range_start, range_end, partitions_count, mean_partition_size FROM system.size_estimates "
            "WHERE keyspace_name = %s AND table_name = %s",
            (name.keyspace, name.table),
        )
    except (InvalidRequest, Unauthorized):
        # The size is only a help: not every service has this table, and not every login may see it.
        return None
    covered = partitions = size = 0
    whole = partitioner.ring.width
    for start, end, count, mean in rows:
        # A range that goes around the end of the ring ends at a lower token than it starts with.
        covered += (int(end) - int(start)) % whole or whole
        partitions += count
        size += count * mean
    if not partitions:
        return None
    share = min(covered / whole, 1.0)
    return round(partitions / share), round(size / share)


def _by_owner(ring: TokenRange, owners: Mapping[int, tuple[str, ...]]) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """Cut a ring where its replicas change."""
    tokens = sorted(token for token in owners if ring.start < token < ring.end)
    # Tokens behind the last one belong to whom the first one belongs.
    behind = owners[min(owners)] if owners else ()
    found: list[tuple[TokenRange, tuple[str, ...]]] = []
    for start, end in pairwise([ring.start, *tokens, ring.end]):
        owner = owners.get(end, behind)
        if found and found[-1][1] == owner:
            found[-1] = (TokenRange(found[-1][0].start, end), owner)
        else:
            found.append((TokenRange(start, end), owner))
    return found


def _joined(
    pieces: Sequence[tuple[TokenRange, tuple[str, ...]]], width: int
) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """Join neighbours until they are so wide."""
    found: list[tuple[TokenRange, tuple[str, ...]]] = []
    for piece, owner in pieces:
        if found and found[-1][0].width < width:
            found[-1] = (TokenRange(found[-1][0].start, piece.end), found[-1][1])
        else:
            found.append((piece, owner))
    return found


def _parts(piece: TokenRange, ring: TokenRange, splits: int) -> list[TokenRange]:
    """Cut a piece into as many equal parts as are its share of all."""
    count = min(max(round(piece.width * splits / ring.width), 1), piece.width)
    cuts = [piece.start + piece.width * number // count for number in range(count + 1)]
    return [TokenRange(start, end) for start, end in pairwise(cuts)]


# What would take rows away, or put them together, without anyone being told.
_MORE_THAN_A_CONDITION = re.compile(r"\b(LIMIT|ORDER\s+BY|GROUP\s+BY|ALLOW\s+FILTERING)\b|;|--|/\*", re.IGNORECASE)
# Where reading is limited, pages are small: those that all tasks ask for at first come at once.
_FEWEST_ROWS, _PAGE_SECONDS = 100, 0.1
# Of some 1 KB each; a unit is 4 KB.
_ROWS_PER_UNIT = 4
# What a query is given each time: the tokens behind which and up to which it reads.
_TOKENS = 2
CHANGED = "if the table or the login's permissions just changed: run the same command again, an export with --restart"
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
        found = [Cell(column, Part.VALUE) for column in self.selected]
        values = [column for column in self.selected if not column.kind.is_key and column not in self.without_times]
        if self.writetime or self.ttl:
            found += [Cell(column, Part.WRITETIME) for column in values]
        if self.ttl:
            found += [Cell(column, Part.EXPIRES) for column in values]
        return tuple(found)

    @property
    def without_times(self) -> tuple[CqlColumn, ...]:
        """Columns whose times the server does not tell, though they are wanted."""
        if not (self.writetime or self.ttl):
            return ()
        return tuple(column for column in self.selected if not column.kind.is_key and not self._has_times(column.type))

    def _has_times(self, cql: CqlType) -> bool:
        if cql.is_multi_cell:
            return self.element_times
        return self.frozen_times or not cql.is_collection

    @property
    def needs_slow_reader(self) -> bool:
        """Whether the answer holds lists with nulls in them, which the driver's fast reader cannot take."""
        return any(cell.part is Part.EXPIRES and cell.column.type.is_multi_cell for cell in self.cells)

    @property
    def statement(self) -> str:
        """The query of one range; it takes the tokens behind which and up to which it reads."""
        token = f"token({', '.join(quoted(column.name) for column in self.schema.partition_key)})"
        what = ", ".join(_expression(cell) for cell in self.cells)
        condition = f" AND {self.where} ALLOW FILTERING" if self.where else ""
        return f"SELECT {what} FROM {self.schema.name.cql} WHERE {token} > ? AND {token} <= ?{condition}"

    def prepare(self, session: Session, budget: BudgetClient | None = None) -> PreparedStatement:
        """Have the server check the query, and retry where it does not answer.

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
            msg = f"{self.schema.name}: the server does not accept {what}: {error}"
            hint = "conditions are on clustering and other columns, as in --where \"day >= '2026-11-01' AND n > 3\""
            raise ConfigurationError(msg, hint=hint if self.where else CHANGED) from error
        if len(found.column_metadata) != _TOKENS:
            msg = f"the condition {self.where!r} has an unbound value: ? or a name after a colon"
            raise ConfigurationError(msg, hint="write the value itself into the condition")
        return found


def page_rows(address: ClusterAddress, limits: RateLimits) -> int | None:
    """Return how many rows a page may have where reading is limited: a tenth of a second's, and no more than usual."""
    allowed = [limits.rows_per_second, None if limits.read_units is None else limits.read_units * _ROWS_PER_UNIT]
    rates = [rate for rate in allowed if rate is not None]
    return min(address.settings.page_size, max(_FEWEST_ROWS, int(min(rates) * _PAGE_SECONDS))) if rates else None


def require_condition(where: str | None) -> None:
    """Refuse what is more than a condition.

    Raises:
        ConfigurationError: naming what is in the way.
    """
    found = _MORE_THAN_A_CONDITION.search(_QUOTED.sub("''", where or ""))
    if found:
        msg = f"the condition {where!r} contains {found.group()!r}, which is not part of a condition"
        raise ConfigurationError(msg, hint="only conditions joined by AND; ALLOW FILTERING is added anyway")


def _expression(cell: Cell) -> str:
    name = cell.column.cql
    if cell.part is Part.VALUE:
        return name
    if cell.part is Part.EXPIRES:
        return f"ttl({name})"
    # A collection has a time for each of its elements.
    return f"maxwritetime({name})" if cell.column.type.is_multi_cell else f"writetime({name})"
