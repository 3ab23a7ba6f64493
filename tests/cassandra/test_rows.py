"""Rows of a live table: counted, their partitions measured, deleted by a condition, and written again with a TTL."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.util import Date
from click.testing import CliRunner

from lakeward import CassandraClient, WriteStatus
from lakeward.cassandra.clusters import LiveTable
from lakeward.cassandra.conditions import parse_condition, sql_value
from lakeward.cassandra.cql import TableAddress, TableName
from lakeward.cassandra.edits import MOST_SECONDS
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.snapshots import snapshot_struct
from lakeward.cassandra.write_job import WriteJob
from lakeward.cli.main import cli
from lakeward.config import Config
from lakeward.errors import ConfigurationError, RefusedInputError, RetriableError
from lakeward.session.sessions import table_session
from tests.cassandra.hand_made import schema_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.cassandra import CassandraServer

COLUMNS = (
    'customer text, day date, tier text static, total decimal, made timestamp, "Odd name" text, tags list<text>, '
    "sizes map<text, int>, PRIMARY KEY (customer, day)"
)
BIG = 1_200


class Shop:
    """A table, and what is done with it."""

    def __init__(self, spark: Any, server: CassandraServer, keyspace: str, folder: Path) -> None:
        self.session, self.keyspace, self.server = server.session(), keyspace, server
        self.table, self.name = f"{keyspace}.orders", TableName(keyspace, "orders")
        self.client = CassandraClient(Config(base=folder), spark=table_session(spark))
        # The address of the fixture, whatever its login.
        self.client.table = self._table  # type: ignore[method-assign]
        self.execute(f"CREATE TABLE $T ({COLUMNS})")
        self.fill()

    def _table(self, address: str, **_: Any) -> Any:
        return LiveTable(self.server.address, TableAddress.parse(address).name)

    def fill(self) -> None:
        insert = self.session.prepare(
            f'INSERT INTO {self.table} (customer, day, total, made, "Odd name", tags, sizes) '
            "VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        rows: list[tuple[Any, ...]] = [("big", Date(number), None, None, None, None, None) for number in range(BIG)]
        rows += [
            ("ann", Date(20_000 + at), 10 + at, 1_690_914_239_476 + at, "x" * 500, ["a", "b"], {"k": at})
            for at in (0, 1, 2)
        ]
        rows += [("bob", Date(20_000), None, None, None, None, None)]
        execute_concurrent_with_args(self.session, insert, rows)
        self.execute(
            "INSERT INTO $T (customer, tier) VALUES ('ann', 'gold')",
            "INSERT INTO $T (customer, tier) VALUES ('cid', 'gold')",
        )

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.replace("$T", self.table), timeout=60)

    def rows(self, what: str = "*", where: str = "") -> list[Any]:
        return sorted(self.session.execute(f"SELECT {what} FROM {self.table} {where}"), key=repr)

    def ann(self) -> list[Any]:
        return self.rows('day, total, made, "Odd name", tags, sizes', "WHERE customer = 'ann'")


@pytest.fixture(scope="module")
def shop(spark: Any, cassandra_server: CassandraServer, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(spark, cassandra_server, cassandra_server.keyspace(), tmp_path_factory.mktemp("shop"))


def test_rows_are_counted_and_partitions_measured(shop: Shop) -> None:
    found = shop.client.count(shop.table)
    assert (found.rows, found.partitions, found.matching) == (BIG + 4, 4, None)
    assert found.partitioner == "Murmur3Partitioner" and found.read_units > 0
    # The static value of a partition is in each of its rows, as in CQL, and its rows alone count.
    where = "tier = 'gold' AND total > 10.5 AND made < '2023-08-01 18:24:00' AND day >= date'2024-10-05'"
    found = shop.client.count(shop.table, where=where)
    assert (found.rows, found.matching, found.partitions) == (BIG + 4, 2, None)
    # A null meets neither a condition nor its opposite.
    assert shop.client.count(shop.table, where="NOT (total > 10.5)").matching == 1
    largest = shop.client.top_partitions(shop.table, limit=2)
    assert [(size.key, size.rows, size.bytes) for size in largest.largest] == [
        ({"customer": "'big'"}, BIG, None),
        ({"customer": "'ann'"}, 3, None),
    ]
    largest = shop.client.top_partitions(shop.table, limit=1, by="bytes")
    (size,) = largest.largest
    assert (size.rows, size.key) == (BIG, {"customer": "'big'"}) and size.bytes == BIG * (3 + 4)


def test_a_delete_shows_first_is_guarded_and_spares_later_writes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "customer = 'ann' AND total < 11.5 OR customer = 'bob'"
    shown = shop.client.delete(shop.table, where=where)
    assert (shown.rows, shown.matching, shown.written.status) == (BIG + 4, 3, WriteStatus.DRY_RUN)
    assert (shown.written.deleted, shown.written.units) == (3, 3.0)
    assert "static values stay" in shown.written.warnings[0]
    assert len(shop.rows("customer, day", "WHERE customer = 'ann'")) == 3
    tables = shop.session.execute(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (shop.keyspace,)
    )
    assert [name for (name,) in tables] == ["orders"], "a dry run makes no ledger"

    refused = shop.client.delete(shop.table, where="customer = 'big'")
    assert "--apply is refused" in refused.written.warnings[0]
    with pytest.raises(RefusedInputError, match="1,200 of 1,204 rows meet the condition"):
        shop.client.delete(shop.table, where="customer = 'big'", apply=True)

    # Between reading and writing, somebody writes a cell and a row anew.
    run = WriteJob.run

    def late(job: WriteJob, *arguments: Any) -> Any:
        shop.execute(
            "UPDATE $T SET total = 99 WHERE customer = 'ann' AND day = '2024-10-04'",
            "INSERT INTO $T (customer, day) VALUES ('bob', '2024-10-04')",
        )
        return run(job, *arguments)

    monkeypatch.setattr(WriteJob, "run", late)
    found = shop.client.delete(shop.table, where=where, apply=True)
    assert (found.written.status, found.written.deleted) == (WriteStatus.DONE, 3)
    assert "2 of 3 deleted rows that were looked for are still there" in found.written.warnings[-1]
    left = {
        (customer, str(day)): total for customer, day, total in shop.rows("customer, day, total") if customer != "big"
    }
    assert left == {
        ("ann", "2024-10-04"): 99,
        ("ann", "2024-10-06"): 12,
        ("bob", "2024-10-04"): None,
        ("cid", "None"): None,
    }
    # Nothing is known of the table, and nothing is recorded as what it holds.
    assert Ledger(shop.session, shop.name).last() is None
    monkeypatch.undo()
    assert shop.client.delete(shop.table, where="total = 98", apply=True).written.status is WriteStatus.NOTHING_TO_DO


def test_rows_get_a_ttl_and_lose_it_again(shop: Shop) -> None:
    shop.fill()
    before = shop.ann()
    found = shop.client.set_ttl(shop.table, 5_000, where="customer IN ('ann', 'bob')", apply=True)
    assert (found.matching, found.written.upserted, found.ttl) == (4, 4, 5_000)
    assert shop.ann() == before
    ttls = 'ttl(total), ttl(made), ttl("Odd name"), ttl(tier)'
    for *regular, static in shop.rows(ttls, "WHERE customer = 'ann'"):
        assert all(4_000 < left <= 5_000 for left in regular) and static is None
    # Elements of collections too, and lists are not doubled by a second time.
    again = shop.client.set_ttl(
        shop.table, 1, where="customer IN ('ann', 'bob') AND day <> date'2024-10-06'", apply=True
    )
    assert again.written.upserted == 3
    deadline = time.monotonic() + 20
    while len(shop.rows("day", "WHERE customer IN ('ann', 'bob')")) > 1 and time.monotonic() < deadline:
        time.sleep(0.2)
    # All of the rows is gone, also of the row that had only its key.
    assert shop.ann() == [before[2]]
    shop.client.set_ttl(shop.table, 0, where="customer = 'ann'", apply=True)
    assert shop.ann() == [before[2]]
    assert shop.rows(ttls, "WHERE customer = 'ann'") == [(None, None, None, None)]


def test_a_delete_that_was_killed_is_finished_by_the_same_call(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.execute("INSERT INTO $T (customer, day) VALUES ('eve', '2024-10-04')")
    write = WriteJob._run_tasks

    def killed(job: WriteJob, *arguments: Any) -> Any:
        write(job, *arguments)
        msg = "killed"
        raise RetriableError(msg)

    ledger, where = Ledger(shop.session, shop.name), "customer = 'eve'"
    monkeypatch.setattr(WriteJob, "_run_tasks", killed)
    with pytest.raises(RetriableError, match="killed"):
        shop.client.delete(shop.table, where=where, apply=True)
    monkeypatch.undo()
    begun = ledger.under_way()
    assert begun is not None and begun.kind == "delete"
    assert shop.client.delete(shop.table, where=where).written.status is WriteStatus.NOTHING_TO_DO
    assert ledger.under_way() is not None
    assert shop.client.delete(shop.table, where=where, apply=True).written.status is WriteStatus.NOTHING_TO_DO
    assert ledger.under_way() is None and ledger.last() is None

    ledger.begin(Job("import-1", "import", 8, 5, {"location": "exports/1"}))
    with pytest.raises(RefusedInputError, match=r"the import of exports/1 into .* was started and not finished"):
        shop.client.delete(shop.table, where=where)
    ledger.forget()

    # Rows of a copy: what it holds is not known any more, and the record says so.
    shop.execute("INSERT INTO $T (customer, day) VALUES ('eve', '2024-10-04')")
    ledger.record({"kind": "export", "location": "exports/1", "rows": 5})
    written = shop.client.delete(shop.table, where=where, apply=True).written
    assert "is not known: the delete of rows of" in written.warnings[-1]
    last = ledger.last()
    assert last is not None and "where customer = 'eve'" in str(last.unknown)


def test_commands(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = shop.server.address.settings
    cluster = ["--cluster", f"cassandra://{settings.hosts[0]}:{settings.port}"]

    def call(*arguments: str) -> Any:
        result = CliRunner().invoke(cli, ["cassandra", *arguments, *cluster], prog_name="lakeward")
        assert result.exit_code == 0, result.stderr
        return result

    shop.execute("INSERT INTO $T (customer, day) VALUES ('[b]', '2024-10-04')")
    found = json.loads(call("count", shop.table, "--where", "customer = '[b]'", "--output", "json").stdout)
    assert (found["matching"], found["where"]) == (1, "customer = '[b]'")
    assert "customer='big'   1,200 rows" in call("top-partitions", shop.table, "--limit", "1").stdout
    shown = call("delete", shop.table, "--where", "customer = '[b]'")
    assert "nothing was written; --apply does it" in shown.stdout and "customer = '[b]'" in shown.stdout
    written = json.loads(
        call("ttl", shop.table, "1h", "--where", "customer = '[b]'", "--apply", "--output", "json").stdout
    )
    assert (written["ttl"], written["written"]["upserted"]) == (3600, 1)


def test_conditions_that_are_none(spark: Any) -> None:
    schema = schema_of("customer text pk, day date ck, tier text static, total decimal, n varint, made timestamp")
    session = table_session(spark)
    for where, reason in {
        "missing = 1": "not valid.*UNRESOLVED_COLUMN",
        "CUSTOMER = 'x'": "not valid.*UNRESOLVED_COLUMN",
        "day <": "not valid.*PARSE_SYNTAX_ERROR",
        "rand() < 0.5": "not the same each time",
        "customer IN (SELECT id FROM range(1))": "reads other tables",
        "reflect('java.lang.System', 'lineSeparator') = ''": "only Spark's own functions",
        "count(*) > 1": "not valid",
        "row_number() OVER (ORDER BY day) = 1": "not valid",
        "explode(array(1)) = 1": "not valid",
        "total": "not valid",
        "true; DROP TABLE x": "not valid",
    }.items():
        with pytest.raises(ConfigurationError, match=reason):
            parse_condition(session, schema, where)
    values = [("ann", 1, None, "1.2E+1", "5", 0), ("bob", 2, None, "0.1234567890123456789", str(10**40), 2**62)]
    rows = session.createDataFrame(values, snapshot_struct(schema))

    def matching(where: str, of: str = "true") -> int:
        condition = parse_condition(session, schema, where)
        typed = rows.filter(of).select(*[sql_value(schema.column(name)).alias(name) for name in condition.columns])
        with condition.errors("shop.orders"):
            return typed.filter(condition.holds).count()

    where = (
        "total = 12 AND n >= 5 AND made = '1970-01-01' AND day < '1970-01-03' AND tier IS NULL AND day < current_date()"
    )
    assert matching(where, of="customer = 'ann'") == 1
    assert matching("tier = 'gold' OR tier <> 'gold'") == 0
    for where, reason in {
        "total > 0": r"total holds 0\.1234567890123456789, which is not a decimal\(38,18\)",
        "n > 0": r"n holds 10+, which is not a decimal\(38,0\)",
        "made > '1970-01-01'": "made holds 4611686018427387904, which is not a timestamp",
    }.items():
        with pytest.raises(RefusedInputError, match=reason):
            matching(where)
    with pytest.raises(ConfigurationError, match=r"fails at a row of shop\.orders.*CAST_INVALID_INPUT"):
        matching("CAST(customer AS int) = 1")


def test_what_cannot_be_edited_is_refused(shop: Shop) -> None:
    shop.execute(f"CREATE TABLE {shop.keyspace}.hits (page text PRIMARY KEY, hits counter)")
    with pytest.raises(RefusedInputError, match="has counters"):
        shop.client.delete(f"{shop.keyspace}.hits", where="true")
    assert shop.client.count(f"{shop.keyspace}.hits", where="hits > 1").matching == 0
    for ttl in (-1, 0.5, MOST_SECONDS + 1):
        with pytest.raises(ConfigurationError, match="a TTL is"):
            shop.client.set_ttl(shop.table, ttl)
