"""Several writers and readers on one table: one writer yields or loses and starts over, readers see whole ops only."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.iceberg.attempt import BRANCH_PREFIX
from lakeward.iceberg.define import changelog_of, mirror_of
from lakeward.iceberg.table import IcebergTable
from lakeward.mirror import run as run_module
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from lakeward.session.sessions import session_for
from tests.spark.fixtures import SPARK_SETTINGS
from tests.spark.hazards import race_without_a_lease
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books
from tests.spark.sources import OTHER_STATE, change, keyed_source, keyless_source
from tests.spark.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from lakeward.mirror.op.effect import Bases
    from tests.spark.scene import Scene

PRODUCT = TableId.parse(TABLE)


def heads(scene: Scene) -> tuple[Any, Any]:
    spark = scene.lakeward.spark
    return mirror_of(spark, PRODUCT).head(), changelog_of(spark, PRODUCT).head()


def test_second_run_that_waits_takes_over_when_the_first_ends(scene: Scene) -> None:
    source = keyed_source(scene)
    scene.run()
    change(source, 1)
    with Writer(scene) as first:
        first.start(stop_at="apply.delete")
        change(source, 2)
        with Writer(scene) as second:
            waits = second._pool.submit(lambda: second.lakeward.run(wait=600).tables[0])
            assert first.finish().outcome is Outcome.DONE
            assert waits.result(600).outcome in (Outcome.DONE, Outcome.IDLE)
    assert scene.rows() == source.rows()
    check_books(scene)


@pytest.mark.parametrize("make", [keyed_source, keyless_source])
@pytest.mark.parametrize("step", ["log.append", "apply.append"])
def test_writer_whose_lease_was_taken_over_does_not_publish(
    scene: Scene, make: Callable[[Scene], Source], step: str
) -> None:
    source = make(scene)
    scene.run()
    change(source, 1)
    with Writer(scene) as loser, Writer(scene) as owner:
        loser.start(stop_at=step)
        take_lease_away(scene)
        owner.start(stop_at="apply.append")
        before = heads(scene)
        report = loser.finish()
        assert report.outcome is Outcome.LOCKED
        assert f"{TABLE} is being written by" in (report.message or "")
        assert heads(scene) == before, "the loser published"
        assert owner.finish().outcome is Outcome.DONE
        assert scene.rows() == source.rows()
        change(source, 2)
        assert loser.run().outcome is Outcome.DONE
    assert scene.rows() == source.rows()
    check_books(scene)


def test_load_whose_lease_was_taken_over_is_not_published(scene: Scene) -> None:
    source = keyless_source(scene)
    with Writer(scene) as loser, Writer(scene) as owner:
        loser.start(stop_at="load.append")
        take_lease_away(scene)
        assert owner.run().outcome is Outcome.DONE
        assert loser.finish().outcome is Outcome.IDLE
    assert scene.rows() == source.rows()
    check_books(scene)


def take_lease_away(scene: Scene) -> None:
    state = scene.lakeward.state
    lease = state.lease_of(PRODUCT)
    assert lease is not None
    state.release_lease(lease)


@pytest.mark.parametrize("make", [keyed_source, keyless_source])
def test_writers_without_a_lease_between_them(scene: Scene, make: Callable[[Scene], Source]) -> None:
    race_without_a_lease(make(scene))


@pytest.mark.parametrize("make", [keyed_source, keyless_source])
@pytest.mark.parametrize("step", ["log.append", "apply.append"])
def test_fast_forward_is_refused_when_main_has_moved(scene: Scene, make: Callable[[Scene], Source], step: str) -> None:
    source = make(scene)
    scene.run()
    change(source, 1)
    with Writer(scene) as one, Writer(scene, state=OTHER_STATE) as other:
        # Both have looked for abandoned branches before the other has one.
        other.start(stop_at="choose.files")
        one.start(stop_at=step)
        assert other.finish().outcome in (Outcome.DONE, Outcome.IDLE)
        passed = len(one.steps)
        assert one.finish().outcome in (Outcome.DONE, Outcome.IDLE)
        assert one.steps[passed] == "choose.progress", "the refused writer must start over"
    assert scene.rows() == source.rows()
    scene.run()
    check_books(scene)


@pytest.mark.parametrize("step", ["choose.files", "check.fold", "log.tables", "log.append", "log.publish"])
def test_two_first_loads_without_a_lease_between_them(scene: Scene, step: str) -> None:
    source = keyless_source(scene)
    with Writer(scene) as one, Writer(scene, state=OTHER_STATE) as other:
        other.start(stop_at="choose.files")
        one.start(stop_at=step)
        assert other.finish().outcome in (Outcome.DONE, Outcome.IDLE)
        assert one.finish().outcome in (Outcome.DONE, Outcome.IDLE)
    assert scene.rows() == source.rows()
    scene.run()
    check_books(scene)


def test_load_branch_that_another_writer_made_first(scene: Scene) -> None:
    source = keyless_source(scene)
    with Writer(scene) as one, Writer(scene, state=OTHER_STATE) as other:
        one.start(stop_at="log.publish")
        other.start(stop_at="load.append")
        assert one.finish().outcome is Outcome.DONE
        assert other.finish().outcome is Outcome.IDLE
    assert scene.rows() == source.rows()
    check_books(scene)


def test_op_logged_by_another_writer_after_the_capture(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = keyed_source(scene)
    scene.run()
    change(source, 1)
    bases_of, captured = run_module.bases_of, []
    with Writer(scene, state=OTHER_STATE) as other:

        def capture_then_let_other_log(changelog: Any, mirror: Any) -> Bases:
            bases = bases_of(changelog, mirror)
            captured.append(bases)
            if len(captured) == 1:
                other.start(stop_at="log.publish")
            return bases

        monkeypatch.setattr(run_module, "bases_of", capture_then_let_other_log)
        scene.run()
        assert other.finish().outcome in (Outcome.DONE, Outcome.IDLE)
    assert scene.rows() == source.rows()
    check_books(scene)


@pytest.mark.parametrize(
    "step", ["log.branch", "log.append", "apply.branch", "apply.delete", "apply.append", "load.branch", "load.append"]
)
def test_branch_dropped_under_a_writer_is_noticed(scene: Scene, step: str) -> None:
    source = keyed_source(scene)
    if not step.startswith("load."):
        scene.run()
        change(source, 1)
    assert times_made_with_branch_dropped_at(scene, step) == 2, "the attempt must be refused and made again"
    assert scene.rows() == source.rows()
    check_books(scene)


def test_branch_dropped_between_the_deletes_and_the_stamp(scene: Scene) -> None:
    # A commit through Iceberg's API makes the branch anew from main: without the deletes, on the right base.
    source = keyed_source(scene)
    scene.run()
    source.change("20240101-000000000.csv", "D,1,,,0", "D,2,,,0")
    assert times_made_with_branch_dropped_at(scene, "apply.delete") == 2, "the attempt must be refused and made again"
    assert scene.rows() == source.rows()
    check_books(scene)


def times_made_with_branch_dropped_at(scene: Scene, step: str) -> int:
    """Run with the writer's branch dropped when it passes a step for the first time; count how often it does."""
    passed: list[str] = []

    def drop_branches_once(_table: str, name: str) -> None:
        passed.append(name)
        if name == step and passed.count(step) == 1:
            for table in (mirror_of(scene.lakeward.spark, PRODUCT), changelog_of(scene.lakeward.spark, PRODUCT)):
                for branch in table.branches():
                    if branch.startswith(BRANCH_PREFIX):
                        table.drop_branch(branch)

    scene.on_step = drop_branches_once
    scene.run()
    return passed.count(step)


def test_unrelated_commits_do_not_fail_an_op(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = keyed_source(scene)
    scene.run()
    change(source, 1)
    load, disturbing, made = IcebergTable.load, threading.Event(), []

    def load_then_disturb(table: IcebergTable) -> Any:
        """Commit a tag and a property between any look at the table and what is done with it."""
        found = load(table)
        if disturbing.is_set():
            made.append(f"tag-{len(made)}")
            fresh = load(table)
            fresh.manageSnapshots().createTag(made[-1], fresh.currentSnapshot().snapshotId()).commit()
            load(table).updateProperties().set("unrelated", made[-1]).commit()
        return found

    monkeypatch.setattr(IcebergTable, "load", load_then_disturb)
    passed: list[str] = []

    def disturb_publishing(_table: str, step: str) -> None:
        passed.append(step)
        if step.endswith(".append"):
            disturbing.set()
        elif step.endswith(".publish"):
            disturbing.clear()

    scene.on_step = disturb_publishing
    scene.run()
    assert len(made) >= 4
    assert passed.count("log.append") == passed.count("apply.append") == 1, "the op must not start over"
    assert scene.rows() == source.rows()
    check_books(scene)


def test_readers_never_see_half_a_batch(scene: Scene, spark: SparkSession) -> None:
    accounts = "bank.account"
    scene.configure({accounts: {"schema": "id int, balance int", "primary_key": "id", "rewrite_share": 10}})
    count, total = 100, 100 * 1000
    scene.land("LOAD00000001.csv", *(f"{key},1000" for key in range(count)), folder="bank/account")
    scene.run()
    session = session_for(spark, scene.lakeward.config)
    query = f"SELECT count(*), sum(balance), sum(id * balance) FROM {accounts}"
    seen: set[tuple[int, int, int]] = set()
    stop, failures = threading.Event(), []

    def poll() -> None:
        try:
            while not stop.is_set():
                seen.add(tuple(session.sql(query).first()))
        except Exception as error:
            failures.append(error)

    states = []

    def look_in_between(_table: str, step: str) -> None:
        if step.startswith("apply."):
            states.append((step, tuple(scene.lakeward.sql(query).first())))

    reader = threading.Thread(target=poll)
    reader.start()
    scene.on_step = look_in_between
    try:
        for number in range(1, 5):
            pinned = mirror_of(session, TableId.parse(accounts)).require_head().id
            as_of = query + f" VERSION AS OF {pinned}"
            before = session.sql(as_of).first()
            # Money moves between two accounts, and one account's goes to a new one.
            moved = (f"U,{number},{1000 - number}", f"U,{number + 10},{1000 + number}", f"D,{number + 20},")
            scene.land(f"2024010{number}-000000000.csv", *moved, f"I,{number + 200},1000", folder="bank/account")
            scene.run()
            assert session.sql(as_of).first() == before
        while len(seen) < 2 and not failures:
            time.sleep(0.05)
    finally:
        stop.set()
        reader.join()
    assert failures == []
    assert len(seen) > 1, "the reader must have seen the table change"
    assert {entry[:2] for entry in seen} == {(count, total)}
    assert {one[:2] for _, one in states} == {(count, total)}
    unpublished = [one for step, one in states if step in ("apply.branch", "apply.delete", "apply.append")]
    published = [one for step, one in states if step == "apply.publish"]
    assert len(unpublished) == 12 and len(set(unpublished)) == 4
    assert len(published) == 4 and set(unpublished[3:]) == set(published[:3])


@pytest.mark.slow
def test_two_processes_on_one_table(scene: Scene) -> None:
    source = keyed_source(scene)
    config = {**scene._settings, "state": "sqlite:///state.db", "spark": SPARK_SETTINGS}
    (scene.folder / "lakeward.yaml").write_text(json.dumps(config))
    helper = [sys.executable, "-m", "tests.spark.process", str(scene.folder), "stop", TABLE, "load.append"]
    with subprocess.Popen(helper, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "load.append\n"
            command = [sys.executable, "-m", "lakeward.cli.main", "--config", str(scene.folder / "lakeward.yaml")]
            second = subprocess.run([*command, "run"], capture_output=True, text=True, check=False, timeout=600)
            report, _ = first.communicate("go on\n", timeout=600)
        finally:
            first.kill()
    assert second.returncode == 0, second.stderr
    assert "locked" in second.stdout and f"{TABLE} is being written by" in " ".join(second.stderr.split())
    assert json.loads(report)["tables"][0]["outcome"] == "done"
    assert scene.run().outcome is Outcome.IDLE
    assert scene.rows() == source.rows()
    check_books(scene)
