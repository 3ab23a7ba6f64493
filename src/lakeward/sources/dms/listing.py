"""Finding a table's files, and the tables themselves, in a DMS landing folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.model import FileClass, LandingFile, TableId
from lakeward.sources.dms.names import NameMatch, classify, classify_transactions, is_date_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.config import TableDefaults, TableSettings
    from lakeward.sources.storage import Storage, StoredFile


@dataclass(frozen=True)
class UnknownFile:
    """A file in a table's folder that no rule knows; reported, never read."""

    path: str
    location: str
    size: int


@dataclass(frozen=True)
class SkippedFolder:
    """A folder that lies where tables do and cannot be registered as one by itself."""

    path: str
    reason: str


def table_folder(table: TableId, settings: TableSettings) -> str:
    """Give a table's folder relative to the landing root."""
    return (settings.path or f"{table.schema}/{table.name}").strip("/")


def list_folder(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile | UnknownFile]:
    """Give every file below a table's folder, those included that no rule knows."""
    return _list(storage, folder, settings, classify)


def list_files(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Give a table's load parts and change files."""
    return (file for file in list_folder(storage, folder, settings) if isinstance(file, LandingFile))


def list_transactions(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Give the ``CDC_TXN-`` files of the transactions folder."""
    files = _list(storage, folder, settings, classify_transactions)
    return (file for file in files if isinstance(file, LandingFile))


def table_folders(storage: Storage, *, transactions: str | None = None) -> Iterator[TableId | SkippedFolder]:
    """Give the folders two levels below the root as tables, or with the reason why one cannot be.

    Costs one listing per schema: nothing inside the folders is looked at. The transactions folder is left out.
    """
    for schema in storage.folders(""):
        for folder in storage.folders(schema):
            if folder == (transactions or "").strip("/"):
                continue
            table = TableId(schema, folder.removeprefix(schema + "/"))
            reason = _why_not(table)
            yield SkippedFolder(folder, reason) if reason else table


def holds_files(storage: Storage, folder: str) -> bool:
    """Tell whether any file below is a load part or change file, reading no more of the listing than needed."""
    return any(classify(_below(folder, stored.path)) is not None for stored in storage.walk(folder))


def _why_not(table: TableId) -> str | None:
    """Tell why a folder is no table; a date partition two levels down means that landing points too deep."""
    if is_date_folder(table.name) or is_date_folder(f"{table.schema}/{table.name}"):
        return "its name is that of a date folder, which lie inside tables; if it is a table, declare it"
    try:
        table.require_usable()
    except ConfigurationError as error:
        return error.message
    return None


def _list(
    storage: Storage, folder: str, settings: TableDefaults, classifier: Callable[[str, str], NameMatch | None]
) -> Iterator[LandingFile | UnknownFile]:
    for stored in storage.walk(folder):
        match = classifier(_below(folder, stored.path), settings.name_timezone)
        if match is None:
            yield UnknownFile(stored.path, storage.location(stored.path), stored.size)
        else:
            yield _landing_file(storage, stored, match.file_class, match.time)


def _landing_file(storage: Storage, stored: StoredFile, file_class: FileClass, time: str) -> LandingFile:
    return LandingFile(stored.path, storage.location(stored.path), file_class, time, stored.identity)


def _below(folder: str, path: str) -> str:
    prefix = folder.strip("/")
    return path.removeprefix(prefix + "/") if prefix else path
