"""Two tables compared by token ranges: only what differs is read again, and a change set makes the copy right."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from lakeward.cassandra.apply import ApplyRequest, apply_change_set
from lakeward.cassandra.clusters import LiveTable
from lakeward.cassandra.compare import CompareRequest, ComparisonReport, StagingFolder, compare_tables
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.snapshots import origin_of
from lakeward.config import Config
from lakeward.diffing.stored.applying import change_set_folder
from lakeward.diffing.stored.changesets import find_change_set
from lakeward.errors import ConfigurationError
from lakeward.session.sessions import table_session
from lakeward.storage.filesystem import LocalFileSystem

COLUMNS = (
    "customer int, day int, tier text static, total decimal, tags set<text>, sizes map<text, double>, "
    "PRIMARY KEY (customer, day)"
)
PARTITIONS, DAYS = 60, 5


@pytest.fixture
def tables(cassandra_server: Any, keyspace: str) -> tuple[LiveTable, LiveTable]:
    """A table and its copy, with the same rows."""
    session = cassandra_server.session()
    for name in ("orders", "copied"):
        session.execute(f"CREATE TABLE {keyspace}.{name} ({COLUMNS})")
        insert = session.prepare(
            f"INSERT INTO {keyspace}.{name} (customer, day, total, tags, sizes) VALUES (?, ?, ?, ?, ?)"
        )
        rows = [
            (partition, day, day, {"a", str(partition)}, {"x": 0.5})
            for partition in range(PARTITIONS)
            for day in range(DAYS)
        ]
        execute_concurrent_with_args(session, insert, rows)
        tier = session.prepare(f"INSERT INTO {keyspace}.{name} (customer, tier) VALUES (?, ?)")
        execute_concurrent_with_args(session, tier, [(partition, "gold") for partition in range(0, PARTITIONS, 2)])
        # A partition of nothing but a static value.
        session.execute(tier, (PARTITIONS, "silver"))
    address = cassandra_server.address
    first, second = (LiveTable(address, TableName(keyspace, name)) for name in ("orders", "copied"))
    return first, second


@pytest.fixture
def compare(spark: Any, tmp_path: Path, tables: Any) -> Callable[..., ComparisonReport]:
    session = table_session(spark)

    def run(on_progress: Callable[[str], None] | None = None, **asked: Any) -> ComparisonReport:
        stage = StagingFolder(session, LocalFileSystem(), str(tmp_path / "stage"), 2)
        given = {"table": tables[0], "copy": tables[1], "pause": 0.0, "ranges": 24, **asked}
        return compare_tables(session, Config(base=tmp_path), CompareRequest(**given), stage, on_progress=on_progress)

    return run


def test_equal_tables_are_read_once_each(compare, tmp_path):
    found = compare()
    assert found.is_same and found.result is None
    rows = PARTITIONS * DAYS + PARTITIONS // 2 + 1
    assert (found.rows, found.differing, found.looks) == ((rows, rows), 0, 1)
    assert found.ranges >= 24
    assert found.to_dict()["missing"] == 0
    # Nothing was put anywhere.
    assert list(tmp_path.iterdir()) == []


def test_what_differs_is_found_shown_and_written_as_a_change_set(compare, tables, cassandra_server, spark, tmp_path):
    table, copy = tables
    session = cassandra_server.session()
    session.execute(f"DELETE FROM {copy.name.cql} WHERE customer = 3 AND day = 1")
    session.execute(f"UPDATE {copy.name.cql} SET total = 7.50 WHERE customer = 4 AND day = 2")
    session.execute(f"DELETE tags FROM {copy.name.cql} WHERE customer = 4 AND day = 3")
    session.execute(f"UPDATE {copy.name.cql} SET tier = 'iron' WHERE customer = 4")
    session.execute(f"INSERT INTO {copy.name.cql} (customer, day, total) VALUES (99, 9, 9)")
    # On its way: not there at the first look, there at the second.
    session.execute(f"DELETE FROM {copy.name.cql} WHERE customer = 20 AND day = 0")
    lines: list[str] = []

    def on_progress(line: str) -> None:
        lines.append(line)
        if "looking again" in line:
            session.execute(
                f"INSERT INTO {copy.name.cql} (customer, day, total, tags, sizes) "
                "VALUES (20, 0, 0, {'a', '20'}, {'x': 0.5})"
            )
            # And this one differs only from now on: it is left to the next comparison.
            session.execute(f"DELETE FROM {copy.name.cql} WHERE customer = 3 AND day = 2")

    found = compare(on_progress, to=str(tmp_path / "out"))
    assert any("looking again at 6 rows" in line for line in lines)
    document = found.to_dict()
    assert {name: document[name] for name in ("missing", "different", "surplus", "looks")} == {
        "missing": 1, "different": 3, "surplus": 1, "looks": 2,
    }  # fmt: skip
    assert 1 <= found.differing <= 5 < found.ranges
    assert document["columns"] | {"sizes": 0} == {"tier": 1, "total": 1, "tags": 1, "sizes": 0}
    change_set = find_change_set(spark, Config(base=tmp_path), document["change_set"])
    assert Path(document["change_set"]).is_relative_to(tmp_path / "out" / table.name.keyspace / copy.name.table)
    rows = {(row["customer"], row["day"]): (row["diff"], row["changes"]) for row in change_set.frame.collect()}
    assert rows == {
        (3, 1): ("I", None),
        (4, 2): ("C", ["total"]),
        (4, 3): ("C", ["tags"]),
        (4, None): ("C", ["tier"]),
        (99, 9): ("D", None),
    }
    manifest = change_set.manifest
    assert (manifest.past["kind"], manifest.current["kind"]) == ("live", "live")
    assert manifest.counts["unchanged"] == found.rows[1] - 4
    origin = origin_of(manifest.current)
    assert origin is not None and origin.schema.name == table.name and origin.is_whole


def test_clusters_with_other_partitioners_are_compared_row_by_row(compare, tables, cassandra_server, monkeypatch):
    """Ranges of one mean nothing to the other."""
    monkeypatch.setattr("lakeward.cassandra.compare.partitioner_of", lambda _: object())
    copy = tables[1]
    cassandra_server.session().execute(f"UPDATE {copy.name.cql} SET tier = 'iron' WHERE customer = 4")
    found = compare()
    assert found.counts == {"missing": 0, "different": 1, "surplus": 0}
    assert (found.differing, found.rows[0]) == (found.ranges, PARTITIONS * DAYS + PARTITIONS // 2 + 1)
    assert [example.key for example in found.result.examples] == [{"customer": "4", "day": None}]


def test_tables_with_another_key_are_refused(compare, tables, cassandra_server):
    copy = tables[1]
    other = TableName(copy.name.keyspace, "other")
    cassandra_server.session().execute(f"CREATE TABLE {other.cql} (customer int PRIMARY KEY, total decimal)")
    with pytest.raises(ConfigurationError, match="has the key customer, day"):
        compare(copy=LiveTable(copy.address, other))


def test_columns_of_one_side_only_are_reported_and_left_out(compare, tables, cassandra_server):
    table, copy = tables
    session = cassandra_server.session()
    session.execute(f"ALTER TABLE {table.name.cql} ADD extra int")
    session.execute(f"UPDATE {table.name.cql} SET extra = 1 WHERE customer = 1 AND day = 1")
    session.execute(f"ALTER TABLE {copy.name.cql} ADD own int")
    found = compare()
    assert (found.is_same, found.has_same_rows, found.lacking) == (False, True, ("extra",))
    assert [difference for difference in found.schema_differences if "'extra'" in difference]
    assert [difference for difference in found.schema_differences if "'own' is only in the copy" in difference]


def test_a_copy_with_wider_types_is_equal_and_can_be_repaired(
    compare, tables, cassandra_server, spark, tmp_path, monkeypatch
):
    table, copy = (
        replace(narrow, name=TableName(narrow.name.keyspace, f"wide_{narrow.name.table}")) for narrow in tables
    )
    session = cassandra_server.session()
    types = ("int", "int", "bigint", "float", "list<int>"), ("int", "varint", "decimal", "double", "list<varint>")
    for one, (key, *others) in zip((table, copy), types, strict=True):
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(others))
        session.execute(f"CREATE TABLE {one.name.cql} (id {key}, n int, {columns}, PRIMARY KEY (id, n))")
        for number in range(20):
            values = f"{number}, 1, -{number}, 9000000000, 0.5, [1, -2]"
            session.execute(f"INSERT INTO {one.name.cql} (id, n, c0, c1, c2, c3) VALUES ({values})")
    found = compare(table=table, copy=copy)
    assert (found.is_same, found.differing, found.schema_differences) == (True, 0, ())
    session.execute(f"UPDATE {table.name.cql} SET c0 = 77, c3 = [5] WHERE id = 3 AND n = 1")
    # A change set in the very minute in which all has been read is waited for to be of another one.
    out = tmp_path / "out" / copy.name.keyspace / copy.name.table
    minutes = [Path(change_set_folder(str(out), datetime.now(UTC) + timedelta(minutes=at))) for at in range(15)]
    for minute in minutes:
        minute.mkdir(parents=True)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: [minute.rmdir() for minute in minutes])
    monkeypatch.setattr("lakeward.cassandra.compare.time", clock)
    found = compare(table=table, copy=copy, to=str(tmp_path / "out"), rechecks=0)
    assert found.counts == {"missing": 0, "different": 1, "surplus": 0}
    assert found.result is not None and found.result.change_set is not None
    request = ApplyRequest(found.result.change_set, copy.name)
    apply_change_set(table_session(spark), Config(base=tmp_path), copy.address, request)
    [row] = session.execute(f"SELECT c0, c3 FROM {copy.name.cql} WHERE id = 3 AND n = 1")
    assert tuple(row) == (77, [5])
