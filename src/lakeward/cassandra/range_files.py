"""Groups of token ranges: a task reads each into one file, which appears complete or not at all."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import NativeFile, OSFile

from lakeward.cassandra.connection import task_session
from lakeward.cassandra.reading import read_ranges
from lakeward.documents import Record
from lakeward.errors import ConfigurationError
from lakeward.spark.errors import store_errors, task_error, translated
from lakeward.spark.marks import marked_errors
from lakeward.storage.filesystem import TaskFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from lakeward.cassandra.read_plan import ReadPlan, TokenRange
    from lakeward.storage.filesystem import FileSystem


class TaskFolder(Protocol):
    """A folder that tasks write into; it is sent to them."""

    @property
    def folder(self) -> str:
        """The path of the file."""

    def new_file(self, name: str) -> AbstractContextManager[NativeFile]:
        """Return a stream to a new file, which exists once the block has ended without an error."""


def task_folder(store: FileSystem, folder: str) -> TaskFolder:
    """Return a folder as tasks write into it.

    Raises:
        ConfigurationError: only Spark itself can write there.
    """
    if isinstance(store, TaskFileSystem):
        return StoreTaskFolder(store, folder)
    _arrow_system(folder)
    return ArrowTaskFolder(folder)


@dataclass(frozen=True)
class StoreTaskFolder:
    """A folder of a file system that tasks use themselves; keys of S3 from the settings are sent along."""

    store: TaskFileSystem
    folder: str

    @contextmanager
    def new_file(self, name: str) -> Iterator[NativeFile]:
        """Write a local draft, which becomes the file at the end."""
        with self.store.new_file(f"{self.folder}/{name}") as draft, OSFile(draft, "wb") as stream:
            yield stream


@dataclass(frozen=True)
class ArrowTaskFolder:
    """Any other file system that Arrow can open by its address, such as HDFS or Google Cloud Storage."""

    folder: str

    @contextmanager
    def new_file(self, name: str) -> Iterator[NativeFile]:
        """Write a draft, and rename it at the end."""
        system, folder = _arrow_system(self.folder)
        system.create_dir(folder, recursive=True)
        draft = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
        try:
            with system.open_output_stream(draft) as stream:
                yield stream
            system.move(draft, f"{folder}/{name}")
        except BaseException:
            from pyarrow.fs import FileType

            if system.get_file_info(draft).type is not FileType.NotFound:
                system.delete_file(draft)
            raise


def _arrow_system(folder: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(folder)
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"tasks cannot write to {folder}: {error}"
        raise ConfigurationError(
            msg, hint="export to a local or shared path or to s3://…, and copy from there"
        ) from error
    return system, str(path)


# The size of row groups: large enough to compress and read well.
_ROW_GROUP_ROWS, _ROW_GROUP_BYTES = 100_000, 64 * 2**20


_OWN_NAME = re.compile(r"\.?group-\d{5,}(-[0-9a-f]{32})?(-[0-9a-f]{8})?\.(parquet|json)(\.[0-9a-f]{8}([0-9a-f]{4})?)?")


def is_group_file(path: str) -> bool:
    """Whether a file is named like those that tasks write: rows, notes and drafts."""
    return _OWN_NAME.fullmatch(path.rpartition("/")[2]) is not None


@dataclass(frozen=True)
class RangeGroup:
    """Ranges that one task reads into one file; ``export`` is the id of their export."""

    number: int
    ranges: tuple[TokenRange, ...]
    export: str = ""

    @property
    def name(self) -> str:
        """The prefix of its file names; those of two exports in one folder differ."""
        return f"group-{self.number:05d}" + (f"-{self.export}" if self.export else "")

    @property
    def note(self) -> str:
        """The name of the note, which is written once the group is read."""
        return f"{self.name}.json"


@dataclass(frozen=True)
class ReadGroup(Record):
    """A group that was read: ``rows`` of each of its ranges; no ``file`` where there are none."""

    export: str
    number: int
    file: str | None
    bytes: int
    rows: tuple[int, ...]
    started: str
    ended: str


def read_groups(
    spark: SparkSession, plan: ReadPlan, place: TaskFolder, groups: Sequence[RangeGroup], *, tasks: int | None = None
) -> list[ReadGroup]:
    """Read groups by Spark tasks, each into a file with a note beside it, up to ``tasks`` of them at a time.

    Raises:
        ConfigurationError: the table changed while it was read, or the place cannot be written to.
        RetriableError: the cluster did not answer; what was read until then stays.
    """
    if not groups:
        return []
    slices = min(tasks or len(groups), len(groups))
    with translated(task_error()):
        return spark.sparkContext.parallelize(groups, slices).map(partial(_in_task, plan, place)).collect()


def _in_task(plan: ReadPlan, place: TaskFolder, group: RangeGroup) -> ReadGroup:
    with marked_errors(), store_errors(place.folder):
        return read_group(plan, place, group)


def read_group(plan: ReadPlan, place: TaskFolder, group: RangeGroup) -> ReadGroup:
    """Read a group into a new file, then write its note: where the note exists, the file is complete."""
    started = datetime.now(UTC).isoformat()
    # An abandoned attempt may still be writing: each has its own file, and the note names the one that counts.
    name = f"{group.name}-{uuid.uuid4().hex[:8]}.parquet"
    rows = dict.fromkeys(group.ranges, 0)
    size = _write(plan, place, group, name, rows)
    done = ReadGroup(
        group.export,
        group.number,
        name if size else None,
        size,
        tuple(rows.values()),
        started,
        datetime.now(UTC).isoformat(),
    )
    with place.new_file(group.note) as stream:
        stream.write(json.dumps(done.to_dict()).encode())
    return done


def _write(plan: ReadPlan, place: TaskFolder, group: RangeGroup, name: str, rows: dict[TokenRange, int]) -> int:
    """Write the rows of a group, count them by range, and return the size of the file; no file and 0 without rows."""
    found = _counted(read_ranges(task_session(plan.address), plan, group.ranges), rows)
    first = next(found, None)
    if first is None:
        return 0
    with place.new_file(name) as stream:
        with _Writer(stream, first.schema) as writer:
            for batch in chain([first], found):
                writer.add(batch)
        return int(stream.tell())


def _counted(
    batches: Iterable[tuple[TokenRange, pa.RecordBatch]], rows: dict[TokenRange, int]
) -> Iterator[pa.RecordBatch]:
    for token_range, batch in batches:
        rows[token_range] += batch.num_rows
        if batch.num_rows:
            yield batch


class _Writer:
    """A Parquet file that is written in row groups of a good size."""

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = pq.ParquetWriter(stream, schema, compression="snappy")
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            self._flush()
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self._rows)
        self._held, self._rows, self._bytes = [], 0, 0
