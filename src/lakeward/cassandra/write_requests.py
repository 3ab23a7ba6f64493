"""Combine rows of a partition into requests, and send many requests at a time, each with retries."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.cassandra.keyspaces import COLUMN_BYTES, ROW_BYTES, write_units
from lakeward.cassandra.retry import call_again, error_text, is_overload, is_passing, is_rejection
from lakeward.cassandra.write_plan import DELETED
from lakeward.cassandra.write_rows import TRIES
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakeward.cassandra.budget_server import BudgetClient
    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.write_rows import Row, Statements, WriteOperation

# What Cassandra counts for a cell besides its value in the size of a batch: timestamp, TTL and expiry.
CELL_BYTES = 16


class RowsRequest(Protocol):
    """Rows of one partition that are sent together; ``rows`` and ``units`` are their share of the budget."""

    @property
    def rows(self) -> int:
        """The number of rows whose first request this is; a row may need several requests."""

    @property
    def deleted(self) -> int:
        """The number of these rows that are deletes; the others are upserts."""

    @property
    def units(self) -> float:
        """Its cost in write units."""

    @property
    def partition(self) -> tuple[bytes, ...]:
        """The key of the partition."""

    @property
    def first_row(self) -> Row:
        """Its first row, or the row that it is a part of."""

    def statement(self, statements: Statements, shift: int) -> Any:
        """Return the statement to send; ``shift`` is added to the timestamps of lists, and differs at each attempt."""

    def alone(self) -> Iterable[RowsRequest]:
        """Return a request for each of its rows."""


class BoundRequest:
    """Statements that are bound one by one."""

    __slots__ = ("deleted", "entries", "rows", "size", "units")

    def __init__(self) -> None:
        """Start empty."""
        self.entries: list[tuple[Row, WriteOperation]] = []
        self.rows, self.deleted, self.size, self.units = 0, 0, 0, 0.0

    @property
    def partition(self) -> tuple[bytes, ...]:
        """The key of the partition."""
        return self.first_row.partition

    @property
    def first_row(self) -> Row:
        """Its first row, or the row that it is a part of."""
        return self.entries[0][0]

    def alone(self) -> Iterable[BoundRequest]:
        """Return a request for each of its rows."""
        by_row: dict[int, BoundRequest] = {}
        for row, operation in self.entries:
            by_row.setdefault(id(row), BoundRequest()).entries.append((row, operation))
        return by_row.values()

    def statement(self, statements: Statements, shift: int) -> Any:
        """Return the single statement, or a batch of all."""
        from cassandra.query import BatchStatement, BatchType, BoundStatement

        bound, shape, prepared = [], None, None
        for _, operation in self.entries:
            if operation.shape is not shape:
                shape, prepared = operation.shape, statements.prepared(operation.shape)
            statement = BoundStatement(prepared)
            statement.values = operation.at(shift)
            bound.append(statement)
        if len(bound) == 1:
            return bound[0]
        # Unlogged: the rows are in one partition, and the job sends again what was not acknowledged.
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for statement in bound:
            batch.add(statement)
        batch.is_idempotent = True
        return batch


def bound_requests(rows: Iterable[Row], limits: WriteLimits) -> Iterator[BoundRequest]:
    """Put consecutive rows of a partition together, as far as the server's limits allow."""
    request, partition = BoundRequest(), None
    for row in rows:
        cells = sum([len(operation.values) for operation in row.operations])
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


class Sender:
    """Sends the requests of one task. Failures are handled in the sending thread; callbacks only record them."""

    def __init__(
        self,
        session: Any,
        statements: Statements,
        budget: BudgetClient,
        limits: WriteLimits,
        *,
        in_flight: int,
        reject: Callable[[Row, str], None],
    ) -> None:
        self._session, self._statements, self._budget = session, statements, budget
        self._in_flight, self._reject = in_flight, reject
        self._room = threading.Semaphore(in_flight)
        self._failed: deque[tuple[RowsRequest, Exception]] = deque()
        self._ceiling = Ceiling(limits.partition_write_units)
        self.shift = 0

    def send(self, request: RowsRequest) -> None:
        """Send a request as soon as the budget and the number of open requests allow it."""
        self._budget.take(rows=request.rows, write_units=request.units)
        self._ceiling.take(request.partition, request.units)
        self._room.acquire()
        try:
            future = self._session.execute_async(request.statement(self._statements, self.shift))
        except Exception as error:
            self._note(error, request)
        else:
            future.add_callbacks(self._acknowledged, self._note, errback_args=(request,))
        if self._failed:
            self._deal()

    def drain(self) -> None:
        """Wait until everything that was sent is acknowledged, or rejected."""
        for _ in range(self._in_flight):
            self._room.acquire()
        self._room.release(self._in_flight)
        self._deal()

    def _acknowledged(self, _: Any) -> None:
        self._room.release()

    def _note(self, error: Exception, request: RowsRequest) -> None:
        self._failed.append((request, error))
        self._room.release()

    def _deal(self) -> None:
        while self._failed:
            request, error = self._failed.popleft()
            if is_passing(error):
                if is_overload(error):
                    self._budget.slow_down(error_text(error))
                self._send_again(request)
            elif is_rejection(error):
                self._rejected(request, error)
            else:
                msg = f"the cluster does not accept rows: {error_text(error)}"
                raise DataError(msg, hint="lakeward doctor   (checks permissions, too)") from error

    def _send_again(self, request: RowsRequest, first_try: int = 1) -> None:
        number = first_try

        def once() -> None:
            nonlocal number
            statement = request.statement(self._statements, self.shift + min(number, TRIES - 1))
            number += 1
            self._session.execute(statement)

        try:
            call_again(once, budget=self._budget)
        except Exception as error:
            if not is_rejection(error):
                raise
            self._rejected(request, error)

    def _rejected(self, request: RowsRequest, error: Exception) -> None:
        """Find the rows because of which a request was rejected, by sending each of them alone."""
        rows = list(request.alone())
        if len(rows) > 1:
            for row in rows:
                self._send_again(row, first_try=2)
        else:
            self._reject(rows[0].first_row, error_text(error))


class Ceiling:
    """Keeps the write units of each partition below the limit of the server per second.

    All rows of a partition are in one task, so no coordination with other tasks is needed.
    """

    def __init__(self, units: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._units, self._clock = units, clock
        self._second = 0
        self._spent: dict[tuple[bytes, ...], float] = {}

    def take(self, partition: tuple[bytes, ...], units: float) -> None:
        """Wait for the next second if the partition has used its share of this one."""
        if self._units is None:
            return
        now = self._clock()
        if int(now) != self._second:
            self._second, self._spent = int(now), {}
        spent = self._spent.get(partition, 0.0)
        if spent and spent + units > self._units:
            time.sleep(int(now) + 1 - now)
            self._second, self._spent, spent = int(self._clock()), {}, 0.0
        self._spent[partition] = spent + units
