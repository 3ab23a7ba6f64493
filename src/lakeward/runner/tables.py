"""The known tables and their settings: declared in the configuration, or registered by discovery or a command."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from lakeward.config import TableSettings, explain_settings, merge_settings
from lakeward.errors import ConfigurationError
from lakeward.model import TableId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.config import Config
    from lakeward.state.base import StateStore


@dataclass(frozen=True)
class KnownTable:
    """A table with its complete settings.

    ``declared``: its settings are in the configuration file. ``registered``: it is in the state store.
    """

    table: TableId
    settings: TableSettings
    active: bool
    declared: bool
    error: str | None = None
    registered: bool = False


def known_tables(config: Config, state: StateStore) -> list[KnownTable]:
    """Return every table that is declared or registered, by name."""
    declared = config.declared()
    registered = {entry.table: entry for entry in state.registered()}
    tables = [
        KnownTable(
            table,
            settings,
            active=registered[table].active if table in registered else True,
            declared=True,
            error=registered[table].error if table in registered else None,
            registered=table in registered,
        )
        for table, settings in declared.items()
    ]
    tables += [
        KnownTable(
            table,
            settings_for(config, table, entry.settings),
            entry.active,
            declared=False,
            error=entry.error,
            registered=True,
        )
        for table, entry in registered.items()
        if table not in declared
    ]
    return sorted(tables, key=lambda known: known.table)


def find_tables(config: Config, state: StateStore, names: Iterable[str]) -> list[KnownTable]:
    """Return the named tables; all active ones when none is named.

    Raises:
        ConfigurationError: a name is not known, or its table is inactive.
    """
    known = known_tables(config, state)
    wanted = [TableId.parse(name) for name in names]
    if not wanted:
        return [table for table in known if table.active]
    return [_require_active(require_table(known, table)) for table in dict.fromkeys(wanted)]


def require_table(known: Sequence[KnownTable], table: TableId) -> KnownTable:
    """Return a known table by its name.

    Raises:
        ConfigurationError: there is no such table.
    """
    for candidate in known:
        if candidate.table == table:
            return candidate
    near = difflib.get_close_matches(str(table), [str(candidate.table) for candidate in known], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    msg = f"no table {table}{meant}"
    raise ConfigurationError(msg, hint="lakeward discover, then lakeward tables list")


def settings_for(config: Config, table: TableId, own: dict[str, Any]) -> TableSettings:
    """Return the settings of a table that is not declared, completed with the configured defaults."""
    defaults = config.defaults.model_dump(exclude_unset=True, by_alias=True)
    try:
        return TableSettings.model_validate(merge_settings(defaults, own))
    except ValidationError as error:
        raise ConfigurationError(explain_settings(error, f"settings of {table}")) from None


def _require_active(known: KnownTable) -> KnownTable:
    if not known.active:
        msg = f"{known.table} is inactive"
        hint = f"lakeward tables set {known.table} --primary-key COLUMN --activate"
        raise ConfigurationError(msg, hint=hint)
    return known
