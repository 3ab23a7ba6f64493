"""Many tables in one run: at one time, by priority, within limits; faults of one stay with it."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config import parse_config
from lakeward.errors import RetriableError
from lakeward.lake import Lakeward
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.report import Outcome
from lakeward.runner import slots
from lakeward.runner.observers import SilentObserver
from lakeward.session.sessions import session_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakeward.errors import LakewardError
    from lakeward.mirror.op.report import OpReport, RunReport, TableReport

pytestmark = pytest.mark.spark

# Only reached when the code under test hangs.
TIMEOUT = 600


class Journal(SilentObserver):
    """Records the calls of an observer."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.published: list[tuple[str, int]] = []
        self.retries: list[tuple[str, int, float, str]] = []
        self.finished: list[str] = []
        self.runs: list[RunReport] = []

    def table_started(self, table: str) -> None:
        self.started.append(table)

    def op_published(self, table: str, report: OpReport) -> None:
        self.published.append((table, report.op))

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        self.retries.append((table, attempt, delay, error.kind))

    def table_finished(self, report: TableReport) -> None:
        self.finished.append(report.table)

    def run_finished(self, report: RunReport) -> None:
        self.runs.append(report)


class Tables:
    """A lake of small tables ``s.a``, ``s.b`` … and what is done to it."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.journal = Journal()
        self.on_step: Callable[[str, str], None] | None = None
        self._spark = spark
        self.lake: Lakeward

    def open(self, names: str, *, own: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Tables:
        body = {"schema": "id int, name string", "primary_key": "id"}
        tables = {f"s.{name}": {**body, **(own or {}).get(name, {})} for name in names}
        retry = {"attempts": 3, "first_delay": 0.01}
        config = parse_config({"retry": retry, **settings, "tables": tables}, base=self.folder)
        session = session_for(self._spark, config)
        self.lake = Lakeward(config, spark=session, on_step=self._on_step, observers=[self.journal])
        return self

    def _on_step(self, table: str, step: str) -> None:
        if self.on_step:
            self.on_step(table, step)

    def land(self, name: str, file: str, *lines: str) -> None:
        path = self.folder / "landing" / "s" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def load(self, names: str) -> None:
        for name in names:
            self.land(name, "LOAD00000001.csv", "1,first")

    def change(self, name: str, count: int) -> None:
        for number in range(1, count + 1):
            self.land(name, f"20240101-0000{number:02}000.csv", f"U,1,change {number}", f"I,{number + 100},new")

    def run(self, **options: Any) -> RunReport:
        parallel = options.pop("parallel", None)
        return self.lake.run(options=RunOptions(**options), parallel=parallel)

    def count(self, name: str) -> int:
        return int(self.lake.sql(f"SELECT count(*) FROM s.{name}").first()[0])


@pytest.fixture
def tables(tmp_path: Path, spark: SparkSession) -> Iterator[Tables]:
    stage = Tables(tmp_path, spark)
    yield stage
    stage.lake.close()


def test_tables_run_at_one_time_with_jobs_that_name_their_table(tables: Tables) -> None:
    tables.open("abc")
    tables.load("abc")
    together = threading.Barrier(3)
    seen: dict[str, tuple[str | None, ...]] = {}
    properties = ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description")

    def meet(table: str, step: str) -> None:
        if step == "check.read":
            together.wait(TIMEOUT)
            context = tables.lake.spark.sparkContext
            seen[table] = tuple(context.getLocalProperty(name) for name in properties)

    tables.on_step = meet
    report = tables.run(parallel=3)
    assert [table.message for table in report.tables] == [None] * 3
    assert seen == {
        name: (name, f"{report.run_id} {name}", f"{name}: folding changes") for name in ("s.a", "s.b", "s.c")
    }
    tracker = tables.lake.spark.sparkContext.statusTracker()
    assert all(tracker.getJobIdsForGroup(f"{report.run_id} s.{name}") for name in "abc")


def test_no_more_tables_at_one_time_than_asked_for_and_those_of_highest_priority_first(tables: Tables) -> None:
    tables.open("abcd", own={"c": {"priority": 5}, "d": {"priority": 9}, "a": {"priority": -1}}, parallel=1)
    tables.load("abcd")
    report = tables.run()
    assert tables.journal.started == tables.journal.finished == ["s.d", "s.c", "s.b", "s.a"]
    assert [table.table for table in report.tables] == ["s.a", "s.b", "s.c", "s.d"], "reported by name"
    assert tables.journal.runs == [report]


def test_failing_and_locked_tables_do_not_stop_the_others(tables: Tables) -> None:
    tables.open("abcd", own={"b": {"schema": "id int, name string, missing int"}}, parallel=2)
    tables.load("abcd")
    tables.land("b", "LOAD00000002.csv", "not a number,x,1")
    held = threading.Event()
    other = Lakeward(tables.lake.config, spark=tables.lake.spark, on_step=lambda *_: held.wait(TIMEOUT))
    writer = threading.Thread(target=other.run, args=(["s.c"],))
    writer.start()
    while tables.lake.state.lease_of(tables.lake.table("s.c").table) is None:
        assert writer.is_alive()
        time.sleep(0.05)
    report = tables.run()
    held.set()
    writer.join(TIMEOUT)
    other.close()
    outcomes = {table.table: table.outcome for table in report.tables}
    expected = {"s.a": Outcome.DONE, "s.b": Outcome.FAILED, "s.c": Outcome.LOCKED, "s.d": Outcome.DONE}
    assert outcomes == expected
    assert report.exit_code == 3 and [table.table for table in report.failed] == ["s.b"]
    error = tables.lake.table("s.b").error
    assert error is not None and error == report.table("s.b").message
    assert [tables.count(name) for name in "acd"] == [1, 1, 1]


def test_passing_faults_are_tried_again_and_then_stop_the_table(tables: Tables) -> None:
    tables.open("ab")
    tables.load("ab")
    faults = {"s.a": 2, "s.b": 100}

    def fail(table: str, step: str) -> None:
        if step == "log.tables" and faults[table]:
            faults[table] -= 1
            msg = f"{table}: the service does not answer"
            raise RetriableError(msg)

    tables.on_step = fail
    report = tables.run()
    assert report.table("s.a").outcome is Outcome.DONE
    assert [retry[1] for retry in tables.journal.retries if retry[0] == "s.a"] == [1, 2]
    assert [retry[1] for retry in tables.journal.retries if retry[0] == "s.b"] == [1, 2, 3]
    delays = [retry[2] for retry in tables.journal.retries if retry[0] == "s.b"]
    assert all(0.005 * 2**n <= delay <= 0.01 * 2**n for n, delay in enumerate(delays)), delays
    failed = report.table("s.b")
    assert (failed.outcome, failed.error_kind, failed.exit_code) == (Outcome.FAILED, "retriable", 3)
    assert tables.lake.table("s.b").error == "s.b: the service does not answer"
    faults["s.b"] = 0
    assert tables.run().exit_code == 0
    assert tables.lake.table("s.b").error is None
    assert (tables.count("a"), tables.count("b")) == (1, 1)


def test_run_takes_in_no_more_files_than_allowed(tables: Tables) -> None:
    tables.open("ab", own={"a": {"priority": 1, "max_files": 2}}, parallel=1)
    tables.load("ab")
    tables.change("a", 5)
    tables.change("b", 2)
    report = tables.run(max_files=4)
    assert {table.table: (table.outcome, sum(op.files for op in table.ops)) for table in report.tables} == {
        "s.a": (Outcome.WAITING, 4),
        "s.b": (Outcome.WAITING, 0),
    }
    assert "limits" in (report.table("s.b").message or "")
    report = tables.run(max_bytes=1)
    assert sum(op.files for table in report.tables for op in table.ops) == 1
    report = tables.run()
    assert [table.outcome for table in report.tables] == [Outcome.DONE] * 2
    assert (tables.count("a"), tables.count("b")) == (6, 3)


class Clock:
    """A clock that only advances on command."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_table_whose_time_is_up_begins_no_further_op(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.open("a", own={"a": {"max_files": 1, "time_limit": 100}})
    tables.load("a")
    tables.run()
    tables.change("a", 3)
    clock = Clock()
    monkeypatch.setattr(slots, "time", clock)

    def take_a_minute(_table: str, step: str) -> None:
        clock.now += 60 if step == "apply.done" else 0

    tables.on_step = take_a_minute
    report = tables.run().table("s.a")
    assert report.outcome is Outcome.WAITING and len(report.ops) == 2
    assert "time_limit" in (report.message or "") and report.mirror_rows == 3
    tables.on_step = None
    tables.run()
    assert tables.count("a") == 4


def test_op_that_takes_longer_than_allowed_is_cancelled_and_taken_back(tables: Tables) -> None:
    tables.open("ab", own={"a": {"time_limit": 6}})
    tables.load("ab")

    def hang(table: str, step: str) -> None:
        if (table, step) == ("s.a", "check.fold"):
            # Far longer than the limit, and reached long before it: only a job that has begun is cancelled.
            tables.lake.spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 3600000L)").collect()

    tables.on_step = hang
    began = time.monotonic()
    report = tables.run()
    assert time.monotonic() - began < TIMEOUT
    assert report.table("s.b").outcome is Outcome.DONE
    failed = report.table("s.a")
    assert failed.outcome is Outcome.FAILED and "time_limit" in (failed.message or "")
    assert not tables.journal.retries, "the same batch would take as long again"
    tables.on_step = None
    assert tables.run(time_limit=100).exit_code == 0
    assert tables.count("a") == 1


def test_an_exception_of_a_listener_ends_the_run_and_releases_leases(tables: Tables) -> None:
    tables.open("abc", parallel=2)
    tables.load("abc")

    class Crash(BaseException):
        pass

    def crash(table: str, step: str) -> None:
        if (table, step) == ("s.b", "log.append"):
            raise Crash

    tables.on_step = crash
    with pytest.raises(Crash):
        tables.run()
    tables.on_step = None
    assert all(tables.lake.state.lease_of(known.table) is None for known in tables.lake.tables())
    assert [table.outcome for table in tables.run().tables].count(Outcome.FAILED) == 0
    assert [tables.count(name) for name in "abc"] == [1, 1, 1]


def test_a_name_that_is_not_utf8_and_an_unexpected_fault_stop_only_their_tables(tables: Tables) -> None:
    tables.open("abc", parallel=2)
    tables.load("abc")
    odd = tables.folder / "landing" / "s" / "b" / "LOAD00000001.csv"
    odd.rename(odd.parent / os.fsdecode(b"\xff_" + os.fsencode(odd.name)))

    def fail(table: str, step: str) -> None:
        if (table, step) == ("s.c", "check.read"):
            raise ZeroDivisionError

    tables.on_step = fail
    report = tables.run()
    tables.on_step = None
    assert [table.outcome for table in report.tables] == [Outcome.DONE, Outcome.FAILED, Outcome.FAILED]
    assert "\\xff_" in (message := report.table("s.b").message or "") and "its name is not UTF-8" in message
    assert "ZeroDivisionError" in (report.table("s.c").message or "")
    assert [table.outcome for table in tables.lake.plan()] == [Outcome.IDLE, Outcome.FAILED, Outcome.DONE]
    assert [table.state for table in tables.lake.status()] == ["current", "failed", "failed"]
    assert tables.lake.maintain(["s.a", "s.b"]).exit_code == 0, "what was never read needs no file of landing"
