"""Find tables in landing and register those that are new, inactive until someone decides on their key."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.sources.dms.listing import discover_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config import Config
    from lakeward.model import TableId
    from lakeward.sources.storage import Storage
    from lakeward.state.base import StateStore


def discover(config: Config, storage: Storage, state: StateStore) -> list[TableId]:
    """Register tables found in landing that are neither declared nor known; give the new ones."""
    declared = config.declared()
    found = (table for table in wanted_tables(config, storage) if table not in declared)
    return [table for table in found if state.register(table, active=False)]


def wanted_tables(config: Config, storage: Storage) -> Iterator[TableId]:
    """Give the tables in landing that ``include`` and ``exclude`` let through."""
    for table in discover_tables(storage):
        name = str(table)
        is_included = any(fnmatchcase(name, pattern) for pattern in config.include)
        if is_included and not any(fnmatchcase(name, pattern) for pattern in config.exclude):
            yield table


def require_landing(config: Config, storage: Storage) -> None:
    """Refuse an empty or missing landing folder: it is more often a wrong path than an empty source."""
    if not storage.exists(""):
        msg = f"landing {config.landing} is missing or empty: no file to read"
        hint = "correct landing: in lakeward.yaml, or let the capture tool write there first; to try: lakeward demo"
        raise ConfigurationError(msg, hint=hint)
