"""A mirror held against the source database itself, and against other copies of its table."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from lakeward.errors import ConfigurationError
from lakeward.session import jars
from lakeward.session.jars import cache_folder
from tests.servers.postgres import PASSWORD, USER
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.views.verification.report import TableVerification
    from tests.servers.postgres import PostgresServer
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

_DRIVER = "org.postgresql:postgresql:42.7.8"
SCHEMA = "id int, name string, price decimal(10,2), changed timestamp_ntz"
LOAD = ((1, "one"), (2, "two"), (3, "three"))


def driver() -> Path:
    """The JDBC driver, which is fetched once."""
    jar = cache_folder() / "org.postgresql_postgresql-42.7.8.jar"
    if not jar.exists():
        with jars.work_folder(cache_folder()) as work:
            [fetched] = [file for file in jars.fetch([_DRIVER], work) if file.name == jar.name]
            shutil.move(fetched, jar)
    return jar


def against(scene: Scene, location: str, **options: Any) -> TableVerification:
    return scene.lakeward.verify([TABLE], against=location, **options).tables[0]


def counts(found: TableVerification) -> tuple[int, int, int]:
    return found.missing, found.extra, found.different


@pytest.fixture
def shop(scene: Scene, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source with one row of every kind of difference; gives its address."""
    monkeypatch.setenv("LAKEWARD_AGAINST_USER", USER)
    monkeypatch.setenv("LAKEWARD_AGAINST_PASSWORD", PASSWORD)
    postgres.run("DROP SCHEMA IF EXISTS sales CASCADE")
    postgres.run("CREATE SCHEMA sales")
    postgres.run(
        "CREATE TABLE sales.product (id bigint PRIMARY KEY, name varchar(20), price numeric(12,3), "
        "changed timestamp, noticed timestamptz, note text)"
    )
    postgres.run(
        "INSERT INTO sales.product VALUES (1, 'one', 1, '2024-01-01 10:00', now(), 'x'), (2, NULL, 2.5, NULL, now(), "
        "''), (3, 'three', 3, '2024-01-01 10:00:00.000001', now(), NULL), (4, 'four', 4, '2024-03-01', now(), NULL), "
        "(5, 'five', 5, '2024-01-01', now(), NULL), (7, 'inserted later', 7, '2024-03-02', now(), NULL)"
    )
    scene.configure({TABLE: {"schema": SCHEMA, "primary_key": "id", "timestamp_column": "at", "rewrite_share": 10}})
    scene.land(
        "LOAD00000001.csv", "2023-01-01 00:00:00,1,one,1.00,2024-01-01 10:00:00", "2023-01-01 00:00:00,2,two,9,NULL",
        "2023-01-01 00:00:00,3,three,3,2024-01-01 10:00:00.000001", "2023-01-01 00:00:00,6,six,6,NULL",
    )  # fmt: skip
    scene.land(
        "20240101-000000000.csv", "U,2024-01-01 00:00:00,2,NULL,2.50,NULL", "I,2024-02-02 00:00:00,4,before,4,NULL"
    )  # fmt: skip
    scene.run()
    scene.lakeward.spark.sql(f"ADD JAR '{driver()}'")
    return f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"


def test_a_mirror_is_compared_with_its_source_and_put_right(scene: Scene, shop: str, postgres: PostgresServer) -> None:
    found = against(scene, shop)
    assert (found.verdict, counts(found), found.exit_code) == ("different", (2, 1, 1), 1), found
    assert (found.only_there, found.only_here, found.not_compared) == (("noticed", "note"), (), ())
    assert found.reason == shop and found.columns == {"name": 1, "changed": 1}
    reported = [
        (finding.kind, finding.key["id"], finding.column, finding.expected, finding.found) for finding in found.findings
    ]
    assert ("different", "4", "name", "four", "before") in reported
    # Changes in flight: key 4 by the changelog, key 7 by the source's own column.
    settled = against(scene, shop, cut_off="2024-02-01", changed_at="changed")
    assert (counts(settled), settled.left_out) == ((1, 1, 0), 2)
    assert {finding.key["id"] for finding in settled.findings} == {"5", "6"}
    assert counts(against(scene, shop, cut_off="2024-02-01", key_ranges=["id=1..4"])) == (0, 0, 0)
    repaired = against(scene, shop, repair=True)
    assert repaired.repair is not None and repaired.message is None
    assert counts(against(scene, shop)) == (0, 0, 0)
    assert sorted(scene.by_key()) == [1, 2, 3, 4, 5, 7]
    # The correction is part of the changelog: what is computed again from files or changelog gives it too.
    for basis in ("files", "changelog"):
        assert scene.lakeward.verify([TABLE], basis=basis).exit_code == 0
    # A change that comes later in the order still wins, one that comes before does not.
    scene.land("20240110-000000000.csv", "U,2024-01-10 00:00:00,4,late,4,NULL")
    scene.land("20240301-000000000.csv", "U,2024-03-01 00:00:00,5,newer,5,NULL")
    scene.run()
    assert (scene.by_key()[4]["name"], scene.by_key()[5]["name"]) == ("four", "newer")
    assert scene.lakeward.verify([TABLE]).exit_code == 0
    check_books(scene)
    postgres.run("ALTER TABLE sales.product DROP COLUMN price")
    lacking = against(scene, shop, repair=True)
    assert (lacking.exit_code, lacking.verdict) == (2, "failed") and "lacks price" in (lacking.message or "")


def test_addresses_that_cannot_be_compared_with(scene: Scene, shop: str) -> None:
    with pytest.raises(ConfigurationError, match="holds a password"):
        against(scene, f"{shop}?user=me&password=secret")
    unknown = against(scene, "jdbc:nothing://host/x")
    assert "driver of 'nothing' is not known" in (unknown.message or "")
    absent = against(scene, "jdbc:mysql://host/x")
    assert "com.mysql.cj.jdbc.Driver" in (absent.message or "") and "spark.jars.packages" in (absent.hint or "")
    missing = against(scene, shop, against_table="sales.nothing")
    assert (missing.verdict, missing.exit_code) == ("failed", 3) and "cannot be read" in (missing.message or "")
    with pytest.raises(ConfigurationError, match="--changed-at"):
        against(scene, shop, changed_at="changed")


def test_copies_in_files(scene: Scene, tmp_path: Path) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", "1,one,x,1.00", "2,NULL,x,2.00", "3,three,y,3.00")
    scene.run()
    frame = scene.lakeward.spark.table("lake.sales.product")
    for kind in ("parquet", "csv", "json"):
        folder = str(tmp_path / kind)
        writer = frame.write.option("header", "true").option("ignoreNullFields", "false")
        writer.partitionBy("dept").format(kind).save(folder)
        same = against(scene, folder)
        assert (same.verdict, same.rows_found, same.only_here) == ("clean", 3, ()), same
    scene.lakeward.spark.sql("UPDATE lake.sales.product SET name = 'other' WHERE id = 2")
    assert counts(against(scene, str(tmp_path / "json"))) == (0, 0, 1)
    for number in (1, 2):
        frame.filter(f"id = {number}").write.parquet(str(tmp_path / "several" / f"version={number}"))
    several = against(scene, str(tmp_path / "several"))
    assert several.exit_code == 2 and "version=1, version=2" in (several.message or "")
    nothing = against(scene, str(tmp_path / "nothing"))
    assert nothing.exit_code == 2 and "has no such files" in (nothing.message or "")
    cut = against(scene, str(tmp_path / "csv"), cut_off="2024-01-01")
    assert cut.exit_code == 2 and "timestamp_column" in (cut.message or "")


def copied(scene: Scene, folder: Path, *rows: tuple[int, str], key: str = "int") -> str:
    """A copy of the table in files; gives its place."""
    values = ", ".join(f"(CAST({number} AS {key}), '{name}', 'x', 1.00)" for number, name in rows)
    frame = scene.lakeward.spark.sql(f"SELECT * FROM VALUES {values} AS t(id, name, dept, price)")
    frame.write.parquet(str(folder))
    return str(folder)


def test_erased_keys_are_left_out_while_they_are_gone_whatever_type_the_other_side_has(
    scene: Scene, tmp_path: Path
) -> None:
    scene.table(timestamp_column="at")
    scene.land("LOAD00000001.csv", *[f"2024-01-01 00:00:00,{key},{name},x,1.00" for key, name in LOAD])
    scene.run()
    scene.lakeward.erase(TABLE, [{"id": 2}, {"id": 3}], reason="request")
    scene.land("20990101-000000000.csv", "I,2099-01-01 00:00:00,2,back,x,1.00")
    scene.run()
    copy = copied(scene, tmp_path / "copy", (1, "ONE"), (2, "back"), (3, "three"), key="decimal(38,10)")
    assert counts(against(scene, copy, repair=True)) == (0, 0, 1)
    assert scene.names() == {1: "ONE", 2: "back"}
    assert counts(against(scene, copy)) == (0, 0, 0)


def test_what_a_repair_puts_right_after_nothing_but_a_load_counts_as_changes(scene: Scene, tmp_path: Path) -> None:
    scene.table(timestamp_column="at")
    scene.land("LOAD00000001.csv", *[f"2024-01-01 00:00:00,{key},{name},x,1.00" for key, name in LOAD])
    scene.run()
    repaired = against(scene, copied(scene, tmp_path / "copy", (1, "one"), (3, "THREE")), repair=True)
    assert (counts(repaired), repaired.message) == ((0, 1, 1), None)
    history = scene.lakeward.history
    feed = history.changes(TABLE, since="op:1").select("_lw_operation", "id").collect()
    assert sorted(tuple(row) for row in feed) == [("D", 2), ("U", 3)]
    versions = history.scd2(TABLE).select("id", "name", F.col("valid_to").isNull()).collect()
    assert {tuple(row) for row in versions} == {
        (1, "one", True), (2, "two", False), (3, "three", False), (3, "THREE", True),
    }  # fmt: skip
    # Whatever comes later in the order wins, however old its name is.
    scene.land("20240102-000000000.csv", "U,2024-01-02 00:00:00,3,later,x,1.00", "I,2024-01-02 00:00:00,2,new,x,1.00")
    scene.run()
    assert scene.names() == {1: "one", 2: "new", 3: "later"}
    for basis in ("files", "changelog"):
        assert scene.lakeward.verify([TABLE], basis=basis).exit_code == 0
    check_books(scene)
