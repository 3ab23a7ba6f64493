"""The simulated clock and the names that a capture gives its files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from lakeward.model import TableId
    from lakeward.testing.simulator.options import SimulatorOptions

# Ten minutes before midnight: the first files already spill into the next day.
START = datetime(2024, 3, 26, 23, 50, tzinfo=UTC)
LONGEST_PAUSE_US = 90_000_000
TRANSACTION_FOLDER = "cdc"
_DELIMITERS = {"SLASH": "/", "DASH": "-", "UNDERSCORE": "_", "NONE": ""}
_DATE_PARTS = {
    "YYYYMMDD": ("%Y", "%m", "%d"), "YYYYMMDDHH": ("%Y", "%m", "%d", "%H"), "YYYYMM": ("%Y", "%m"),
    "MMYYYYDD": ("%m", "%Y", "%d"), "DDMMYYYY": ("%d", "%m", "%Y"),
}  # fmt: skip


class Clock:
    """Simulated time that only moves forward. A commit and a file name never share a moment."""

    def __init__(self, random: Random) -> None:
        self.now = START
        self._random = random
        self._changes = 0

    def commit(self) -> datetime:
        """Give the time of the next commit."""
        self.now += timedelta(microseconds=self._random.randint(1, LONGEST_PAUSE_US))
        return self.now

    def write_file(self, digits: int = 3) -> datetime:
        """Give the time at which the next file is written, exact to so many digits of a second."""
        unit = 10 ** (6 - digits)
        later = self.now + timedelta(milliseconds=2)
        self.now = later - timedelta(microseconds=later.microsecond % unit)
        return self.now

    def change_sequence(self) -> str:
        """Give the next change's sequence: 16 digits of time, 19 of a counter."""
        self._changes += 1
        return f"{self.now:%Y%m%d%H%M%S}{self.now.microsecond // 10_000:02}{self._changes:019}"


def name_time(moment: datetime) -> str:
    """Give a moment as the 20 digits by which files are ordered."""
    return f"{moment:%Y%m%d%H%M%S%f}"


def change_path(
    table: TableId, options: SimulatorOptions, written: datetime, commit: datetime, suffix: str, digits: int
) -> str:
    """Name a change file: the time of writing in the name, the day of the commit in the folder."""
    name = f"{written:%Y%m%d-%H%M%S}{written.microsecond:06}"[: 15 + digits]
    return f"{table.schema}/{table.name}/{_date_folder(options, commit)}{name}{suffix}"


def transaction_path(written: datetime, suffix: str) -> str:
    """Name a file that holds the changes of all tables."""
    return f"{TRANSACTION_FOLDER}/CDC_TXN-{written:%Y%m%d%H%M%S}{written.microsecond // 1000:03}{suffix}"


def load_paths(table: TableId, options: SimulatorOptions, parts: int, suffix: str) -> list[str]:
    """Name load parts: hexadecimal counters, on two segments if the load ran in parallel."""
    names = []
    for part in range(parts):
        segment, place = part % 2 + 1, part // 2
        if options.segments == "none":
            prefix, place = "", part
        else:
            prefix = f"SEGMENT{segment}_" if options.segments == "prefix" else f"part_{segment}/"
        names.append(f"{table.schema}/{table.name}/{prefix}LOAD{options.load_start + place:08X}{suffix}")
    return names


def _date_folder(options: SimulatorOptions, commit: datetime) -> str:
    if options.date_folders is None:
        return ""
    parts = [commit.strftime(part) for part in _DATE_PARTS[options.date_folders]]
    return _DELIMITERS[options.date_delimiter].join(parts) + "/"
