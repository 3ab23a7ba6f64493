"""Finding a table's files, and the tables themselves, in a DMS landing folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError
from lakeward.model import FileClass, LandingFile, TableId
from lakeward.sources.dms.names import NameMatch, classify, classify_transactions, is_date_folder, is_transactions
from lakeward.texts import escape_name, name_problem

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
    """A folder that lies where tables do and cannot be registered as one by itself; ``path`` is as it is printed."""

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

    Costs one listing per schema: nothing inside the folders is looked at. The transactions folder is left out. Files
    that lie above all tables are told by the folder that holds them.
    """
    left_out = (transactions or "").strip("/")
    count, first = 0, ""
    for schema, is_folder in storage.children(""):
        if not is_folder:
            count, first = count + 1, first or schema
        elif schema != left_out:
            yield from _schema_folders(storage, schema, left_out)
    if count:
        yield SkippedFolder(".", _why_stray(count, first))


def _schema_folders(storage: Storage, schema: str, left_out: str) -> Iterator[TableId | SkippedFolder]:
    try:
        children = list(storage.children(schema))
    except OSError as error:
        yield unreadable_folder(schema, error)
        return
    for path in (path for path, is_folder in children if is_folder and path != left_out):
        table = TableId(schema, path.removeprefix(schema + "/"))
        reason = _why_not(table)
        yield SkippedFolder(escape_name(path), reason) if reason else table
    if files := [path for path, is_folder in children if not is_folder]:
        yield SkippedFolder(escape_name(schema), _why_stray(len(files), files[0]))


def unreadable_folder(folder: str, error: OSError) -> SkippedFolder:
    """Return a folder that the system does not let anyone list, with its reason."""
    return SkippedFolder(escape_name(folder), f"it cannot be listed: {error.strerror or error}")


def _why_stray(count: int, first: str) -> str:
    """Say why files that lie above all tables are not read."""
    if is_transactions(first):
        folder = first.rpartition("/")[0]
        return f"{_shown(count, first)}: transaction files are read if transactions: {folder} is set in lakeward.yaml"
    return f"{_shown(count, first)}: files are looked for in SCHEMA/TABLE/"


def why_no_table(storage: Storage, folder: str) -> str | None:
    """Say why a folder is no table: it holds files, and none is a load part or change file. None where one is.

    Reads no more of the listing than needed; a folder without any file has nothing to be said of.
    """
    count, first = 0, ""
    for stored in storage.walk(folder):
        if classify(_below(folder, stored.path)) is not None:
            return None
        count, first = count + 1, first or stored.path
    if not count:
        return ""
    expected = "LOAD00000001.parquet for a load, 20240327-014303888.parquet for changes, or .csv, in exactly this case"
    return f"{_shown(count, first)}: no name is that of a file that DMS writes ({expected})"


def _shown(count: int, first: str) -> str:
    shown = escape_name(first)
    return f"holds {shown}" if count == 1 else f"holds {count:,} files such as {shown}"


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
            yield UnknownFile(escape_name(stored.path), escape_name(storage.location(stored.path)), stored.size)
        else:
            _require_storable(storage, stored)
            yield _landing_file(storage, stored, match.file_class, match.time)


def _require_storable(storage: Storage, stored: StoredFile) -> None:
    """Refuse a load part or change file whose path no ledger can hold: left out, its rows would be missing.

    Raises:
        DataError: the path is not UTF-8, or holds a control character.
    """
    if problem := name_problem(stored.path):
        msg = f"{escape_name(storage.location(stored.path))} cannot be read: {problem}"
        raise DataError(msg, hint="rename the file or its folder, or move it out of landing")


def _landing_file(storage: Storage, stored: StoredFile, file_class: FileClass, time: str) -> LandingFile:
    return LandingFile(stored.path, storage.location(stored.path), file_class, time, stored.identity)


def _below(folder: str, path: str) -> str:
    prefix = folder.strip("/")
    return path.removeprefix(prefix + "/") if prefix else path
