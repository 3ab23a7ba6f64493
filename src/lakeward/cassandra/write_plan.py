"""The plan that tasks need to write a table, the dead letters of rejected rows, and the report of a job."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward import schemas as S
from lakeward.cassandra.schema import ColumnKind
from lakeward.diffing.stored.addresses import absolute
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError
from lakeward.storage.filesystem import local_path
from lakeward.storage.s3 import S3FileSystem, is_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.cassandra.budget import BudgetAddress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import CqlType, TableName
    from lakeward.cassandra.jobs import Job
    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.config import Config
    from lakeward.config.services import S3Settings


class WriteStatus(StrEnum):
    """The outcome of a job."""

    DONE = "done"
    NOTHING_TO_DO = "nothing to do"
    DRY_RUN = "dry run"
    REJECTED = "rejected rows"


@dataclass(frozen=True)
class WriteReport(Document):
    """What was written, or would be: rows by what happened to them, write units, and how long it took.

    ``skipped_expired`` are rows of which every cell had expired. ``rejected`` are in files below ``dead_letters``.
    ``seconds`` of a dry run is about how long the job would take. ``resumed`` is the number of units that an earlier
    attempt had done; their rows are not counted again.
    """

    into: str
    status: WriteStatus
    upserted: int = 0
    deleted: int = 0
    skipped_expired: int = 0
    rejected: int = 0
    dead_letters: str | None = None
    units: float = 0.0
    seconds: float = 0.0
    timestamp: int | None = None
    resumed: int = 0
    warnings: tuple[str, ...] = ()


FOLDER = "lakeward-dead-letters"
_WHERE = "--dead-letters FOLDER   (a local one that all workers share, or s3://…)"


@dataclass(frozen=True)
class DeadLetterPlace:
    """The folder for a job's dead letters: a local one, or one in S3."""

    folder: str
    s3: S3FileSystem | None = None

    @classmethod
    def at(cls, folder: str, s3: S3Settings) -> DeadLetterPlace:
        """Return a folder that tasks can write to.

        Raises:
            ConfigurationError: it is neither local nor in S3, or a local one that cannot be written to.
        """
        if is_s3(folder):
            return cls(folder.rstrip("/"), S3FileSystem(s3, normalizes=True))
        if "://" in folder and not folder.startswith("file:"):
            msg = f"dead letters cannot be written to {folder}"
            raise ConfigurationError(msg, hint=_WHERE)
        path = str(local_path(folder))
        _require_writable(path)
        return cls(path)


def _require_writable(folder: str) -> None:
    """Check before the first row is written that rejected rows could be kept; nothing is created."""
    there = folder
    while not os.path.exists(there):  # noqa: PTH110
        there = os.path.dirname(there)  # noqa: PTH120
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):  # noqa: PTH112
        msg = f"rejected rows could not be kept in {folder}: {there} is not a writable folder"
        raise ConfigurationError(msg, hint=_WHERE)


def place_for(spark: SparkSession, config: Config, folder: str | None, source: str, job: Job) -> DeadLetterPlace:
    """Return the place for what a job rejects: beside a source in S3, else below where the command was started.

    Raises:
        ConfigurationError: nothing can be written there; or tasks run on other machines, which do not share it.
    """
    if folder is not None:
        return DeadLetterPlace.at(f"{absolute(folder).rstrip('/')}/{job.id}", config.s3)
    if is_s3(source):
        parent, _, own = source.rstrip("/").rpartition("/")
        return DeadLetterPlace.at(f"{parent}/_{FOLDER}/{own}-{job.id}", config.s3)
    if not str(spark.sparkContext.master).startswith("local"):
        msg = "Spark runs on other machines too, and no folder for rejected rows is named"
        raise ConfigurationError(msg, hint=_WHERE)
    return DeadLetterPlace.at(absolute(f"{FOLDER}/{job.id}"), config.s3)


class DeadLetters:
    """The dead letters of one task; the file is created with the first row."""

    def __init__(self, place: DeadLetterPlace, name: str) -> None:
        self._place, self._name = place, name
        self._lines: list[str] = []
        self._kept = 0

    def add(self, document: dict[str, Any]) -> None:
        """Add a row."""
        self._lines.append(json.dumps(document, ensure_ascii=False) + "\n")

    def keep(self) -> None:
        """Write the rows added since the last call; when this returns, they are durable."""
        if len(self._lines) == self._kept:
            return
        path = f"{self._place.folder}/{self._name}"
        if self._place.s3 is not None:
            # Objects cannot be appended to, and rejected rows are few: all of them are written again.
            self._place.s3.write_text(path, "".join(self._lines))
        else:
            self._append(path)
        self._kept = len(self._lines)

    def _append(self, path: str) -> None:
        try:
            os.makedirs(self._place.folder, exist_ok=True)  # noqa: PTH103
            with open(path, "a", encoding="utf-8") as out:  # noqa: PTH123
                out.writelines(self._lines[self._kept :])
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            msg = f"rejected rows cannot be kept in {path}: {error.strerror or error}"
            raise DataError(msg, hint=_WHERE) from error


INSERTED, CHANGED, DELETED = "I", "C", "D"
# Columns of the frame for tasks; values are found by position, so that no column name of a table can clash.
UNIT, ACTION, CHANGES = f"{S.PREFIX}unit", f"{S.PREFIX}action", f"{S.PREFIX}changes"
KEY, VALUE, WRITTEN, EXPIRY = "k", "v", "w", "e"


@dataclass(frozen=True)
class WriteColumn:
    """A column to write: the type of its values in the source, and in the target."""

    name: str
    kind: ColumnKind
    source: CqlType
    target: CqlType

    @property
    def is_key(self) -> bool:
        """Whether it is part of the primary key."""
        return self.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)

    @property
    def is_static(self) -> bool:
        """Whether it is a static column."""
        return self.kind is ColumnKind.STATIC

    @property
    def is_list(self) -> bool:
        """Whether writing it twice with one timestamp would duplicate its elements, which get server-side ids."""
        return self.target.name == "list" and self.target.is_multi_cell


@dataclass(frozen=True)
class WritePlan:
    """How rows are written: ``columns`` are the partition key, the clustering columns, then all others.

    ``has_static_rows`` is whether a row without a clustering key is the static part of its partition.
    ``is_timed`` is false where the server accepts no timestamps from clients.
    ``timestamp`` is that of every cell without a recorded one; ``attempt`` counts the attempts of the job.
    ``ttl`` is that of every cell, from the time at which it is written, 0 for one that stays; None: cells have their
    own expiry times, if ``has_expiries``. ``max_rejected`` is for the whole job. Without a ``budget`` everything is
    done except the writing.
    """

    address: ClusterAddress
    target: TableName
    columns: tuple[WriteColumn, ...]
    timestamp: int
    limits: WriteLimits
    job: Job
    ledger: TableName
    dead_letters: DeadLetterPlace
    attempt: int = 0
    max_rejected: int = 0
    budget: BudgetAddress | None = None
    has_actions: bool = False
    has_writetimes: bool = False
    has_expiries: bool = False
    ttl: int | None = None
    has_static_rows: bool = False
    is_timed: bool = True

    @property
    def keys(self) -> tuple[WriteColumn, ...]:
        """The columns of the primary key, in order."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def partition_key(self) -> tuple[WriteColumn, ...]:
        """The columns of the partition key, in order."""
        return tuple(column for column in self.columns if column.kind is ColumnKind.PARTITION_KEY)

    @property
    def values(self) -> tuple[WriteColumn, ...]:
        """The columns outside the primary key."""
        return tuple(column for column in self.columns if not column.is_key)

    @property
    def expires(self) -> bool:
        """Whether statements have a TTL."""
        return self.has_expiries or self.ttl is not None

    @property
    def columns_at_once(self) -> int | None:
        """The number of values that one statement may have; None: any number."""
        return self.limits.columns_with_ttl if self.expires else self.limits.columns
