"""Convert Arrow batches to requests: row by row, or column by column where all rows need the same single statement.

The fast path of an import builds one array whose values are complete statements, so that a request is a slice of it.
Columns are converted to the bytes of bound values, without a call per value where possible.
"""

from __future__ import annotations

import re
import struct
import time
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from lakeward.cassandra.conversion import cql_literal, to_cql
from lakeward.cassandra.keyspaces import COLUMN_BYTES, ROW_BYTES, write_units_of
from lakeward.cassandra.values import NO_UUID, is_key_text, key_value, uuid_bytes
from lakeward.cassandra.wire import EncodedStatements, encoded_batch, statement_start
from lakeward.cassandra.write_plan import ACTION, CHANGES, DELETED, EXPIRY, INSERTED, KEY, VALUE, WRITTEN
from lakeward.cassandra.write_requests import CELL_BYTES, bound_requests
from lakeward.cassandra.write_rows import Row, StatementShape, Verb, packed_time
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy
    import pyarrow as pa

    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.write_plan import WriteColumn, WritePlan
    from lakeward.cassandra.write_requests import RowsRequest
    from lakeward.cassandra.write_rows import RowPlanner, Statements, WriteOperation

# Numbers that Cassandra stores in big-endian order.
_NUMBERS = {
    "tinyint": ">i1", "smallint": ">i2", "int": ">i4", "bigint": ">i8", "timestamp": ">i8", "float": ">f4",
    "double": ">f8", "boolean": ">i1",
}  # fmt: skip
# Within Python's limit of digits, whatever it is set to; longer numbers take the slow path.
_DECIMAL = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?", re.ASCII)
# The errors of converting a value that is not of its type.
FAULTS = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, struct.error, DataError)


@dataclass(frozen=True)
class Unfit:
    """A placeholder for a value that the column cannot hold, with the reason."""

    reason: str


# The bytes of a column's values, null where there is none; a list if it contains an `Unfit`.
Serialized: TypeAlias = "pa.LargeBinaryArray | list[Any]"


def serializer(column: WriteColumn, bound_type: Any, protocol: int) -> Callable[[pa.Array], Serialized]:
    """Return the function that serialises the values of a column.

    ``bound_type`` is the driver's type of the column in a prepared statement.
    """
    name = column.target.name
    one_by_one = _one_by_one(column, bound_type, protocol)
    if column.source != column.target:
        return one_by_one
    if name in _NUMBERS and not (column.is_key and name in ("float", "double")):
        return lambda array: _numbers(array, _NUMBERS[name])
    if name in ("text", "blob"):
        return lambda array: array.cast(bytes_type())
    if name in ("uuid", "timeuuid"):
        return lambda array: one_by_one(array) if (found := _uuids(array)) is None else found
    return one_by_one


def listed(column: Serialized) -> list[Any]:
    """Return the values of a column as a list."""
    return column if isinstance(column, list) else column.to_pylist()


def bytes_type() -> pa.DataType:
    """Return the type of columns of bytes, with offsets of 64 bits since batches may be large."""
    import pyarrow as pa

    return pa.large_binary()


def fixed_width(raw: numpy.ndarray[Any, Any], width: int) -> pa.LargeBinaryArray:
    """Return an array of values of the same width from their concatenated bytes."""
    import numpy
    import pyarrow as pa

    count = raw.nbytes // width
    ends = numpy.arange(0, (count + 1) * width, width, dtype=numpy.int64)
    return pa.Array.from_buffers(bytes_type(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw)])


def _numbers(array: pa.Array, kind: str) -> pa.LargeBinaryArray:
    import numpy
    import pyarrow as pa

    filled = array.fill_null(pa.scalar(0).cast(array.type)) if array.null_count else array
    numbers = filled.to_numpy(zero_copy_only=False).astype(numpy.dtype(kind))
    return _where_valid(fixed_width(numbers, numbers.itemsize), array)


def _where_valid(values: pa.LargeBinaryArray, array: pa.Array) -> pa.LargeBinaryArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(array.is_valid(), values, pa.scalar(None, bytes_type())) if array.null_count else values


def _uuids(array: pa.Array) -> pa.LargeBinaryArray | None:
    """Return the bytes of UUIDs; None where a text is not in the usual form, though it may still be valid."""
    filled = array.fill_null(NO_UUID) if array.null_count else array
    found = uuid_bytes(filled.cast(bytes_type()))
    return None if found is None else _where_valid(fixed_width(found, found.shape[1]), array)


def _decimal(text: str) -> bytes | None:
    """Return the bytes of a decimal: its scale, and its digits in as few bytes as possible; None for one with E."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    whole, _, rest = text.partition(".")
    digits = int(whole + rest)
    size = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return len(rest).to_bytes(4, "big") + digits.to_bytes(size, "big", signed=True)


_QUICK: dict[str, Callable[[str], bytes | None]] = {"decimal": _decimal}


def _one_by_one(column: WriteColumn, bound_type: Any, protocol: int) -> Callable[[pa.Array], Serialized]:
    convert, serialize = to_cql(column.target, key=column.is_key), bound_type.serialize
    quick = _QUICK.get(column.target.name) if column.source == column.target else None

    def serialize_value(value: Any) -> Any:
        if value is None or (quick is not None and (found := quick(value)) is not None):
            return None if value is None else found
        try:
            return serialize(convert(value), protocol)
        except FAULTS as error:
            return Unfit(f"{column.name}: {value!r:.200} is not a valid {column.target.cql}: {error}")

    def whole(array: pa.Array) -> Serialized:
        import pyarrow as pa

        found = [serialize_value(value) for value in array.to_pylist()]
        return found if any(type(value) is Unfit for value in found) else pa.array(found, bytes_type())

    return whole


# The length that means an unset value, and the size of a length.
_UNSET, _LENGTH_BYTES = -2, 4


class EncodedRows:
    """The rows of a batch as encoded statements.

    ``columns`` are the bytes of all values in the order of the statement ``prepared``; keys come first, and none of
    them is null. ``stamp`` is the timestamp, which is bound last.
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
        """Encode all rows."""
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
        """Put consecutive rows of a partition together, as far as the server's limits allow."""
        import numpy

        starts = self._starts(limits)
        units = numpy.add.reduceat(self._units, starts).tolist()
        ends = [*starts[1:], len(self._ends) - 1]
        for start, end, partition, cost in zip(starts, ends, self._partitions(starts), units, strict=True):
            yield EncodedRequest(self, start, end, partition, cost)

    def _starts(self, limits: WriteLimits) -> list[int]:
        """Return the first row of each request."""
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
        """Return a batch of rows of a partition, or one statement: even a batch of one may be refused for its size."""
        if end - start == 1:
            return self._bound(start)
        statements = EncodedStatements(end - start, self._data[self._ends[start] : self._ends[end]])
        return encoded_batch(statements, keyspace=self._keyspace, partition=partition)

    def _bound(self, row: int) -> Any:
        from cassandra.query import UNSET_VALUE, BoundStatement

        bound = BoundStatement(self._prepared)
        values = [column[row].as_py() for column in self._columns]
        bound.values = [UNSET_VALUE if value is None else value for value in values]
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
        """The number of rows."""
        return self._end - self._start

    @property
    def deleted(self) -> int:
        """The number of rows that are deleted: none."""
        return 0

    @property
    def first_row(self) -> Row:
        """The first row."""
        size = int(self._rows.sizes[self._start])
        return Row(self._rows.batch, self._start, INSERTED, self.partition, [], size)

    def statement(self, _: Statements, __: int) -> Any:
        """Return the statement to send; such rows have no lists, so that every attempt is the same."""
        return self._rows.statement(self._start, self._end, self.partition)

    def alone(self) -> Iterator[EncodedRequest]:
        """Yield a request for each of its rows."""
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


class BatchReader:
    """Reads batches of one plan; the serializers of its columns are created once."""

    def __init__(self, plan: WritePlan, planner: RowPlanner, statements: Statements) -> None:
        self.plan, self.planner = plan, planner
        self._statements, self._names = statements, _frame_names(plan)
        self._serializers = _serializers(plan, statements)
        self.expired = 0

    def requests(self, batch: pa.RecordBatch, reject: Callable[[Row, str], None]) -> Iterator[RowsRequest]:
        """Return the requests of a batch; rows that cannot be written are rejected, expired ones are skipped."""
        columns = [make(batch.column(name)) for make, name in zip(self._serializers, self._names, strict=True)]
        encoded = self._encoded(batch, columns)
        if encoded is not None:
            return encoded.requests(self.plan.limits)
        rows = self._planned(batch, [listed(column) for column in columns], reject)
        return bound_requests(rows, self.plan.limits)

    def _encoded(self, batch: pa.RecordBatch, columns: Sequence[Serialized]) -> EncodedRows | None:
        """Return the rows for the fast path, where all need the same single statement; None otherwise."""
        insert, keys = self.planner.insert, len(self.plan.keys)
        fitting = [column for column in columns if not isinstance(column, list)]
        if insert is None or len(fitting) < len(columns) or any(column.null_count for column in fitting[:keys]):
            return None
        return EncodedRows(
            batch,
            fitting,
            keyspace=self.plan.target.keyspace,
            partition_columns=len(self.plan.partition_key),
            prepared=self._statements.prepared(insert),
            stamp=packed_time(self.plan.timestamp) if self.plan.is_timed else None,
        )

    def _planned(
        self, batch: pa.RecordBatch, columns: Sequence[list[Any]], reject: Callable[[Row, str], None]
    ) -> Iterator[Row]:
        plan, planner, width = self.plan, self.planner, len(self.plan.keys)
        actions = batch.column(ACTION).to_pylist() if plan.has_actions else repeat(INSERTED)
        changes = batch.column(CHANGES).to_pylist() if plan.has_actions else repeat(None)
        lasting = None if plan.ttl is None else (plan.ttl or None,) * len(plan.values)
        times = _rows_of(batch, WRITTEN, plan) if plan.has_writetimes else repeat(())
        expiries = _rows_of(batch, EXPIRY, plan) if plan.has_expiries else repeat(())
        whole = zip(zip(*columns, strict=True), actions, changes, times, expiries, strict=False)
        for index, (row, action, changed, written, expiry) in enumerate(whole):
            keys, values = row[:width], row[width:]
            size = sum([len(cell) for cell in row if type(cell) is bytes])
            planned = Row(batch, index, action, keys[: len(plan.partition_key)], [], size)
            if reason := _unfit(row) or planner.why_unwritable(keys, values):
                reject(planned, reason)
                continue
            if action == DELETED:
                found: list[WriteOperation] | None = planner.deleting(keys)
            else:
                # Rows are planned when they are sent: with a budget, that may take minutes for a batch.
                now = int(time.time()) if plan.has_expiries else 0
                found = planner.writing(action, changed, keys, values, _filled(written), lasting or expiry, now)
                self.expired += found is None
            # A change may concern only columns that the target does not have.
            if found:
                planned.operations = found
                yield planned


def described(plan: WritePlan, row: Row) -> dict[str, Any]:
    """Return a row as a dead letter: its key, its action, and its values as CQL literals."""

    def literals(columns: Sequence[WriteColumn], mark: str) -> dict[str, str]:
        found = [(column, row.batch.column(f"{mark}{at}")[row.index].as_py()) for at, column in enumerate(columns)]
        return {column.name: _literal(column, value) for column, value in found}

    return {"key": literals(plan.keys, KEY), "action": row.action, "values": literals(plan.values, VALUE)}


def _literal(column: WriteColumn, value: Any) -> str:
    is_text = column.is_key and value is not None and is_key_text(column.source)
    try:
        return cql_literal(column.source, key_value(column.source, value) if is_text else value)
    except FAULTS:
        # That the value is not of its type may be why the row was rejected.
        return repr(value)


def _serializers(plan: WritePlan, statements: Statements) -> list[Callable[[pa.Array], Serialized]]:
    """Return a serializer for each column, by the types in prepared statements with all columns."""
    keys, values = tuple(column.name for column in plan.keys), [column.name for column in plan.values]
    size = plan.columns_at_once or len(values) or 1
    types: dict[str, Any] = {}
    for at in range(0, max(len(values), 1), size):
        shape = StatementShape(Verb.INSERT, keys, tuple(values[at : at + size]), is_timed=plan.is_timed)
        prepared = statements.prepared(shape)
        types.update({column.name: (column.type, prepared.protocol_version) for column in prepared.column_metadata})
    return [serializer(column, *types[column.name]) for column in plan.columns]


def _frame_names(plan: WritePlan) -> list[str]:
    keys = [f"{KEY}{number}" for number in range(len(plan.keys))]
    return [*keys, *[f"{VALUE}{number}" for number in range(len(plan.values))]]


def _rows_of(batch: pa.RecordBatch, mark: str, plan: WritePlan) -> Iterator[tuple[int | None, ...]]:
    columns = [batch.column(f"{mark}{number}").to_pylist() for number in range(len(plan.values))]
    return zip(*columns, strict=True) if columns else repeat(())


def _filled(written: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the write times of a row, its latest one for cells without a recorded time."""
    if None not in written:
        return written
    latest = max([microseconds for microseconds in written if microseconds is not None], default=None)
    return tuple(latest if microseconds is None else microseconds for microseconds in written)


def _unfit(row: Sequence[Any]) -> str | None:
    return next((cell.reason for cell in row if type(cell) is Unfit), None)
