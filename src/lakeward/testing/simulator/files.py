"""A landing file before it is written: its content, its columns, what its rows mean, its name and time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from lakeward.model import FileClass, Operation, Place
from lakeward.testing.oracle import ModelChange, Row, move

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

    from lakeward.columns import Column
    from lakeward.model import TableId
    from lakeward.testing.oracle import Key
    from lakeward.testing.simulator.options import SimulatorOptions
    from lakeward.testing.simulator.tables import TableSpec


OPERATION_COLUMN = "Op"
SEQUENCE_COLUMN = "AR_H_CHANGE_SEQ"
BEFORE_PREFIX = "BI_"
# Not an operation of any capture: a row with it is bad.
BAD_OPERATION = "X"


class ChangeRow(NamedTuple):
    """One change as the source made it.

    ``image`` is the row after the change, of a delete the row before it. ``hidden`` columns did not change and may
    be omitted where the file's format has a token for that; a delete hides all but its key. A bad row is written with
    an unknown operation and has no effect.
    """

    table: TableSpec
    operation: Operation
    image: Row
    before: Row | None
    hidden: frozenset[str]
    commit: datetime
    sequence: str
    is_bad: bool = False

    @property
    def letter(self) -> str:
        """The operation as files write it."""
        return BAD_OPERATION if self.is_bad else str(self.operation)

    @property
    def key(self) -> Key:
        """The key the row has after the change."""
        return tuple(self.image[name] for name in self.table.key)


@dataclass(frozen=True)
class SourceFile:
    """A landing file; ``table`` is None for a transaction file, whose rows name their tables.

    ``load_times`` are the times of load rows, row by row; without them every row has the time of the file.
    """

    options: SimulatorOptions
    file_class: FileClass
    path: str
    written: datetime
    time: str
    format: Literal["csv", "parquet"]
    table: TableSpec | None
    columns: tuple[Column, ...] = ()
    generation: int = 1
    load: tuple[Row, ...] = ()
    changes: tuple[ChangeRow, ...] = ()
    load_times: tuple[datetime, ...] = ()

    @property
    def load_stamps(self) -> list[str]:
        """The timestamp column of the load rows."""
        return [commit_text(moment) for moment in self.load_times or [self.written] * len(self.load)]

    @property
    def marks_unchanged(self) -> bool:
        """Whether the file can mark any column as unchanged."""
        return self.format == "csv" and self.options.unchanged is not None

    def columns_of(self, table: TableSpec) -> tuple[Column, ...]:
        """Return the columns of a table that the file has."""
        return self.columns if self.table is not None else table.columns

    def tables(self) -> Mapping[TableId, TableSpec]:
        """Return the tables that the file has rows of."""
        if self.file_class is FileClass.LOAD and self.table is not None:
            return {self.table.id: self.table}
        return {change.table.id: change.table for change in self.changes}

    def before_columns(self, table: TableSpec) -> tuple[Column, ...]:
        """Return the columns of which the file has before images."""
        if self.options.before_image == "none" or self.file_class is FileClass.LOAD:
            return ()
        if self.options.before_image == "all":
            return self.columns_of(table)
        return tuple(column for column in self.columns_of(table) if column.name in table.key)

    def omitted(self, change: ChangeRow) -> frozenset[str]:
        """Return the columns that a row of this file does not set."""
        if change.operation is not Operation.UPDATE:
            return frozenset()
        by_null = change.table.null_unchanged
        nulls = {name for name in by_null if name in change.hidden or change.image.get(name) is None}
        return frozenset(nulls | change.hidden) if self.marks_unchanged else frozenset(nulls)

    def model_changes(self, table: TableSpec, *, until: datetime | None = None) -> Iterator[ModelChange]:
        """Yield what the file's rows of one table mean, each at its place in the total order.

        ``until`` leaves out what was committed after it.
        """
        absent = {column.name for column in table.all_columns} - {column.name for column in self.columns_of(table)}
        for number, change in enumerate(self.changes):
            if change.table is not table or change.is_bad or (until is not None and change.commit > until):
                continue
            place = Place(self._order_value(change), self.time, self.path, number)
            unchanged = self.omitted(change) | absent
            commit = change.commit if self.options.timestamp_column else None
            if change.operation is Operation.DELETE:
                shown = {name: value for name, value in change.image.items() if name not in change.hidden}
                before = shown if any(shown[name] is not None for name in shown if name not in table.key) else None
                yield ModelChange(place, change.operation, change.key, before=before, commit=commit)
            elif (old := self._old_key(change)) is not None:
                image = self._before_image(change)
                yield from move(place, old, change.key, change.image, unchanged, before=image, commit=commit)
            else:
                yield ModelChange(place, change.operation, change.key, change.image, unchanged, commit=commit)

    def _order_value(self, change: ChangeRow) -> str:
        if self.options.change_sequence:
            return change.sequence
        return commit_text(change.commit) if self.options.timestamp_column else ""

    def _before_image(self, change: ChangeRow) -> Row | None:
        """Return the before image of a row, without NULLs unless they are declared to be values."""
        if self.options.before_image != "all" or change.before is None:
            return None
        columns = [column.name for column in self.before_columns(change.table)]
        found = {name: change.before.get(name) for name in columns}
        return found if nulls_are_values(change.table, self.options) else _without_nulls(found)

    def _old_key(self, change: ChangeRow) -> Key | None:
        """Return the key a row moved away from, where the file shows it."""
        if not self.before_columns(change.table) or change.operation is not Operation.UPDATE or change.before is None:
            return None
        old = tuple(change.before[name] for name in change.table.key)
        return None if old == change.key else old


def nulls_are_values(table: TableSpec, options: SimulatorOptions) -> bool:
    """Whether NULL in a before image is a value, without which a change of a NULL key is not visible."""
    return table.nullable_key and options.change_keys and not options.odd_operations


def _without_nulls(row: Row) -> Row | None:
    return {name: value for name, value in row.items() if value is not None} or None


def commit_text(moment: datetime) -> str:
    """Return a commit time as DMS writes it."""
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def column_names(file: SourceFile, table: TableSpec) -> list[str]:
    """Return the names of a file's columns in order, the capture's own ones included."""
    options = file.options
    has_operation = options.op_in_load if file.file_class is FileClass.LOAD else options.op_in_changes
    names = [OPERATION_COLUMN] if has_operation else []
    names += [options.timestamp_column] if options.timestamp_column else []
    names += [column.name for column in file.columns_of(table)]
    names += [SEQUENCE_COLUMN] if options.change_sequence else []
    return [*names, *(BEFORE_PREFIX + column.name for column in file.before_columns(table))]


# The simulated clock, and the names of files.
# Ten minutes before midnight: the first files already reach the next day.
START = datetime(2024, 3, 26, 23, 50, tzinfo=UTC)
LONGEST_PAUSE_US = 90_000_000
TRANSACTION_FOLDER = "cdc"
_DELIMITERS = {"SLASH": "/", "DASH": "-", "UNDERSCORE": "_", "NONE": ""}
_DATE_PARTS = {
    "YYYYMMDD": ("%Y", "%m", "%d"), "YYYYMMDDHH": ("%Y", "%m", "%d", "%H"), "YYYYMM": ("%Y", "%m"),
    "MMYYYYDD": ("%m", "%Y", "%d"), "DDMMYYYY": ("%d", "%m", "%Y"),
}  # fmt: skip


class SimulatedClock:
    """Simulated time that only moves forward. A commit and a file name never share a moment."""

    def __init__(self, random: Random) -> None:
        self.now = START
        self._random = random
        self._changes = 0

    def commit(self) -> datetime:
        """Return the time of the next commit."""
        self.now += timedelta(microseconds=self._random.randint(1, LONGEST_PAUSE_US))
        return self.now

    def write_file(self, digits: int = 3) -> datetime:
        """Return the time at which the next file is written, exact to so many digits of a second."""
        unit = 10 ** (6 - digits)
        later = self.now + timedelta(milliseconds=2)
        self.now = later - timedelta(microseconds=later.microsecond % unit)
        return self.now

    def change_sequence(self) -> str:
        """Return the next change's sequence: 16 digits of time, 19 of a counter."""
        self._changes += 1
        return f"{self.now:%Y%m%d%H%M%S}{self.now.microsecond // 10_000:02}{self._changes:019}"


def name_time(moment: datetime) -> str:
    """Return a moment as the 20 digits by which files are ordered."""
    return f"{moment:%Y%m%d%H%M%S%f}"


def change_path(
    table: TableId, options: SimulatorOptions, written: datetime, commit: datetime, suffix: str, digits: int
) -> str:
    """Return the path of a change file: the time of writing in the name, the day of the commit in the folder."""
    name = f"{written:%Y%m%d-%H%M%S}{written.microsecond:06}"[: 15 + digits]
    return f"{table.schema}/{table.name}/{_date_folder(options, commit)}{name}{suffix}"


def transaction_path(written: datetime, suffix: str) -> str:
    """Return the path of a file with the changes of all tables."""
    return f"{TRANSACTION_FOLDER}/CDC_TXN-{written:%Y%m%d%H%M%S}{written.microsecond // 1000:03}{suffix}"


def load_paths(table: TableId, options: SimulatorOptions, parts: int, suffix: str) -> list[str]:
    """Return the paths of load parts: hexadecimal counters, in two segments if the load ran in parallel."""
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
