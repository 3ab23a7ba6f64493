"""What a file in a DMS table folder is, told by its path alone: load part, change file, or nothing known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeward.errors import ConfigurationError
from lakeward.model import FileClass

TIME_DIGITS = 20
_FORMAT = r"\.(?P<format>csv|parquet)(?:\.gz)?\Z"
# The first digit of a counter is a decimal one: DMS pads with zeros, and LOADED.csv is not a load part.
_LOAD = re.compile(r"^(?P<segment>.+_)?LOAD(?P<counter>[0-9][0-9A-Fa-f]*)" + _FORMAT, re.ASCII)
_CHANGES = re.compile(r"^(?P<date>\d{8})-(?P<time>\d{6,12})" + _FORMAT, re.ASCII)
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
    """What a file's name says.

    ``time`` is the name's time in UTC as 20 digits, empty for load parts. ``ambiguous`` marks a local time that a
    change from summer to winter time passes twice; the first passing is taken.
    """

    file_class: FileClass
    format: str
    time: str = ""
    ambiguous: bool = False


def is_data_file(path: str) -> bool:
    """Whether a file has the ending of those that are read: csv or parquet, either with gz behind it."""
    return re.search(_FORMAT, path) is not None


def classify(relative_path: str, timezone: str = "UTC") -> NameMatch | None:
    """Tell what a file is by its path relative to the table's folder; None when no rule fits: never guess."""
    path = PurePosixPath(relative_path)
    folder = "" if str(path.parent) == "." else str(path.parent)
    if match := _LOAD.match(path.name):
        return NameMatch(FileClass.LOAD, match["format"])
    match = _CHANGES.match(path.name)
    if match is None or (folder and not is_date_folder(folder)):
        return None
    return _timed(FileClass.CHANGES, match["format"], match, timezone)


def classify_transactions(relative_path: str, timezone: str = "UTC") -> NameMatch | None:
    """Tell whether a file directly in the transactions folder is a ``CDC_TXN-`` file."""
    match = _TRANSACTIONS.match(relative_path)
    return _timed(FileClass.TRANSACTIONS, "csv", match, timezone) if match else None


def is_date_folder(folder: str) -> bool:
    """Tell whether a path below the table's folder is one of DMS's date partitions."""
    return _DATE_FOLDER.fullmatch(folder) is not None


def file_format(path: str) -> str:
    """Give ``csv`` or ``parquet`` by the suffix, with or without ``.gz``."""
    return "parquet" if path.removesuffix(".gz").endswith(".parquet") else "csv"


def load_part(path: str) -> tuple[str, int]:
    """Return what names a load part whatever its format and padding: folder with segment, and counter."""
    folder, _, name = path.rpartition("/")
    match = _LOAD.match(name)
    return (f"{folder}/{match['segment'] or ''}", int(match["counter"], 16)) if match else (path, 0)


def is_transactions(path: str) -> bool:
    """Tell transaction files by their name."""
    return _TRANSACTIONS.match(PurePosixPath(path).name) is not None


def _timed(file_class: FileClass, file_format: str, match: re.Match[str], timezone: str) -> NameMatch | None:
    """Complete a match by the name's time in UTC; None when there is no such time."""
    clock, fraction = match["date"] + match["time"][:6], match["time"][6:]
    try:
        naive = datetime.strptime(clock, "%Y%m%d%H%M%S")  # noqa: DTZ007 - the zone is the configured one
    except ValueError:
        return None
    ambiguous = False
    if timezone != "UTC":
        zone = _zone(timezone)
        local = naive.replace(tzinfo=zone)
        in_utc = local.astimezone(UTC)
        if in_utc.astimezone(zone).replace(tzinfo=None) != naive:
            return None  # the clocks jumped over this time
        ambiguous = local.utcoffset() != local.replace(fold=1).utcoffset()
        naive = in_utc.replace(tzinfo=None)
    digits = f"{naive.year:04}{naive:%m%d%H%M%S}{fraction}".ljust(TIME_DIGITS, "0")
    return NameMatch(file_class, file_format, digits, ambiguous)


@lru_cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        msg = f"name_timezone {name!r} is not a known time zone; expected a name such as Europe/Berlin"
        raise ConfigurationError(msg) from error
