"""A node that is lost in the middle of an export, and of an import: three nodes, three replicas, and all is exact."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cassandra import InvalidRequest
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement, BatchType

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.connection import connected
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.export import ExportRequest, export_table
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.retry import is_passing
from lakeward.cassandra.tables import make_table
from lakeward.config import Config
from lakeward.session.sessions import table_session
from tests.servers.cassandra import cassandra_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cassandra.cluster import Session

    from lakeward.demo.cassandra.server import LocalCassandra

PARTITIONS, ROWS = 100, 80
# Slow enough that a node is lost long before the end.
LIMITS = RateLimits(rows_per_second=PARTITIONS * ROWS / 10)
SOURCE, TARGET = TableName("ks", "source"), TableName("ks", "target")


class Loss:
    """Kills a node in the middle of the work, and records when."""

    def __init__(self, server: LocalCassandra, number: int, is_middle: Callable[[], bool]) -> None:
        self._server, self._number, self._is_middle = server, number, is_middle
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.moment: datetime | None = None

    def __enter__(self) -> Loss:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            if self._is_middle():
                self._server.kill_node(self._number)
                self.moment = datetime.now(UTC)
                return


def fill(session: Session) -> None:
    session.execute(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}", timeout=60
    )
    columns = "k int, c int, s text STATIC, v text, PRIMARY KEY (k, c)"
    make_table(session, SOURCE, [f"CREATE TABLE {SOURCE.cql} ({columns})"], what="the source")
    insert = session.prepare(f"INSERT INTO {SOURCE.cql} (k, c, s, v) VALUES (?, ?, ?, ?)")
    for partition in range(PARTITIONS):
        batch = BatchStatement(BatchType.UNLOGGED)
        for row in range(ROWS):
            batch.add(insert, (partition, row, f"static {partition}", "x" * 50 + str(row)))
        session.execute(batch, timeout=60)


def rows_of(session: Session, name: TableName) -> list[Any]:
    found = session.prepare(f"SELECT k, c, s, v FROM {name.cql} WHERE k = ?")
    results = execute_concurrent_with_args(
        session, found, [(partition,) for partition in range(PARTITIONS)], concurrency=8
    )
    return [row for _, rows in results for row in rows]


def has_rows(session: Session, name: TableName) -> bool:
    try:
        return bool(list(session.execute(f"SELECT k FROM {name.cql} LIMIT 1")))
    except Exception as error:
        # It is not made yet, or the cluster is too busy with it to answer.
        if isinstance(error, InvalidRequest) or is_passing(error):
            return False
        raise


@pytest.mark.slow
def test_a_lost_node_costs_no_row(spark, tmp_path: Path):
    config, table_spark = Config(base=tmp_path), table_session(spark)
    with cassandra_at(tmp_path / "nodes", nodes=3, heap="256m") as server, connected(server.address) as session:
        fill(session)
        with Loss(server, 3, lambda: any((tmp_path / "exports").rglob("*.parquet"))) as loss:
            request = ExportRequest(SOURCE, str(tmp_path / "exports"), limits=LIMITS)
            exported = export_table(table_spark, config, server.address, request)
        assert loss.moment is not None
        assert exported.started < loss.moment < exported.ended
        assert exported.rows == PARTITIONS * ROWS + PARTITIONS

        server.start_node(3)
        with Loss(server, 2, lambda: has_rows(session, TARGET)) as loss:
            wanted = ImportRequest(exported.folder, TARGET, create_table=True, limits=LIMITS)
            written = import_snapshot(table_spark, config, server.address, wanted)
        assert loss.moment is not None
        assert (written.upserted, written.rejected) == (exported.rows, 0)
        expected = rows_of(session, SOURCE)
        assert len(expected) == PARTITIONS * ROWS
        assert rows_of(session, TARGET) == expected
