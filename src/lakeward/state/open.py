"""From the configuration's ``state:`` to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.state.base import StateStore

_SUPPORTED = (
    "sqlite:///file (relative to lakeward.yaml), sqlite:////absolute/file, postgresql://user@host/database, "
    "dynamodb://table?region=…, memory://"
)


def open_state(uri: str, base: Path) -> StateStore:
    """Open the store that ``uri`` names; relative files count from ``base``.

    Raises:
        ConfigurationError: no such kind of store, or one that cannot be opened.
        RetriableError: the store does not answer at the moment.
    """
    scheme, separator, rest = uri.partition("://")
    # Never print the whole URI: it may hold a password.
    if not separator:
        msg = f"state: {uri!r} is not a URI; supported: {_SUPPORTED}"
        raise ConfigurationError(msg, hint=f"state: sqlite:///{uri or 'lakeward.db'}")
    match scheme.lower().partition("+")[0]:
        case "memory":
            return MemoryStateStore()
        case "sqlite":
            return _open_sqlite(_sqlite_file(uri, rest, base))
        case "postgresql":
            return _open_postgres(uri)
        case "dynamodb":
            from lakeward.state.dynamodb.store import DynamoStateStore

            return DynamoStateStore(uri)
    msg = f"state: unknown kind of store {scheme}://; supported: {_SUPPORTED}"
    raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")


def _open_sqlite(file: Path) -> StateStore:
    from lakeward.state.sql import SqlStateStore
    from lakeward.state.sqlite import SqliteDatabase

    return SqlStateStore(SqliteDatabase(file))


def _open_postgres(uri: str) -> StateStore:
    from lakeward.state.postgres import PostgresDatabase
    from lakeward.state.sql import SqlStateStore

    return SqlStateStore(PostgresDatabase(uri))


def _sqlite_file(uri: str, rest: str, base: Path) -> Path:
    """The file after ``sqlite:///``; a fourth slash makes it absolute."""
    name = rest.removeprefix("/")
    if not rest.startswith("/") or not name or name.endswith("/"):
        msg = f"state: {uri} names no file; supported: {_SUPPORTED}"
        raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")
    if name == ":memory:":
        msg = f"state: {uri} would be another store in every connection"
        raise ConfigurationError(msg, hint="state: memory://")
    if "?" in name:
        msg = f"state: {uri} has options after '?', but SQLite stores take none"
        raise ConfigurationError(msg, hint=f"state: sqlite:///{name.partition('?')[0]}")
    return (base / name).resolve()
