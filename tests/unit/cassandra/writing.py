"""Plans, batches and a driver for tests that write rows without a server."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cassandra import cqltypes

from lakeward.cassandra.connection import ClusterAddress
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.schema import ColumnKind
from lakeward.cassandra.write_batches import BatchReader
from lakeward.cassandra.write_plan import DeadLetterPlace, WriteColumn, WritePlan
from lakeward.cassandra.write_rows import RowPlanner, StatementShape
from lakeward.config.services import ClusterSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cassandra.write_plan import WritePlan
    from lakeward.cassandra.write_rows import StatementShape

TIME = 1_700_000_000_000_000


TABLE = TableName("ks", "Weird Table")


KEYS = {"p": ColumnKind.PARTITION_KEY, "c": ColumnKind.CLUSTERING}


def plan_of(columns: dict[str, str], limits: WriteLimits | None = None, **choices: Any) -> WritePlan:
    found = []
    for name, text in columns.items():
        kind = KEYS.get(name, ColumnKind.STATIC if name.startswith("s") else ColumnKind.REGULAR)
        cql = parse_cql_type(text, {})
        found.append(WriteColumn(name, kind, cql, cql))
    return WritePlan(
        address=ClusterAddress("one", ClusterSettings(hosts=("h",))),
        target=TABLE,
        columns=tuple(found),
        timestamp=TIME,
        limits=limits or WriteLimits(batch_rows=10, batch_bytes=4096),
        job=Job("j", "apply", 8, TIME),
        ledger=TableName("ks", "ledger"),
        dead_letters=DeadLetterPlace("/nowhere"),
        **choices,
    )


TYPES = {"text": cqltypes.UTF8Type, "int": cqltypes.Int32Type, "double": cqltypes.DoubleType}


class Statements:
    """Answers like the server about prepared statements; ``queries`` are those of all kinds."""

    def __init__(self, plan: WritePlan) -> None:
        self.queries: list[str] = []
        self._types = [SimpleNamespace(name=column.name, type=TYPES[column.target.cql]) for column in plan.columns]

    def prepared(self, shape: StatementShape) -> Any:
        self.queries.append(shape.cql(TABLE))
        return SimpleNamespace(column_metadata=self._types, protocol_version=4, query_id=b"id")


def reader_of(plan: WritePlan) -> tuple[BatchReader, Statements]:
    statements = Statements(plan)
    prepared: Any = statements
    return BatchReader(plan, RowPlanner(plan, object()), prepared), statements


class Budget:
    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.slowed: list[str] = []

    def take(self, **amounts: float) -> None:
        self.taken.update(amounts)

    def slow_down(self, reason: str) -> None:
        self.slowed.append(reason)


class Future:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def add_callbacks(self, done: Callable[..., None], failed: Callable[..., None], errback_args: Any) -> None:
        if self.error is None:
            done(None)
        else:
            failed(self.error, *errback_args)


class Statement:
    """Replaces the driver's prepared statement, as far as bound ones need it."""

    def __init__(self) -> None:
        self.query_id = b"id"
        self.column_metadata: list[Any] = []
        self.routing_key_indexes = None
        self.is_idempotent = True
        self.retry_policy = self.consistency_level = self.serial_consistency_level = None
        self.fetch_size = self.custom_payload = None
