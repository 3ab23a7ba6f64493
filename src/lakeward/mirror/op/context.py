"""The context of work on one table: its settings, stores and limits, the user's options, and the chosen work."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakeward.arguments import COUNT, COUNT_OR_0, FLAG, NONE, OPTIONAL_TEXT, POSITIVE, TEXTS, check_fields
from lakeward.formats.dms.listing import parse_time, table_folder
from lakeward.spark.workspace import session_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from lakeward.config import Config, TableSettings
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.changelog import FileRecord, LoadDecision
    from lakeward.mirror.op.reading import TransactionCache
    from lakeward.mirror.op.steps import Step
    from lakeward.model import Generation, LandingFile, LedgerEntry, OpKind, TableId
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing


class Permission(Protocol):
    """The right to write a table."""

    def require(self) -> None:
        """Raise ConflictError when the right was lost."""


# A cut may name a file instead of a time: change files from it on follow the load, or those after it.
AT_FILE, BEHIND_FILE = "file", "after"
_PATHS = ("files", "keep_parts", "drop_parts", "accept_changed")


@dataclass(frozen=True)
class RunOptions:
    """The user's options for one run.

    ``files`` restricts the run to these files: paths under landing, local paths, file:// or s3:// URIs, as all files
    here; without tables it chooses those that read them. ``cut`` is the name time from which change files belong to
    a reload: ``2024-04-05T00:30:52`` (UTC unless it has an offset), a day, or as in file names,
    ``20240405-003052555``; it is kept as 20 digits in UTC. Where ``files.order`` is set, it is ``file:PATH`` of the
    first change file that belongs to the reload, or ``after:PATH`` of the last one that does not. ``same_load``: load
    parts with a new time and the old content were only copied again; ``reload``: the source was loaded again.
    ``keep_parts`` belong to the load that is taken, ``drop_parts`` do not. ``accept_changed`` names consumed files
    whose new content is to be ignored.
    ``max_files`` and ``max_bytes`` limit what the run reads over all its tables; ``time_limit`` replaces every table's
    own, ``attempts`` the configured number of further attempts after transient errors.
    """

    allow_deletes: bool = False
    files: frozenset[str] = frozenset()
    cut: str | None = None
    same_load: bool = False
    reload: bool = False
    keep_parts: frozenset[str] = frozenset()
    drop_parts: frozenset[str] = frozenset()
    accept_changed: frozenset[str] = frozenset()
    max_files: int | None = None
    max_bytes: int | None = None
    time_limit: float | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that would fail, or be misunderstood, only once tables are run."""
        check_fields(self, allow_deletes=FLAG, same_load=FLAG, reload=FLAG, cut=OPTIONAL_TEXT)
        check_fields(self, **dict.fromkeys(_PATHS, TEXTS))
        check_fields(self, max_files=COUNT | NONE, max_bytes=COUNT | NONE)
        check_fields(self, time_limit=POSITIVE | NONE, attempts=COUNT_OR_0 | NONE)
        for name in _PATHS:
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        if self.cut is not None and not self.cut.startswith((f"{AT_FILE}:", f"{BEHIND_FILE}:")):
            object.__setattr__(self, "cut", parse_time(self.cut))


def ignore_step(_step: Step) -> None:
    """Do nothing: the default listener."""


@dataclass(frozen=True)
class TableContext:
    """One table under its lease, with its own Spark session.

    ``reached`` is called with every step as it is completed: for progress, and for tests that inject crashes.
    ``again`` is the generation that the load in landing is known to begin, where files are read a second time.
    """

    table: TableId
    config: Config
    settings: TableSettings
    spark: SparkSession
    storage: Landing
    state: StateStore
    permission: Permission
    mirror: IcebergTable
    changelog: IcebergTable
    transactions: TransactionCache
    budget: RunBudget
    options: RunOptions = RunOptions()
    reached: Callable[[Step], None] = field(default=ignore_step)
    again: Generation | None = None

    def adapt_plans(self, *, wanted: bool) -> None:
        """Turn adaptive query execution on or off: it pays off for shuffles and only costs time without them."""
        self.spark.conf.set("spark.sql.adaptive.enabled", str(wanted).lower())

    def spark_settings(self, settings: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context manager that sets Spark settings and restores the previous ones."""
        return session_settings(self.spark, settings)

    @property
    def folder(self) -> str:
        """The table's folder under landing."""
        return table_folder(self.table, self.settings)


class RunBudget:
    """Files and bytes that a run may still read, shared by all its tables."""

    def __init__(self, *, files: int | None = None, size: int | None = None) -> None:
        """Start with a number of files and bytes; None sets no limit."""
        self._files = files
        self._bytes = size
        self._lock = threading.Lock()

    def admit(self, files: Sequence[LandingFile], *, whole: bool = False) -> tuple[LandingFile, ...]:
        """Return the first files that fit, and count them: all or none of a ``whole``, which may exceed the limit.

        A single file larger than all that is left passes while anything is left: otherwise it would wait forever.
        """
        with self._lock:
            admitted: list[LandingFile] = []
            for file in files:
                if not (whole and admitted) and self._is_spent():
                    break
                admitted.append(file)
                self._spend(file.identity.size)
            return tuple(admitted)

    def _is_spent(self) -> bool:
        return any(left is not None and left <= 0 for left in (self._files, self._bytes))

    def _spend(self, size: int) -> None:
        if self._files is not None:
            self._files -= 1
        if self._bytes is not None:
            self._bytes -= size


@dataclass(frozen=True)
class Work:
    """The input of one op. ``starts`` marks the first op of its generation, ``is_last`` that nothing else waits.

    ``notes`` are files that are recorded and not read, so that they need not be examined again: consumed files that
    were written again, and load files that are not part of the load. ``earlier`` is the generation before the first
    load seen, where that load is known to be a reload. ``decision`` explains how a load is interpreted; with
    ``needs_cut`` it is complete only once the load's rows were read. ``former`` maps the paths of parts that a reload
    shares unchanged with the load before to their ledger entries.
    """

    kind: OpKind
    generation: Generation
    files: tuple[LandingFile, ...] = ()
    starts: bool = False
    is_last: bool = False
    notes: tuple[FileRecord, ...] = ()
    earlier: tuple[Generation, ...] = ()
    decision: LoadDecision | None = None
    needs_cut: bool = False
    former: Mapping[str, LedgerEntry] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """There is input, but it has to wait for the ``reason``."""

    reason: str
