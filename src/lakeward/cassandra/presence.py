"""Whether a table is there, which one it is, whether it has rows; and tables made where there is none."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.names import quoted
from lakeward.cassandra.retrying import is_refusal, rows_of, told
from lakeward.errors import ConfigurationError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.cassandra.names import TableName

_PATIENCE_SECONDS, _PAUSE_SECONDS = 120, 0.5
# The default of gc_grace_seconds; Keyspaces keeps marks about as long, whatever a table says.
_MARKS_SECONDS = 864_000


def is_there(session: Any, table: TableName) -> bool:
    """Tell whether there is such a table."""
    return bool(_ids(session, table))


def table_id(session: Any, table: TableName) -> str | None:
    """Give what tells a table from one that had its name before; None where there is none, or it has no id."""
    found = _ids(session, table)
    return str(found[0]) if found and found[0] is not None else None


def deletes_kept(session: Any, table: TableName) -> timedelta:
    """Return how long a table surely keeps the marks of what was deleted; 0 where that is not known."""
    query = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    found = rows_of(session, query, (table.keyspace, table.table))
    seconds = found[0][0] if found else None
    return timedelta(seconds=min(int(seconds or 0), _MARKS_SECONDS))


def has_rows(session: Any, table: TableName) -> bool:
    """Tell whether there is such a table with at least one row."""
    return is_there(session, table) and bool(rows_of(session, f"SELECT * FROM {table.cql} LIMIT 1"))


def has_keyspace(session: Any, table: TableName) -> bool:
    """Tell whether there is the keyspace that a table is in, or would be."""
    query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
    return bool(rows_of(session, query, (table.keyspace,)))


def make_table(session: Any, table: TableName, statements: Sequence[str], *, what: str, otherwise: str = "") -> None:
    """Make a table, and wait until it can be used.

    Args:
        session: of the cluster.
        table: its name.
        statements: those that make it, and the types it needs.
        what: what it is called in messages.
        otherwise: what helps, too, where it cannot be made.

    Raises:
        ConfigurationError: there is no such keyspace, this login may not, or the cluster does not take it.
        RetriableError: it does not become ready.
    """
    import cassandra
    from cassandra import protocol

    try:
        for statement in statements:
            rows_of(session, statement)
    except (cassandra.RequestValidationException, protocol.RequestValidationException) as error:
        remedies = [one for one in (_remedy(session, table, error), otherwise) if one]
        msg = f"cannot make {what}: {told(error)}"
        raise ConfigurationError(msg, hint=", or ".join(remedies) or None) from error
    _await_agreement(session, table)
    _await(session, table)


def _remedy(session: Any, table: TableName, error: Exception) -> str:
    keyspace = quoted(table.keyspace)
    if is_refusal(error):
        return f"as an administrator: GRANT CREATE ON KEYSPACE {keyspace} TO …"
    if has_keyspace(session, table):
        return ""
    places = sorted({one.datacenter for one in session.cluster.metadata.all_hosts() if one.datacenter})
    copies = "".join(f", '{one}': 3" for one in places)
    return f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy'{copies}}}"


def _await_agreement(session: Any, table: TableName) -> None:
    """Wait until all nodes that are up know of a table: the next statement may be sent to any of them."""
    from cassandra import DriverException

    def look(patience: float) -> None:
        session.cluster.refresh_table_metadata(table.keyspace, table.table, max_schema_agreement_wait=patience)

    # The node that is asked may be lost meanwhile: then another is, soon.
    wrong = f"{table} was made, but after {_PATIENCE_SECONDS} s not all nodes know of it"
    _until_done(
        look, DriverException, wrong, hint="nodetool describecluster   (shows which), then the same command again"
    )


def _await(session: Any, table: TableName) -> None:
    """Wait until a table that was just made can be read: Keyspaces makes them after it has answered."""
    from cassandra import InvalidRequest

    wrong = f"{table} was made, but cannot be read after {_PATIENCE_SECONDS} s"
    query = f"SELECT * FROM {table.cql} LIMIT 1"
    _until_done(lambda _: rows_of(session, query), InvalidRequest, wrong, hint="the same command again")


def _until_done(look: Callable[[float], object], passing: type[Exception], wrong: str, *, hint: str) -> None:
    """Look again while it fails in a way that passes, and for so long; each look hears how much time is left."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            # Never 0, by which the driver means not to wait at all.
            look(max(end - time.monotonic(), _PAUSE_SECONDS))
        except passing as error:
            if time.monotonic() > end:
                msg = f"{wrong}: {told(error)}"
                raise RetriableError(msg, hint=hint) from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _ids(session: Any, table: TableName) -> list[Any]:
    query = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    return [found for (found,) in rows_of(session, query, (table.keyspace, table.table))]
