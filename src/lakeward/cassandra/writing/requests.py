"""Rows of a partition put together: what goes to the server as one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lakeward.cassandra.units import COLUMN_BYTES, ROW_BYTES, write_units
from lakeward.cassandra.writing.plan import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.writing.rows import Operation, Row
    from lakeward.cassandra.writing.statements import Statements

# What Cassandra counts for a cell beside its value when it measures a batch: its time, its life and when that ends.
CELL_BYTES = 16


class Request(Protocol):
    """Rows of one partition that go to the server together; ``rows`` and ``units`` are what they take of a budget."""

    @property
    def rows(self) -> int:
        """How many rows begin with it: one that takes several requests is counted with its first."""

    @property
    def deleted(self) -> int:
        """How many of these are deleted; all others are written."""

    @property
    def units(self) -> float:
        """What it costs in write units."""

    @property
    def partition(self) -> tuple[bytes, ...]:
        """The key of the partition."""

    @property
    def first_row(self) -> Row:
        """Its first row, or the one of which it is a part."""

    def statement(self, statements: Statements, shift: int) -> Any:
        """Give what the driver sends; ``shift`` is added to the times of lists, and is another at each try."""

    def alone(self) -> Iterable[Request]:
        """Give a request for each of its rows."""


class BoundRequest:
    """Statements that are bound one by one."""

    __slots__ = ("deleted", "entries", "rows", "size", "units")

    def __init__(self) -> None:
        """Begin with none."""
        self.entries: list[tuple[Row, Operation]] = []
        self.rows, self.deleted, self.size, self.units = 0, 0, 0, 0.0

    @property
    def partition(self) -> tuple[bytes, ...]:
        """The key of the partition."""
        return self.first_row.partition

    @property
    def first_row(self) -> Row:
        """Its first row, or the one of which it is a part."""
        return self.entries[0][0]

    def alone(self) -> Iterable[BoundRequest]:
        """Give a request for each of its rows."""
        by_row: dict[int, BoundRequest] = {}
        for row, operation in self.entries:
            by_row.setdefault(id(row), BoundRequest()).entries.append((row, operation))
        return by_row.values()

    def statement(self, statements: Statements, shift: int) -> Any:
        """Give the one statement, or a batch of all."""
        from cassandra.query import BatchStatement, BatchType, BoundStatement

        bound, shape, prepared = [], None, None
        for _, operation in self.entries:
            if operation.shape is not shape:
                shape, prepared = operation.shape, statements.prepared(operation.shape)
            one = BoundStatement(prepared)
            one.values = operation.at(shift)
            bound.append(one)
        if len(bound) == 1:
            return bound[0]
        # Without a log: the rows are of one partition, and the job sends again what was not acknowledged.
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for one in bound:
            batch.add(one)
        batch.is_idempotent = True
        return batch


def bound_requests(rows: Iterable[Row], limits: WriteLimits) -> Iterator[BoundRequest]:
    """Put consecutive rows of a partition together, as far as the server's limits let them be."""
    request, partition = BoundRequest(), None
    for row in rows:
        cells = sum([len(one.values) for one in row.operations])
        weight = row.size + CELL_BYTES * cells
        is_full = len(request.entries) + len(row.operations) > limits.batch_rows
        if request.entries and (is_full or row.partition != partition or request.size + weight > limits.batch_bytes):
            yield request
            request = BoundRequest()
        partition = row.partition
        units = write_units(ROW_BYTES + row.size + COLUMN_BYTES * cells) / len(row.operations)
        for number, operation in enumerate(row.operations):
            if len(request.entries) == limits.batch_rows:
                yield request
                request = BoundRequest()
            request.entries.append((row, operation))
            request.units += units
            if number == 0:
                request.rows += 1
                request.deleted += row.action == DELETED
                request.size += weight
    if request.entries:
        yield request
