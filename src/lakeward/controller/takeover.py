"""Taking over the tables of a DMS walkthrough deployment: which are registered, which are left alone, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.controller.tables import KnownTable, settings_for
from lakeward.controller.validation import SettingsCheck
from lakeward.controller.walkthrough import read_item
from lakeward.documents import Document
from lakeward.errors import DataError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.config import Config
    from lakeward.controller.walkthrough import Item, WalkthroughTable
    from lakeward.model import TableId
    from lakeward.sources.storage import Storage
    from lakeward.state.base import StateStore


class ImportOutcome(StrEnum):
    """What became of an item: taken over, left because the table is set already, or not to be understood."""

    IMPORTED = "imported"
    LEFT = "left"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ImportedTable(Document):
    """One item and what became of it. ``path`` is its own; ``reason`` tells why it is not as the deployment had it."""

    path: str
    outcome: ImportOutcome
    table: str | None = None
    active: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None


def take_over(
    items: Iterable[Item], config: Config, storage: Storage, state: StateStore, *, dry_run: bool = False
) -> Iterator[ImportedTable]:
    """Register the tables of items one by one; those declared, active or set here already are left alone."""
    declared = config.declared()
    seen: dict[TableId, str] = {}
    for item in items:
        path = str(item.get("path", {}).get("S", ""))
        try:
            found = read_item(item, config.landing)
            _require_first(found.table, path, seen)
            left = _why_left(found.table, declared, state)
            inactive = None if left else _why_inactive(found, config, storage)
        except LakewardError as error:
            yield ImportedTable(path, ImportOutcome.SKIPPED, reason=error.message)
            continue
        if left:
            yield ImportedTable(path, ImportOutcome.LEFT, str(found.table), reason=left)
            continue
        active = found.active and inactive is None
        if not dry_run:
            state.set_table(found.table, active=active, settings=found.settings)
        yield ImportedTable(path, ImportOutcome.IMPORTED, str(found.table), active, found.settings, inactive)


def _why_inactive(found: WalkthroughTable, config: Config, storage: Storage) -> str | None:
    """Tell why a table that was active must not be here: its settings do not fit its files."""
    settings = settings_for(config, found.table, found.settings)
    if not found.active:
        return None
    known = KnownTable(found.table, settings, active=True, declared=False)
    errors = [one for one in SettingsCheck(known, config, storage, check_data=False).findings() if one.is_error]
    return "; ".join(f"{one.setting}: {one.message}" for one in errors) or None


def _require_first(table: TableId, path: str, seen: dict[TableId, str]) -> None:
    """Refuse a second item of the same schema and table: only a person can say which one is meant."""
    if table in seen:
        msg = f"it is the table {table}, as {seen[table]!r} is; declare one of them under another name with its path:"
        raise DataError(msg)
    seen[table] = path


def _why_left(table: TableId, declared: Mapping[TableId, object], state: StateStore) -> str | None:
    if table in declared:
        return "it is declared in the configuration file"
    registered = state.find_table(table)
    if registered is not None and (registered.active or registered.settings):
        return "it is registered already, and active or with settings of its own"
    return None
