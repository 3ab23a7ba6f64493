"""Batches of Arrow read into rows, without a server."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.cassandra.writing import plan_of, reader_of

from lakeward.cassandra.write_batches import described

if TYPE_CHECKING:
    pass


@pytest.mark.parametrize("is_timed", [True, False])
def test_times_are_written_only_to_a_table_that_accepts_them(is_timed: bool) -> None:
    _, statements = reader_of(plan_of({"p": "text", "a": "int"}, is_timed=is_timed))
    assert ["TIMESTAMP" in statement for statement in statements.queries] == [is_timed]


def test_the_remaining_time_to_live_is_computed_when_the_row_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("lakeward.cassandra.write_batches.time.time", lambda: now[0])
    reader, _ = reader_of(plan_of({"p": "text", "a": "int"}, has_expiries=True))
    batch = pa.record_batch({"k0": ["w", "x", "y", "z"], "v0": pa.array([1, 2, 3, 4], pa.int32()), "e0": [1_100] * 4})
    lives = []
    # A row is read when the one before it is sent: it might belong to it.
    for request in reader.requests(batch, lambda *_: None):
        [(_, operation)] = request.entries  # type: ignore[attr-defined]
        lives.append(struct.unpack(">i", operation.values[-1])[0])
        now[0] += 60
    assert (lives, reader.expired) == ([100, 100, 40], 1)


def test_a_key_that_does_not_fit_its_type_is_rejected_and_shown_as_it_is() -> None:
    plan = plan_of({"p": "double", "a": "int"})
    reader, _ = reader_of(plan)
    batch = pa.record_batch({"k0": ["1.5", "much"], "v0": pa.array([1, 2], pa.int32())})
    rejected: list[Any] = []
    assert len(list(reader.requests(batch, lambda row, reason: rejected.append((described(plan, row), reason))))) == 1
    ((found, reason),) = rejected
    assert (found["key"], found["values"]) == ({"p": "'much'"}, {"a": "2"})
    assert "is not a valid double" in reason
