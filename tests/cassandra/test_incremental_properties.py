"""Random workloads, shipped as what changed: the copy is then the same, and stays so however often it is shipped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from lakeward.cassandra.apply import ApplyRequest, apply_change_set
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.diff import diff_exports
from lakeward.cassandra.export import ExportRequest, export_table
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.schema import TableSchema, read_table_schema
from lakeward.cassandra.write_plan import WriteStatus
from lakeward.config import Config
from lakeward.errors import RefusedInputError
from lakeward.session.sessions import table_session
from tests.cassandra.scene import create_table, fill, read_cells, set_apart, update, work
from tests.cassandra.strategies import (
    Filling,
    Step,
    canonical,
    drawn,
    filled_tables,
    fillings,
    values,
    workloads,
)

if TYPE_CHECKING:
    from lakeward.cassandra.write_plan import WriteReport
    from tests.servers.cassandra import CassandraServer

COLLECTIONS = (
    "CREATE TABLE {name} (k int, c int, ls list<int> STATIC, s int STATIC, l list<int>, m map<text, int>, st set<int>, "
    "v text, PRIMARY KEY (k, c))"
)
# Whatever else is drawn: a list that grows, one that is gone, a value that becomes null, and a row of its key alone.
BEFORE = [Step("insert", {"k": 1, "c": 1, "ls": [7, 7], "l": [1, 1], "m": {"a": 1}, "v": "x"})]
AFTER = [
    Step("update", {"k": 1, "c": 1, "l": [1, 1, 2], "v": None}),
    Step("update", {"k": 1, "ls": None}),
    Step("insert", {"k": 1, "c": 2}),
]
HOUR = 3_600_000_000


class Shipper:
    """Exports a table again and again, and ships what changed."""

    def __init__(self, spark: Any, server: CassandraServer, folder: Path) -> None:
        self.spark, self.server, self.folder = table_session(spark), server, folder
        self.config = Config(base=folder)
        self.numbers = 0

    def export(self, source: TableSchema) -> str:
        # A folder of its own for each: one takes an export a minute.
        self.numbers += 1
        request = ExportRequest(source.name, str(self.folder / f"export-{self.numbers}"))
        return export_table(self.spark, self.config, self.server.address, request).folder

    def load(self, snapshot: str, into: TableName) -> TableSchema:
        wanted = ImportRequest(snapshot, into, create_table=True)
        assert import_snapshot(self.spark, self.config, self.server.address, wanted).status is WriteStatus.DONE
        return read_table_schema(self.server.session(), into)

    def diff(self, past: str, current: str) -> str:
        self.numbers += 1
        to = str(self.folder / f"changes-{self.numbers}")
        result = diff_exports(self.spark, self.config, past, current, to=to)
        return str(result.change_set)

    def apply(self, change_set: str, into: TableName, **options: Any) -> WriteReport:
        request = ApplyRequest(change_set, into, max_delete_share=1.0, **options)
        return apply_change_set(self.spark, self.config, self.server.address, request)


@pytest.fixture
def shipper(spark: Any, cassandra_server: CassandraServer, tmp_path: Path) -> Shipper:
    return Shipper(spark, cassandra_server, tmp_path)


def worked_tables() -> Any:
    return filled_tables().flatmap(lambda one: st.tuples(st.just(one[0]), st.just(one[1]), workloads(one[0], one[1])))


def test_a_copy_is_the_same_after_any_workload(shipper, cassandra_server, keyspace):
    session = cassandra_server.session()
    for number, (schema, filling, steps) in enumerate(drawn(worked_tables(), 2)):
        source = create_table(session, set_apart(schema, number), TableName(keyspace, f"source_{number}"))
        fill(session, source, filling)
        past = shipper.export(source)
        target = shipper.load(past, TableName(keyspace, f"target_{number}"))
        work(session, source, steps)
        change_set = shipper.diff(past, shipper.export(source))
        shipper.apply(change_set, target.name)
        assert read_cells(session, target) == read_cells(session, source)


def test_replays_change_nothing_and_newer_writes_survive(shipper, cassandra_server, keyspace):
    session = cassandra_server.session()
    source_name = TableName(keyspace, "source")
    session.execute(COLLECTIONS.format(name=source_name.cql))
    source = read_table_schema(session, source_name)
    filling, steps, more = drawn(_stories(source), 1)[0]
    fill(session, source, filling)
    work(session, source, BEFORE)
    exports = [shipper.export(source)]
    copies = [shipper.load(exports[0], TableName(keyspace, name)) for name in ("target", "live")]
    work(session, source, [*steps, *AFTER])
    exports.append(shipper.export(source))
    first = shipper.diff(*exports)
    target, live = copies
    newer = _live_writes(session, live, filling)
    for copy in copies:
        assert shipper.apply(first, copy.name).status is WriteStatus.DONE
    cells = read_cells(session, source)
    assert read_cells(session, target) == cells
    for (place, name), value in newer.items():
        cells.setdefault(place, {})[name] = value
    assert read_cells(session, live) == cells

    assert shipper.apply(first, target.name).status is WriteStatus.NOTHING_TO_DO
    assert shipper.apply(first, target.name, force=True).status is WriteStatus.DONE
    assert shipper.apply(first, live.name, force=True).status is WriteStatus.DONE
    assert read_cells(session, target) == read_cells(session, source)
    assert read_cells(session, live) == cells

    work(session, source, more)
    exports.append(shipper.export(source))
    work(session, source, [step for step in steps if step.kind == "update"])
    exports.append(shipper.export(source))
    second, third = shipper.diff(*exports[1:3]), shipper.diff(*exports[2:])
    with pytest.raises(RefusedInputError):
        shipper.apply(third, target.name)
    for change_set in (second, third):
        assert shipper.apply(change_set, target.name).status is WriteStatus.DONE
    assert read_cells(session, target) == read_cells(session, source)


def _stories(schema: TableSchema) -> Any:
    def worked(filling: Filling) -> Any:
        return st.tuples(st.just(filling), workloads(schema, filling, most=20), workloads(schema, filling, most=20))

    return fillings(schema, partitions=5, rows=5).filter(lambda one: len(one.rows) > 5).flatmap(worked)


def _live_writes(session: Any, schema: TableSchema, filling: Filling) -> dict[Any, Any]:
    """Write cells of some rows as of an hour from now, also of rows that the source may have deleted meanwhile."""
    later = int(time.time() * 1_000_000) + HOUR
    found = {}
    for number, row in enumerate(filling.rows[::2]):
        column = schema.regulars[number % len(schema.regulars)]
        value = drawn(values(column.type).filter(lambda one: one), 1, number=number)[0]
        key = {name: row[name] for name in schema.primary_key}
        update(session, schema, {**key, column.name: value}, timestamp=later)
        place = ("row", canonical(tuple(key.values())))
        found[place, column.name] = read_cells(session, schema)[place][column.name]
    return found
