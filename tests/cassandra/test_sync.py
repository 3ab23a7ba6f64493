"""A copy of a table kept current on a real server: round by round, and through what goes wrong in between."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from lakeward.cassandra import sync
from lakeward.cassandra.clusters import LiveTable
from lakeward.cassandra.compare import CompareRequest, StagingFolder, compare_tables
from lakeward.cassandra.connection import ClusterAddress
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.sync import SyncRequest, sync_once
from lakeward.cassandra.sync_rounds import SyncReport
from lakeward.cassandra.sync_steps import First
from lakeward.config import Config
from lakeward.errors import ConfigurationError, RefusedInputError, RetriableError
from lakeward.session.sessions import table_session
from lakeward.storage.filesystem import LocalFileSystem
from tests.cassandra.clock import Clock, set_back
from tests.cassandra.scene import read_cells

COLUMNS = "customer int, day int, tier text static, total decimal, tags list<text>, PRIMARY KEY (customer, day)"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    return set_back(monkeypatch)


class Pair:
    """A table and its copy."""

    def __init__(self, server: Any, keyspace: str, spark: Any, folder: Path, clock: type[Clock]) -> None:
        self.session, self.spark, self.folder, self.clock = server.session(), table_session(spark), folder, clock
        self.address = server.address
        self.table, self.copy = TableName(keyspace, "orders"), TableName(keyspace, "copied")
        self.session.execute(f"CREATE TABLE {self.table.cql} ({COLUMNS})")
        for number in range(40):
            self.run("INSERT INTO {} (customer, day, total, tags) VALUES ({}, 1, 1.50, ['a', 'b'])", number)
            self.run("INSERT INTO {} (customer, tier) VALUES ({}, 'gold')", number)
        self.lines: list[str] = []

    def run(self, statement: str, *values: Any) -> None:
        self.session.execute(statement.format(self.table.cql, *values))

    def sync(self, **asked: Any) -> SyncReport:
        self.clock.next_minute()
        request = SyncRequest(self.address, self.table, self.address, self.copy, str(self.folder / "exports"))
        given = {"create_table": True, **asked}
        return sync_once(self.spark, Config(base=self.folder), replace(request, **given), on_progress=self.lines.append)

    def cells(self, name: TableName) -> Any:
        return read_cells(self.session, read_table_schema(self.session, name))

    def require_equal(self) -> None:
        assert self.cells(self.copy) == self.cells(self.table)


@pytest.fixture
def pair(cassandra_server: Any, keyspace: str, spark: Any, tmp_path: Path, clock: type[Clock]) -> Pair:
    return Pair(cassandra_server, keyspace, spark, tmp_path, clock)


def actions(report: SyncReport) -> list[str]:
    return [str(step.action) for step in report.steps]


def test_what_the_target_would_refuse_is_reported_before_the_export(pair: Pair) -> None:
    with pytest.raises(ConfigurationError, match="has no table 'copied'") as refused:
        pair.sync(create_table=False)
    assert "--create-table" in str(refused.value)
    with pytest.raises(ConfigurationError, match="the timestamp 'yestreday'"):
        pair.sync(timestamp="yestreday")
    with pytest.raises(RefusedInputError, match="would be copied into itself"):
        pair.sync(into=pair.table)
    assert not (pair.folder / "exports").exists()
    (pair.folder / "file").touch()
    with pytest.raises(ConfigurationError, match="Not a directory"):
        pair.sync(to=str(pair.folder / "file/below"))


def test_the_copy_equals_the_table_after_every_round(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    report = pair.sync()
    assert (actions(report), report.status) == (["export", "import"], "applied")
    pair.require_equal()

    # Inserted, changed, changed to null, deleted; a static value; a list.
    pair.run("INSERT INTO {} (customer, day, total) VALUES (100, 2, 7)")
    pair.run("UPDATE {} SET total = 9.000, tags = ['z', 'z'] WHERE customer = 1 AND day = 1")
    pair.run("UPDATE {} SET total = null WHERE customer = 2 AND day = 1")
    pair.run("DELETE FROM {} WHERE customer = 3")
    pair.run("UPDATE {} SET tier = 'iron' WHERE customer = 4")
    report = pair.sync()
    assert actions(report) == ["export", "diff", "apply"]
    summary = report.steps[1].result["summary"]
    assert (summary["inserted"], summary["changed"], summary["deleted"]) == (1, 3, 2)
    pair.require_equal()

    report = pair.sync(keep=1)
    assert (actions(report), report.status) == (["export", "diff", "record"], "nothing changed")
    assert len(report.removed) == 3
    assert str(report.holds["location"]) == report.steps[0].result["folder"]

    # Killed while it exports: what was read then is dropped where something else is asked for now.
    with monkeypatch.context() as broken:
        broken.setattr("lakeward.cassandra.export.publish", _dies)
        with pytest.raises(RetriableError):
            pair.sync()
    pair.lines.clear()
    assert actions(pair.sync(writetime=True)) == ["export", "diff", "record"]
    assert [line for line in pair.lines if "discarding what was read" in line]
    # Killed after the export: the next round begins with what is open, and exports only then.
    pair.run("UPDATE {} SET total = 5 WHERE customer = 5 AND day = 1")
    with monkeypatch.context() as broken:
        broken.setattr(sync, "diff_exports", _dies)
        with pytest.raises(RetriableError):
            pair.sync()
    # Killed in the middle of the apply: rows were written, nothing is recorded.
    with monkeypatch.context() as broken:
        broken.setattr("lakeward.cassandra.ledger.Ledger.finish", _dies)
        with pytest.raises(RetriableError):
            pair.sync()
    pair.run("UPDATE {} SET total = 6 WHERE customer = 5 AND day = 1")
    report = pair.sync()
    assert actions(report) == ["apply", "export", "diff", "apply"]
    pair.require_equal()

    # What was written as of now is newer than the exports of this test's clock, also after a round without changes.
    pair.run("UPDATE {} SET total = 7 WHERE customer = 5 AND day = 1")
    pair.sync(timestamp="now")
    assert pair.sync().status == "nothing changed"
    pair.run("UPDATE {} SET total = 8 WHERE customer = 5 AND day = 1")
    with pytest.raises(RefusedInputError, match="which wins") as refused:
        pair.sync()
    assert refused.value.hint == "--timestamp now   (overwrites newer writes by other clients, too)"
    pair.sync(timestamp="now")
    pair.require_equal()


def _dies(*_: Any, **__: Any) -> Any:
    msg = "gone"
    raise RetriableError(msg)


def test_a_copy_with_rows_needs_a_decision_and_exports_of_others_are_followed(pair: Pair, spark: Any) -> None:
    pair.session.execute(f"CREATE TABLE {pair.copy.cql} ({COLUMNS})")
    pair.session.execute(f"INSERT INTO {pair.copy.cql} (customer, day, total) VALUES (0, 1, 77) USING TIMESTAMP 1")
    with pytest.raises(RefusedInputError, match="already has rows"):
        pair.sync()
    assert not (pair.folder / "exports").exists()
    # Nor does a repair record which export the copy equals.
    _apply(pair, _repair(pair, "first-repair"))
    with pytest.raises(RefusedInputError, match="already has rows"):
        pair.sync()
    report = pair.sync(first=First.IMPORT)
    assert actions(report) == ["export", "import"]
    # Without a source: what another job exported since is applied, but for parts of the table.
    pair.run("DELETE FROM {} WHERE customer = 7")
    _export(pair, columns=("total",))
    _export(pair)
    report = pair.sync(source=None)
    assert (actions(report), list(report.left_out.values())) == (["diff", "apply"], ["holds the columns total"])
    assert pair.sync(source=None).status == "nothing to do"

    # A repair puts right what drifted, and the next round goes on from the export that it went on from.
    pair.clock.next_minute()
    drifted = int(pair.clock.now(UTC).timestamp() * 1_000_000)
    pair.session.execute(f"DELETE FROM {pair.copy.cql} USING TIMESTAMP {drifted} WHERE customer = 8")
    _apply(pair, _repair(pair, "repairs", missing=2))
    pair.require_equal()
    pair.run("UPDATE {} SET total = 8 WHERE customer = 9 AND day = 1")
    assert actions(pair.sync()) == ["export", "diff", "apply"]
    pair.require_equal()

    # Whoever empties the copy, or makes it anew, wants it filled.
    pair.session.execute(f"TRUNCATE {pair.copy.cql}")
    assert actions(pair.sync()) == ["import", "export", "diff", "record"]
    pair.session.execute(f"DROP TABLE {pair.copy.cql}")
    assert actions(pair.sync()) == ["import", "export", "diff", "record"]
    pair.require_equal()
    # The table of that name in another cluster is another table.
    other = ClusterAddress("other", pair.address.settings)
    with pytest.raises(RefusedInputError, match="is an export of the cluster local, but those of other"):
        pair.sync(source=other)


def _export(pair: Pair, **asked: Any) -> None:
    from lakeward.cassandra.export import ExportRequest, export_table

    pair.clock.next_minute()
    request = ExportRequest(pair.table, str(pair.folder / "exports"), **asked)
    export_table(pair.spark, Config(base=pair.folder), pair.address, request)


def _repair(pair: Pair, folder: str, missing: int | None = None) -> str:
    pair.clock.next_minute()
    tables = [LiveTable(pair.address, name) for name in (pair.table, pair.copy)]
    stage = StagingFolder(pair.spark, LocalFileSystem(), str(pair.folder / f"stage-of-{folder}"), 2)
    request = CompareRequest(*tables, pause=0.0, to=str(pair.folder / folder))
    found = compare_tables(pair.spark, Config(base=pair.folder), request, stage)
    assert found.result is not None and found.result.change_set is not None
    assert missing is None or found.counts == {"missing": missing, "different": 0, "surplus": 0}
    return found.result.change_set


def _apply(pair: Pair, change_set: str) -> None:
    from lakeward.cassandra.apply import ApplyRequest, apply_change_set

    apply_change_set(pair.spark, Config(base=pair.folder), pair.address, ApplyRequest(change_set, pair.copy))
