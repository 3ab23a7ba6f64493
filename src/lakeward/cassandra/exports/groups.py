"""Groups of ranges: what one task reads, and the file that it leaves."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.cassandra.connecting import task_session
from lakeward.cassandra.reading.ranges import read_ranges
from lakeward.spark.errors import store_errors, task_error, translated
from lakeward.spark.marks import marked_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakeward.cassandra.exports.places import Place
    from lakeward.cassandra.ranges import TokenRange
    from lakeward.cassandra.reading.plan import ReadPlan

# Rows, or bytes of them, that are held until they are written: large enough to be packed and read well.
_ROW_GROUP_ROWS, _ROW_GROUP_BYTES = 100_000, 64 * 2**20


_OWN_NAME = re.compile(r"\.?group-\d{5,}(-[0-9a-f]{32})?(-[0-9a-f]{8})?\.(parquet|json)(\.[0-9a-f]{8})?")


def is_group_file(path: str) -> bool:
    """Whether a file has a name as tasks name what they have read, its notes and its drafts."""
    return _OWN_NAME.fullmatch(path.rpartition("/")[2]) is not None


@dataclass(frozen=True)
class Group:
    """Ranges that are read by one task into one file; ``export`` is the number of the export that they are of."""

    number: int
    ranges: tuple[TokenRange, ...]
    export: str = ""

    @property
    def name(self) -> str:
        """What the names of its files begin with; those of two exports in one folder differ."""
        return f"group-{self.number:05d}" + (f"-{self.export}" if self.export else "")

    @property
    def note(self) -> str:
        """The name of the file that says that it is read."""
        return f"{self.name}.json"


@dataclass(frozen=True)
class ReadGroup:
    """A group that was read: ``rows`` of each of its ranges; no ``file`` where there are none."""

    export: str
    number: int
    file: str | None
    bytes: int
    rows: tuple[int, ...]
    started: str
    ended: str

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ReadGroup:
        """Read what was written beside the file."""
        return cls(**{**document, "rows": tuple(document["rows"])})


def read_groups(
    spark: SparkSession, plan: ReadPlan, place: Place, groups: Sequence[Group], *, tasks: int | None = None
) -> list[ReadGroup]:
    """Read groups by tasks of Spark, each into a file with a note beside it; up to ``tasks`` of them at one time.

    Raises:
        ConfigurationError: the table changed while it was read, or the place cannot be written to.
        RetriableError: the cluster did not answer; what was read until then stays.
    """
    if not groups:
        return []
    slices = min(tasks or len(groups), len(groups))
    with translated(task_error()):
        return spark.sparkContext.parallelize(groups, slices).map(partial(_in_task, plan, place)).collect()


def _in_task(plan: ReadPlan, place: Place, group: Group) -> ReadGroup:
    with marked_errors(), store_errors(place.folder):
        return read_group(plan, place, group)


def read_group(plan: ReadPlan, place: Place, group: Group) -> ReadGroup:
    """Read a group into a file of its own, then say so in its note: who finds the note finds a whole file."""
    started = datetime.now(UTC).isoformat()
    # An attempt that was given up may still be writing: each has its own name, and the note says which one counts.
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
        stream.write(json.dumps(asdict(done)).encode())
    return done


def _write(plan: ReadPlan, place: Place, group: Group, name: str, rows: dict[TokenRange, int]) -> int:
    """Write the rows of a group, count them by range, and give the size of the file; 0 and no file without rows."""
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
    for one, batch in batches:
        rows[one] += batch.num_rows
        if batch.num_rows:
            yield batch


class _Writer:
    """Writes batches as a Parquet file, in row groups of a good size."""

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
