"""Two snapshots of one Iceberg table: the same differences as by reading everything, from files that differ alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward.diffing.comparison import SideComparison
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.stored.addresses import Side
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError
from lakeward.iceberg.define import LAYOUT_PROPERTY
from lakeward.iceberg.table import IcebergTable
from lakeward.session.sessions import table_session

MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("delete", "update", "merge")}


class Table:
    """A table whose snapshots are named as they are made."""

    def __init__(self, spark: Any, config: Any, version: int, *, key: str = "BIGINT", **properties: str) -> None:
        self.spark, self.config = spark, config
        self.table = IcebergTable(spark, "test", f"t{version}")
        self.name = self.table.identifier
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.test")
        given = {**MERGE_ON_READ, "format-version": str(version), **properties}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
        columns = f"id {key}, text STRING, number INT, at TIMESTAMP, parts ARRAY<INT>"
        spark.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg TBLPROPERTIES ({listed})")
        self.marks: dict[str, int] = {}

    def add(self, first: int, last: int, files: int = 1) -> None:
        rows = self.spark.range(first, last, 1, files).selectExpr(
            "id", "concat('t', id) text", "cast(id % 7 as int) number",
            "timestamp_micros(id * 1000001) at", "array(cast(id as int), null) parts",
        )  # fmt: skip
        rows.writeTo(self.name).append()

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=self.name))

    def mark(self, name: str) -> None:
        self.marks[name] = self.table.require_head().id

    def side(self, name: str) -> Side:
        address = f"iceberg:{self.table.namespace}.{self.table.name}@snapshot:{self.marks[name]}"
        return open_side(self.spark, self.config, address)

    def differences(self, past: str, current: str, plan: str, **choices: Any) -> tuple[set[Any], Any, str]:
        with SideComparison(self.side(past), self.side(current), ["id"], DiffOptions(), plan=plan, **choices) as found:
            rows = {str(row.asDict(recursive=True)) for row in found.frame.collect()}
            return rows, found.summary(), found.reason

    def require_same(self, past: str, current: str) -> str:
        """Hold both ways of comparing against each other."""
        rows, summary, reason = self.differences(past, current, "iceberg")
        expected, expected_summary, _ = self.differences(past, current, "join")
        assert (rows, summary) == (expected, expected_summary)
        return reason


@pytest.fixture
def make(
    spark: Any, tmp_path: Path, lake_config: Callable[..., Any], lake_session: Callable[..., Any]
) -> Callable[..., Table]:
    session = table_session(lake_session(tmp_path))
    return lambda version, **properties: Table(session, lake_config(tmp_path), version, **properties)


KEY = {LAYOUT_PROPERTY: '{"primary_key": ["id"], "partition_by": []}'}


@pytest.mark.parametrize("version", [2, 3])
def test_changes_deletes_compaction_and_new_columns(make, version):
    table = make(version, **KEY, **{"write.delete.granularity": "partition"})
    table.add(0, 2000, files=3)
    table.mark("loaded")
    table.sql("UPDATE {t} SET text = concat(text, '!'), number = NULL WHERE id % 100 = 7")
    table.mark("updated")
    table.sql("DELETE FROM {t} WHERE id IN (7, 8, 1500)")
    table.add(5000, 5003)
    table.mark("deleted")
    reason = table.require_same("loaded", "updated")
    assert "1 and" in reason and "not read" in reason
    table.require_same("deleted", "loaded")
    options = "options => map('rewrite-all', 'true')"
    table.sql(f"CALL lake.system.rewrite_data_files(table => 'test.t{version}', {options})")
    table.mark("compacted")
    _, summary, _ = table.differences("deleted", "compacted", "iceberg")
    assert summary.is_same
    table.require_same("updated", "compacted")
    # DuckDB calls the position of a row so, which then cannot be asked for.
    more = "more" if version == 2 else "file_row_number"
    table.sql(f"ALTER TABLE {{t}} ADD COLUMN {more} STRING")
    table.sql("ALTER TABLE {t} ALTER COLUMN number TYPE BIGINT")
    table.sql(f"UPDATE {{t}} SET {more} = 'x' WHERE id = 20")
    table.mark("evolved")
    table.require_same("compacted", "evolved")
    table.sql("ALTER TABLE {t} RENAME COLUMN text TO words")
    table.sql("DELETE FROM {t} WHERE id = 21")
    table.mark("renamed")
    with SideComparison(table.side("evolved"), table.side("renamed"), ["id"], DiffOptions()) as found:
        assert (found.plan, found.summary().unchanged) == ("join", 0)
        assert "the column text is called words on the other side" in found.reason


@pytest.mark.parametrize("way", ["one task", "rows picked", "files read"])
def test_a_rollback_brings_rows_back(make, way, monkeypatch):
    if way != "one task":
        monkeypatch.setattr("lakeward.diffing.plans.iceberg._MOST_ROWS", -1)
    if way == "files read":
        monkeypatch.setattr("lakeward.diffing.plans.iceberg._MOST_PICKED", -1)
    table = make(2, **KEY)
    table.add(0, 1000)
    table.mark("before")
    table.sql("DELETE FROM {t} WHERE id < 5")
    table.mark("after")
    table.sql(f"CALL lake.system.rollback_to_snapshot('test.t2', {table.marks['before']})")
    table.sql("UPDATE {t} SET number = 100 WHERE id IN (3, 900)")
    table.mark("other way")
    table.require_same("after", "other way")


def test_a_table_of_another_writer(make):
    """Its positions may be deleted twice, so that more is looked at, and rows are counted by reading."""
    table = make(2, key="BIGINT NOT NULL")
    table.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
    table.add(0, 300)
    table.sql("DELETE FROM {t} WHERE id = 9")
    table.mark("before")
    table.sql("DELETE FROM {t} WHERE id IN (2, 200)")
    table.add(300, 302)
    table.mark("after")
    assert table.side("after").primary_key == ("id",)
    table.require_same("before", "after")
    sides = table.side("before"), table.side("after")
    with SideComparison(*sides, ["id"], DiffOptions(), plan="join", checksums=True) as found:
        found.frame.collect()
        past, current = found.identities()
    assert (past["rows"], current["rows"]) == (299, 299)
    assert past["checksum"] != current["checksum"]


def test_few_files_are_read(make, spark):
    table = make(2, **KEY)
    table.add(0, 500)
    for at in range(4):
        table.add(1000 * (at + 1), 1000 * (at + 1) + 300)
    table.mark("before")
    table.sql("UPDATE {t} SET number = -1 WHERE id = 3")
    table.mark("after")
    with SideComparison(table.side("before"), table.side("after"), ["id"], DiffOptions()) as found:
        assert (found.plan, found.summary().changed) == ("iceberg", 1)
        assert (found.summary().past_rows, found.summary().unchanged) == (1700, 1699)
        # One task reads what it needs: the table itself is not scanned.
        assert "Scan lake.test.t2" not in found.frame._jdf.queryExecution().toString()


def test_sides_that_cannot_be_compared_by_their_files(make):
    table = make(2, **KEY)
    table.add(0, 50)
    table.mark("a")
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.mark("b")
    for keys, choices, reason in (
        (["text"], {}, "only that key is known to be unique"),
        (["id"], {"exact": True}, "an exact comparison reads everything"),
    ):
        with (
            pytest.raises(RefusedInputError, match=reason),
            SideComparison(table.side("a"), table.side("b"), keys, DiffOptions(), plan="iceberg", **choices),
        ):
            pass
    table.sql("ALTER TABLE {t} DROP COLUMN number")
    with SideComparison(table.side("a"), table.side("b"), ["id"], DiffOptions()) as found:
        assert (found.plan, found.summary().deleted) == ("join", 1)
        assert "number is no longer in the table" in found.reason


def test_addresses_of_tables(make):
    table = make(2, **KEY)
    table.add(0, 10)
    table.mark("a")
    table.table.create_tag("first", table.marks["a"])
    table.add(10, 12)

    def rows(at: str) -> int:
        return open_side(table.spark, table.config, f"iceberg:test.t2{at}").frame.count()

    assert (rows(""), rows("@tag:first"), rows("@2999-01-01T00:00")) == (12, 10, 12)
    side = open_side(table.spark, table.config, "iceberg:test.t2@tag:first")
    assert (side.primary_key, side.identity["snapshot"]) == (("id",), table.marks["a"])
    for at, reason in (
        ("@tag:x", "no tag x: first"),
        ("@snapshot:5", "no snapshot 5"),
        ("@2001-01-01", "of that time"),
    ):
        with pytest.raises(RefusedInputError, match=reason):
            rows(at)
    with pytest.raises(RefusedInputError, match=r"no table test\.none"):
        open_side(table.spark, table.config, "iceberg:test.none")
