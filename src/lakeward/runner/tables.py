"""The tables there are and their settings: declared in the configuration, or registered by a command or by discovery.

Discovery finds tables in landing and registers those that are new, inactive until someone decides on their key.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from lakeward.config import TableSettings, explain_settings, merge_settings
from lakeward.config.loading import read_yaml
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, ConflictError, DataError
from lakeward.formats.dms.listing import (
    SkippedFolder,
    UnreadFiles,
    list_transactions,
    look_into,
    table_folders,
    unreadable_folder,
    why_no_table,
)
from lakeward.model import TableId
from lakeward.text import MALFORMED, escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lakeward.config import Config
    from lakeward.state.base import RegisteredTable, StateStore
    from lakeward.storage.landing import Landing


# How many files that nobody reads are named per table.
UNREAD_NAMED = 20


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


def changed_since(config: Config, state: StateStore, known: KnownTable) -> ConflictError | None:
    """Return the error for a table that is no longer what it was when it was chosen, None where it is.

    Ask under the table's lease: while it was waited for, a rename or a removal may have taken the table away, and a
    run would build it anew.
    """
    entry = state.find_table(known.table)
    if (entry is None and known.registered) or (known.declared and not _is_still_declared(config, known.table)):
        what = "was renamed or removed"
    elif entry is None or known.declared or _is_as_chosen(config, known, entry):
        return None
    else:
        what = "was deactivated, or got another path:"
    msg = f"{known.table} {what} since this run began; nothing was done on it"
    return ConflictError(msg, hint="lakeward tables list, then run again")


def _is_as_chosen(config: Config, known: KnownTable, entry: RegisteredTable) -> bool:
    """Whether a registered table is active and read from the same folder: another one may have the name now."""
    settings = settings_for(config, known.table, entry.settings)
    return entry.active >= known.active and settings.path == known.settings.path


def _is_still_declared(config: Config, table: TableId) -> bool:
    """Whether the configuration file declares a table now; True where that cannot be determined."""
    try:
        names = _declared_names(config.file.read_text(encoding="utf-8")) if config.file else None
    except (OSError, yaml.YAMLError, *MALFORMED):
        return True
    return names is None or str(table) in names


@lru_cache(maxsize=2)
def _declared_names(text: str) -> frozenset[str] | None:
    """Return the names of the tables in the text of a configuration, None where it is not one."""
    data = read_yaml(text)
    if not isinstance(data, dict):
        return None
    tables = data.get("tables") or {}
    return frozenset(map(str, tables)) if isinstance(tables, dict) else None


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


def _names(tables: tuple[TableId, ...]) -> list[str]:
    return [str(table) for table in tables]


@dataclass(frozen=True)
class Discovery(Document, keys=("new", "unlanded", "skipped", "unread"), write={"new": _names, "unlanded": _names}):
    """The result of a search for tables in landing.

    ``new`` tables were registered; ``unlanded`` are those of them that only transaction files name. ``skipped``
    folders hold files but are not tables, or are in the place of a table and were left out. ``unread`` are files that
    nobody reads in the folders of new tables. ``stray`` is an example of a file if landing holds no table at all.
    """

    new: tuple[TableId, ...] = ()
    unlanded: tuple[TableId, ...] = ()
    skipped: tuple[SkippedFolder, ...] = ()
    stray: str | None = None
    unread: tuple[UnreadFiles, ...] = ()


def discover(config: Config, storage: Landing, state: StateStore, *, read_transactions: bool = False) -> Discovery:
    """Register tables found in landing that are neither declared nor known.

    Folders of known tables are not listed, so that a repeated search costs one listing per schema; new ones are listed
    completely, for the files in them that nobody reads. Tables that only
    transaction files name have no folder: with ``read_transactions`` those files are read completely.
    """
    known = {*config.declared(), *(registered.table for registered in state.registered())}
    known |= _folders_of_others(config, state)
    skipped: list[SkippedFolder] = []
    new: list[TableId] = []
    unread: list[UnreadFiles] = []
    any_table = False
    for found in landed_tables(config, storage, known, unread):
        if isinstance(found, SkippedFolder):
            skipped.append(found)
            continue
        any_table = True
        if found not in known and state.register(found, active=False):
            new.append(found)
    unlanded: list[TableId] = []
    for found in _register_unlanded(config, storage, state, {*known, *new}) if read_transactions else ():
        (skipped if isinstance(found, SkippedFolder) else unlanded).append(found)  # type: ignore[arg-type]
    stray = None if any_table or unlanded else _first_file(storage)
    return Discovery((*new, *unlanded), tuple(unlanded), tuple(skipped), stray, tuple(unread))


def _folders_of_others(config: Config, state: StateStore) -> set[TableId]:
    """Return the tables by whose folders other tables are read: those have a ``path:``."""
    paths = [settings.path for settings in config.declared().values()]
    paths += [registered.settings.get("path") for registered in state.registered()]
    parts = [path.strip("/").split("/") for path in paths if path]
    return {TableId(*names) for names in parts if len(names) == 2}


def is_landed(storage: Landing, table: TableId) -> bool:
    """Whether landing has a folder in which discovery would look for a table."""
    return storage.exists(_folder(table))


def _first_file(storage: Landing) -> str | None:
    try:
        return next((escape_name(file.path) for file in storage.walk("")), None)
    except (OSError, DataError):
        return None  # the folder that cannot be listed is among those left out


def landed_tables(
    config: Config, storage: Landing, known: Collection[TableId], unread: list[UnreadFiles] | None = None
) -> Iterator[TableId | SkippedFolder]:
    """Yield the tables in landing that ``include`` and ``exclude`` accept, and the folders that are not tables.

    Folders of known tables are not listed; others are tables only if they hold a load part or change file. The files
    that nobody reads in folders of tables are added to ``unread``; without it no folder is listed to its end.
    """
    for found in table_folders(storage, transactions=config.transactions):
        if not _concerns(config, found):
            continue
        if not (isinstance(found, SkippedFolder) or found in known):
            found = _looked_into(config, storage, found, unread)  # noqa: PLW2901 - the folder, judged
        if not isinstance(found, SkippedFolder) or found.reason:
            yield found


def _looked_into(
    config: Config, storage: Landing, table: TableId, unread: list[UnreadFiles] | None
) -> TableId | SkippedFolder:
    folder = _folder(table)
    try:
        holds_table, files = look_into(
            storage, folder, config.defaults, most=UNREAD_NAMED, completely=unread is not None
        )
    except OSError as error:
        return unreadable_folder(folder, error)
    except DataError as error:
        # A folder that cannot be listed concerns a single table.
        return SkippedFolder(folder, error.message)
    if not holds_table:
        return SkippedFolder(folder, why_no_table(files))
    if unread is not None and files.count:
        unread.append(files)
    return table


def _concerns(config: Config, found: TableId | SkippedFolder) -> bool:
    """Whether a folder is, or may hold, a table that ``include`` and ``exclude`` accept."""
    if isinstance(found, TableId) or "/" in found.path:
        return is_wanted(config, str(found) if isinstance(found, TableId) else found.path.replace("/", ".", 1))
    # A whole schema: it may contain an included table.
    return any(fnmatchcase(found.path, pattern.partition(".")[0]) for pattern in config.include)


def is_wanted(config: Config, name: str) -> bool:
    """Whether ``include`` and ``exclude`` accept a name."""
    is_included = any(fnmatchcase(name, pattern) for pattern in config.include)
    return is_included and not any(fnmatchcase(name, pattern) for pattern in config.exclude)


def require_landing(config: Config, storage: Landing) -> None:
    """Raise for an empty, missing or unreadable landing folder: usually the path is wrong."""
    try:
        is_there = storage.exists("")
    except OSError as error:
        msg = f"landing {config.landing} cannot be listed: {error.strerror or error}"
        raise ConfigurationError(msg, hint="let this user read it, or correct landing: in lakeward.yaml") from error
    if not is_there:
        msg = f"landing {config.landing} is missing or empty: no file to read"
        hint = "correct landing: in lakeward.yaml, or let the capture tool write there first; to try: lakeward demo"
        raise ConfigurationError(msg, hint=hint)


def _folder(table: TableId) -> str:
    return f"{table.schema}/{table.name}"


def _register_unlanded(
    config: Config, storage: Landing, state: StateStore, known: Collection[TableId]
) -> Iterator[TableId | SkippedFolder]:
    """Register and yield the tables that only transaction files name."""
    if not config.transactions:
        msg = "there are no transaction files to read: transactions: is not set"
        raise ConfigurationError(msg, hint="set transactions: to the folder of the CDC_TXN files in lakeward.yaml")
    for table in sorted(_named_in_transactions(config, storage, config.transactions.strip("/")) - {*known}):
        if not is_wanted(config, str(table)):
            continue
        try:
            table.require_usable()
        except ConfigurationError as error:
            yield SkippedFolder(_folder(table), error.message)
        else:
            if state.register(table, active=False):
                yield table


def _named_in_transactions(config: Config, storage: Landing, folder: str) -> set[TableId]:
    """Return the tables named in transaction files; a file still being written is read the next time."""
    from lakeward.formats.dms import transactions as T
    from lakeward.formats.dms.files import Limits

    named: set[TableId] = set()
    limits = Limits.of(config.defaults)
    for file in list_transactions(storage, folder, config.defaults):
        for batch in T.sort_file(storage, file, config.defaults.csv, limits):
            rows = batch.select([T.SCHEMA, T.TABLE, T.ENDING]).to_pylist()
            named |= {TableId(row[T.SCHEMA], row[T.TABLE]) for row in rows if row[T.ENDING] is None}
            ending = rows[-1][T.ENDING]
            if ending and (problem := json.loads(ending)["problem"]):
                msg = f"{file.path} cannot be used: {problem}"
                raise DataError(msg, hint="repair or remove it, then: lakeward discover --read-transactions")
    return named
