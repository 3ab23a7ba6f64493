"""What a task writes, called in this process: a real server, and neither Spark nor workers in between."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.budget_server import BudgetServer
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.write_plan import ACTION, CHANGES, UNIT, DeadLetterPlace, WriteColumn, WritePlan
from lakeward.cassandra.write_task import writing_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.cassandra import CassandraServer

TIME = 1_700_000_000_000_000


class Bench:
    """A table, the record of what was written to it, and a task that writes it."""

    def __init__(self, server: CassandraServer, keyspace: str, folder: Path) -> None:
        self.session, self._folder = server.session(), folder
        table = TableName(keyspace, "orders")
        self.session.execute(
            f"CREATE TABLE {table.cql} (p text, c int, note text, tags list<text>, PRIMARY KEY (p, c))", timeout=60
        )
        self.ledger, self.job = Ledger(self.session, table), Job("job", "apply", 8, TIME)
        self.ledger.create()
        self.ledger.begin(self.job)
        columns = read_table_schema(self.session, table).columns
        self._plan = WritePlan(
            address=server.address,
            target=table,
            columns=tuple(WriteColumn(column.name, column.kind, column.type, column.type) for column in columns),
            timestamp=TIME,
            limits=WriteLimits(batch_rows=10, batch_bytes=4096),
            job=self.job,
            ledger=self.ledger.table,
            dead_letters=DeadLetterPlace(str(folder)),
            has_actions=True,
            max_rejected=1,
        )

    def write(self, *rows: tuple[Any, ...], **plan: Any) -> dict[str, Any]:
        """Return the answer of a task that receives these rows: unit, action, changed columns, key and values."""
        names = [UNIT, ACTION, CHANGES, "k0", "k1", "v0", "v1"]
        types = [
            pa.int32(), pa.string(), pa.list_(pa.string()), pa.string(), pa.int32(), pa.string(), pa.list_(pa.string()),
        ]  # fmt: skip
        schema = pa.schema(list(zip(names, types, strict=True)))
        batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)
        with BudgetServer(RateLimits(), host="127.0.0.1") as budget:
            task = writing_task(replace(self._plan, **{"budget": budget.address, **plan}))
            half = len(rows) // 2
            [answer] = task(iter([batch.slice(0, half), batch.slice(half)]))
        [found] = answer.to_pylist()
        return {name: found[name] for name in ("upserted", "deleted", "rejected", "failure", "is_retriable")}

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.session.execute(f"SELECT p, c, note, tags FROM {self._plan.target.cql}")))

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(line) for file in self._folder.glob("*.jsonl") for line in file.read_text().splitlines()]


@pytest.fixture
def bench(
    cassandra_server: CassandraServer, keyspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    context = SimpleNamespace(partitionId=lambda: 0)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    return Bench(cassandra_server, keyspace, tmp_path)


def outcome(**expected: Any) -> dict[str, Any]:
    return {"upserted": 0, "deleted": 0, "rejected": 0, "failure": None, "is_retriable": False, **expected}


def test_units_are_written_and_recorded_one_after_the_other(bench: Bench) -> None:
    first = [(1, "I", None, "a", number, f"note {number}", ["x", "y"]) for number in range(25)]
    assert bench.write(*first, (4, "I", None, "b", 1, None, None)) == outcome(upserted=26)
    assert bench.ledger.done(bench.job) == {1, 4}
    # A task that Spark starts again writes the same: nothing doubles, also no list.
    bench.write(*first)
    changes = [
        (5, "C", ["note"], "a", 0, None, ["x", "y"]),
        (5, "C", ["tags"], "a", 1, "note 1", ["z"]),
        (5, "D", None, "a", 2, None, None),
    ]
    assert bench.write(*changes, timestamp=TIME + 1_000_000) == outcome(upserted=2, deleted=1)
    expected = {row[4]: ("a", row[4], row[5], row[6]) for row in first}
    expected |= {0: ("a", 0, None, ["x", "y"]), 1: ("a", 1, "note 1", ["z"])}
    del expected[2]
    assert bench.rows() == [*(expected[key] for key in sorted(expected)), ("b", 1, None, None)]


def test_without_a_budget_nothing_is_written(bench: Bench) -> None:
    assert bench.write((1, "I", None, "a", 1, "x", None), budget=None) == outcome(upserted=1)
    assert (bench.rows(), bench.ledger.done(bench.job)) == ([], set())


def test_rows_that_the_server_refuses_are_kept_until_there_are_too_many(bench: Bench) -> None:
    # A key of more than 64 KiB is one that no server takes.
    bad = [(1, "I", None, "k" * 70_000, number, "x", None) for number in range(2)]
    assert bench.write(bad[0], (1, "I", None, "a", 1, "x", None)) == outcome(upserted=1, rejected=1)
    assert bench.rows() == [("a", 1, "x", None)]
    [letter] = bench.letters()
    assert "65535" in letter["reason"] or "64" in letter["reason"], letter["reason"]
    answer = bench.write(*bad)
    assert "more than 1 rows were rejected" in answer["failure"] and "--max-rejected" in answer["failure"]
    assert not answer["is_retriable"] and len(bench.letters()) == 3


def test_units_out_of_order_are_reported_as_a_bug(bench: Bench) -> None:
    answer = bench.write((4, "I", None, "a", 1, "x", None), (1, "I", None, "b", 1, "x", None))
    assert "rows of unit 1 came after those of unit 4" in answer["failure"]
