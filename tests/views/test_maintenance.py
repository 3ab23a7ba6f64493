"""Maintenance changes files and snapshots, never rows: applies, readers, past states and recovery do not notice."""

from __future__ import annotations

import base64
import json
import os
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.iceberg.attempt import ROWS_STAMP
from lakeward.iceberg.define import APPLIED_STAMP, LOGGED_STAMP, changelog_of, mirror_of
from lakeward.mirror import compaction
from lakeward.mirror.maintenance import WorkKind
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from lakeward.spark.workspace import Workspace
from tests.spark.crash import Crashes, crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source, check_books
from tests.spark.writer import Writer

if TYPE_CHECKING:
    from lakeward.mirror.maintenance import TableMaintenance, WorkReport
    from tests.spark.scene import Scene
    from tests.spark.source import Rows

pytestmark = pytest.mark.spark

PRODUCT = TableId.parse(TABLE)
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 31))
MIB = 1 << 20
PUBLISHING = ("maintain.commit", "maintain.publish")
CRASHED = steps_of("maintain")


def loaded(scene: Scene, *rows: str, batches: int = 3, **settings: Any) -> Source:
    """Load a table and change it a few times: each batch leaves a small data file and a delete file."""
    scene.table(rewrite_share=10, **settings)
    source = Source(scene)
    source.load("LOAD00000001.csv", *(rows or ROWS))
    scene.run()
    for number in range(1, batches + 1):
        change(source, number)
        scene.run()
    return source


def change(source: Source, number: int) -> None:
    lines = (f"U,1,update {number},y,2.00", f"D,{number + 1},,,0", f"I,{number + 50_000},new,y,3.00")
    source.change(f"202402{number:02}-000000000.csv", *lines)


def maintained(scene: Scene, **options: Any) -> TableMaintenance:
    [found] = scene.lakeward.maintain(**options).tables
    assert found.outcome in (Outcome.DONE, Outcome.IDLE), found.message
    return found


def work(found: TableMaintenance, kind: WorkKind, target: str = "mirror") -> WorkReport:
    return next(work for work in found.work if (work.kind, work.target) == (kind, target))


def check_stamps(scene: Scene, op: int) -> None:
    """Require that the heads themselves record the table's progress and row count."""
    spark = scene.lakeward.spark
    mirror, log = mirror_of(spark, PRODUCT).require_head(), changelog_of(spark, PRODUCT).require_head()
    assert mirror.summary[APPLIED_STAMP] == log.summary[LOGGED_STAMP] == str(op)
    assert mirror.summary[ROWS_STAMP] == str(mirror.rows) == str(len(scene.rows()))
    assert scene.lakeward.state.ledger_position(PRODUCT) == log.id, "the next run would read the ledger anew"


def as_of(scene: Scene, op: int) -> Rows:
    context = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE))
    with Workspace() as workspace:
        rows = rows_as_of(context, workspace, op_moment(op)).rows.collect()
    return sorted((tuple(row) for row in rows), key=repr)


def data_files(scene: Scene) -> list[Path]:
    return sorted((scene.folder / "lake/data/sales/product/data").rglob("*.parquet"))


def test_after_compaction_and_expiry_everything_goes_on(scene: Scene) -> None:
    source = loaded(scene, undo_window="0s")
    third, stored = as_of(scene, 3), len(data_files(scene))
    planned = scene.lakeward.plan_maintenance(only="compact").tables[0]
    assert work(planned, WorkKind.COMPACT).removed_delete_files == 3
    assert len(data_files(scene)) == stored, "a plan wrote something"
    found = maintained(scene)
    assert (found.before and found.before.delete_files, found.after and found.after.delete_files) == (3, 0)
    assert work(found, WorkKind.COMPACT).removed_deleted_rows == 6
    assert work(found, WorkKind.CLUSTER, "changelog").removed_files == 4
    assert work(found, WorkKind.EXPIRE).removed_snapshots >= 6
    assert work(found, WorkKind.EXPIRE, "changelog").removed_snapshots >= 4
    # The load's own file, and the one that is the mirror now.
    assert len(data_files(scene)) == 2
    assert scene.rows() == source.rows()
    check_stamps(scene, 4)
    assert maintained(scene, only="compact").outcome is Outcome.IDLE
    assert as_of(scene, 3) == third
    scene.forget_state()
    source.change("20240115-000000000.csv", "U,1,late,z,9.00", "I,2,late,z,9.00", "U,9,late,z,9.00")
    change(source, 5)
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)
    [status] = scene.lakeward.status()
    assert status.maintained is not None


def test_a_table_without_key_appends_nothing_twice(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA, "undo_window": 0}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    source.change("20240201-000000000.csv", "I,1,same,x,1.00", "I,1,same,x,1.00")
    scene.run()
    source.change("20240202-000000000.csv", "I,1,same,x,1.00")
    # The op is logged and not applied: maintenance finishes it before it touches anything.
    crash_at(scene, "log.drop")
    found = maintained(scene)
    assert {work.kind for work in found.work} == {WorkKind.COMPACT, WorkKind.CLUSTER, WorkKind.EXPIRE}
    assert scene.rows() == source.rows()
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    assert scene.rows() == source.rows()
    check_books(scene)


def large_rows() -> list[str]:
    """Rows of a file that is not small where files are to have one megabyte."""
    chance = random.Random(1)
    return [f"{key},{base64.b64encode(chance.randbytes(36)).decode()},x,1.00" for key in range(1, 20_001)]


@pytest.mark.slow
def test_slices_leave_large_files_alone_and_readers_and_runs_come_in_between(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = loaded(scene, *large_rows(), maintenance={"file_bytes": MIB, "slice_bytes": MIB})
    load = [file for file in data_files(scene) if file.stat().st_size > MIB // 2]
    assert len(load) == 1
    expected = {len(source.rows())}
    change(source, 4)
    expected.add(len(source.rows()))
    seen: set[int] = set()
    order: list[tuple[str, bool]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(len(scene.rows()))

    with Writer(scene) as other:
        waiting: list[Any] = []
        asked, taken, acquire = threading.Event(), threading.Event(), other.lakeward.state.acquire_lease

        def ask(*lease: Any, **options: Any) -> Any:
            asked.set()
            found = acquire(*lease, **options)
            taken.set()
            return found

        def observe_step(_table: str, step: str) -> None:
            if step == "maintain.publish" and not waiting:
                waiting.append(other._pool.submit(lambda: other.lakeward.run(wait=600).tables[0]))
                assert asked.wait(600)
            order.append((step, "apply.done" in other.steps))

        monkeypatch.setattr(other.lakeward.state, "acquire_lease", ask)
        # On a starved machine a writer asks again later than its own clock shows: the pause lasts until it has.
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: taken.wait(600))
        monkeypatch.setattr("lakeward.runner.maintain.time", clock)
        monkeypatch.setattr("lakeward.runner.maintain._PATIENCE_SECONDS", 600.0)
        reader = threading.Thread(target=watch)
        reader.start()
        scene.on_step = observe_step
        found = maintained(scene, only="compact")
        scene.on_step = None
        done.set()
        reader.join()
        assert waiting[0].result(600).outcome is Outcome.DONE
    first_publish = [step for step, _ in order].index("maintain.publish")
    following = [is_applied for step, is_applied in order[first_publish + 1 :] if step == "maintain.plan"]
    assert following and following[0], "the run that waited did not get the table between two slices"
    assert seen <= expected and len(seen) > 0, "a reader saw half a slice"
    assert load[0] in data_files(scene)
    assert work(found, WorkKind.COMPACT).slices > 1
    assert (found.after and found.after.delete_files, found.after and found.after.data_files) == (1, 2)
    assert scene.rows() == source.rows()
    check_stamps(scene, 5)


def test_partitions_and_deletion_vectors(scene: Scene) -> None:
    tables = {"sales.parted": {"partition_by": ["dept"]}, "sales.vectors": {"format_version": 3}}
    common = {"schema": SCHEMA, "primary_key": "id", "rewrite_share": 10}
    scene.configure({name: {**common, **own} for name, own in tables.items()})
    sources = [Source(scene, name) for name in tables]
    for source in sources:
        source.load("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00", "3,c,x,1.00", "4,d,y,1.00", "5,e,007,1.00")
    scene.run()
    for number in range(1, 3):
        for source in sources:
            source.change(f"2024010{number}-000000000.csv", f"U,1,u{number},x,2.00", f"U,{number + 1},moved,y,1.00")
        scene.run()
    for found in scene.lakeward.maintain(only="compact").tables:
        assert found.outcome is Outcome.DONE, found.message
        assert found.after is not None and found.after.delete_files == 0
    assert found.after.data_files == 1
    for source in sources:
        assert scene.rows(source.table) == source.rows()
        source.change("20240104-000000000.csv", "D,2,,,0", "U,5,last,x,2.00")
    scene.run()
    for source in sources:
        assert scene.rows(source.table) == source.rows()


@pytest.mark.slow
def test_a_crash_at_any_step(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)
    source = loaded(scene, batches=2, undo_window="0s")
    crossed: set[str] = set()
    for only in (None, "cluster"):
        crashes = Crashes(scene)
        # Where sorting does the same as compaction, it is crashed at in two places.
        crashes.passed_over = () if only is None else tuple(step for step in CRASHED if step not in PUBLISHING)
        crashes.through([source.rows()], lambda only=only: maintained(scene, only=only))  # type: ignore[misc]
        crossed |= set(crashes.crossed)
        assert scene.rows() == source.rows()
        change(source, 3)
        scene.run()
    assert sorted(crossed) == sorted(CRASHED)
    assert maintained(scene, only="compact").outcome is Outcome.DONE
    assert scene.rows() == source.rows()
    check_books(scene)


def test_files_with_other_rows_or_of_a_lost_lease_are_not_published(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = loaded(scene, batches=1)
    mirror = mirror_of(scene.lakeward.spark, PRODUCT)
    before = mirror.head()

    def lose(_table: str, step: str) -> None:
        lease = scene.lakeward.state.lease_of(PRODUCT)
        if step == "maintain.commit" and lease is not None:
            scene.lakeward.state.release_lease(lease)
            with Writer(scene) as other:
                other.run()

    change(source, 2)
    scene.on_step = lose
    [found] = scene.lakeward.maintain(only="compact").tables
    scene.on_step = None
    assert (found.outcome, found.work) == (Outcome.LOCKED, ())
    assert scene.rows() == source.rows()
    before = mirror.head()
    hashes = iter(range(100))
    monkeypatch.setattr(compaction, "hash_of", lambda *_: f"1:{next(hashes)}")
    [found] = scene.lakeward.maintain(only="compact").tables
    assert (found.outcome, found.exit_code) == (Outcome.FAILED, 3)
    assert "nothing was published" in (found.message or "")
    assert mirror.head() == before
    check_books(scene)


def test_maintenance_after_a_run_goes_by_debt_and_never_fails_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"delete_files": 2, "deleted_share": 1, "small_files": 1000}
    source = loaded(scene, batches=1, maintain="auto", maintenance=limits)
    second = scene.rows()
    change(source, 2)
    report = scene.run()
    assert report.maintenance is not None and report.maintenance.outcome is Outcome.DONE
    assert [work.kind for work in report.maintenance.work] == [WorkKind.COMPACT]
    change(source, 3)
    report = scene.run()
    assert report.maintenance is not None and report.maintenance.outcome is Outcome.IDLE

    def broken(*_: object) -> None:
        msg = "broken on purpose"
        raise RuntimeError(msg)

    monkeypatch.setattr("lakeward.runner.maintain.due_work", broken)
    change(source, 4)
    report = scene.run()
    assert report.outcome is Outcome.DONE
    assert report.maintenance is not None and "RuntimeError: broken on purpose" in str(report.maintenance.message)
    assert scene.rows() == source.rows()
    scene.lakeward.undo(TABLE, to_op=2)
    assert scene.rows() == second


def test_orphan_files_go_when_they_are_old_and_files_of_others_stay(scene: Scene) -> None:
    source = loaded(scene, batches=0)
    folder, uuid = data_files(scene)[0].parent, "0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10"
    table = folder.parent
    own = f"00000-7-{uuid}-00001.parquet"
    old, young = folder / own, folder / own.replace("-7-", "-8-")
    manifest = table / f"metadata/{uuid}-m0.avro"
    foreign = [
        folder / "left.parquet",
        folder / ".hidden",
        folder / f"backup/{own}",
        folder / f"part-00000-{uuid}-c000.snappy.parquet",
        table / "notes.txt",
        table / f"elsewhere/{own}",
        table / "_SUCCESS",
    ]
    for file in (old, young, manifest, *foreign):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"left behind")
    for file in (old, manifest, *foreign):
        os.utime(file, (time.time() - 4 * 86_400,) * 2)
    planned = scene.lakeward.plan_maintenance(only="orphans").tables[0]
    assert {Path(path).name for path in work(planned, WorkKind.ORPHANS).paths} == {own, manifest.name}
    assert old.exists()
    other = table / f"metadata/00007-{uuid}.metadata.json"
    document = json.loads(next((table / "metadata").glob("*.metadata.json")).read_text())
    other.write_text(json.dumps({**document, "table-uuid": uuid}))
    os.utime(other, (time.time() - 4 * 86_400,) * 2)
    refused = maintained(scene, only="orphans")
    assert "metadata of another table" in str(refused.message) and old.exists()
    other.unlink()
    done = maintained(scene, only="orphans")
    assert work(done, WorkKind.ORPHANS).removed_files == 2
    assert (old.exists(), manifest.exists(), young.exists()) == (False, False, True)
    assert {file.read_bytes() for file in foreign} == {b"left behind"}
    assert "did not write" in str(done.message)
    assert scene.rows() == source.rows()
