"""Listing a DMS landing folder: tables, and the class of each file (load part, change file, unknown) by its path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError
from lakeward.formats.file_order import NOT_RECORDED, place_by_name
from lakeward.model import FileClass, LandingFile, TableId
from lakeward.path_patterns import DATA_ENDINGS, path_pattern, proposed_pattern
from lakeward.text import escape_name, name_problem, time_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.config import TableDefaults, TableSettings
    from lakeward.storage.filesystem import StoredFile
    from lakeward.storage.landing import Landing


TIME_DIGITS = 20
# Names as DMS writes them: what fits where files.load and files.changes are not set.
LOAD_NAME, CHANGES_NAME = "LOAD00000001.parquet", "20240327-014303888.parquet"
_FORMAT = r"\.(?P<format>csv|parquet)(?:\.gz)?\Z"
# A counter starts with a decimal digit: DMS pads with zeros, and LOADED.csv is not a load part.
_LOAD = re.compile(r"^(?P<segment>.+_)?LOAD(?P<counter>[0-9][0-9A-Fa-f]*)" + _FORMAT, re.ASCII)
_CHANGES = re.compile(r"^(?P<date>\d{8})-(?P<time>\d{6,12})" + _FORMAT, re.ASCII)
# Both forms that a user may write; datetime.fromisoformat alone takes any separator, also a digit.
_NAME_TIME = re.compile(r"(?P<date>\d{8})-?(?P<time>\d{6,12})", re.ASCII)
_ISO_TIME = re.compile(r"\d{4}-?\d{2}-?\d{2}(?:[T ].+)?", re.ASCII)
_TRANSACTIONS = re.compile(r"^CDC_TXN-(?P<date>\d{8})(?P<time>\d{6,12})\.csv(?:\.gz)?\Z", re.ASCII)

_YEAR, _MONTH, _DAY, _HOUR = r"\d{4}", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])", r"(?:[01]\d|2[0-3])"
_SEQUENCES = (
    (_YEAR, _MONTH, _DAY),
    (_YEAR, _MONTH, _DAY, _HOUR),
    (_YEAR, _MONTH),
    (_MONTH, _YEAR, _DAY),
    (_DAY, _MONTH, _YEAR),
)
_DATE_FOLDER = re.compile(
    "|".join(f"(?:{delimiter.join(parts)})" for parts in _SEQUENCES for delimiter in ("/", "-", "_", "")), re.ASCII
)


@dataclass(frozen=True)
class NameMatch:
    """The facts that follow from a file's name.

    ``time`` is the name's time in UTC as 20 digits, empty for load parts, or the place that ``files.order`` makes of
    the name. ``ambiguous`` marks a local time that occurs twice when summer time ends; the first occurrence is taken.
    """

    file_class: FileClass
    format: str
    time: str = ""
    ambiguous: bool = False


def is_data_file(path: str) -> bool:
    """Whether a file has the suffix of a data file: csv or parquet, optionally followed by gz."""
    return re.search(_FORMAT, path) is not None


def classify(relative_path: str, timezone: str = "UTC") -> NameMatch | None:
    """Return a file's class by its path relative to the table's folder; None when no rule matches."""
    path = PurePosixPath(relative_path)
    folder = "" if str(path.parent) == "." else str(path.parent)
    if match := _LOAD.match(path.name):
        return NameMatch(FileClass.LOAD, match["format"])
    match = _CHANGES.match(path.name)
    if match is None or (folder and not is_date_folder(folder)):
        return None
    return _timed(FileClass.CHANGES, match["format"], match, timezone)


def classify_as_set(relative_path: str, settings: TableDefaults) -> NameMatch | None:
    """Return a file's class by ``files``, and by DMS's names where no pattern is set for a class.

    Raises:
        DataError: both a pattern of loads and one of changes fit.
    """
    files = settings.files
    if files.load is None and files.changes is None:
        return classify(relative_path, settings.name_timezone)
    known = classify(relative_path, settings.name_timezone)
    fitting = [
        found
        for found in (_load_as_set(relative_path, settings, known), _changes_as_set(relative_path, settings, known))
        if found
    ]
    if len(fitting) > 1:
        load, changes = files.load or LOAD_NAME, files.changes or CHANGES_NAME
        msg = f"{escape_name(relative_path)} fits both files.load ({load}) and files.changes ({changes})"
        raise DataError(msg, hint="set files.load and files.changes so that no file fits both")
    return fitting[0] if fitting else None


def _load_as_set(path: str, settings: TableDefaults, known: NameMatch | None) -> NameMatch | None:
    if settings.files.load is None:
        return known if known is not None and known.file_class is FileClass.LOAD else None
    fits = _is_readable(path) and path_pattern(settings.files.load).fullmatch(path)
    return NameMatch(FileClass.LOAD, file_format(path)) if fits else None


def _changes_as_set(path: str, settings: TableDefaults, known: NameMatch | None) -> NameMatch | None:
    files = settings.files
    if files.changes is None:
        return known if known is not None and known.file_class is FileClass.CHANGES else None
    if not (_is_readable(path) and path_pattern(files.changes).fullmatch(path)):
        return None
    place = NOT_RECORDED if files.records_arrival else place_by_name(path)
    return NameMatch(FileClass.CHANGES, file_format(path), place)


def _is_readable(path: str) -> bool:
    """Whether a file that fits a pattern is read: DMS's transaction files have rows of many tables."""
    return path.endswith(DATA_ENDINGS) and not is_transactions(path)


def classify_transactions(relative_path: str, timezone: str = "UTC") -> NameMatch | None:
    """Return the class of a ``CDC_TXN-`` file directly in the transactions folder; None for other files."""
    match = _TRANSACTIONS.match(relative_path)
    return _timed(FileClass.TRANSACTIONS, "csv", match, timezone) if match else None


def is_date_folder(folder: str) -> bool:
    """Whether a path below the table's folder is one of DMS's date partitions."""
    return _DATE_FOLDER.fullmatch(folder) is not None


def file_format(path: str) -> str:
    """Return ``csv`` or ``parquet`` by the suffix, with or without ``.gz``."""
    return "parquet" if path.removesuffix(".gz").endswith(".parquet") else "csv"


def load_part(path: str) -> tuple[str, int]:
    """Return the identity of a load part regardless of format and padding: folder with segment, and counter.

    A file that is not named as DMS names parts is the part that its path names without the ending.
    """
    folder, _, name = path.rpartition("/")
    match = _LOAD.match(name)
    if match is None:
        return re.sub(_FORMAT, "", path), 0
    return f"{folder}/{match['segment'] or ''}", int(match["counter"], 16)


def part_as_set(path: str, settings: TableDefaults) -> tuple[str, int]:
    """Return the identity of a load part regardless of format; names that ``files.load`` sets count nothing.

    There ``full_LOAD1.csv`` and ``full_LOAD01.csv`` are two files of whatever wrote them.
    """
    return load_part(path) if settings.files.load is None else (re.sub(_FORMAT, "", path), 0)


def is_transactions(path: str) -> bool:
    """Whether a file is a transaction file, by its name."""
    return _TRANSACTIONS.match(PurePosixPath(path).name) is not None


def _timed(file_class: FileClass, file_format: str, match: re.Match[str], timezone: str) -> NameMatch | None:
    """Return the match with the name's time in UTC; None when that time does not exist."""
    clock, fraction = match["date"] + match["time"][:6], match["time"][6:]
    try:
        naive = datetime.strptime(clock, "%Y%m%d%H%M%S")  # noqa: DTZ007 - the zone is the configured one
    except ValueError:
        return None
    ambiguous = False
    if timezone != "UTC":
        zone = time_zone(timezone, "name_timezone")
        local = naive.replace(tzinfo=zone)
        in_utc = local.astimezone(UTC)
        if in_utc.astimezone(zone).replace(tzinfo=None) != naive:
            return None  # the clocks jumped over this time
        ambiguous = local.utcoffset() != local.replace(fold=1).utcoffset()
        naive = in_utc.replace(tzinfo=None)
    digits = f"{naive.year:04}{naive:%m%d%H%M%S}{fraction}".ljust(TIME_DIGITS, "0")
    return NameMatch(file_class, file_format, digits, ambiguous)


def parse_time(text: str) -> str:
    """Return a time as 20 digits in UTC, the form that is compared with the times of change files.

    Raises:
        ConfigurationError: it is neither a time in ISO 8601 nor one as in the names of change files.
    """
    try:
        if match := _NAME_TIME.fullmatch(text):
            datetime.strptime(match["date"] + match["time"][:6], "%Y%m%d%H%M%S")  # noqa: DTZ007 - only checked
            return (match["date"] + match["time"]).ljust(TIME_DIGITS, "0")
        if _ISO_TIME.fullmatch(text):
            found = datetime.fromisoformat(text)
            in_utc = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
            return f"{in_utc.year:04}{in_utc:%m%d%H%M%S%f}"
    except (ValueError, OverflowError):
        pass
    msg = (
        f"{text!r} is not a time; expected 2024-04-05T00:30:52 (UTC unless it has an offset), "
        "a day such as 2024-04-05, or a time as in file names, 20240405-003052555"
    )
    raise ConfigurationError(msg)


@dataclass(frozen=True)
class UnknownFile:
    """A file in a table's folder that matches no rule; it is reported and never read. ``name`` is below that folder."""

    path: str
    location: str
    size: int
    name: str


@dataclass(frozen=True)
class UnreadFile(Document):
    """A file that nobody reads: its path, why, and the pattern that would read it; both are printable.

    ``pattern`` is a value for ``files.load`` or ``files.changes``, None where no setting makes the file readable.
    """

    path: str
    reason: str
    pattern: str | None = None


@dataclass(frozen=True)
class UnreadFiles(Document):
    """The files below a folder that nobody reads: how many there are, and the first of them."""

    folder: str
    count: int
    files: tuple[UnreadFile, ...]


def unread_file(file: UnknownFile, settings: TableDefaults) -> UnreadFile:
    """Return why a file is not read, and the setting that would read it."""
    if is_transactions(file.name):
        folder = file.path.rpartition("/")[0]
        return UnreadFile(file.path, f"transaction files are read if transactions: {folder} is set in lakeward.yaml")
    if not file.name.endswith(DATA_ENDINGS):
        endings = ", ".join(DATA_ENDINGS)
        return UnreadFile(file.path, f"no setting reads it: only files that end in {endings} are read (in lower case)")
    pattern, files = escape_name(proposed_pattern(file.name)), settings.files
    order = "" if files.order else " and files.order"
    load, changes = files.load or LOAD_NAME, files.changes or CHANGES_NAME
    reason = (
        f"its name fits neither files.load ({load}) nor files.changes ({changes}); "
        f"files.load={pattern} would read it as a load, files.changes={pattern}{order} as changes"
    )
    return UnreadFile(file.path, reason, pattern)


@dataclass(frozen=True)
class SkippedFolder(Document):
    """A folder at the level of tables that cannot be registered as one automatically; ``path`` is printable."""

    path: str
    reason: str


def table_folder(table: TableId, settings: TableSettings) -> str:
    """Return a table's folder relative to the landing root."""
    return (settings.path or f"{table.schema}/{table.name}").strip("/")


def list_folder(storage: Landing, folder: str, settings: TableDefaults) -> Iterator[LandingFile | UnknownFile]:
    """Return every file below a table's folder, including those that match no rule."""
    return _list(storage, folder, lambda path: classify_as_set(path, settings))


def list_files(storage: Landing, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Return a table's load parts and change files."""
    return (file for file in list_folder(storage, folder, settings) if isinstance(file, LandingFile))


def list_transactions(storage: Landing, folder: str, settings: TableDefaults) -> Iterator[LandingFile]:
    """Return the ``CDC_TXN-`` files of the transactions folder."""
    files = _list(storage, folder, lambda path: classify_transactions(path, settings.name_timezone))
    return (file for file in files if isinstance(file, LandingFile))


def table_folders(storage: Landing, *, transactions: str | None = None) -> Iterator[TableId | SkippedFolder]:
    """Yield the folders two levels below the root as tables, or with the reason why they cannot be tables.

    This takes one listing per schema: the content of the folders is not read. The transactions folder is left out.
    Files above all tables are reported with the folder that holds them.
    """
    left_out = (transactions or "").strip("/")
    count, first = 0, ""
    for schema, is_folder in storage.children(""):
        if not is_folder:
            count, first = count + 1, first or schema
        elif schema != left_out:
            yield from _schema_folders(storage, schema, left_out)
    if count:
        yield SkippedFolder(".", _stray_reason(count, first))


def _schema_folders(storage: Landing, schema: str, left_out: str) -> Iterator[TableId | SkippedFolder]:
    try:
        children = list(storage.children(schema))
    except OSError as error:
        yield unreadable_folder(schema, error)
        return
    for path in (path for path, is_folder in children if is_folder and path != left_out):
        table = TableId(schema, path.removeprefix(schema + "/"))
        reason = _not_a_table_reason(table)
        yield SkippedFolder(escape_name(path), reason) if reason else table
    if files := [path for path, is_folder in children if not is_folder]:
        yield SkippedFolder(escape_name(schema), _stray_reason(len(files), files[0]))


def unreadable_folder(folder: str, error: OSError) -> SkippedFolder:
    """Return a folder that cannot be listed, with the reason."""
    return SkippedFolder(escape_name(folder), f"it cannot be listed: {error.strerror or error}")


def _stray_reason(count: int, first: str) -> str:
    """Return why files above all tables are not read."""
    if is_transactions(first):
        folder = first.rpartition("/")[0]
        return f"{_shown(count, first)}: transaction files are read if transactions: {folder} is set in lakeward.yaml"
    return f"{_shown(count, first)}: files are looked for in SCHEMA/TABLE/, or in the folder that a table's path: names"


def why_no_table(unread: UnreadFiles) -> str:
    """Return why a folder without files of a table is not one; empty where it holds no file at all."""
    return f"{_shown(unread.count, unread.files[0].path)}: {unread.files[0].reason}" if unread.count else ""


def look_into(
    storage: Landing, folder: str, settings: TableDefaults, *, most: int, completely: bool
) -> tuple[bool, UnreadFiles]:
    """Return whether a folder holds files of a table, and up to ``most`` of the files in it that nobody reads.

    Unless ``completely`` the listing ends at the first file of a table.

    Raises:
        DataError: a file fits both patterns of the settings.
    """
    holds_table, count, first = False, 0, list[UnreadFile]()
    for file in _list(storage, folder, lambda path: classify_as_set(path, settings)):
        if isinstance(file, LandingFile):
            holds_table = True
            if not completely:
                break
            continue
        count += 1
        if len(first) < most:
            first.append(unread_file(file, settings))
    return holds_table, UnreadFiles(escape_name(folder), count, tuple(first))


def _shown(count: int, first: str) -> str:
    shown = escape_name(first)
    return f"holds {shown}" if count == 1 else f"holds {count:,} files such as {shown}"


def _not_a_table_reason(table: TableId) -> str | None:
    """Return why a folder is not a table; a date partition at this level means that landing is set too deep."""
    if is_date_folder(table.name) or is_date_folder(f"{table.schema}/{table.name}"):
        return "it is named like a date folder, and those belong inside tables; if it is a table, declare it"
    try:
        table.require_usable()
    except ConfigurationError as error:
        return error.message
    return None


def _list(
    storage: Landing, folder: str, classifier: Callable[[str], NameMatch | None]
) -> Iterator[LandingFile | UnknownFile]:
    for stored in storage.walk(folder):
        name = _below(folder, stored.path)
        match = classifier(name)
        if match is None:
            path, location = escape_name(stored.path), escape_name(storage.location(stored.path))
            yield UnknownFile(path, location, stored.size, name)
        else:
            _require_storable(storage, stored)
            yield _landing_file(storage, stored, match.file_class, match.time)


def _require_storable(storage: Landing, stored: StoredFile) -> None:
    """Refuse a load part or change file whose path the ledger cannot hold: skipping it would lose its rows.

    Raises:
        DataError: the path is not UTF-8, or holds a control character.
    """
    if problem := name_problem(stored.path):
        msg = f"{escape_name(storage.location(stored.path))} cannot be read: {problem}"
        raise DataError(msg, hint="rename the file or its folder, or move it out of landing")


def _landing_file(storage: Landing, stored: StoredFile, file_class: FileClass, time: str) -> LandingFile:
    return LandingFile(stored.path, storage.location(stored.path), file_class, time, stored.identity)


def _below(folder: str, path: str) -> str:
    prefix = folder.strip("/")
    return path.removeprefix(prefix + "/") if prefix else path
