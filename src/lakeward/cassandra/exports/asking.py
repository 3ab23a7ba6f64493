"""What an export asks of a cluster before anything is read or written."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cassandra.connecting import with_nodes
from lakeward.cassandra.preflight import require_exportable, server_version
from lakeward.cassandra.ranges import Partitioner, TokenRange, estimated_size, grouped, partitioner_of, ring_ranges
from lakeward.cassandra.reading.plan import ReadPlan
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.snapshot_columns import OWN_COLUMNS
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from lakeward.cassandra.connecting import ClusterAddress
    from lakeward.cassandra.exporting import ExportRequest
    from lakeward.cassandra.schema import TableSchema

# Ranges for each task that reads, and how much a range of a large table holds.
_RANGES_PER_TASK, _RANGE_BYTES, _MOST_RANGES = 8, 32 * 2**20, 50_000
# Ranges that a task reads into one file: as many as are under way at one time.
_RANGES_PER_GROUP = 4
# From this version on the server tells the times of a collection's elements.
_ELEMENT_TIMES_SINCE = (5,)
# From these on, and from 4.1 on, those of a frozen collection, which has only one (CASSANDRA-17628).
_FROZEN_TIMES_SINCE, _FROZEN_TIMES_FIXED = (4, 1), ((3, 0, 28), (3, 11, 14), (4, 0, 5))
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Asked:
    """What the cluster said: the table, its parts, and what the manifest tells of the server."""

    schema: TableSchema
    read: ReadPlan
    groups: tuple[tuple[TokenRange, ...], ...]
    partitioner: Partitioner
    expected_rows: int | None
    server: str
    driver: str


def ask_cluster(session: Session, address: ClusterAddress, request: ExportRequest, parallelism: int) -> Asked:
    """Look at a table, and let the server look at what shall be asked of it.

    Raises:
        ConfigurationError: the table or a column does not exist, may not be read, holds counters, or the condition
            cannot be asked.
    """
    schema = read_table_schema(session, request.table, request.columns)
    partitioner = partitioner_of(session)
    require_exportable(session, schema, counters=request.counters)
    server = server_version(session)
    version = _version(server)
    read = ReadPlan(
        with_nodes(address, session),
        schema,
        columns=_known(schema, request.columns),
        where=request.where,
        writetime=request.writetime,
        ttl=request.ttl,
        element_times=version >= _ELEMENT_TIMES_SINCE,
        frozen_times=_tells_frozen_times(version),
    )
    _require_names(read)
    read.prepare(session)
    size = estimated_size(session, request.table, partitioner)
    splits = request.splits or _splits(parallelism, size[1] if size else 0)
    ranges = ring_ranges(session, request.table, splits=splits)
    groups = max(len(ranges) // _RANGES_PER_GROUP, min(parallelism, len(ranges)))
    return Asked(
        schema=schema,
        read=read,
        groups=tuple(grouped(ranges, groups)),
        partitioner=partitioner,
        # Where partitions hold several rows, nobody knows how many.
        expected_rows=size[0] if size and not schema.clustering and not request.where else None,
        server=server,
        driver=importlib.metadata.version("cassandra-driver"),
    )


def _splits(parallelism: int, size: int) -> int:
    return min(max(_RANGES_PER_TASK * parallelism, size // _RANGE_BYTES), _MOST_RANGES)


def _known(schema: TableSchema, names: tuple[str, ...]) -> tuple[str, ...]:
    """Give the columns besides the key that are wanted, in the table's order."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        msg = f"{schema.name} has no column {', '.join(unknown)}; it has {', '.join(schema.names)}"
        raise ConfigurationError(msg)
    if names and not set(names) - set(schema.primary_key):
        msg = f"all columns of {schema.name} that were named belong to its key, which is exported anyway"
        raise ConfigurationError(msg, hint=f"--columns {next(iter(schema.values)).name}" if schema.values else None)
    return tuple(name for name in schema.names if name in names and name not in schema.primary_key)


def _require_names(read: ReadPlan) -> None:
    """Refuse columns whose names are those that a snapshot gives to times."""
    taken = [one.name for one in read.selected if one.name.startswith(OWN_COLUMNS)]
    if taken:
        msg = f"{read.schema.name} has columns that begin as those of a snapshot's times do: {', '.join(taken)}"
        raise ConfigurationError(msg, hint="rename them, or leave them out: --columns with the others")


def _tells_frozen_times(version: tuple[int, ...]) -> bool:
    """Tell whether the server gives the times of frozen collections: older releases take them for others."""
    fixed = any(version[:2] == one[:2] and version >= one for one in _FROZEN_TIMES_FIXED)
    return fixed or version >= _FROZEN_TIMES_SINCE


def _version(text: str) -> tuple[int, ...]:
    """Give the numbers of a version such as ``4.0.11`` or ``5.0-rc1``."""
    return tuple(int(one) for one in _NUMBER.findall(text.partition("-")[0]))
