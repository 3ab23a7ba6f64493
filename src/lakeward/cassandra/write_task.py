"""The Spark task that writes its units one after the other and returns the counts."""

from __future__ import annotations

import gc
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.cassandra.write_batches import BatchReader, described
from lakeward.cassandra.write_plan import DELETED, UNIT, DeadLetters
from lakeward.cassandra.write_requests import Sender
from lakeward.cassandra.write_rows import RowPlanner, Statements, list_shift
from lakeward.errors import BugError, DataError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from lakeward.cassandra.budget_server import BudgetClient
    from lakeward.cassandra.write_plan import WritePlan
    from lakeward.cassandra.write_rows import Row

# By default a collection runs after every 700 new objects; one page or batch creates many more.
_YOUNG = 100_000


@contextmanager
def rare_collection() -> Iterator[None]:
    """Run the garbage collector rarely in the block: it took a quarter of the time of a task."""
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


RESULT = (
    "upserted bigint, deleted bigint, expired bigint, rejected bigint, requests bigint, units double, "
    "failure string, is_retriable boolean"
)
_NO_UNIT = -1


@dataclass
class TaskCounts:
    """The counts of a task."""

    upserted: int = 0
    deleted: int = 0
    expired: int = 0
    rejected: int = 0
    requests: int = 0
    units: float = 0.0
    failure: str | None = None
    is_retriable: bool = False


def writing_task(plan: WritePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes batches, whose rows are sorted by unit."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        counts = TaskCounts()
        try:
            with rare_collection():
                _Task(plan, counts).write(batches)
        except LakewardError as error:
            # Returned as a result and not raised: retries have been made, and Spark would repeat the whole task.
            counts.failure, counts.is_retriable = str(error), error.kind == "retriable"
        yield pa.RecordBatch.from_pylist([vars(counts)], schema=_result_schema())

    return write


def _result_schema() -> pa.Schema:
    import pyarrow as pa

    numbers = [(name, pa.int64()) for name in ("upserted", "deleted", "expired", "rejected", "requests")]
    return pa.schema([*numbers, ("units", pa.float64()), ("failure", pa.string()), ("is_retriable", pa.bool_())])


class _Task:
    def __init__(self, plan: WritePlan, counts: TaskCounts) -> None:
        from cassandra.query import UNSET_VALUE
        from pyspark import TaskContext

        from lakeward.cassandra.budget_server import budget_client
        from lakeward.cassandra.connection import task_session
        from lakeward.cassandra.ledger import Ledger

        context = TaskContext.get()
        assert context is not None
        self._plan, self._counts = plan, counts
        self._session = task_session(plan.address)
        self._ledger = Ledger(self._session, plan.target, plan.ledger)
        statements = Statements(self._session, plan.target)
        self._reader = BatchReader(plan, RowPlanner(plan, UNSET_VALUE), statements)
        # Other processes count tasks from the same number, and objects in S3 would be overwritten.
        name = f"run{plan.attempt}-task{context.partitionId()}-{uuid.uuid4().hex[:12]}.jsonl"
        self._letters = DeadLetters(plan.dead_letters, name)
        self._budget = None if plan.budget is None else budget_client(plan.budget)
        self._sender = None if self._budget is None else self._open_sender(statements, self._budget)
        self._rejected_before = 0
        self._has_lists = any(column.is_list for column in plan.values)

    def _open_sender(self, statements: Statements, budget: BudgetClient) -> Sender:
        return Sender(
            self._session,
            statements,
            budget,
            self._plan.limits,
            in_flight=self._plan.address.settings.max_in_flight,
            reject=self._refuse,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write everything; a unit is recorded when all its rows are acknowledged or kept as dead letters."""
        unit, rows = _NO_UNIT, 0
        for batch in batches:
            for number, part in by_unit(batch):
                if number < unit:
                    msg = f"rows of unit {number} came after those of unit {unit}: a unit marked as done is incomplete"
                    raise BugError(msg)
                if number != unit:
                    self._finish(unit, rows)
                    unit, rows = number, 0
                    self._begin(unit)
                rows += part.num_rows
                self._write_part(part)
        self._finish(unit, rows)

    def _begin(self, unit: int) -> None:
        if self._sender is not None and self._has_lists:
            self._sender.shift = list_shift(self._plan.attempt, self._ledger.claim(self._plan.job, unit))

    def _finish(self, unit: int, rows: int) -> None:
        if unit == _NO_UNIT or self._sender is None:
            return
        self._sender.drain()
        self._letters.keep()
        rejected = self._counts.rejected - self._rejected_before
        self._rejected_before = self._counts.rejected
        self._ledger.finish_unit(self._plan.job, unit, rows=rows, rejected=rejected)

    def _write_part(self, part: pa.RecordBatch) -> None:
        counts = self._counts
        for request in self._reader.requests(part, self._reject):
            deleted = request.deleted
            counts.deleted += deleted
            counts.upserted += request.rows - deleted
            counts.units += request.units
            counts.requests += 1
            if self._sender is not None:
                self._sender.send(request)
        counts.expired = self._reader.expired

    def _refuse(self, row: Row, reason: str) -> None:
        """Reject a row that was already counted as written."""
        if row.is_rejected:
            return
        if row.action == DELETED:
            self._counts.deleted -= 1
        else:
            self._counts.upserted -= 1
        self._reject(row, reason)

    def _reject(self, row: Row, reason: str) -> None:
        if row.is_rejected:
            return
        row.is_rejected = True
        self._counts.rejected += 1
        if self._budget is None:
            return
        self._letters.add({**described(self._plan, row), "reason": reason})
        if self._budget.reject() > self._plan.max_rejected:
            self._letters.keep()
            msg = f"more than {self._plan.max_rejected:,} rows were rejected, the last because of {reason}"
            hint = "see the reasons in the dead letters; the same command resumes where this one ended, "
            raise DataError(msg, hint=f"{hint}and --max-rejected N allows more")


def by_unit(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the part of each unit of a batch whose rows are sorted by unit."""
    units = batch.column(UNIT).to_numpy(zero_copy_only=False)
    start = 0
    while start < len(units):
        number = int(units[start])
        end = int(units.searchsorted(number, side="right"))
        yield number, batch.slice(start, end - start)
        start = end
