"""Requests that fail, other partitioners and other destinations."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from cassandra import OperationTimedOut
from cassandra.protocol import ProtocolHandler

from lakeward.cassandra import reading
from lakeward.cassandra.connection import connected
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.range_files import RangeGroup, StoreTaskFolder, read_group
from lakeward.cassandra.read_plan import MURMUR3, RANDOM, ReadPlan, estimated_size, partitioner_of, ring_ranges
from lakeward.cassandra.reading import read_ranges
from lakeward.cassandra.schema import read_table_schema
from lakeward.config import Config
from lakeward.config.services import S3Settings
from lakeward.errors import BugError, RetriableError
from lakeward.storage.filesystem import LocalFileSystem
from tests.cassandra.export_scene import Exports
from tests.s3.bucket import Bucket
from tests.s3.conftest import settings_of
from tests.servers.cassandra import cassandra_at

if TYPE_CHECKING:
    from pathlib import Path

    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer
    from tests.servers.s3 import S3Server

_PARTITIONS, _EACH = 40, 25


def _filled(session: Session, keyspace: str) -> TableName:
    session.execute(f"CREATE TABLE {keyspace}.t (p int, c int, s text static, v text, PRIMARY KEY (p, c))", timeout=60)
    insert = session.prepare(f"INSERT INTO {keyspace}.t (p, c, s, v) VALUES (?, ?, ?, ?)")
    futures = [
        session.execute_async(insert, (p, c, f"s{p}", f"{p}-{c}")) for p in range(_PARTITIONS) for c in range(_EACH)
    ]
    for future in futures:
        future.result()
    return TableName(keyspace, "t")


def _keys(batches: Any) -> list[tuple[int, int]]:
    """Return the keys of rows in order; static rows are -1."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted((row["p"], -1 if row["c"] is None else row["c"]) for row in rows)


_ALL = [(p, c) for p in range(_PARTITIONS) for c in range(-1, _EACH)]


class _Failed:
    """An answer that does not come."""

    def result(self) -> Any:
        raise OperationTimedOut


def test_pages_that_fail_are_asked_for_again_and_no_row_comes_twice(
    cassandra_server: CassandraServer, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = cassandra_server.session()
    schema = read_table_schema(session, _filled(session, keyspace))
    plan = ReadPlan(cassandra_server.address, schema)
    ask, asked = reading.Query.ask, []

    def failing(self: reading.Query, *arguments: Any) -> Any:
        asked.append(arguments)
        return _Failed() if len(asked) % 3 == 0 else ask(self, *arguments)

    monkeypatch.setattr(reading.Query, "ask", failing)
    monkeypatch.setattr(session, "default_fetch_size", 70)
    ranges = ring_ranges(session, schema.name, splits=5)
    found = [batch for _, batch in read_ranges(session, plan, ranges)]

    assert _keys(found) == _ALL
    assert max(batch.num_rows for batch in found) < 70 + _PARTITIONS
    assert len(asked) > 20
    one_by_one = [batch for token_range in ranges for _, batch in read_ranges(session, plan, [token_range])]
    assert _keys(one_by_one) == _ALL


def test_a_range_that_keeps_failing_ends_the_reading_and_leaves_no_file(
    cassandra_server: CassandraServer, keyspace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = cassandra_server.session()
    schema = read_table_schema(session, _filled(session, keyspace))
    ask, asked = reading.Query.ask, []

    def failing(self: reading.Query, *arguments: Any) -> Any:
        asked.append(arguments)
        return _Failed() if len(asked) > 6 else ask(self, *arguments)

    monkeypatch.setattr(reading.Query, "ask", failing)
    monkeypatch.setattr("lakeward.cassandra.retry.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("lakeward.cassandra.range_files.task_session", lambda _: session)
    monkeypatch.setattr(session, "default_fetch_size", 70)
    group = RangeGroup(0, tuple(ring_ranges(session, schema.name, splits=4)))
    plan, folder = ReadPlan(cassandra_server.address, schema), StoreTaskFolder(LocalFileSystem(), str(tmp_path))

    with pytest.raises(RetriableError, match="OperationTimedOut"):
        read_group(plan, folder, group)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(reading.Query, "ask", ask)
    done = read_group(plan, folder, group)
    assert sum(done.rows) == len(_ALL)
    assert {path.name for path in tmp_path.iterdir()} == {done.file, "group-00000.json"}
    assert (tmp_path / str(done.file)).stat().st_size == done.bytes


def test_a_reader_that_silently_loses_rows_is_detected(
    cassandra_server: CassandraServer, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = cassandra_server.session()
    schema = read_table_schema(session, _filled(session, keyspace))
    losing = type("Losing", (ProtocolHandler,), {"decode_message": classmethod(_without_rows)})
    monkeypatch.setattr("lakeward.cassandra.reading.exact_handler", lambda **_: losing)

    with pytest.raises(BugError, match="the driver returned no rows for the columns p, c, s, v"):
        list(read_ranges(session, ReadPlan(cassandra_server.address, schema), [MURMUR3.ring]))


def _without_rows(_: type, *arguments: Any) -> Any:
    """Decode as usual, and lose what was decoded, as one of the driver's own readers does with a new NumPy."""
    message = ProtocolHandler.decode_message(*arguments)
    if getattr(message, "parsed_rows", None):
        message.parsed_rows = None
    return message


def test_the_ring_of_the_random_partitioner_is_read_whole(tmp_path: Path) -> None:
    with cassandra_at(tmp_path, partitioner="RandomPartitioner") as server, connected(server.address) as session:
        session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        schema = read_table_schema(session, _filled(session, "k"))
        ranges = ring_ranges(session, schema.name, splits=20)
        found = [batch for _, batch in read_ranges(session, ReadPlan(server.address, schema), ranges)]

        assert partitioner_of(session) == RANDOM
        assert _keys(found) == _ALL
        assert len(ranges) >= 16
        # The ring's ends are not lost to whom the first token belongs.
        assert (min(ranges).start, max(token_range.end for token_range in ranges)) == (
            RANDOM.ring.start,
            RANDOM.ring.end,
        )
        assert estimated_size(session, schema.name, RANDOM) is None


@pytest.mark.spark
def test_an_export_goes_to_s3(
    spark: SparkSession,
    cassandra_server: CassandraServer,
    keyspace: str,
    tmp_path: Path,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = S3Settings(**settings_of(s3_server, monkeypatch))
    exports = Exports(spark, cassandra_server, keyspace, tmp_path)
    exports.config = Config(base=tmp_path, s3=settings)
    _filled(exports.session, keyspace)
    with Bucket.create(s3_server, f"test-{uuid.uuid4().hex[:12]}", settings) as bucket:
        folder = f"s3://{bucket.name}/exports é"

        exported = exports.export("t", to=folder, splits=8)
        rows = exports.side(f"{folder}/{keyspace}/t/latest").frame.collect()

        assert exported.folder.startswith(f"{folder}/{keyspace}/t/snapshot/year=")
        assert len(rows) == exported.rows == len(_ALL)
        # Nothing of the work is left.
        assert not [key for key in bucket.keys("") if ".export" in key]
