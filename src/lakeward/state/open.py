"""From the configuration's ``state:`` to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.state.memory import MemoryStateStore
from lakeward.state.sql import SqlStateStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.state.base import StateStore

_SUPPORTED = "sqlite:///file (relative to lakeward.yaml), sqlite:////absolute/file, memory://"
_PLANNED = ("postgresql", "dynamodb")


def open_state(uri: str, base: Path) -> StateStore:
    """Open the store that ``uri`` names; relative files count from ``base``.

    Raises:
        ConfigurationError: not a store of this version, or one that cannot be opened.
    """
    scheme, separator, rest = uri.partition("://")
    # Never print the whole URI: it may hold a password.
    if not separator:
        msg = f"state: {uri!r} is not a URI; supported: {_SUPPORTED}"
        raise ConfigurationError(msg, hint=f"state: sqlite:///{uri or 'lakeward.db'}")
    match scheme.lower():
        case "memory":
            return MemoryStateStore()
        case "sqlite":
            return SqlStateStore(_sqlite_file(uri, rest, base))
        case known if known.partition("+")[0] in _PLANNED:
            msg = f"state: {known}:// is not supported by this version; supported: {_SUPPORTED}"
        case unknown:
            msg = f"state: unknown kind of store {unknown}://; supported: {_SUPPORTED}"
    raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")


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
