"""What is looked at before work begins: the cluster, the login and its permissions, and what a table is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import keyspaces
from lakeward.cassandra.connecting import connected, driver_version
from lakeward.cassandra.names import quoted
from lakeward.cassandra.presence import is_there
from lakeward.cassandra.retrying import rows_of, told
from lakeward.cassandra.schema import read_table_schema
from lakeward.errors import ConfigurationError, RefusedInputError

if TYPE_CHECKING:
    from lakeward.cassandra.connecting import ClusterAddress
    from lakeward.cassandra.names import TableName
    from lakeward.cassandra.schema import TableSchema


def examine_cluster(session: Any, address: ClusterAddress) -> str:
    """Say what a cluster is; used by ``lakeward doctor``.

    Raises:
        ConfigurationError: its tables cannot be read by token ranges.
    """
    version, partitioner, datacenter, name = rows_of(
        session, "SELECT release_version, partitioner, data_center, cluster_name FROM system.local"
    )[0]
    short = keyspaces.require_partitioner(partitioner, cluster=address.name)
    nodes = len(session.cluster.metadata.all_hosts())
    kind = f"Amazon Keyspaces in {address.settings.keyspaces}" if keyspaces.is_keyspaces(address) else "Cassandra"
    who = f", login {address.settings.username}" if address.settings.username else ""
    tls = ", encrypted" if address.settings.tls is not None or keyspaces.is_keyspaces(address) else ""
    plural = "" if nodes == 1 else "s"
    return f"{kind} {version} ({name}), {nodes} node{plural}, data centre {datacenter}, {short}{who}{tls}"


def check_cluster(address: ClusterAddress) -> str:
    """Connect to a cluster and describe it with the driver that was used.

    Raises:
        ConfigurationError: it refuses the login or the question, or cannot be read by token ranges.
        RetriableError: it does not answer.
    """
    with connected(address) as session:
        from cassandra import DriverException
        from cassandra.protocol import ErrorMessage

        try:
            return f"{examine_cluster(session, address)}; driver {driver_version()}"
        except (DriverException, ErrorMessage) as error:
            msg = f"{address.name} takes the connection, but not what is asked about it: {told(error)}"
            raise ConfigurationError(msg, hint="as an administrator: GRANT SELECT ON system.local TO …") from error


def server_version(session: Any) -> str:
    """Give the server's version."""
    return str(rows_of(session, "SELECT release_version FROM system.local")[0][0])


def require_exportable(session: Any, schema: TableSchema, *, counters: bool = False) -> None:
    """Refuse a table that cannot be exported, before any of it is read.

    Raises:
        ConfigurationError: this login may not read it.
        RefusedInputError: it has counters, and nobody asked for them.
    """
    if schema.has_counters and not counters:
        msg = (
            f"{schema.name} has counters: an export can read them, but writing them elsewhere adds to what is there, "
            "so that a copy cannot be kept current"
        )
        raise RefusedInputError(msg, hint="export them all the same, to look at: --counters")
    require_readable(session, schema.name)


def require_table(session: Any, name: TableName, *, remedy: str | None) -> TableSchema:
    """Read the schema of a table that must be there; ``remedy`` is what helps where it is not.

    Raises:
        ConfigurationError: there is no such table.
    """
    try:
        return read_table_schema(session, name)
    except ConfigurationError as error:
        if remedy is None or is_there(session, name):
            raise
        near = f"{error.hint}, or " if error.hint else ""
        raise ConfigurationError(error.message, hint=f"{near}{remedy}") from error


def require_readable(session: Any, table: TableName) -> None:
    """Refuse a table that this login may not read.

    Raises:
        ConfigurationError: it may not.
    """
    _require(session, f"SELECT * FROM {table.cql} LIMIT 1", table, "SELECT", "read")


def require_writable(session: Any, schema: TableSchema) -> None:
    """Refuse a table that this login may not write; nothing is written to find out.

    Raises:
        ConfigurationError: it may not.
    """
    from cassandra import InvalidRequest
    from cassandra.protocol import SyntaxException

    # The server looks at permissions before it finds that no row is meant; one that finds it first says so.
    none = " AND ".join(f"{quoted(one.name)} IN ()" for one in schema.partition_key)
    with contextlib.suppress(InvalidRequest, SyntaxException):
        _require(session, f"DELETE FROM {schema.name.cql} WHERE {none}", schema.name, "MODIFY", "write")


def _require(session: Any, statement: str, table: TableName, permission: str, verb: str) -> None:
    from cassandra import Unauthorized

    try:
        rows_of(session, statement)
    except Unauthorized as error:
        msg = f"this login may not {verb} {table}: {told(error)}"
        hint = f"as an administrator: GRANT {permission} ON {table.cql} TO …"
        raise ConfigurationError(msg, hint=hint) from error
