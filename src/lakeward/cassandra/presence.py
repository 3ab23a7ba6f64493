"""Whether a table is there, which one it is, and whether it has rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.retrying import rows_of
from lakeward.errors import RetriableError

if TYPE_CHECKING:
    from lakeward.cassandra.names import TableName

_PATIENCE_SECONDS, _PAUSE_SECONDS = 120, 0.5


def is_there(session: Any, table: TableName) -> bool:
    """Tell whether there is such a table."""
    return bool(_ids(session, table))


def table_id(session: Any, table: TableName) -> str | None:
    """Give what tells a table from one that had its name before; None where there is none, or it has no id."""
    found = _ids(session, table)
    return str(found[0]) if found and found[0] is not None else None


def has_rows(session: Any, table: TableName) -> bool:
    """Tell whether there is such a table with at least one row."""
    return is_there(session, table) and bool(rows_of(session, f"SELECT * FROM {table.cql} LIMIT 1"))


def await_table(session: Any, table: TableName) -> None:
    """Wait until a table that was just made can be used: Keyspaces makes them after it has answered.

    Raises:
        RetriableError: it takes too long.
    """
    from cassandra import InvalidRequest

    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            rows_of(session, f"SELECT * FROM {table.cql} LIMIT 1")
        except InvalidRequest as error:
            if time.monotonic() > end:
                msg = f"{table} was made, but cannot be read after {_PATIENCE_SECONDS} s: {error}"
                raise RetriableError(msg, hint="the same command again") from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _ids(session: Any, table: TableName) -> list[Any]:
    query = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    return [found for (found,) in rows_of(session, query, (table.keyspace, table.table))]
