"""Random tables, exported and imported again: every cell is the same, with the time it was written and expires."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.export import ExportRequest, export_table
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.schema import TableSchema, read_table_schema
from lakeward.cassandra.write_plan import WriteStatus
from lakeward.config import Config
from lakeward.session.sessions import table_session
from tests.cassandra.scene import create_table, fill, insert, read_cells, renamed, set_apart, update
from tests.cassandra.strategies import Filling, drawn, filled_tables

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from tests.cassandra.scene import Cells
    from tests.servers.cassandra import CassandraServer

# Long ago, and not in the order in which they are written.
FIRST_WRITE = 1_600_000_000_000_000
LATER = 1_000_000
# A list is written a little later each time, so that writing it again does not double it.
LIST_SLACK = 1_000_000
# The remaining life of a cell is in whole seconds, and some pass between asking, reading and writing.
TTL_SLACK = 60


def fill_in_time(session: Session, schema: TableSchema, filling: Filling, random: Random) -> None:
    """Insert rows at random times, some to expire, and set some of their cells at another time."""
    for row in [*filling.rows, *filling.statics]:
        values = [name for name in row if name not in schema.primary_key and row[name] is not None]
        if values or schema.regulars[0].name in row:
            timestamp = FIRST_WRITE + random.randrange(LATER)
            insert(session, schema, row, timestamp=timestamp, ttl=random.choice([None, 50_000]))
        for name in values:
            if random.random() < 0.3:
                keys = {name: row[name] for name in row if name in schema.primary_key}
                timestamp = FIRST_WRITE + LATER + random.randrange(LATER)
                update(session, schema, {**keys, name: row[name]}, timestamp=timestamp)


def assert_same_times(schema: TableSchema, source: Cells, target: Cells) -> None:
    """Values and times of writing are equal; times left are nearly."""
    assert values_of(target) == values_of(source)
    for place, cells in source.items():
        for name, (_, written, *left) in cells.items():
            _, copied, *copied_left = target[place][name]
            cql = schema.column(name).type
            slack = LIST_SLACK if cql.name == "list" and cql.is_multi_cell else 0
            assert written <= copied <= written + slack, (name, cql.cql)
            for one, other in zip(left, copied_left, strict=True):
                assert (one is None) == (other is None), (name, cql.cql)
                assert one is None or abs(one - other) <= TTL_SLACK, (name, cql.cql)


def values_of(cells: Cells) -> dict[Any, dict[str, Any]]:
    return {place: {name: value[0] for name, value in some.items()} for place, some in cells.items()}


class Copier:
    """Exports a table and imports it under another name."""

    def __init__(self, spark: Any, server: CassandraServer, folder: Path) -> None:
        self.spark, self.server, self.folder = table_session(spark), server, folder
        self.config = Config(base=folder)

    def __call__(self, source: TableSchema, into: TableName, **options: Any) -> TableSchema:
        request = ExportRequest(source.name, str(self.folder), **options)
        exported = export_table(self.spark, self.config, self.server.address, request)
        wanted = ImportRequest(exported.folder, into, create_table=True)
        written = import_snapshot(self.spark, self.config, self.server.address, wanted)
        assert (written.status, written.rejected) == (WriteStatus.DONE, 0)
        assert written.upserted == exported.rows
        return read_table_schema(self.server.session(), into)


@pytest.fixture
def copy(spark: Any, cassandra_server: CassandraServer, tmp_path: Path) -> Copier:
    return Copier(spark, cassandra_server, tmp_path)


def test_random_tables_come_back_with_their_times(copy, cassandra_server, keyspace):
    session = cassandra_server.session()
    ways = [{"layout": "set"}, {"layout": "set"}, {"layout": "plain"}, {"format": "json"}]
    for number, ((schema, filling), way) in enumerate(zip(drawn(filled_tables(), len(ways)), ways, strict=True)):
        source = create_table(session, set_apart(schema, number), TableName(keyspace, f"Source_{number}"))
        fill_in_time(session, source, filling, Random(number))
        target = copy(source, TableName(keyspace, f"Target_{number}"), ttl=True, **way)
        assert target == renamed(source, target.name)
        cells = read_cells(session, source, writetime=True, ttl=True)
        assert_same_times(source, cells, read_cells(session, target, writetime=True, ttl=True))


def test_random_tables_come_back_without_their_times(copy, cassandra_server, keyspace):
    session = cassandra_server.session()
    nested = drawn(filled_tables(), 2, number=1)
    plain = drawn(filled_tables(nested=False), 1, number=1)
    for number, (schema, filling) in enumerate([*nested, *plain]):
        source = create_table(session, set_apart(schema, number), TableName(keyspace, f"source_{number}"))
        fill(session, source, filling)
        way = {"format": "csv"} if number == len(nested) else {}
        target = copy(source, TableName(keyspace, f"target_{number}"), **way)
        assert read_cells(session, target) == read_cells(session, source)
