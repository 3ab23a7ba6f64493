"""The status of tables, read without a Spark job, and what a run reports to its observers."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.iceberg.define import LOGGED_STAMP, changelog_of
from lakeward.logs import JsonFormatter
from lakeward.mirror.op.changelog import open_rows
from lakeward.mirror.op.ledger import op_record
from lakeward.model import TableId
from lakeward.state.leases import HeldLease, current_owner
from tests.spark.crash import crash_at
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakeward.runner.status import TableStatus

pytestmark = pytest.mark.spark

LOAD = [f"{number},name,{'x' * 20},1.00" for number in range(1, 11)]


def status(scene: Scene, table: str = TABLE) -> TableStatus:
    return next(entry for entry in scene.lakeward.status() if entry.table == table)


def counted(scene: Scene) -> int:
    """Bad rows that wait, found by looking for them in the changelog."""
    context = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE))
    head = context.changelog.require_head().id
    log = context.changelog.read(head)
    return open_rows(log, op_record(log, int(context.changelog.stamp(LOGGED_STAMP) or 0)).progress).count()


def jobs(spark: SparkSession) -> int:
    """Spark jobs that were ever started."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_a_table_from_its_first_file_on(scene: Scene, spark: SparkSession) -> None:
    scene.land("LOAD00000001.csv", *LOAD)
    scene.land("notes.txt", "hello")
    scene.land("LOAD00000001.csv", "1,a", folder="sales/found")
    scene.lakeward.discover()
    before = status(scene)
    assert (before.state, before.files_pending, before.rows, before.debt) == ("pending", 1, None, None)
    assert before.oldest_pending_seconds is not None and before.oldest_pending_seconds >= 0
    scene.run()
    logged = changelog_of(scene.lakeward.spark, TableId.parse(TABLE)).require_head().id
    assert scene.lakeward.state.ledger_position(TableId.parse(TABLE)) == logged, "the first op is known to the store"
    scene.land("20240101-000000000.csv", "U,1,new,x,1.00", "D,2,name,x,1.00", "I,11,name,x,1.00")
    scene.run()
    started = jobs(spark)
    [found, after] = scene.lakeward.status()
    assert jobs(spark) == started, "status ran a Spark job"
    assert (found.state, found.waits_for_decision) == ("inactive", True)
    assert found.next_command == "lakeward tables set sales.found --primary-key COLUMN --activate"
    assert (after.state, after.generation, after.op, after.rows, after.files_consumed) == ("current", 1, 2, 10, 2)
    assert (after.files_pending, after.oldest_pending_seconds) == (0, None)
    assert (after.unknown_files, after.unknown_count) == (("sales/product/notes.txt",), 1)
    assert (after.last_outcome, after.error, after.locked_by, after.next_command) == ("done", None, None, None)
    assert after.last_seconds and after.rows_per_second
    assert after.debt is not None and after.changelog_debt is not None
    assert (after.debt.data_files, after.debt.delete_files, after.debt.deleted_rows) == (2, 1, 2)
    assert after.debt.deleted_share == pytest.approx(2 / 12)
    assert after.debt.average_file_bytes > 0 and after.debt.snapshots >= 4
    assert after.changelog_debt.data_files == 2


def test_the_status_shows_failures_and_lease_holders(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,name,x,not a number")
    scene.refused()
    with HeldLease(scene.lakeward.state, TableId.parse(TABLE), current_owner("run-7")):
        held = status(scene)
    assert held.locked_by is not None and "run run-7" in held.locked_by
    assert (held.state, held.last_outcome, held.next_command) == ("failed", "failed", f"lakeward plan {TABLE}")
    assert "not a number" in (held.error or "") and "on_bad_row: quarantine" in (held.hint or "")
    assert status(scene).locked_by is None


def test_a_table_that_cannot_be_looked_at_does_not_hide_the_others(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": "id int", "primary_key": "id"}, "sales.other": {"schema": "id int"}})
    scene.land("LOAD00000001.csv", "1")
    scene.land("LOAD00000001.csv", "1", folder="sales/other")
    scene.run()
    metadata = scene.folder / "lake" / "data" / "sales" / "other" / "metadata"
    for file in metadata.glob("*.json"):
        file.unlink()
    assert (status(scene).state, status(scene, "sales.other").state) == ("current", "failed")
    assert "missing" in (status(scene, "sales.other").error or "")


def freshness(scene: Scene) -> tuple[str, str]:
    found = status(scene).freshness
    assert found is not None
    return found.verdict.value, found.reason


def test_freshness_is_judged_by_files_that_are_not_applied(scene: Scene) -> None:
    scene.table(freshness="1h")
    scene.landing.mkdir()
    assert freshness(scene) == ("unknown", "nothing was loaded yet")
    scene.land("LOAD00000001.csv", *LOAD)
    scene.run()
    assert freshness(scene) == ("on time", "no file waits")
    now = time.time()
    names = [f"{datetime.fromtimestamp(now - age, UTC):%Y%m%d-%H%M%S}000.csv" for age in (7200, 60)]
    # It was copied just now: its name shows how long its changes have waited.
    file = scene.land(names[0], "U,1,new,x,1.00")
    assert freshness(scene)[0] == "late"
    crash_at(scene, "log.ledger")
    interrupted = status(scene)
    assert (interrupted.state, interrupted.files_pending) == ("interrupted", 0)
    assert interrupted.freshness is not None and interrupted.freshness.newest_change is None
    assert freshness(scene)[0] == "late", "the file's op is logged and not yet applied"
    away = file.rename(scene.folder / "away.csv")
    assert freshness(scene)[0] == "unknown"
    away.rename(file)
    scene.run()
    applied = status(scene).freshness
    assert applied is not None and applied.age_seconds is not None
    assert (applied.verdict.value, applied.basis) == ("on time", "name")
    assert applied.age_seconds > 7199
    scene.land(names[1], "U,1,x,x,not a number")
    scene.refused()
    assert freshness(scene) == ("unknown", "its last run failed")
    scene.table()
    assert status(scene).freshness is None


def test_bad_rows_are_counted_through_every_kind_of_op(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine")
    scene.land("LOAD00000001.csv", *LOAD, "x,bad load,x,1.00")
    scene.land("20240101-000000000.csv", "U,1,one,x,1.00", "U,y,bad,x,1.00", "U,2,two,x,z")
    scene.run()
    assert status(scene).quarantined == counted(scene) == 3
    assert status(scene).next_command == f"lakeward quarantine list {TABLE}"
    file = "sales/product/20240101-000000000.csv"
    scene.lakeward.retry_bad_rows(TABLE, replacements={f"{file}:2": "U,3,repaired,x,1.00"})
    assert status(scene).quarantined == counted(scene) == 2
    scene.land("20240102-000000000.csv", "U,1,again,x,1.00", "U,y,bad,x,1.00")
    scene.run()
    assert status(scene).quarantined == counted(scene) == 3
    scene.lakeward.drop_bad_rows(TABLE)
    assert status(scene).quarantined == counted(scene) == 0


def test_bad_rows_of_a_load_that_was_taken_back_do_not_count(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine")
    scene.land("LOAD00000001.csv", *LOAD, "x,bad,x,1.00")
    crash_at(scene, "log.ledger")
    interrupted = status(scene)
    assert (interrupted.state, interrupted.quarantined, counted(scene)) == ("interrupted", 1, 1)
    # Its file is another one now: the op is taken back, and the new file read.
    scene.land("LOAD00000001.csv", *LOAD)
    scene.run()
    assert status(scene).quarantined == counted(scene) == 0


@pytest.fixture
def log_lines() -> Iterator[list[dict[str, Any]]]:
    """The log as programs read it."""
    lines: list[dict[str, Any]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    handler, logger = Keeping(), logging.getLogger("lakeward")
    handler.setFormatter(JsonFormatter())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_run_is_logged_measured_and_kept(scene: Scene, log_lines: list[dict[str, Any]]) -> None:
    tables = {name: {"schema": "id int", "primary_key": "id"} for name in ("sales.good", "sales.bad")}
    scene.configure(tables, metrics={"file": "lakeward.prom"})
    scene.land("LOAD00000001.csv", "1", folder="sales/good")
    scene.land("LOAD00000001.csv", "x", folder="sales/bad")
    report = scene.try_run()
    events = {(line["event"], line.get("table")): line for line in log_lines}
    assert {name for name, _ in events} >= {"run.started", "op.published", "table.failed", "run.finished"}
    op = events["op.published", "sales.good"]
    assert (op["run"], op["op"], op["rows"]) == (report.run_id, 1, 1)
    assert events["table.failed", "sales.bad"]["run"] == report.run_id
    metrics = (scene.folder / "lakeward.prom").read_text()
    assert 'lakeward_rows_applied_total{table="sales.good"} 1.0' in metrics
    assert 'lakeward_failed{table="sales.bad"} 1.0' in metrics
    assert 'lakeward_pending_files{table="sales.bad"} 1.0' in metrics
    assert 'lakeward_debt_data_files{table="sales.good"} 1.0' in metrics
    [run] = scene.lakeward.runs()
    assert (run.run_id, run.done, run.failed, run.rows_applied) == (report.run_id, 1, 1, 1)
    assert [table["table"] for table in scene.lakeward.run_detail(report.run_id).tables] == ["sales.bad", "sales.good"]
