"""The ring of a cluster, cut into ranges of tokens that are read one by one: all of it, each token once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lakeward.cassandra.keyspaces import require_partitioner
from lakeward.cassandra.retrying import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cassandra.cluster import Session

    from lakeward.cassandra.names import TableName

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
_KNOWN = {one.name: one for one in (MURMUR3, RANDOM)}


def partitioner_of(session: Session) -> Partitioner:
    """Give the partitioner of a cluster.

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
    return [one for one, _ in sorted(cuts, key=lambda one: (one[1], one[0]))]


def grouped(ranges: Sequence[TokenRange], groups: int) -> list[tuple[TokenRange, ...]]:
    """Share ranges out, in their order, to up to so many groups that are about equally wide."""
    whole = sum(one.width for one in ranges)
    found: list[tuple[TokenRange, ...]] = []
    group: list[TokenRange] = []
    done = 0
    for one in ranges:
        group.append(one)
        done += one.width
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
    told = partitions = size = 0
    whole = partitioner.ring.width
    for start, end, count, mean in rows:
        # A range that goes around the end of the ring ends at a lower token than it starts with.
        told += (int(end) - int(start)) % whole or whole
        partitions += count
        size += count * mean
    if not partitions:
        return None
    share = min(told / whole, 1.0)
    return round(partitions / share), round(size / share)


def _by_owner(ring: TokenRange, owners: Mapping[int, tuple[str, ...]]) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """Cut a ring where its replicas change."""
    tokens = sorted(one for one in owners if ring.start < one < ring.end)
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
