"""Rows that all take the same one statement, made bytes column by column: the short way for an import.

Of a batch of Arrow, one array comes out whose values are whole statements, so that a request is a piece of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.cassandra.types.encoded_batches import EncodedStatements, encoded_batch, statement_start
from lakeward.cassandra.units import COLUMN_BYTES, ROW_BYTES, write_units_of
from lakeward.cassandra.writing.plan import INSERTED
from lakeward.cassandra.writing.requests import CELL_BYTES
from lakeward.cassandra.writing.rows import Row
from lakeward.cassandra.writing.serializing import bytes_type, fixed_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy
    import pyarrow as pa

    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.writing.statements import Statements

# The length of a value that is left as it is, and the bytes that tell the length of any.
_UNSET, _LENGTH_BYTES = -2, 4


class EncodedRows:
    """The rows of a batch as statements.

    ``columns`` are the bytes of all values in the order in which the statement ``prepared`` takes them; keys come
    first, and none of them is null. A ``stamp`` is the time that is bound last.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.LargeBinaryArray],
        *,
        keyspace: str,
        partition_columns: int,
        prepared: Any,
        stamp: bytes | None,
    ) -> None:
        """Make the bytes of all rows."""
        import numpy

        self.batch, self._keyspace, self._prepared = batch, keyspace, prepared
        self._columns, self._key, self._stamp = columns, columns[:partition_columns], stamp
        cells = len(columns) + (stamp is not None)
        start = statement_start(prepared.query_id, cells)
        rows = _joined(start, columns, stamp)
        self._data = memoryview(rows.buffers()[2])
        ends = numpy.frombuffer(rows.buffers()[1], numpy.int64)[: len(rows) + 1]
        self._ends: list[int] = ends.tolist()
        self.sizes = numpy.diff(ends) - len(start) - _LENGTH_BYTES * cells
        self._weights = self.sizes + CELL_BYTES * cells
        self._units = write_units_of(self.sizes + ROW_BYTES + COLUMN_BYTES * cells)

    def requests(self, limits: WriteLimits) -> Iterator[EncodedRequest]:
        """Put consecutive rows of a partition together, as far as the server's limits let them be."""
        import numpy

        starts = self._starts(limits)
        units = numpy.add.reduceat(self._units, starts).tolist()
        ends = [*starts[1:], len(self._ends) - 1]
        for start, end, partition, cost in zip(starts, ends, self._partitions(starts), units, strict=True):
            yield EncodedRequest(self, start, end, partition, cost)

    def _starts(self, limits: WriteLimits) -> list[int]:
        """Give the first row of each request."""
        import numpy
        import pyarrow.compute as pc

        changes = numpy.zeros(max(len(self._weights) - 1, 0), dtype=bool)
        for column in self._key:
            changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        firsts = [0, *(numpy.flatnonzero(changes) + 1).tolist()]
        sums = [0, *numpy.cumsum(self._weights).tolist()]
        starts = []
        for first, end in zip(firsts, [*firsts[1:], len(self._weights)], strict=True):
            start = first
            starts.append(start)
            if end - start <= limits.batch_rows and sums[end] - sums[start] <= limits.batch_bytes:
                continue
            for row in range(first + 1, end):
                if row - start >= limits.batch_rows or sums[row + 1] - sums[start] > limits.batch_bytes:
                    start = row
                    starts.append(start)
        return starts

    def _partitions(self, rows: Sequence[int]) -> Iterator[tuple[bytes, ...]]:
        return zip(*[column.take(rows).to_pylist() for column in self._key], strict=True)

    def statement(self, start: int, end: int, partition: tuple[bytes, ...]) -> Any:
        """Give a batch of some rows of a partition, or the statement of one: a batch may be refused for its size."""
        if end - start == 1:
            return self._bound(start)
        statements = EncodedStatements(end - start, self._data[self._ends[start] : self._ends[end]])
        return encoded_batch(statements, keyspace=self._keyspace, partition=partition)

    def _bound(self, row: int) -> Any:
        from cassandra.query import UNSET_VALUE, BoundStatement

        bound = BoundStatement(self._prepared)
        values = [column[row].as_py() for column in self._columns]
        bound.values = [UNSET_VALUE if one is None else one for one in values]
        if self._stamp is not None:
            bound.values.append(self._stamp)
        return bound


class EncodedRequest:
    """Some consecutive rows of one partition."""

    __slots__ = ("_end", "_rows", "_start", "partition", "units")

    def __init__(self, rows: EncodedRows, start: int, end: int, partition: tuple[bytes, ...], units: float) -> None:
        """Take the rows from ``start`` to before ``end``."""
        self._rows, self._start, self._end = rows, start, end
        self.partition, self.units = partition, units

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return self._end - self._start

    @property
    def deleted(self) -> int:
        """None of them is deleted."""
        return 0

    @property
    def first_row(self) -> Row:
        """The first of them."""
        size = int(self._rows.sizes[self._start])
        return Row(self._rows.batch, self._start, INSERTED, self.partition, [], size)

    def statement(self, _: Statements, __: int) -> Any:
        """Give what the driver sends; rows that go this way have no lists, so that every try is the same."""
        return self._rows.statement(self._start, self._end, self.partition)

    def alone(self) -> Iterator[EncodedRequest]:
        """Give a request for each of its rows."""
        for row in range(self._start, self._end):
            yield EncodedRequest(self._rows, row, row + 1, self.partition, self.units / self.rows)


def _joined(start: bytes, columns: Sequence[pa.LargeBinaryArray], stamp: bytes | None) -> pa.LargeBinaryArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = bytes_type()
    pieces: list[Any] = [pa.scalar(start, kind)]
    for column in columns:
        pieces += [_lengths(column), column]
    if stamp is not None:
        pieces.append(pa.scalar(len(stamp).to_bytes(_LENGTH_BYTES, "big") + stamp, kind))
    separator = pa.scalar(b"", kind)
    return pc.binary_join_element_wise(*pieces, separator, null_handling="replace", null_replacement="")


def _lengths(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    import pyarrow.compute as pc

    lengths: numpy.ndarray[Any, Any] = pc.binary_length(column).fill_null(_UNSET).to_numpy(zero_copy_only=False)
    return fixed_width(lengths.astype(">i4"), _LENGTH_BYTES)
