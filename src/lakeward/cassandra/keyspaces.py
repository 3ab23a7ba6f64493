"""The differences between Amazon Keyspaces and Cassandra, and the cost of reads and writes in capacity units.

Written from the documentation of the service and never run against Keyspaces itself. Its units are a good measure of
work for any cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy

    from lakeward.config.services import ClusterSettings

PORT = 9142
_EXTRA = "pip install 'lakeward[keyspaces]'"
# China's regions are a separate partition of AWS with other names.
_SUFFIXES = {"cn": "amazonaws.com.cn"}
MURMUR3, RANDOM = "Murmur3Partitioner", "RandomPartitioner"
_PARTITIONERS = (MURMUR3, RANDOM)
_SYSTEM_KEYSPACE = "system_schema_mcs"
_REMEDY = (
    "UPDATE system.local SET partitioner='org.apache.cassandra.dht.Murmur3Partitioner' WHERE key='local'   "
    "in the CQL editor of the AWS console, then try again after ten minutes"
)


@dataclass(frozen=True)
class WriteLimits:
    """The limits of a cluster for writes. None: no limit.

    ``columns`` and ``columns_with_ttl`` are the values of one statement, ``batch_bytes`` the size of a batch,
    ``partition_write_units`` the units of a partition per second. Client timestamps must lie between
    ``oldest_timestamp`` before the server's time and ``newest_timestamp`` after it.
    """

    batch_rows: int
    batch_bytes: int
    columns: int | None = None
    columns_with_ttl: int | None = None
    partition_write_units: float | None = None
    oldest_timestamp: timedelta | None = None
    newest_timestamp: timedelta | None = None
    is_keyspaces: bool = False


# Cassandra warns of batches beyond 5 KiB and refuses those beyond 50 KiB, unless configured otherwise.
_CASSANDRA = WriteLimits(batch_rows=50, batch_bytes=4096)
_KEYSPACES = WriteLimits(
    batch_rows=30,
    batch_bytes=64 * 1024,
    columns=225,
    columns_with_ttl=166,
    partition_write_units=1000.0,
    oldest_timestamp=timedelta(days=2),
    newest_timestamp=timedelta(minutes=5),
    is_keyspaces=True,
)


def is_keyspaces(settings: ClusterSettings) -> bool:
    """Whether a cluster is Amazon Keyspaces, and not Cassandra."""
    return settings.keyspaces is not None


def limits_of(settings: ClusterSettings) -> WriteLimits:
    """Return the write limits of a cluster."""
    return _KEYSPACES if is_keyspaces(settings) else _CASSANDRA


def endpoint(region: str) -> str:
    """Return the host that serves a region.

    >>> endpoint("eu-west-1")
    'cassandra.eu-west-1.amazonaws.com'
    """
    return f"cassandra.{region}.{_SUFFIXES.get(region.partition('-')[0], 'amazonaws.com')}"


def hosts_and_port(settings: ClusterSettings) -> tuple[list[str], int]:
    """Return what to connect to: the configured nodes, or the region's endpoint."""
    if settings.keyspaces is None:
        return list(settings.hosts), settings.port
    return [endpoint(settings.keyspaces)], PORT


def signing_provider(region: str) -> Any:
    """Return the authentication provider that uses this process's AWS credentials.

    Raises:
        ConfigurationError: the package for it is missing, or there are no credentials.
    """
    try:
        import boto3
        from cassandra_sigv4.auth import SigV4AuthProvider
    except ImportError as error:
        msg = "logging in to Amazon Keyspaces needs packages that are not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error
    session = boto3.Session(region_name=region)
    if session.get_credentials() is None:
        msg = f"there are no AWS credentials to log in to Amazon Keyspaces in {region} with"
        hint = "aws configure, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or username and password of the cluster"
        raise ConfigurationError(msg, hint=hint)
    return SigV4AuthProvider(session)


def require_partitioner(partitioner: str, *, cluster: str) -> str:
    """Return the short name of a partitioner that has token ranges.

    Raises:
        ConfigurationError: it is the default one of Keyspaces, which has no token ranges, or an unknown one.
    """
    name = partitioner.rpartition(".")[2]
    if name in _PARTITIONERS:
        return name
    msg = f"{cluster} uses {name}, but tables are read by token ranges, which only {' and '.join(_PARTITIONERS)} have"
    raise ConfigurationError(msg, hint=_REMEDY if name == "DefaultPartitioner" else None)


def has_client_timestamps(session: Any, keyspace: str, table: str) -> bool:
    """Whether a table of Keyspaces accepts client timestamps, a property that is off by default."""
    return _is_enabled(session, keyspace, table, "client_side_timestamps")


def has_ttl(session: Any, keyspace: str, table: str) -> bool:
    """Whether values of a table of Keyspaces may expire, a property that is off by default."""
    return _is_enabled(session, keyspace, table, "ttl")


def _is_enabled(session: Any, keyspace: str, table: str, name: str) -> bool:
    query = f"SELECT custom_properties FROM {_SYSTEM_KEYSPACE}.tables WHERE keyspace_name = %s AND table_name = %s"
    for (properties,) in session.execute(query, (keyspace, table)):
        found = (properties or {}).get(name)
        return found is not None and found.get("status") == "enabled"
    return False


def enabling_statement(table_cql: str, name: str) -> str:
    """Return the statement that turns on a property of a table, which cannot be turned off again."""
    return f"ALTER TABLE {table_cql} WITH CUSTOM_PROPERTIES = {{'{name}': {{'status': 'enabled'}}}}"


WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
# What Keyspaces counts besides the data: for each row, and at most for each of its columns.
ROW_BYTES, COLUMN_BYTES = 100, 4


def write_units(size: float) -> float:
    """Return the units (WCU) of writing or deleting a row of this size: one for each started KB."""
    return float(max(math.ceil(size / WRITE_UNIT_BYTES), 1))


def write_units_of(sizes: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return the units of writing rows of these sizes, as :func:`write_units` does for one."""
    import numpy

    units: numpy.ndarray[Any, Any] = numpy.maximum(numpy.ceil(sizes / WRITE_UNIT_BYTES), 1.0)
    return units


def read_units(size: float, *, consistency: str = "LOCAL_QUORUM") -> float:
    """Return the units (RCU) of reading this many bytes: one for each started 4 KB, half of that at ONE."""
    whole = float(max(math.ceil(size / READ_UNIT_BYTES), 1))
    return whole / 2 if consistency in {"ONE", "LOCAL_ONE"} else whole
