"""Snapshots written into tables of a real server."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.write_plan import WriteStatus
from lakeward.config import Config
from lakeward.errors import ConfigurationError, DataError, RefusedInputError
from lakeward.session.sessions import table_session
from tests.cassandra.hand_made import export, schema_of
from tests.cassandra.scene import nodes_that_tasks_know, read_cells, renamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.write_plan import WriteReport
    from tests.servers.cassandra import CassandraServer

STARTED = "2026-11-15T10:30"
MICROS = int(datetime(2026, 11, 15, 10, 30, tzinfo=UTC).timestamp()) * 1_000_000
WIDE = (
    "customer text pk, shop uuid pk, day date ck, at timestamp ck, greeting text static, tags list<int> static, "
    "amounts list<text>, names set<text>, ok boolean, photo blob, place tuple<int,text>, rates map<text,bigint>, "
    "ratio double, span duration, total decimal"
)
SHOP = "5132b130-ae79-11e4-ab27-0800200c9a66"
DAY, AT = -800_000, 253_402_300_800_000  # both outside what Python's dates hold
VALUES = (
    "greeting", "tags", "amounts", "names", "ok", "photo", "place", "rates", "ratio", "span", "total",
)  # fmt: skip


class Stage:
    """A table to import into, and a twin of it that is written by hand."""

    def __init__(self, spark: SparkSession, server: CassandraServer, keyspace: str, folder: Path) -> None:
        self.spark, self.server, self.folder = table_session(spark), server, folder
        self.session, self.keyspace = server.session(), keyspace
        self.into, self.twin = TableName(keyspace, "orders"), TableName(keyspace, "twin")

    def export(self, columns: str, rows: list[tuple[Any, ...]], started: str = STARTED, **block: Any) -> str:
        return export(self.spark, self.folder, schema_of(columns), started, rows, **block)

    def create(self, columns: str) -> TableSchema:
        schema = renamed(schema_of(columns), self.into)
        self.session.execute(schema.create_statements(self.into)[-1])
        return schema

    def load(self, snapshot: str, **choices: Any) -> WriteReport:
        choices = {"dead_letters": str(self.folder / "dead"), **choices}
        request = ImportRequest(snapshot, self.into, **choices)
        return import_snapshot(self.spark, Config(base=self.folder), self.server.address, request)

    def cells(self, name: TableName, **times: bool) -> dict[Any, Any]:
        return read_cells(self.session, read_table_schema(self.session, name), **times)

    def letters(self) -> list[dict[str, Any]]:
        files = sorted((self.folder / "dead").glob("*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def stage(spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path) -> Stage:
    return Stage(spark, cassandra_server, keyspace, tmp_path)


def wide(customer: str, day: int | None = DAY, **values: Any) -> tuple[Any, ...]:
    assert set(values) <= set(VALUES)
    return (customer, SHOP, day, None if day is None else AT, *(values.get(name) for name in VALUES))


def test_rows_come_back_cell_for_cell_and_the_state_is_recorded(stage: Stage) -> None:
    total = "-12345678901234567890123456789012345678901234.5600"
    rows = [
        wide("a", amounts=["x", "", "x"], names=["n", ""], ok=False, photo=b"", place=(1, None), rates={"r": 2**60},
             ratio=-0.0, span="1mo2d3ns", total=total),
        wide("a", day=None, greeting="hello", tags=[3, 1]),
        wide("b"),  # exists by its key alone
        wide("b", day=7, total="0.00"),
        wide("c", day=None, greeting=""),
        *[wide("many", day=day, total=str(day)) for day in range(200)],
    ]  # fmt: skip
    folder = stage.export(WIDE, rows)
    with pytest.raises(ConfigurationError, match="orders") as absent:
        stage.load(folder)
    assert "--create-table" in str(absent.value.hint)
    written = stage.load(folder, create_table=True)
    assert (written.status, written.upserted, written.deleted, written.rejected) == (WriteStatus.DONE, 205, 0, 0)
    assert written.warnings == ()

    stage.session.execute(schema_of(WIDE).create_statements(stage.twin)[-1])
    key = f"'a', {SHOP}, {DAY + 2**31}, {AT}"
    full = (
        f"(customer, shop, day, at, amounts, names, ok, photo, place, rates, ratio, span, total) VALUES ({key}, "
        f"['x', '', 'x'], {{'n', ''}}, false, 0x, (1, null), {{'r': {2**60}}}, -0.0, 1mo2d3ns, {total})"
    )
    for query in (
        full,
        f"(customer, shop, greeting, tags) VALUES ('a', {SHOP}, 'hello', [3, 1])",
        f"(customer, shop, day, at) VALUES ('b', {SHOP}, {DAY + 2**31}, {AT})",
        f"(customer, shop, day, at, total) VALUES ('b', {SHOP}, {7 + 2**31}, {AT}, 0.00)",
        f"(customer, shop, greeting) VALUES ('c', {SHOP}, '')",
        *[
            f"(customer, shop, day, at, total) VALUES ('many', {SHOP}, {day + 2**31}, {AT}, {day})"
            for day in range(200)
        ],
    ):
        stage.session.execute(f"INSERT INTO {stage.twin.cql} {query}")
    assert stage.cells(stage.into) == stage.cells(stage.twin)
    times = [cell[1] for cells in stage.cells(stage.into, writetime=True).values() for cell in cells.values()]
    assert min(times) == MICROS
    assert max(times) < MICROS + 1_000, "lists are a little later, within a millisecond"

    last = Ledger(stage.session, stage.into).last()
    assert last is not None
    assert (last.identity["location"], last.identity["rows"], last.change_set) == (folder, 205, None)
    assert stage.load(folder).status is WriteStatus.NOTHING_TO_DO
    # Written over what is there, at the same times: nothing changes, and lists do not double.
    again = stage.load(folder, force=True)
    assert (again.status, again.upserted) == (WriteStatus.DONE, 205)
    assert "holds" in again.warnings[0]
    assert stage.cells(stage.into) == stage.cells(stage.twin)

    # The same by another job, as where the export was moved; and after the record is lost.
    moved = shutil.move(folder, f"{stage.folder}/moved")
    stage.load(moved, force=True)
    assert stage.cells(stage.into) == stage.cells(stage.twin)
    Ledger(stage.session, stage.into).forget()
    unknown = stage.load(moved)
    assert "--timestamp now overwrites them" in unknown.warnings[0]
    assert stage.cells(stage.into) == stage.cells(stage.twin)

    other = stage.export(WIDE, rows[:1], started="2026-11-15T11:30")
    with pytest.raises(RefusedInputError, match=r"orders holds .* written at .*") as refused:
        stage.load(other)
    assert "--force" in str(refused.value.hint)


def test_a_table_that_was_dropped_or_emptied_is_filled_as_a_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stage.export("k int pk, a text", [(number, "x") for number in range(40)])
    nowhere = ImportRequest(folder, TableName("nowhere", "orders"), create_table=True)
    with pytest.raises(ConfigurationError, match=r"cannot create nowhere\.orders") as refused:
        import_snapshot(stage.spark, Config(base=stage.folder), stage.server.address, nowhere)
    assert str(refused.value.hint).startswith('CREATE KEYSPACE "nowhere" WITH replication = ')

    def killed_at_its_end(**choices: Any) -> None:
        def die(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as broken:
            broken.setattr(Ledger, "finish", die)
            with pytest.raises(KeyboardInterrupt):
                stage.load(folder, **choices)

    killed_at_its_end(create_table=True)
    # All units are done, and nothing of them is left.
    for statement, why in (("DROP TABLE", "was dropped"), ("TRUNCATE", "is empty"), ("DROP TABLE", "was dropped")):
        stage.session.execute(f"{statement} {stage.into.cql}", timeout=60)
        written = stage.load(folder, create_table=True)
        assert (written.status, written.upserted, written.resumed) == (WriteStatus.DONE, 40, 0)
        assert f"{stage.into} {why}" in written.warnings[0]
        assert len(stage.cells(stage.into)) == 40
        assert stage.load(folder).status is WriteStatus.NOTHING_TO_DO
    killed_at_its_end(force=True)
    assert stage.load(folder, force=True).upserted == 40, "units that are done count for nothing"


def test_recorded_times_and_lives_are_restored_and_what_has_expired_is_left_out(stage: Stage) -> None:
    columns = "k text pk, c int ck, s text static, a text, b text, l list<int>"
    now = int(time.time())
    soon, past = now + 5_000, now - 10
    rows = [
        # k, c, s, a, b, l, then when s, a, b, l were written, and when they expire
        ("k", 1, None, "a", "b", [1, 2], None, 20, 10, 30, None, None, soon, None),
        ("k", 2, None, "a", "b", None, None, 20, 20, None, None, soon, soon, None),
        ("k", 3, None, "a", "b", None, None, 20, 20, None, None, past, None, None),
        ("k", 4, None, "a", None, None, None, 20, None, None, None, past, None, None),
        ("k", 5, None, None, None, None, None, None, None, None, None, None, None, None),
        ("k", None, "s", None, None, None, 40, None, None, None, soon, None, None, None),
    ]
    folder = stage.export(columns, rows, writetime=True, ttl=True)
    with pytest.raises(RefusedInputError, match="a dry run creates none"):
        stage.load(folder, create_table=True, dry_run=True)
    written = stage.load(folder, create_table=True)
    assert (written.upserted, written.skipped_expired) == (5, 1)
    cells = stage.cells(stage.into, writetime=True, ttl=True)
    assert {key[1][1] for key in cells if key[0] == "row"} == {1, 2, 3, 5}
    first = cells[("row", ("k", 1))]
    assert (first["a"][1:], first["b"][1]) == ((20, None), 10)
    assert 30 <= first["l"][1] < 1_000
    assert soon - now - 600 < first["b"][2] <= soon - now
    assert set(cells[("row", ("k", 3))]) == {"b"}
    assert cells[("static", ("k",))]["s"][1] == 40
    assert cells[("static", ("k",))]["s"][2] is not None
    # The row whose cells all expire goes with them: its marker does not outlive them.
    left = stage.session.execute(f"SELECT ttl(a), ttl(b) FROM {stage.into.cql} WHERE k = 'k' AND c = 2").one()
    assert None not in left
    # Without the recorded times, all is as of now.
    stage.load(folder, force=True, timestamp="now")
    assert stage.cells(stage.into, writetime=True)[("row", ("k", 1))]["a"][1] >= now * 1_000_000


def test_plain_files_are_taken_where_every_value_stays_the_same(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "k int pk, n bigint, at timestamp, day date, price decimal, name text, big varint"
    stage.create(columns)
    moment, day = datetime(2026, 11, 15, 10, 30, 0, 123_000, tzinfo=UTC), date(2026, 11, 15)
    struct = "k int, n int, at timestamp, day date, price decimal(10,2), name string, big long"
    frame = stage.spark.createDataFrame([(1, 2, moment, day, Decimal("3.10"), "", 2**40)], struct)
    frame.write.parquet(f"{stage.folder}/plain")
    nodes = nodes_that_tasks_know(monkeypatch)
    dry = stage.load(f"{stage.folder}/plain", dry_run=True)
    assert nodes == [stage.server.address.settings.hosts]
    assert (dry.status, dry.upserted) == (WriteStatus.DRY_RUN, 1)
    assert stage.cells(stage.into) == {}
    query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    assert list(stage.session.execute(query, (stage.keyspace,))) == [("orders",)], "a dry run creates nothing"
    written = stage.load(f"{stage.folder}/plain")
    assert written.status is WriteStatus.DONE
    assert "as of now" in written.warnings[0]
    found = stage.session.execute(f"SELECT n, at, day, price, name, big FROM {stage.into.cql}").one()
    assert found[:2] == (2, 1_794_738_600_123)
    assert (str(found[2]), *found[3:]) == ("2026-11-15", Decimal("3.10"), "", 2**40)


def test_rows_that_do_not_fit_the_table_are_refused_with_an_exact_message(stage: Stage) -> None:
    stage.create("k int pk, c int ck, a text, n int")
    folder = stage.export("k int pk, c int ck, a int, gone text, n smallint", [(1, 1, 1, "x", 2)])
    with pytest.raises(RefusedInputError) as refused:
        stage.load(folder)
    assert str(refused.value.message) == (
        f"{folder} does not fit {stage.into}: the column 'a' is text, which does not hold every int; "
        "the column 'gone' (text) is missing"
    )
    assert refused.value.hint == f'ALTER TABLE {stage.into.cql} ADD ("gone" text);'
    folder = stage.export("k int pk, a text", [(1, "x")], started="2026-11-15T11:30")
    with pytest.raises(RefusedInputError, match=r"its key is \(k\), the table's is \(k, c\)"):
        stage.load(folder)
    stage.spark.createDataFrame([(1, 1, 2**40)], "k int, c int, n long").write.parquet(f"{stage.folder}/plain")
    with pytest.raises(RefusedInputError, match="the column 'n' is bigint, but the table has int"):
        stage.load(f"{stage.folder}/plain")
    stage.session.execute(f"CREATE TABLE {stage.keyspace}.hits (k int PRIMARY KEY, n counter)")
    counted = ImportRequest(folder, TableName(stage.keyspace, "hits"))
    with pytest.raises(RefusedInputError, match="counters, which can only be added to"):
        import_snapshot(stage.spark, Config(base=stage.folder), stage.server.address, counted)
    assert stage.cells(stage.into) == {}


def test_rejected_rows_are_kept_with_the_reason_and_all_others_are_written(stage: Stage) -> None:
    stage.create("k text pk, c text ck, a text, n smallint")
    rows = [("k", f"{number:03}", "x", number) for number in range(50)]
    bad = [("", "1", "x", 1), ("k", "x" * 70_000, "y", 2), ("k", None, "z", 3)]
    stage.spark.createDataFrame([*rows, *bad], "k string, c string, a string, n short").write.parquet(
        f"{stage.folder}/plain"
    )
    written = stage.load(f"{stage.folder}/plain")
    assert (written.status, written.upserted, written.rejected) == (WriteStatus.REJECTED, 50, 3)
    assert str(written.dead_letters).startswith(f"{stage.folder}/dead/import-")
    assert len(stage.cells(stage.into)) == 50
    letters = {letter["values"]["a"]: letter for letter in stage.letters()}
    assert letters["'x'"]["key"] == {"k": "''", "c": "'1'"}
    assert "empty" in letters["'x'"]["reason"]
    assert "70000" in letters["'y'"]["reason"]
    assert letters["'z'"] == {
        "key": {"k": "'k'", "c": "null"},
        "action": "I",
        "values": {"a": "'z'", "n": "3"},
        "reason": "no value for the key column c: nothing is written or deleted by a partial key",
    }
    last = Ledger(stage.session, stage.into).last()
    assert last is not None
    assert (last.rejected, last.dead_letters) == (3, written.dead_letters)


def test_too_many_rejected_rows_end_the_import(stage: Stage) -> None:
    stage.create("k int pk, c text ck")
    frame = stage.spark.range(3_000).selectExpr("cast(id as int) k", "cast(null as string) c")
    frame.write.parquet(f"{stage.folder}/plain")
    with pytest.raises(DataError, match="more than 1,000 rows were rejected") as failed:
        stage.load(f"{stage.folder}/plain")
    assert "--max-rejected" in str(failed.value.hint)
    assert failed.value.exit_code == 3
    assert 1_000 <= len(stage.letters()) <= 1_010
    assert Ledger(stage.session, stage.into).last() is None
    allowed = stage.load(f"{stage.folder}/plain", max_rejected=3_000)
    assert (allowed.status, allowed.rejected) == (WriteStatus.REJECTED, 3_000)
