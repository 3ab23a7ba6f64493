"""Opening the store that the configuration's ``state:`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.redaction import redact_address
from lakeward.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.config.services import FileAccess
    from lakeward.state.base import StateStore

_SUPPORTED = (
    "sqlite:///file (relative to lakeward.yaml), sqlite:////absolute/file, postgresql://user@host/database, "
    "dynamodb://table?region=…, memory://"
)


def open_state(uri: str, base: Path, access: FileAccess = "private") -> StateStore:
    """Open the store that ``uri`` names; relative paths count from ``base``, ``access`` is for files that are created.

    Raises:
        ConfigurationError: the kind of store is unknown, or the store cannot be opened.
        RetriableError: the store does not answer at the moment.
    """
    scheme, separator, rest = uri.partition("://")
    # Never print the whole URI: it may hold a password.
    shown = redact_address(uri)
    if not separator:
        msg = f"state: {shown!r} is not a URI; supported: {_SUPPORTED}"
        is_file = shown == uri and "//" not in uri
        raise ConfigurationError(msg, hint=f"state: sqlite:///{uri or 'lakeward.db'}" if is_file else None)
    match scheme.lower().partition("+")[0]:
        case "memory":
            return MemoryStateStore()
        case "sqlite":
            return _open_sqlite(_sqlite_file(uri, rest, base), access)
        case "postgresql":
            return _open_postgres(uri)
        case "dynamodb":
            from lakeward.state.dynamodb import DynamoStateStore

            return DynamoStateStore(uri)
    msg = f"state: unknown kind of store {redact_address(scheme)}://; supported: {_SUPPORTED}"
    raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")


def _open_sqlite(file: Path, access: FileAccess) -> StateStore:
    from lakeward.state.sql import SqlStateStore
    from lakeward.state.sqlite import SqliteDatabase

    return SqlStateStore(SqliteDatabase(file, access))


def _open_postgres(uri: str) -> StateStore:
    from lakeward.state.postgres import PostgresDatabase
    from lakeward.state.sql import SqlStateStore

    return SqlStateStore(PostgresDatabase(uri))


def _sqlite_file(uri: str, rest: str, base: Path) -> Path:
    """Return the file after ``sqlite:///``; a fourth slash makes it absolute."""
    name, shown = rest.removeprefix("/"), redact_address(uri)
    if not rest.startswith("/") or not name or name.endswith("/"):
        msg = f"state: {shown} names no file; supported: {_SUPPORTED}"
        raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")
    if name == ":memory:":
        msg = f"state: {shown} would be another store in every connection"
        raise ConfigurationError(msg, hint="state: memory://")
    if "?" in name:
        msg = f"state: {shown} has options after '?', but SQLite stores take none"
        raise ConfigurationError(msg, hint=f"state: {redact_address(uri.partition('?')[0])}")
    return (base / name).resolve()
