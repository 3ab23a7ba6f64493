"""Batches of Arrow read into rows, without a server."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from cassandra import cqltypes
from tests.unit.cassandra.test_writing_rows import TABLE, plan_of

from lakeward.cassandra.write_batches import BatchReader, described
from lakeward.cassandra.write_rows import RowPlanner

if TYPE_CHECKING:
    from lakeward.cassandra.write_plan import WritePlan
    from lakeward.cassandra.write_rows import Shape

TYPES = {"text": cqltypes.UTF8Type, "int": cqltypes.Int32Type, "double": cqltypes.DoubleType}


class Statements:
    """Says what the server would of prepared statements; ``asked`` are those of all kinds."""

    def __init__(self, plan: WritePlan) -> None:
        self.asked: list[str] = []
        self._types = [SimpleNamespace(name=one.name, type=TYPES[one.target.cql]) for one in plan.columns]

    def prepared(self, shape: Shape) -> Any:
        self.asked.append(shape.cql(TABLE))
        return SimpleNamespace(column_metadata=self._types, protocol_version=4, query_id=b"id")


def reader_of(plan: WritePlan) -> tuple[BatchReader, Statements]:
    statements = Statements(plan)
    asked: Any = statements
    return BatchReader(plan, RowPlanner(plan, object()), asked), statements


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_table_that_takes_no_times_is_asked_for_none(is_timed: bool) -> None:
    _, statements = reader_of(plan_of({"p": "text", "a": "int"}, is_timed=is_timed))
    assert ["TIMESTAMP" in one for one in statements.asked] == [is_timed]


def test_what_cells_have_left_to_live_is_told_when_their_row_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("lakeward.cassandra.write_batches.time.time", lambda: now[0])
    reader, _ = reader_of(plan_of({"p": "text", "a": "int"}, has_expiries=True))
    batch = pa.record_batch({"k0": ["w", "x", "y", "z"], "v0": pa.array([1, 2, 3, 4], pa.int32()), "e0": [1_100] * 4})
    lives = []
    # A row is looked at when the one before it is sent: it might belong to it.
    for request in reader.requests(batch, lambda *_: None):
        [(_, operation)] = request.entries  # type: ignore[attr-defined]
        lives.append(struct.unpack(">i", operation.values[-1])[0])
        now[0] += 60
    assert (lives, reader.expired) == ([100, 100, 40], 1)


def test_a_key_that_is_none_of_its_type_is_rejected_and_described_as_it_is() -> None:
    plan = plan_of({"p": "double", "a": "int"})
    reader, _ = reader_of(plan)
    batch = pa.record_batch({"k0": ["1.5", "much"], "v0": pa.array([1, 2], pa.int32())})
    rejected: list[Any] = []
    assert len(list(reader.requests(batch, lambda row, reason: rejected.append((described(plan, row), reason))))) == 1
    ((found, reason),) = rejected
    assert (found["key"], found["values"]) == ({"p": "'much'"}, {"a": "2"})
    assert "is no double" in reason
