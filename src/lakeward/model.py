"""The terms of the domain as plain values: tables, files, operations, places in the total order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from lakeward.documents import Record
from lakeward.errors import ConfigurationError
from lakeward.text import name_problem

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
CHANGELOG_SUFFIX = "_changes"
HISTORY_SUFFIX = "_history"
# Suffixes of namespaces for what Lakeward keeps beside mirrors.
RESERVED_SUFFIXES = {CHANGELOG_SUFFIX: "changelogs", HISTORY_SUFFIX: "histories"}
# Replication tools write a change within this time of its commit, or are known to lag behind.
USUAL_LAG_US = 3_600_000_000
_OTHER_NAME = "declare the table under another schema name and set its path:"


@dataclass(frozen=True, order=True)
class TableId:
    """A source table, and by the same two names its mirror in the lake."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Read ``schema.table``; the first dot separates."""
        schema, dot, name = text.partition(".")
        if not (schema and dot and name):
            msg = f"{text!r} is not a table name; expected schema.table"
            raise ConfigurationError(msg, hint="lakeward tables list")
        table = cls(schema, name)
        table.require_usable()
        return table

    def require_usable(self) -> None:
        """Refuse names that some part of the lake cannot distinguish from another table's."""
        for suffix, content in RESERVED_SUFFIXES.items():
            if self.schema.endswith(suffix):
                msg = (
                    f"schema {self.schema!r} cannot be mirrored under its own name: namespaces ending in "
                    f"{suffix!r} hold {content}"
                )
                raise ConfigurationError(msg, hint=_OTHER_NAME)
        if "." in self.schema:
            # a.b.c is the table b.c of schema a, and catalogs take a.b for a namespace within another.
            msg = f"schema {self.schema!r} cannot be mirrored under its own name: a dot ends a schema's name"
            raise ConfigurationError(msg, hint=_OTHER_NAME)
        for part in (self.schema, self.name):
            if any(character in part for character in "/\\\0") or part in (".", ".."):
                msg = f"{self} cannot name a table: {part!r} holds a character that paths reserve"
                raise ConfigurationError(msg)
            if problem := name_problem(part):
                msg = f"{part!r} cannot name a table: {problem}"
                raise ConfigurationError(msg, hint="let the capture write it to a folder with another name")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


class FileClass(StrEnum):
    """The class of a landing file, by its name."""

    LOAD = "load"
    CHANGES = "changes"
    TRANSACTIONS = "transactions"


class Operation(StrEnum):
    """The operation of a change on its row."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


class OrderBy(StrEnum):
    """The order column that places a generation's changes; fixed per generation."""

    SEQUENCE = "sequence"
    TIMESTAMP = "timestamp"
    NONE = "none"


class OpKind(StrEnum):
    """The kind of an op: a numbered, all-or-nothing step on a table."""

    LOAD = "load"
    BATCH = "batch"
    TRUNCATE = "truncate"
    RETRY = "retry"
    VOID = "void"
    UNDO = "undo"
    REPAIR = "repair"
    ERASE = "erase"
    RESET = "reset"


class Disposition(StrEnum):
    """The decision on a landing file.

    ``SUPERSEDED`` marks change files of a replaced generation and load files that are not part of the current load.
    A load file that was written again with the same bytes is ``REWRITTEN`` (if it is part of the load) or ``RETURNED``
    (if it is not) until it is decided whether that was a reload. ``ARRIVED`` change files were seen and received their
    number in the order of files; they wait. ``CONTAINED`` marks change files that were not read: the adopted lake of
    another system holds their changes.
    """

    CONSUMED = "consumed"
    EMPTY = "empty"
    SUPERSEDED = "superseded"
    REDELIVERED = "redelivered"
    REWRITTEN = "rewritten"
    RETURNED = "returned"
    FENCED = "fenced"
    ARRIVED = "arrived"
    CONTAINED = "contained"

    @property
    def is_note(self) -> bool:
        """Whether it records a later sighting of a file that an earlier op had decided on."""
        return self in (Disposition.REDELIVERED, Disposition.REWRITTEN, Disposition.RETURNED)


@dataclass(frozen=True)
class FileIdentity(Record):
    """The identity of a file's content, known without reading it; compared before and after the file is read."""

    size: int
    mtime_us: int
    etag: str | None = None


@dataclass(frozen=True)
class LandingFile:
    """A change or load file as it was listed.

    ``path`` is relative to the landing root with forward slashes: the ledger's key. ``time`` is the file's place in the
    order of files as text, empty for load parts: the name's time as 20 digits (``YYYYMMDDHHMMSS`` and fraction), or
    where ``files.order`` decides, what :mod:`lakeward.formats.file_order` makes of its path or number.
    """

    path: str
    location: str
    file_class: FileClass
    time: str
    identity: FileIdentity

    @property
    def order(self) -> tuple[str, str]:
        """File order: the file's place, then the relative path."""
        return (self.time, self.path)


@dataclass(frozen=True)
class LedgerEntry:
    """The record of a consumed file in the changelog's control rows."""

    path: str
    identity: FileIdentity
    content_hash: str
    rows: int
    disposition: Disposition
    generation: int
    op: int
    file_class: FileClass
    time: str


@dataclass(frozen=True, order=True)
class Place(Record):
    """A change's place in the total order of its generation.

    ``sequence`` is the order column as fixed-width text that sorts like the value, empty where the generation
    has none. Python compares these fields as Spark does: text by code point, which is UTF-8 byte order.
    """

    sequence: str
    file_time: str
    file: str
    row: int
    step: int = 0


@dataclass(frozen=True)
class Generation(Record, required=("order_by",), if_set=("timed_by_row", "adopted")):
    """One full load of a table and the changes that follow it.

    ``cut`` is the earliest place of a change file that belongs to it, by default a name's time; empty: every file does.
    ``emptied``
    marks a generation begun by a truncate. ``since`` is the moment at which it began if that is not the cut, in the
    same 20 digits. ``unseen`` marks one whose load was replaced by a reload before the first run: its content is
    unknown. ``load_from`` and ``load_to`` are the first and last time in the load's own rows, in microseconds since
    1970. Files named from ``undecided_from`` up to the cut may precede the load or follow it. ``timed_by_row``:
    rows of a part had different times, in this load or an earlier one, so that these are not the task's start; None
    where that is unknown. ``adopted``: its load is a lake that another system wrote.
    """

    number: int
    cut: str = ""
    order_by: OrderBy | None = None
    emptied: bool = False
    since: str = ""
    unseen: bool = False
    load_from: int | None = None
    load_to: int | None = None
    undecided_from: str = ""
    timed_by_row: bool | None = None
    adopted: bool | None = None

    def is_undecided(self, time: str) -> bool:
        """Whether a change file of this name time may precede the load as well as follow it."""
        return bool(self.undecided_from) and self.undecided_from <= time < self.cut

    @property
    def began(self) -> str:
        """The moment from which the generation is current, as 20 digits; empty: from the beginning."""
        return self.since or self.cut


@dataclass(frozen=True)
class Progress(Record, required=("op", "generations", "last_place", "newest_commit", "undone"), ignores_unknown=True):
    """A table's progress, derived from the changelog's control rows alone.

    ``generations`` holds every generation in order; ``last_place`` the greatest place logged in the newest one and
    ``newest_commit`` its latest commit time, in microseconds since 1970. ``undone`` are the ranges of op numbers, both
    ends included, that were undone. ``newest_file`` is the latest modification time among the
    newest generation's files, where it is known. ``moved_until`` is the latest commit time, in microseconds since 1970,
    of an op in which rows changed their keys: later rows of that commit are read together with its first.
    ``rows_ignored`` counts the updates and deletes of the newest generation that were left out because the table has
    no key.
    """

    op: int = 0
    generations: tuple[Generation, ...] = ()
    last_place: Place | None = None
    newest_commit: int | None = None
    undone: tuple[tuple[int, int], ...] = ()
    newest_file: int | None = None
    moved_until: int | None = None
    rows_ignored: int = 0

    @property
    def generation(self) -> Generation | None:
        """The newest generation, None before the first op."""
        return self.generations[-1] if self.generations else None

    def after_undoing(self, op: int, *, back_to: int) -> Progress:
        """Return the progress after op number ``op`` undid every op after ``back_to``, whose progress this is."""
        return replace(self, op=op, undone=(*self.undone, (back_to + 1, op - 1)))


def micros_of(moment: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def utc_time(micros: int) -> datetime:
    """Return the time so many microseconds after the beginning of 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def digits_micros(digits: str) -> int:
    """Return the moment of 20 digits, as in the times of file names, in microseconds since 1970."""
    return micros_of(datetime.strptime(digits.ljust(20, "0")[:20], "%Y%m%d%H%M%S%f").replace(tzinfo=UTC))


def time_digits(micros: int) -> str:
    """Return a moment, in microseconds since 1970, as the 20 digits of the times in file names."""
    moment = utc_time(micros)
    return f"{moment.year:04}{moment:%m%d%H%M%S%f}"
