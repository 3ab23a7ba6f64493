"""What an export asks of a cluster before anything is read or written."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cassandra.preflight import require_exportable, server_version
from lakeward.cassandra.ranges import Partitioner, TokenRange, estimated_size, grouped, partitioner_of, ring_ranges
from lakeward.cassandra.reading.plan import ReadPlan
from lakeward.cassandra.schema import read_table_schema
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
_ELEMENT_TIMES_SINCE = 5
_MAJOR = re.compile(r"\d+")


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
    schema = read_table_schema(session, request.table)
    partitioner = partitioner_of(session)
    require_exportable(session, schema, counters=request.counters)
    server = server_version(session)
    read = ReadPlan(
        address,
        schema,
        columns=_known(schema, request.columns),
        where=request.where,
        writetime=request.writetime,
        ttl=request.ttl,
        element_times=_major(server) >= _ELEMENT_TIMES_SINCE,
    )
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


def _major(version: str) -> int:
    found = _MAJOR.match(version)
    return int(found.group()) if found else 0
