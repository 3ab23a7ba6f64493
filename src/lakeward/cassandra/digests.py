"""The number of rows and a digest of each token range, for two tables that are compared.

Two clusters return the rows of a range in the same order (by token, then by the clustering columns), but in different
pages. A digest therefore does not depend on where batches end: every column is a few streams of bytes (which values are
null, how long they are, the values themselves), and each stream is hashed as a whole. Static rows are hashed
separately, since they come wherever a page begins. Both tables are read by the columns that they share, each in the
wider of its two types, so that equal values have equal bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.cassandra.connection import task_session
from lakeward.cassandra.read_plan import grouped
from lakeward.cassandra.snapshots import snapshot_arrow_schema, snapshot_struct
from lakeward.cassandra.values import widens
from lakeward.spark.errors import task_error, translated
from lakeward.spark.marks import marked_errors
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.cassandra.cql import CqlType
    from lakeward.cassandra.read_plan import ReadPlan, TokenRange
    from lakeward.cassandra.schema import TableSchema

_BYTES = 16


class RangeDigest:
    """A digest of rows that are added in order; ``clustering`` is the first clustering column, if there is one."""

    def __init__(self, columns: Sequence[str], clustering: str | None) -> None:
        self.rows = 0
        self._columns, self._clustering = columns, clustering
        self._streams: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        self.rows += batch.num_rows
        if self._clustering is None:
            self._add("rows", batch)
            return
        is_static = pc.is_null(batch.column(self._clustering))
        self._add("statics", batch.filter(is_static))
        self._add("rows", batch.filter(pc.invert(is_static)))

    def text(self) -> str:
        """Return the digest of all rows so far."""
        whole = hashlib.blake2b(digest_size=_BYTES)
        for name in sorted(self._streams):
            whole.update(name.encode() + b"\0" + self._streams[name].digest())
        return whole.hexdigest()

    def _add(self, what: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for at, name in enumerate(self._columns):
                self._values(f"{what}/{at}", batch.column(name))

    def _feed(self, stream: str, values: pa.Array) -> None:
        """Hash the bytes of numbers, none of which is null."""
        if stream not in self._streams:
            self._streams[stream] = hashlib.blake2b(digest_size=_BYTES)
        self._streams[stream].update(values.to_numpy(zero_copy_only=False).tobytes())

    def _values(self, path: str, values: pa.Array) -> None:
        self._feed(f"{path}?", pc.is_valid(values).cast(pa.uint8()))
        there, kind = values.drop_null(), values.type
        if pa.types.is_struct(kind):
            for at, part in enumerate(there.flatten()):
                self._values(f"{path}.{at}", part)
        elif pa.types.is_map(kind):
            first, last = _span(there)
            self._feed(f"{path}#", _lengths(there))
            self._values(f"{path}[key]", there.keys.slice(first, last - first))
            self._values(f"{path}[value]", there.items.slice(first, last - first))
        elif pa.types.is_list(kind):
            self._feed(f"{path}#", _lengths(there))
            self._values(f"{path}[]", there.flatten())
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._feed(f"{path}#", _lengths(there))
            self._feed(path, _bytes(there))
        else:
            self._feed(path, there.cast(pa.uint8()) if pa.types.is_boolean(kind) else there)


def _lengths(values: pa.Array) -> pa.Array:
    """Return how long every text, list or map is."""
    ends = _offsets(values)
    return pc.subtract(ends.slice(1), ends.slice(0, len(values)))


def _offsets(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([0], pa.int32())
    return pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset)


def _span(values: pa.Array) -> tuple[int, int]:
    """Return where the content of an array slice begins and ends in its buffer."""
    ends = _offsets(values)
    return ends[0].as_py(), ends[-1].as_py()


def _bytes(values: pa.Array) -> pa.Array:
    """Return the bytes of all texts, one after the other."""
    first, last = _span(values)
    content = values.buffers()[2] if len(values) else None
    if content is None:
        return pa.array([], pa.uint8())
    return pa.Array.from_buffers(pa.uint8(), last - first, [None, content], offset=first)


def shared(schema: TableSchema, other: TableSchema) -> TableSchema:
    """Return a table with only the columns that the other one also has."""
    return replace(schema, columns=tuple(own for own in schema.columns if own.name in other.names))


def widened(schema: TableSchema, other: TableSchema) -> TableSchema:
    """Return a table with the types of another one that has the same columns, where they are wider."""
    columns = tuple(replace(own, type=_wider(own.type, other.column(own.name).type)) for own in schema.columns)
    return replace(schema, columns=columns)


def _wider(own: CqlType, other: CqlType) -> CqlType:
    # User-defined types belong to the keyspace of one of the tables.
    return other if widens(own, other) and not (_is_defined(own) or _is_defined(other)) else own


def _is_defined(cql_type: CqlType) -> bool:
    return cql_type.udt is not None or any(map(_is_defined, cql_type.parameters))


def fitted_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in wider types."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def fitted_frame(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """Return rows in wider types."""
    struct = snapshot_struct(schema)
    if frame.schema == struct:
        return frame
    return frame.select(*[column(field.name).cast(field.dataType).alias(field.name) for field in struct.fields])


@dataclass(frozen=True)
class RangeContent:
    """The number of rows of a range, and their digest."""

    rows: int
    digest: str


def look(
    spark: SparkSession,
    plans: Sequence[ReadPlan],
    shown: Sequence[TableSchema],
    ranges: Sequence[TokenRange],
    tasks: int,
) -> list[dict[TokenRange, RangeContent]]:
    """Return the content of every range for each of the tables; one job reads all of them at the same time.

    ``shown`` are the tables with the types in which they are compared.

    Raises:
        RetriableError: a cluster did not answer.
    """
    groups = grouped(ranges, tasks)
    # Side by side: a range is read from both tables at about the same time.
    work = [(at, group) for group in groups for at in range(len(plans))]
    found: list[dict[TokenRange, RangeContent]] = [{} for _ in plans]
    if work:
        with translated(task_error()):
            looks = spark.sparkContext.parallelize(work, len(work)).flatMap(partial(_in_task, plans, shown)).collect()
        for at, token_range, content in looks:
            found[at][token_range] = content
    return found


def differing(looks: Sequence[Mapping[TokenRange, RangeContent]]) -> list[TokenRange]:
    """Return the ranges whose content is not the same in all tables."""
    first, *others = looks
    return [
        token_range for token_range, content in first.items() if any(other[token_range] != content for other in others)
    ]


def _in_task(
    plans: Sequence[ReadPlan], shown: Sequence[TableSchema], work: tuple[int, tuple[TokenRange, ...]]
) -> list[tuple[int, TokenRange, RangeContent]]:
    from lakeward.cassandra.reading import read_ranges

    at, ranges = work
    plan, schema = plans[at], snapshot_arrow_schema(shown[at])
    digests = {token_range: digest_for(plan, plans[0]) for token_range in ranges}
    with marked_errors():
        for token_range, batch in read_ranges(task_session(plan.address), plan, ranges):
            digests[token_range].add(fitted_batch(batch, schema))
    return [(at, token_range, RangeContent(digest.rows, digest.text())) for token_range, digest in digests.items()]


def digest_for(plan: ReadPlan, first: ReadPlan) -> RangeDigest:
    """Return an empty digest of a range, with the columns in the order of the first table."""
    clustering = plan.schema.clustering
    return RangeDigest([selected.name for selected in first.selected], clustering[0].name if clustering else None)
