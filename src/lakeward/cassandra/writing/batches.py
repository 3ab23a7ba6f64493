"""A batch of Arrow, read row by row into what is to be written; kept for as long as its rows are under way."""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.types import cql_literal
from lakeward.cassandra.types.keytext import is_key_text, key_value
from lakeward.cassandra.writing.encoded_rows import EncodedRows
from lakeward.cassandra.writing.plan import ACTION, CHANGES, DELETED, EXPIRY, INSERTED, KEY, VALUE, WRITTEN
from lakeward.cassandra.writing.requests import bound_requests
from lakeward.cassandra.writing.rows import Row, packed_time
from lakeward.cassandra.writing.serializing import FAULTS, Unfit, listed, serializer
from lakeward.cassandra.writing.statements import Shape, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakeward.cassandra.writing.plan import WriteColumn, WritePlan
    from lakeward.cassandra.writing.requests import Request
    from lakeward.cassandra.writing.rows import Operation, RowPlanner
    from lakeward.cassandra.writing.serializing import Serialized
    from lakeward.cassandra.writing.statements import Statements


class BatchReader:
    """Reads batches of one plan: the serializers of its columns are made once."""

    def __init__(self, plan: WritePlan, planner: RowPlanner, statements: Statements) -> None:
        self.plan, self.planner = plan, planner
        self._statements, self._names = statements, _frame_names(plan)
        self._serializers = _serializers(plan, statements)
        self.expired = 0

    def requests(self, batch: pa.RecordBatch, reject: Callable[[Row, str], None]) -> Iterator[Request]:
        """Give what is sent of a batch; a row that cannot be written is rejected, one that has expired is left out."""
        columns = [make(batch.column(name)) for make, name in zip(self._serializers, self._names, strict=True)]
        encoded = self._encoded(batch, columns)
        if encoded is not None:
            return encoded.requests(self.plan.limits)
        rows = self._planned(batch, [listed(column) for column in columns], reject)
        return bound_requests(rows, self.plan.limits)

    def _encoded(self, batch: pa.RecordBatch, columns: Sequence[Serialized]) -> EncodedRows | None:
        """Go the short way, where each row takes the same one statement; None where that is not so."""
        insert, keys = self.planner.insert, len(self.plan.keys)
        fitting = [one for one in columns if not isinstance(one, list)]
        if insert is None or len(fitting) < len(columns) or any(one.null_count for one in fitting[:keys]):
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
        times = _rows_of(batch, WRITTEN, plan) if plan.has_writetimes else repeat(())
        expiries = _rows_of(batch, EXPIRY, plan) if plan.has_expiries else repeat(())
        whole = zip(zip(*columns, strict=True), actions, changes, times, expiries, strict=False)
        for index, (row, action, changed, written, expiry) in enumerate(whole):
            keys, values = row[:width], row[width:]
            size = sum([len(one) for one in row if type(one) is bytes])
            planned = Row(batch, index, action, keys[: len(plan.partition_key)], [], size)
            if reason := _unfit(row) or planner.why_unwritable(keys, values):
                reject(planned, reason)
                continue
            if action == DELETED:
                found: list[Operation] | None = planner.deleting(keys)
            else:
                # Rows are taken as they are sent: under a budget, the last of a batch may be minutes after the first.
                now = int(time.time()) if plan.has_expiries else 0
                found = planner.writing(action, changed, keys, values, _filled(written), expiry, now)
                self.expired += found is None
            # A change may be to nothing that the target has.
            if found:
                planned.operations = found
                yield planned


def described(plan: WritePlan, row: Row) -> dict[str, Any]:
    """Give a row as a dead letter shows it: its key, its action, and its values as CQL writes them."""

    def literals(columns: Sequence[WriteColumn], mark: str) -> dict[str, str]:
        found = [(one, row.batch.column(f"{mark}{at}")[row.index].as_py()) for at, one in enumerate(columns)]
        return {one.name: _literal(one, value) for one, value in found}

    return {"key": literals(plan.keys, KEY), "action": row.action, "values": literals(plan.values, VALUE)}


def _literal(column: WriteColumn, value: Any) -> str:
    is_text = column.is_key and value is not None and is_key_text(column.source)
    try:
        return cql_literal(column.source, key_value(column.source, value) if is_text else value)
    except FAULTS:
        # Not a value of its type may be the very reason that it was rejected.
        return repr(value)


def _serializers(plan: WritePlan, statements: Statements) -> list[Callable[[pa.Array], Serialized]]:
    """Make a serializer for each column, by the types that the server tells of statements with all of them."""
    keys, values = tuple(one.name for one in plan.keys), [one.name for one in plan.values]
    size = plan.columns_at_once or len(values) or 1
    told: dict[str, Any] = {}
    for at in range(0, max(len(values), 1), size):
        shape = Shape(Verb.INSERT, keys, tuple(values[at : at + size]), is_timed=plan.is_timed)
        prepared = statements.prepared(shape)
        told.update({one.name: (one.type, prepared.protocol_version) for one in prepared.column_metadata})
    return [serializer(column, *told[column.name]) for column in plan.columns]


def _frame_names(plan: WritePlan) -> list[str]:
    keys = [f"{KEY}{number}" for number in range(len(plan.keys))]
    return [*keys, *[f"{VALUE}{number}" for number in range(len(plan.values))]]


def _rows_of(batch: pa.RecordBatch, mark: str, plan: WritePlan) -> Iterator[tuple[int | None, ...]]:
    columns = [batch.column(f"{mark}{number}").to_pylist() for number in range(len(plan.values))]
    return zip(*columns, strict=True) if columns else repeat(())


def _filled(written: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Give cells whose time was not told the latest of their row, where it has one."""
    if None not in written:
        return written
    latest = max([one for one in written if one is not None], default=None)
    return tuple(latest if one is None else one for one in written)


def _unfit(row: Sequence[Any]) -> str | None:
    return next((one.reason for one in row if type(one) is Unfit), None)
