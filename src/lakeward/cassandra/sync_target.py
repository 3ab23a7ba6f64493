"""What must hold of the table that a sync writes to, looked at before an export, which may be long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.cassandra import guards
from lakeward.cassandra.keyspaces import limits_of
from lakeward.cassandra.names import quoted
from lakeward.cassandra.preflight import require_writable
from lakeward.cassandra.presence import has_keyspace, is_there
from lakeward.cassandra.schema import read_table_schema
from lakeward.errors import ConfigurationError, RefusedInputError

if TYPE_CHECKING:
    from lakeward.cassandra.sync_work import SyncRequest


def require_target(session: Any, request: SyncRequest) -> None:
    """Refuse a target that could not be written to as it is asked for.

    Raises:
        ConfigurationError: there is no such table and none is to be made, it may not be written, or the time is none.
        RefusedInputError: it is the table itself; it takes no times, or none as old as those of cells.
    """
    guards.chosen_timestamp(request.timestamp, None, str(request.into))
    _require_another_table(request)
    limits, is_recorded = limits_of(request.target), request.timestamp == guards.SNAPSHOT_TIME
    if is_recorded and limits.oldest_timestamp is not None and (request.writetime or request.ttl):
        msg = f"{request.into} does not take the times at which cells were written"
        raise RefusedInputError(msg, hint="without --with-writetime and --with-ttl, or with --timestamp now")
    if is_there(session, request.into):
        require_writable(session, read_table_schema(session, request.into))
        guards.takes_timestamps(session, limits, request.into, request.timestamp, expires=request.ttl)
    else:
        _require_place(session, request)


def _require_another_table(request: SyncRequest) -> None:
    """Refuse to copy a table into itself: its cells would get other times, and those that expire would stay."""
    if request.source is None or request.into != request.table:
        return
    source, target = request.source.settings, request.target.settings
    is_same_place = set(source.hosts) & set(target.hosts) and source.port == target.port
    if is_same_place or (source.keyspaces is not None and source.keyspaces == target.keyspaces):
        msg = f"{request.into} would be copied into itself: --from and --into are one table"
        raise RefusedInputError(msg, hint="--into another cluster, keyspace or table")


def _require_place(session: Any, request: SyncRequest) -> None:
    """Refuse a table that is not there and could not be made, or is not to be."""
    try:
        read_table_schema(session, request.into)
    except ConfigurationError as error:
        if not has_keyspace(session, request.into):
            make = f"make it first: CREATE KEYSPACE {quoted(request.into.keyspace)} WITH replication = …"
            raise ConfigurationError(error.message, hint=_or_meant(make, error.hint)) from error
        if not request.create_table:
            raise ConfigurationError(error.message, hint=_or_meant("--create-table makes it", error.hint)) from error


def _or_meant(remedy: str, meant: str | None) -> str:
    return f"{remedy}; or is it {meant}?" if meant else remedy
