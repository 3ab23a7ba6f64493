"""Queries about a cluster before work begins: its version, permissions, and whether a table exists; create tables."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import keyspaces
from lakeward.cassandra.connection import connected, driver_version
from lakeward.cassandra.cql import quoted
from lakeward.cassandra.retry import error_text, is_refusal, rows_of
from lakeward.cassandra.schema import read_table_schema
from lakeward.errors import ConfigurationError, RefusedInputError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.schema import TableSchema

_PATIENCE_SECONDS, _PAUSE_SECONDS = 120, 0.5
# The default of gc_grace_seconds; Keyspaces keeps tombstones about as long, whatever a table says.
_MARKS_SECONDS = 864_000


def is_there(session: Any, table: TableName) -> bool:
    """Whether a table exists."""
    return bool(_ids(session, table))


def table_id(session: Any, table: TableName) -> str | None:
    """Return the id of a table, which changes when it is created again; None where it does not exist or has none."""
    found = _ids(session, table)
    return str(found[0]) if found and found[0] is not None else None


def deletes_kept(session: Any, table: TableName) -> timedelta:
    """Return how long a table keeps tombstones at least; 0 where that is not known."""
    query = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    found = rows_of(session, query, (table.keyspace, table.table))
    seconds = found[0][0] if found else None
    return timedelta(seconds=min(int(seconds or 0), _MARKS_SECONDS))


def has_rows(session: Any, table: TableName) -> bool:
    """Whether a table exists and has at least one row."""
    return is_there(session, table) and bool(rows_of(session, f"SELECT * FROM {table.cql} LIMIT 1"))


def has_keyspace(session: Any, table: TableName) -> bool:
    """Whether the keyspace of a table exists."""
    query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
    return bool(rows_of(session, query, (table.keyspace,)))


def make_table(session: Any, table: TableName, statements: Sequence[str], *, what: str, otherwise: str = "") -> None:
    """Create a table, and wait until it can be used.

    Args:
        session: of the cluster.
        table: its name.
        statements: those that create it, and the types it needs.
        what: its name in messages.
        otherwise: a further hint where it cannot be created.

    Raises:
        ConfigurationError: the keyspace does not exist, the login lacks the permission, or the cluster refuses it.
        RetriableError: it does not become ready.
    """
    import cassandra
    from cassandra import protocol

    try:
        for statement in statements:
            rows_of(session, statement)
    except (cassandra.RequestValidationException, protocol.RequestValidationException) as error:
        remedies = [remedy for remedy in (_remedy(session, table, error), otherwise) if remedy]
        msg = f"cannot create {what}: {error_text(error)}"
        raise ConfigurationError(msg, hint=", or ".join(remedies) or None) from error
    _await_agreement(session, table)
    _await(session, table)


def _remedy(session: Any, table: TableName, error: Exception) -> str:
    keyspace = quoted(table.keyspace)
    if is_refusal(error):
        return f"as an administrator: GRANT CREATE ON KEYSPACE {keyspace} TO …"
    if has_keyspace(session, table):
        return ""
    places = sorted({host.datacenter for host in session.cluster.metadata.all_hosts() if host.datacenter})
    copies = "".join(f", '{place}': 3" for place in places)
    return f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"


def _await_agreement(session: Any, table: TableName) -> None:
    """Wait until a table exists on all nodes that are up: the next statement may be sent to any of them."""
    from cassandra import DriverException

    def look(patience: float) -> None:
        session.cluster.refresh_table_metadata(table.keyspace, table.table, max_schema_agreement_wait=patience)

    # If the queried node is lost meanwhile, another one is queried soon.
    wrong = f"{table} was created, but after {_PATIENCE_SECONDS} s not all nodes know about it"
    _until_done(
        look, DriverException, wrong, hint="nodetool describecluster   (shows which), then run the same command again"
    )


def _await(session: Any, table: TableName) -> None:
    """Wait until a new table can be read: Keyspaces creates tables asynchronously."""
    from cassandra import InvalidRequest

    wrong = f"{table} was created, but cannot be read after {_PATIENCE_SECONDS} s"
    query = f"SELECT * FROM {table.cql} LIMIT 1"
    _until_done(lambda _: rows_of(session, query), InvalidRequest, wrong, hint="run the same command again")


def _until_done(look: Callable[[float], object], passing: type[Exception], wrong: str, *, hint: str) -> None:
    """Call ``look`` with the time left until it succeeds, or the time is over; ``passing`` errors are retried."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            # Never 0, which the driver takes as not waiting at all.
            look(max(end - time.monotonic(), _PAUSE_SECONDS))
        except passing as error:
            if time.monotonic() > end:
                msg = f"{wrong}: {error_text(error)}"
                raise RetriableError(msg, hint=hint) from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _ids(session: Any, table: TableName) -> list[Any]:
    query = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    return [found for (found,) in rows_of(session, query, (table.keyspace, table.table))]


def examine_cluster(session: Any, address: ClusterAddress) -> str:
    """Return a description of a cluster for ``lakeward doctor``.

    Raises:
        ConfigurationError: its tables cannot be read by token ranges.
    """
    version, partitioner, datacenter, name = rows_of(
        session, "SELECT release_version, partitioner, data_center, cluster_name FROM system.local"
    )[0]
    short = keyspaces.require_partitioner(partitioner, cluster=address.name)
    nodes = len(session.cluster.metadata.all_hosts())
    kind = (
        f"Amazon Keyspaces in {address.settings.keyspaces}" if keyspaces.is_keyspaces(address.settings) else "Cassandra"
    )
    who = f", login {address.settings.username}" if address.settings.username else ""
    tls = ", encrypted" if address.settings.tls is not None or keyspaces.is_keyspaces(address.settings) else ""
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
            msg = f"{address.name} accepts the connection, but refuses a query about itself: {error_text(error)}"
            raise ConfigurationError(msg, hint="as an administrator: GRANT SELECT ON system.local TO …") from error


def server_version(session: Any) -> str:
    """Return the server's version."""
    return str(rows_of(session, "SELECT release_version FROM system.local")[0][0])


def require_exportable(session: Any, schema: TableSchema, *, counters: bool = False) -> None:
    """Refuse a table that cannot be exported, before any of it is read.

    Raises:
        ConfigurationError: the login lacks the permission to read it.
        RefusedInputError: it has counters, which were not requested.
    """
    if schema.has_counters and not counters:
        msg = (
            f"{schema.name} has counters: an export can read them, but writing them elsewhere adds to what is there, "
            "so a copy cannot be kept up to date"
        )
        raise RefusedInputError(msg, hint="export them anyway, for reading only: --counters")
    require_readable(session, schema.name)


def require_table(session: Any, name: TableName, *, remedy: str | None) -> TableSchema:
    """Return the schema of a table that must exist; ``remedy`` is the hint where it does not.

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
    """Refuse a table that the login lacks the permission to read.

    Raises:
        ConfigurationError: the login lacks the permission.
    """
    _require(session, f"SELECT * FROM {table.cql} LIMIT 1", table, "SELECT", "read")


def require_writable(session: Any, schema: TableSchema) -> None:
    """Refuse a table that the login lacks the permission to write; nothing is written to find out.

    Raises:
        ConfigurationError: the login lacks the permission.
    """
    from cassandra import InvalidRequest
    from cassandra.protocol import SyntaxException

    # Most servers check permissions before they find that no row matches; others refuse the statement.
    none = " AND ".join(f"{quoted(column.name)} IN ()" for column in schema.partition_key)
    with contextlib.suppress(InvalidRequest, SyntaxException):
        _require(session, f"DELETE FROM {schema.name.cql} WHERE {none}", schema.name, "MODIFY", "write")


def _require(session: Any, statement: str, table: TableName, permission: str, verb: str) -> None:
    from cassandra import Unauthorized

    try:
        rows_of(session, statement)
    except Unauthorized as error:
        msg = f"this login may not {verb} {table}: {error_text(error)}"
        hint = f"as an administrator: GRANT {permission} ON {table.cql} TO …"
        raise ConfigurationError(msg, hint=hint) from error
