"""Finding a table's files, and the tables themselves, in a DMS landing folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.model import FileClass, LandingFile, TableId
from lakeward.sources.dms.names import NameMatch, classify, classify_transactions

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


def table_folder(table: TableId, settings: TableSettings) -> str:
    """Give a table's folder relative to the landing root."""
    return (settings.path or f"{table.schema}/{table.name}").strip("/")


def list_folder(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile | UnknownFile]:
    """Give every file below a table's folder, those included that no rule knows."""
    return _list(storage, folder, settings, classify)


def list_files(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Give a table's load parts and change files."""
    return (file for file in list_folder(storage, folder, settings) if isinstance(file, LandingFile))


def list_unknown(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[UnknownFile]:
    """Give the files in a table's folder that no rule knows."""
    return (file for file in list_folder(storage, folder, settings) if isinstance(file, UnknownFile))


def list_transactions(storage: Storage, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Give the ``CDC_TXN-`` files of the transactions folder."""
    files = _list(storage, folder, settings, classify_transactions)
    return (file for file in files if isinstance(file, LandingFile))


def discover_tables(storage: Storage) -> Iterator[TableId]:
    """Give the tables whose folders, two levels below the root, hold at least one load part or change file.

    A folder whose name cannot be a table's (see :meth:`TableId.require_usable`) is left out.
    """
    for schema_folder in storage.folders(""):
        for folder in storage.folders(schema_folder):
            table = TableId(schema_folder, folder.removeprefix(schema_folder + "/"))
            if _is_usable(table) and _holds_match(storage, folder):
                yield table


def _is_usable(table: TableId) -> bool:
    try:
        table.require_usable()
    except ConfigurationError:
        return False
    return True


def _holds_match(storage: Storage, folder: str) -> bool:
    """Tell whether any file below matches a rule, reading no more of the listing than needed."""
    return any(classify(_below(folder, stored.path)) is not None for stored in storage.walk(folder))


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
