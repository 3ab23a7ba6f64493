"""A crash at every step of every kind of op: the next run finishes it or takes it back. Nothing lost, nothing twice."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.iceberg import define
from lakeward.mirror.op.steps import Step
from lakeward.model import OpKind
from tests.spark.crash import ELSEWHERE, Crash, Crashes, crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from tests.spark.scene import Scene

FEBRUARY = 1706745600.0
DAY = 86400.0
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 11))

CHOOSE, CHECK, LOG = steps_of("choose"), steps_of("check"), steps_of("log")
LOAD = tuple(step for step in steps_of("load") if step is not Step.LOAD_DELETE)
APPLY = tuple(step for step in steps_of("apply") if step is not Step.APPLY_DELETE)
DELETE = (Step.APPLY_DELETE,)
CROSSED = {
    "batch": CHOOSE + CHECK + LOG + APPLY + DELETE,
    "load": CHOOSE + CHECK + LOG + LOAD + (Step.APPLY_PUBLISH, Step.APPLY_DONE),
    # Choosing and checking write nothing, whatever the kind of op.
    "late batch": LOG + APPLY + DELETE,
    "keyless batch": LOG + APPLY,
    "reload": LOG + LOAD + APPLY + DELETE,
    "late part": LOG + LOAD + (Step.LOAD_DELETE,) + APPLY + DELETE,
    "keyless late part": LOG + LOAD + APPLY,
    "truncate": LOG + APPLY,
    "retry": LOG + APPLY + DELETE,
    "void": LOG + APPLY,
}


@pytest.fixture(autouse=True)
def _leave_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)


@pytest.fixture
def crashes(scene: Scene) -> Crashes:
    # A few rows must be deleted and appended, as in large tables, and not rewritten.
    scene.table(rewrite_share=10)
    return Crashes(scene)


@pytest.fixture(params=["own steps", pytest.param("all steps", marks=pytest.mark.soak)])
def writing_crashes(crashes: Crashes, request: pytest.FixtureRequest) -> Crashes:
    crashes.passed_over = CHOOSE + CHECK
    if request.param == "own steps":
        crashes.pass_over_what_no_kind_decides()
    return crashes


def require_all(crashes: Crashes, kind: str) -> None:
    assert sorted(crashes.crossed) == sorted(step for step in CROSSED[kind] if step not in crashes.passed_over)


def test_every_step_of_the_package_is_crashed_at() -> None:
    own = {step for step in Step if step.family not in ELSEWHERE}
    assert own == {step for steps in CROSSED.values() for step in steps}


def test_batch_of_updates_deletes_and_inserts(scene: Scene, crashes: Crashes) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    for number in range(1, crashes.inputs + 1):
        before = source.rows()
        changes = ("U,1,a,y,2.00", f"D,{number + 1},,,0", f"I,{number + 20},new,y,3.00", f"U,1,update {number},y,4.00")
        source.change(f"2024010{number}-000000000.csv", *changes)
        crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
    require_all(crashes, "batch")
    check_books(scene)


def test_late_batch_is_folded_into_what_was_applied_before_it(scene: Scene, writing_crashes: Crashes) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240201-000000000.csv", "U,1,newest,y,2.00", "D,2,,,0", "I,20,new,y,3.00")
    scene.run()
    for number in range(1, writing_crashes.inputs + 1):
        before = source.rows()
        changes = ("U,1,older,z,0", "I,2,older,z,0", f"U,{number + 2},late,z,5.00", "D,9,,,0")
        source.change(f"2024011{9 - number}-000000000.csv", *changes)
        writing_crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
    require_all(writing_crashes, "late batch")
    check_books(scene)


def test_batch_of_a_table_without_key(scene: Scene, writing_crashes: Crashes) -> None:
    scene.configure({TABLE: {"schema": SCHEMA}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    for number in range(1, writing_crashes.inputs + 1):
        before = source.rows()
        source.change(f"2024010{number}-000000000.csv", "I,1,same,x,1.00", "I,1,same,x,1.00", f"I,{number},new,x,1.00")
        writing_crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
    require_all(writing_crashes, "keyless batch")
    check_books(scene)


@pytest.mark.parametrize("keyless", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_first_load_of_a_table(scene: Scene, crashes: Crashes, *, keyless: bool) -> None:
    key: dict[str, Any] = {} if keyless else {"primary_key": "id"}
    tables = [f"sales.product{number}" for number in range(1, crashes.inputs + 1)]
    scene.configure({table: {"schema": SCHEMA, **key} for table in tables})
    for table in tables:
        source = Source(scene, table, keyless=keyless)
        source.load("LOAD00000001.csv", *ROWS)
        source.load("LOAD00000002.csv", "30,second part,x,1.00")
        crashes.through([[], source.rows()], lambda name=table: scene.run(name), table)  # type: ignore[misc]
        assert scene.rows(table) == source.rows()
        check_books(scene, table)
    require_all(crashes, "load")


def test_reload_replaces_the_mirror_and_keeps_the_changes_after_it(scene: Scene, writing_crashes: Crashes) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS, mtime=FEBRUARY - 30 * DAY)
    source.change("20240115-000000000.csv", "U,3,replaced,y,2.00", "I,40,replaced,y,2.00")
    source.change("20250101-000000000.csv", "U,1,after all reloads,y,2.00", "D,2,,,0")
    scene.run()
    for number in range(1, writing_crashes.inputs + 1):
        before = source.rows()
        rows = [f"{key},reload {number},x,1.00" for key in range(1, 8 - number)]
        source.reload("LOAD00000001.csv", *rows, mtime=FEBRUARY + number * DAY)
        alone = Source(scene)
        alone._parts = source._parts
        writing_crashes.through([before, alone.rows(), source.rows()])
        assert scene.rows() == source.rows()
    require_all(writing_crashes, "reload")
    check_books(scene)


def keep_part(source: Source, part: str) -> None:
    """Say that a part which has landed late belongs to the load: they share rows, and only the user can confirm it."""
    source.scene.choices = {"keep_parts": frozenset({f"{source.folder}/{part}"})}


@pytest.mark.slow
def test_late_load_part_joins_without_undoing_changes(scene: Scene, writing_crashes: Crashes) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    changed = [f"U,{key},changed,y,2.00" for key in (1, 31, 32, 33)] + [f"D,{key},,,0" for key in (2, 41, 42, 43)]
    source.change("20240115-000000000.csv", *changed)
    scene.run()
    for number in range(1, writing_crashes.inputs + 1):
        before, part = source.rows(), f"LOAD0000000{number + 1}.csv"
        keys = (5, 20 + number, 30 + number, 40 + number)
        source.load(part, *(f"{key},part {number},z,3.00" for key in keys))
        keep_part(source, part)
        writing_crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
    require_all(writing_crashes, "late part")
    check_books(scene)


def test_late_load_part_of_a_table_without_key(scene: Scene, writing_crashes: Crashes) -> None:
    scene.configure({TABLE: {"schema": SCHEMA}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240115-000000000.csv", "I,1,row 1,x,1.00")
    scene.run()
    for number in range(1, writing_crashes.inputs + 1):
        before, part = source.rows(), f"LOAD0000000{number + 1}.csv"
        source.load(part, "1,row 1,x,1.00", f"2,part {number},z,3.00")
        keep_part(source, part)
        writing_crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
    require_all(writing_crashes, "keyless late part")
    check_books(scene)


def test_truncate_by_a_vanished_folder(scene: Scene, writing_crashes: Crashes) -> None:
    scene.table(on_missing_folder="truncate", rewrite_share=10)
    source = Source(scene)
    for number in range(writing_crashes.inputs):
        # Each load comes before the changes of its day.
        source.load("LOAD00000001.csv", *ROWS, mtime=FEBRUARY - (23 - number) * DAY)
        source.change(f"2024011{number}-000000000.csv", "U,1,changed,y,2.00", "D,2,,,0")
        scene.run()
        before = source.rows()
        assert scene.rows() == before
        shutil.rmtree(scene.landing / source.folder)
        source.empty()
        writing_crashes.through([before, []])
        assert scene.rows() == []
    require_all(writing_crashes, "truncate")
    check_books(scene)


@pytest.mark.slow
def test_quarantined_rows_put_back(scene: Scene, writing_crashes: Crashes) -> None:
    scene.table(on_bad_row="quarantine", rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    repaired = {2: "U,1,repaired,y,2.00", 3: "U,3,repaired but older,y,2.00"}

    def retry() -> None:
        # A run comes first, as after any crash; it also finishes a retry that is logged.
        scene.run()
        texts = {row.id: repaired[row.row] for row in scene.lakeward.bad_rows(TABLE)}
        if texts:
            scene.lakeward.retry_bad_rows(TABLE, replacements=texts)

    for number in range(1, writing_crashes.inputs + 1):
        first, second = f"2024010{number}-000000000.csv", f"2024010{number}-000000001.csv"
        source.change(first, f"U,{number + 3},good,y,1.00", "U,1,broken,y,oops", "U,3,broken,y,oops")
        source.change(second, f"U,3,newest {number},y,1.00")
        source.mean(first, f"U,{number + 3},good,y,1.00")
        scene.run()
        before = source.rows()
        source.mean(first, f"U,{number + 3},good,y,1.00", *repaired.values())
        writing_crashes.through([before, source.rows()], retry)
        assert scene.rows() == source.rows()
        assert list(scene.lakeward.bad_rows(TABLE)) == []
    require_all(writing_crashes, "retry")
    check_books(scene)


def test_retry_does_not_pass_over_an_interrupted_op(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine")
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240101-000000000.csv", "U,1,broken,y,oops")
    scene.run()
    source.change("20240102-000000000.csv", "U,2,interrupted,y,1.00")
    crash_at(scene, "log.ledger")
    text = "U,1,repaired,y,2.00"
    report = scene.lakeward.retry_bad_rows(TABLE, replacements={"sales/product/20240101-000000000.csv:1": text})
    assert report.handled == 1
    source.mean("20240101-000000000.csv", text)
    assert scene.rows() == source.rows()
    scene.run()
    check_books(scene)


@pytest.mark.parametrize("forgets", [False, True])
def test_logged_load_whose_file_changes_is_taken_back(scene: Scene, *, forgets: bool) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    crash_at(scene, "log.ledger")
    source.load("LOAD00000001.csv", "1,other content,x,1.00")
    if forgets:
        scene.forget_state()
    report = scene.run()
    assert [(op.op, op.kind) for op in report.ops] == [(2, OpKind.VOID), (3, OpKind.LOAD)]
    assert scene.rows() == source.rows()
    check_books(scene)


def test_logged_load_whose_file_vanishes_is_taken_back(scene: Scene) -> None:
    source = Source(scene)
    gone = source.load("LOAD00000001.csv", *ROWS)
    crash_at(scene, "log.ledger")
    gone.unlink()
    source.empty()
    source.load("LOAD00000002.csv", "1,came instead,x,1.00")
    report = scene.run()
    assert [op.kind for op in report.ops] == [OpKind.VOID, OpKind.LOAD]
    assert scene.rows() == source.rows()
    check_books(scene)


def test_written_late_part_whose_file_changes_is_taken_back(scene: Scene, writing_crashes: Crashes) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    source.change("20240115-000000000.csv", "U,1,changed,y,2.00", "D,2,,,0")
    scene.run()
    # The load that follows the void is crashed at as a late part, in a test of its own.
    writing_crashes.passed_over = (*writing_crashes.passed_over, *LOAD, Step.LOAD_DELETE, *DELETE)
    for number in range(1, writing_crashes.inputs + 1):
        part = f"LOAD0000000{number + 1}.csv"
        before = source.rows()
        source.load(part, "2,never seen,x,1.00", "3,never seen,x,1.00", f"{number + 50},never seen,x,1.00")
        keep_part(source, part)
        crash_at(scene, "load.publish")
        source.load(part, "2,taken,x,1.00", "4,taken,x,1.00")
        writing_crashes.through([before, source.rows()])
        assert scene.rows() == source.rows()
        check_books(scene)
    require_all(writing_crashes, "void")


def test_logged_reload_of_which_one_part_changes_is_decided_anew(scene: Scene) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS, mtime=FEBRUARY - 30 * DAY)
    source.load("LOAD00000002.csv", "20,second part,x,1.00", mtime=FEBRUARY - 30 * DAY)
    scene.run()
    source.reload("LOAD00000001.csv", "1,first part reloaded,x,1.00", mtime=FEBRUARY)
    source.load("LOAD00000002.csv", "20,never seen,x,1.00", mtime=FEBRUARY + 1)
    crash_at(scene, "log.ledger")
    source.load("LOAD00000002.csv", "20,second part reloaded,x,1.00", mtime=FEBRUARY + 2)
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_crash_between_creating_a_table_and_its_first_snapshot(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    first_snapshot = define._first_snapshot
    started: list[str] = []

    def crash_once_per_table(table: Any, stamps: Any) -> None:
        if table.identifier not in started:
            started.append(table.identifier)
            raise Crash(table.identifier)
        first_snapshot(table, stamps)

    monkeypatch.setattr(define, "_first_snapshot", crash_once_per_table)
    for _ in range(2):
        with pytest.raises(Crash):
            scene.run()
        scene.forget_state()
    assert len(started) == 2
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_crash_between_any_two_steps_of_a_schema_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    scene.table(schema=f"{SCHEMA}, size int, colour string")
    scene.land("20240101-000000000.csv", "U,1,changed,y,2.00,7,red")
    evolution_sql = define._evolution_sql
    done: list[str] = []

    def crash_after_one(*arguments: Any) -> str:
        statement = evolution_sql(*arguments)
        if statement not in done and len(done) % 2:
            done.append("")
            raise Crash(statement)
        done.append(statement)
        return statement

    monkeypatch.setattr(define, "_evolution_sql", crash_after_one)
    crashed = 0
    while True:
        try:
            scene.run()
        except Crash:
            crashed += 1
            scene.close()
        else:
            break
    assert crashed == 3, "two columns in two tables: a crash after each statement but the last"
    assert scene.by_key()[1]["colour"] == "red" and scene.by_key()[2]["colour"] is None
    assert len(scene.rows()) == len(ROWS)
    check_books(scene)
