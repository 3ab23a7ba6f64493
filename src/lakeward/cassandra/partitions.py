"""The sizes of partitions, found while ranges of a table are read: a partition lies in one range, its rows in order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakeward.cassandra.conversion import cql_literal
from lakeward.cassandra.values import is_key_text, key_value
from lakeward.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lakeward.cassandra.schema import CqlColumn, TableSchema

BY_ROWS, BY_BYTES = "rows", "bytes"
MEASURES = (BY_ROWS, BY_BYTES)


@dataclass(frozen=True)
class PartitionSize(Document):
    """A partition: its key, each column as a CQL literal, its rows, and the bytes of their values if they were read.

    Static values count once. Bytes are those of values as they are read: without timestamps, indexes and compression.
    """

    key: dict[str, str]
    rows: int
    bytes: int | None = None

    def measure(self, by: str) -> int:
        """Return its rows or its bytes."""
        return self.rows if by == BY_ROWS else self.bytes or 0


def largest(found: Iterable[PartitionSize], limit: int, by: str) -> list[PartitionSize]:
    """Return the largest partitions, those of the same size in the order of their keys."""
    return heapq.nsmallest(limit, found, key=lambda size: (-size.measure(by), list(size.key.items())))


@dataclass(frozen=True)
class TaskPartitions:
    """What a task found: its rows and partitions, and the largest of them."""

    rows: int
    partitions: int
    largest: list[PartitionSize]


class PartitionTally:
    """Counts rows and partitions of ranges and keeps the largest ones: memory does not grow with the table.

    Rows are those with a complete key. A partition that has only static values counts as a partition without rows.
    """

    def __init__(self, schema: TableSchema, limit: int = 0, by: str = BY_ROWS) -> None:
        self._key, self._limit, self._by = schema.partition_key, limit, by
        self._clustering = schema.clustering[0].name if schema.clustering else None
        self._statics = [own.name for own in schema.statics]
        # For each range, the partition that may go on in its next batch.
        self._open: dict[Any, tuple[tuple[Any, ...], int, int]] = {}
        self._heap: list[tuple[int, int, PartitionSize]] = []
        self._rows = self._partitions = 0

    def add(self, place: Any, batch: pa.RecordBatch) -> None:
        """Add the next rows of the range ``place``, in which every row has the static values of its partition."""
        if not batch.num_rows:
            return
        keys = list(zip(*[batch.column(own.name).to_pylist() for own in self._key], strict=True))
        starts = [0, *[at for at, (last, key) in enumerate(pairwise(keys), start=1) if last != key]]
        rows, own_bytes, static_bytes = self._row_counts(batch), *self._bytes(batch)
        for start, end in pairwise([*starts, batch.num_rows]):
            before = self._open.get(place)
            counted, size = int(rows[end] - rows[start]), int(own_bytes[end] - own_bytes[start])
            if before is not None and before[0] == keys[start]:
                self._open[place] = (before[0], before[1] + counted, before[2] + size)
                continue
            if before is not None:
                self._close(before)
            statics = int(static_bytes[start + 1] - static_bytes[start])
            self._open[place] = (keys[start], counted, size + statics)

    def result(self) -> TaskPartitions:
        """Return what was found in all batches."""
        for partition in self._open.values():
            self._close(partition)
        self._open = {}
        return TaskPartitions(self._rows, self._partitions, [size for _, _, size in self._heap])

    def _row_counts(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the number of rows with a complete key before each place of a batch."""
        if self._clustering is None:
            return np.arange(batch.num_rows + 1)
        return _sums(batch.column(self._clustering).is_valid().to_numpy(zero_copy_only=False).astype(np.int64))

    def _bytes(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the bytes of all values before each place of a batch, static ones apart."""
        found = {True: np.zeros(batch.num_rows + 1, np.int64), False: np.zeros(batch.num_rows + 1, np.int64)}
        for name in batch.schema.names if self._by == BY_BYTES else ():
            found[name in self._statics] += bytes_before(batch.column(name))
        return found[False], found[True]

    def _close(self, partition: tuple[tuple[Any, ...], int, int]) -> None:
        key, rows, size = partition
        self._rows, self._partitions = self._rows + rows, self._partitions + 1
        measure = rows if self._by == BY_ROWS else size
        if not self._limit or (len(self._heap) == self._limit and measure <= self._heap[0][0]):
            return
        found = PartitionSize(_shown_key(self._key, key), rows, size if self._by == BY_BYTES else None)
        # The number decides between equal measures: sizes have no order.
        heapq.heappush(self._heap, (measure, -self._partitions, found))
        if len(self._heap) > self._limit:
            heapq.heappop(self._heap)


def _shown_key(columns: Sequence[CqlColumn], values: Sequence[Any]) -> dict[str, str]:
    return {own.name: _literal(own, value) for own, value in zip(columns, values, strict=True)}


def _literal(own: CqlColumn, value: Any) -> str:
    return cql_literal(own.type, key_value(own.type, value) if is_key_text(own.type) else value)


def bytes_before(values: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of the values before each place of an array, and at last those of all."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _total([bytes_before(part) for part in values.flatten()], len(values))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = _offsets(values)
        inner = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
        found = _total([bytes_before(part) for part in inner], len(inner[0]))
        return np.asarray(found[ends] - found[ends[0]])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = _offsets(values)
        return np.asarray(ends - ends[0])
    width = max(kind.bit_width // 8, 1)
    return _sums(values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) * width)


def _offsets(values: pa.Array) -> NDArray[np.int64]:
    if not len(values):
        return np.zeros(1, np.int64)
    ends = np.frombuffer(values.buffers()[1], np.int32)
    return ends[values.offset : values.offset + len(values) + 1].astype(np.int64)


def _sums(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])


def _total(parts: Sequence[NDArray[np.int64]], length: int) -> NDArray[np.int64]:
    return np.asarray(np.sum([np.zeros(length + 1, np.int64), *parts], axis=0))
