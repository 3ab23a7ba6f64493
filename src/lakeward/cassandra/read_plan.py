"""The plan of reading a table: the token ring cut into ranges, the columns, and the query of a range."""

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

# Ranges for each task that reads, and how much a range of a large table holds.
_RANGES_PER_TASK, _RANGE_BYTES, _MOST_RANGES = 8, 32 * 2**20, 50_000
# Beyond this many times the requested ranges, neighbours are joined although they have different replicas.
_TOO_MANY = 2


@dataclass(frozen=True, order=True)
class TokenRange:
    """The tokens after ``start`` up to and including ``end``; no range wraps around the end of the ring."""

    start: int
    end: int

    @property
    def width(self) -> int:
        """The number of tokens in the range."""
        return self.end - self.start


@dataclass(frozen=True)
class Partitioner:
    """How a cluster computes tokens from keys; all tokens are in ``ring``."""

    name: str
    ring: TokenRange


# The start of each ring is never the token of a key: by definition for Murmur3, and -1 is not an MD5 sum.
MURMUR3 = Partitioner("Murmur3Partitioner", TokenRange(-(2**63), 2**63 - 1))
RANDOM = Partitioner("RandomPartitioner", TokenRange(-1, 2**127))
_KNOWN = {partitioner.name: partitioner for partitioner in (MURMUR3, RANDOM)}


def partitioner_of(session: Session) -> Partitioner:
    """Return the partitioner of a cluster.

    Raises:
        ConfigurationError: its partitioner does not support token ranges.
    """
    metadata = session.cluster.metadata
    return _KNOWN[require_partitioner(str(metadata.partitioner), cluster=str(metadata.cluster_name))]


def ring_ranges(session: Session, name: TableName, *, splits: int) -> list[TokenRange]:
    """Cut the ring into about this many ranges; each token is in exactly one of them.

    Ranges end where the replicas change, unless that makes far too many of them. Those with the same first replica
    follow each other.

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
    """Cut a ring into about ``splits`` ranges; ``owners`` maps the last token of a part to its replicas."""
    pieces = _by_owner(ring, owners)
    if len(pieces) > _TOO_MANY * splits:
        pieces = _joined(pieces, ring.width // splits)
    cuts = [(part, owner) for piece, owner in pieces for part in _parts(piece, ring, splits)]
    return [token_range for token_range, _ in sorted(cuts, key=lambda part: (part[1], part[0]))]


def grouped(ranges: Sequence[TokenRange], groups: int) -> list[tuple[TokenRange, ...]]:
    """Divide ranges, in order, into up to this many groups of about the same width."""
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


def splits_for(parallelism: int, size: int) -> int:
    """Return into how many ranges the ring is cut for a table of a size in bytes, 0 where that is not known."""
    return min(max(_RANGES_PER_TASK * parallelism, size // _RANGE_BYTES), _MOST_RANGES)


def estimated_size(session: Session, name: TableName, partitioner: Partitioner) -> tuple[int, int] | None:
    """Estimate the partitions and bytes of a table from the estimates of one node; None where it has none."""
    from cassandra import InvalidRequest, Unauthorized

    try:
        rows = rows_of(
            session,
            "SELECT range_start, range_end, partitions_count, mean_partition_size FROM system.size_estimates "
            "WHERE keyspace_name = %s AND table_name = %s",
            (name.keyspace, name.table),
        )
    except (InvalidRequest, Unauthorized):
        # The size is optional: not every service has this table, and not every login may read it.
        return None
    covered = partitions = size = 0
    whole = partitioner.ring.width
    for start, end, count, mean in rows:
        # A range that wraps around the end of the ring has a lower end than start.
        covered += (int(end) - int(start)) % whole or whole
        partitions += count
        size += count * mean
    if not partitions:
        return None
    share = min(covered / whole, 1.0)
    return round(partitions / share), round(size / share)


def _by_owner(ring: TokenRange, owners: Mapping[int, tuple[str, ...]]) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """Return the parts of a ring with their replicas, cut where the replicas change."""
    tokens = sorted(token for token in owners if ring.start < token < ring.end)
    # Tokens after the last one have the replicas of the first one.
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
    """Join neighbours until they have at least this width."""
    found: list[tuple[TokenRange, tuple[str, ...]]] = []
    for piece, owner in pieces:
        if found and found[-1][0].width < width:
            found[-1] = (TokenRange(found[-1][0].start, piece.end), found[-1][1])
        else:
            found.append((piece, owner))
    return found


def _parts(piece: TokenRange, ring: TokenRange, splits: int) -> list[TokenRange]:
    """Cut a piece into equal parts, as many as its share of the ring."""
    count = min(max(round(piece.width * splits / ring.width), 1), piece.width)
    cuts = [piece.start + piece.width * number // count for number in range(count + 1)]
    return [TokenRange(start, end) for start, end in pairwise(cuts)]


# These would silently drop or merge rows.
_MORE_THAN_A_CONDITION = re.compile(r"\b(LIMIT|ORDER\s+BY|GROUP\s+BY|ALLOW\s+FILTERING)\b|;|--|/\*", re.IGNORECASE)
# With a rate limit, pages are small: the first pages of all tasks arrive at the same time.
_FEWEST_ROWS, _PAGE_SECONDS = 100, 0.1
# Assuming 1 KB per row; a unit is 4 KB.
_ROWS_PER_UNIT = 4
# The bound values of a query: the start and the end of the range.
_TOKENS = 2
CHANGED = "if the table or the login's permissions just changed: run the same command again, an export with --restart"
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


class Part(Enum):
    """The kind of a cell of the result: the value of a column, its write time or its expiry."""

    VALUE = ""
    WRITETIME = WRITETIME
    EXPIRES = EXPIRES


@dataclass(frozen=True)
class Cell:
    """One position in the rows of the result."""

    column: CqlColumn
    part: Part

    @property
    def field(self) -> str:
        """The column of the snapshot that holds it."""
        return self.part.value + self.column.name


@dataclass(frozen=True)
class ReadPlan:
    """A table and what is read from it; ``columns`` are those besides the key, none meaning all of them.

    With ``keys_only`` nothing is read besides the key. ``repeats_statics`` is whether every row has the static values
    of its partition, as CQL returns them; otherwise they are in a row of their own, as in a snapshot.

    ``element_times`` is whether the server returns the times of collections, as Cassandra does from 5.0 on, and
    ``frozen_times`` whether it returns those of frozen ones; otherwise a collection gets the latest time of the other
    values in its row. ``page_rows`` overrides the configured page size.
    """

    address: ClusterAddress
    schema: TableSchema
    columns: tuple[str, ...] = ()
    keys_only: bool = False
    repeats_statics: bool = False
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
        return snapshot_columns(self.schema, self.chosen)

    @property
    def chosen(self) -> tuple[str, ...] | None:
        """The columns that are read besides the key; None: all of them."""
        return () if self.keys_only else self.columns or None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the result, in order."""
        found = [Cell(column, Part.VALUE) for column in self.selected]
        values = [column for column in self.selected if not column.kind.is_key and column not in self.without_times]
        if self.writetime or self.ttl:
            found += [Cell(column, Part.WRITETIME) for column in values]
        if self.ttl:
            found += [Cell(column, Part.EXPIRES) for column in values]
        return tuple(found)

    @property
    def without_times(self) -> tuple[CqlColumn, ...]:
        """Columns whose times are requested, but not returned by the server."""
        if not (self.writetime or self.ttl):
            return ()
        return tuple(column for column in self.selected if not column.kind.is_key and not self._has_times(column.type))

    def _has_times(self, cql: CqlType) -> bool:
        if cql.is_multi_cell:
            return self.element_times
        return self.frozen_times or not cql.is_collection

    @property
    def needs_slow_reader(self) -> bool:
        """Whether the result has lists that contain nulls, which the driver's fast reader cannot decode."""
        return any(cell.part is Part.EXPIRES and cell.column.type.is_multi_cell for cell in self.cells)

    @property
    def statement(self) -> str:
        """The query of one range, with the start and the end of the range as bound values."""
        token = f"token({', '.join(quoted(column.name) for column in self.schema.partition_key)})"
        what = ", ".join(_expression(cell) for cell in self.cells)
        condition = f" AND {self.where} ALLOW FILTERING" if self.where else ""
        return f"SELECT {what} FROM {self.schema.name.cql} WHERE {token} > ? AND {token} <= ?{condition}"

    def prepare(self, session: Session, budget: BudgetClient | None = None) -> PreparedStatement:
        """Have the server check the query, and retry where it does not answer.

        Raises:
            ConfigurationError: the server refuses it, mostly because of the condition.
            RetriableError: the server did not answer any attempt.
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
    """Return the page size for limited reading, a tenth of a second of the rate; None without a limit."""
    allowed = [limits.rows_per_second, None if limits.read_units is None else limits.read_units * _ROWS_PER_UNIT]
    rates = [rate for rate in allowed if rate is not None]
    return min(address.settings.page_size, max(_FEWEST_ROWS, int(min(rates) * _PAGE_SECONDS))) if rates else None


def require_condition(where: str | None) -> None:
    """Refuse clauses that are not part of a condition.

    Raises:
        ConfigurationError: there is one; the message names it.
    """
    found = _MORE_THAN_A_CONDITION.search(_QUOTED.sub("''", where or ""))
    if found:
        msg = f"the condition {where!r} contains {found.group()!r}, which is not part of a condition"
        raise ConfigurationError(msg, hint="only conditions joined by AND; ALLOW FILTERING is added automatically")


def _expression(cell: Cell) -> str:
    name = cell.column.cql
    if cell.part is Part.VALUE:
        return name
    if cell.part is Part.EXPIRES:
        return f"ttl({name})"
    # A collection has a time for each of its elements.
    return f"maxwritetime({name})" if cell.column.type.is_multi_cell else f"writetime({name})"
