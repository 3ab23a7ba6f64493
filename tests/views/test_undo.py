"""Ops are taken back by one op: rows, deletes, ledger and load go back with them, and come again when it is undone."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, ConflictError, DataError, LeaseHeldError
from lakeward.iceberg.define import mirror_of
from lakeward.lake import Lakeward
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.simulator import Simulation, SimulatorOptions
from lakeward.views.versions.manifest import Publication, PublicationKind, record_publication
from tests.spark.crash import Crashes, crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source, check_books
from tests.views.moments import asked, moment_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 6))
JANUARY = 1704067200.0
DAY = 86400.0
CRASHED = steps_of("undo")
# The steps of an undo of a few keys, in their order.
STEPS = (
    "undo.decided", "log.tables", "log.branch", "log.append", "log.publish", "log.drop", "log.ledger", "undo.loads",
    "apply.branch", "apply.delete", "apply.append", "apply.publish", "apply.drop", "apply.done",
)  # fmt: skip


def loaded(scene: Scene, **settings: Any) -> Source:
    scene.table(**settings)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS, mtime=JANUARY)
    scene.run()
    return source


def batch(source: Source, number: int) -> None:
    """Land and run a batch, which is one op."""
    source.change(
        f"2024010{number}-000000000.csv",
        f"U,1,update {number},y,2.00",
        f"D,{number},,,0",
        f"I,{number + 20},new {number},y,3.00",
    )
    source.scene.run()


def references(scene: Scene) -> list[str]:
    return mirror_of(scene.lakeward.spark, TableId.parse(TABLE)).branches()


def path(number: int) -> str:
    return f"sales/product/2024010{number}-000000000.csv"


def test_rows_deletes_and_ledger_go_back_and_the_next_run_takes_the_files_again(scene: Scene) -> None:
    source = loaded(scene)
    batch(source, 2)
    kept = scene.rows()
    batch(source, 3)
    batch(source, 4)
    newest = scene.rows()
    mirror = mirror_of(scene.lakeward.spark, TableId.parse(TABLE))
    mirror.create_tag("by-hand", mirror.require_head().id)
    for op in (2, 3):
        made = Publication(f"p{op}", PublicationKind.FILES, f"v{op}", f"op:{op}", "/out", 1, op, 5, "", "2024", 0)
        record_publication(mirror, made)

    plan = scene.lakeward.plan_undo(TABLE, to_op=2)
    assert (plan.op, plan.back_to, plan.newest_op, plan.op_count, plan.file_count) == (5, 2, 4, 2, 2)
    assert [(op.op, op.kind, op.files, op.changes) for op in plan.ops] == [(3, "batch", 1, 3), (4, "batch", 1, 3)]
    assert plan.files == (path(3), path(4))
    assert plan.rows is not None and (plan.rows.inserted, plan.rows.updated, plan.rows.deleted) == (2, 1, 2)
    assert [(mark.kind, mark.version, mark.op) for mark in plan.marked] == [("files", "v3", 3), ("tag", "by-hand", 4)]
    assert scene.rows() == newest, "a plan writes nothing"

    done = scene.lakeward.undo(TABLE, to_op=2)
    assert done.op is not None and (done.op.op, done.op.kind, done.op.writes, done.op.removals) == (5, "undo", 3, 2)
    assert scene.rows() == kept
    assert "undone-5" in references(scene)
    status = scene.lakeward.status()[0]
    assert (status.op, status.files_pending, status.state, status.rows) == (5, 2, "pending", len(kept))
    assert scene.lakeward.plan()[0].files == plan.files
    assert scene.lakeward.run_detail(scene.lakeward.runs()[0].run_id).tables[0]["ops"][0]["kind"] == "undo"

    again = scene.lakeward.undo(TABLE, to_op=2)
    assert again.op is None and again.plan.reason == "op 5 already went back to op 2"
    scene.run()
    assert scene.rows() == newest == source.rows()
    check_books(scene)
    with pytest.raises(ConfigurationError, match="there is no op 9; its ops are 1 to 6"):
        scene.lakeward.undo(TABLE, to_op=9)
    with pytest.raises(ConflictError, match="is at op 6; it was at op 5"):
        scene.lakeward.undo(TABLE, to_op=2, newest_op=5)
    with pytest.raises(ConfigurationError, match="has no timestamp_column") as error:
        scene.lakeward.undo(TABLE, to_time="2024-01-04")
    assert "--to-op" in (error.value.hint or "")


def test_an_undo_can_be_undone_and_so_can_the_second_undo(scene: Scene) -> None:
    source = loaded(scene, rewrite_share=10)
    states = {1: scene.rows()}
    # The third is late: its keys have newer changes.
    for op, number in enumerate((3, 4, 2), start=2):
        batch(source, number)
        states[op] = scene.rows()

    def undo(to_op: int) -> None:
        done = scene.lakeward.undo(TABLE, to_op=to_op)
        assert done.op is not None
        states[done.op.op] = states[to_op]
        assert scene.rows() == states[to_op], f"back to op {to_op}"

    undo(1)  # op 5
    undo(4)  # op 6: what op 5 took back stands again
    assert scene.run().outcome is Outcome.IDLE, "no file is new"
    undo(5)  # op 7: and is taken back again
    undo(3)  # op 8: to an op that does not stand
    scene.run()  # op 9 takes the late file again
    assert scene.rows() == states[4] == source.rows()
    undo(2)
    for op in (4, 8):
        found = asked(scene.lakeward, TABLE, op_moment(op))
        assert sorted((tuple(row.values()) for row in found), key=repr) == states[op], f"as of op {op}"
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_a_fenced_file_is_never_taken_again_until_the_undo_is_undone(scene: Scene) -> None:
    source = loaded(scene)
    for number in (2, 3, 4):
        batch(source, number)
    newest = scene.rows()
    refusals = {
        path(2): f"has read {path(2)}; they have read:\n  {path(3)}\n  {path(4)}",
        "sales/product/none.csv": "none of the ops to be undone has read sales/product/none.csv",
    }
    for refused, message in refusals.items():
        with pytest.raises(ConfigurationError) as error:
            scene.lakeward.undo(TABLE, to_op=2, skip_files=[refused])
        assert message in error.value.message
    with pytest.raises(ConfigurationError, match="is a load part and cannot be fenced"):
        scene.lakeward.undo(TABLE, to_op=0, skip_files=["sales/product/LOAD00000001.csv"])

    # A path as people give it, of a file in landing.
    done = scene.lakeward.undo(TABLE, to_op=2, skip_files=[str(scene.landing / path(3))])
    assert done.plan.fenced == (path(3),) and scene.lakeward.status()[0].files_pending == 1
    assert scene.lakeward.undo(TABLE, to_op=2, skip_files=[path(3)]).op is None, "it is done already"
    bad = source._changes.pop("20240103-000000000.csv")
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)
    scene.forget_state()
    scene.land("20240103-000000000.csv", *bad, "I,99,changed,y,1.00")
    assert scene.run().outcome is Outcome.IDLE, "its new content is not looked at"
    assert scene.lakeward.status()[0].state == "current"

    # Forgotten at first: one more is fenced by going back to the undo itself.
    first = scene.lakeward.undo(TABLE, to_op=2, skip_files=[path(3)]).op
    assert first is not None and scene.lakeward.status()[0].files_pending == 1
    assert scene.lakeward.undo(TABLE, to_op=first.op, skip_files=[path(4)]).op is not None
    assert scene.run().outcome is Outcome.IDLE
    scene.land("20240103-000000000.csv", *bad)
    lifted = scene.lakeward.undo(TABLE, to_op=4)
    assert set(lifted.plan.unfenced) == {path(3), path(4)}
    assert scene.rows() == newest


def test_loads_reloads_and_truncates_go_back_and_generation_numbers_come_again(scene: Scene) -> None:
    source = loaded(scene, on_missing_folder="truncate")
    batch(source, 3)
    states = {2: scene.rows()}
    source.load("LOAD00000002.csv", "9,late part,x,1.00", "22,late part,x,1.00")
    scene.run()
    states[3] = scene.rows()
    batch(source, 4)
    first = dict(source._parts), dict(source._changes)
    source.reload("LOAD00000001.csv", "1,reloaded,z,1.00", "7,reloaded,z,1.00", mtime=JANUARY + 9 * DAY)
    (scene.landing / source.folder / "LOAD00000002.csv").unlink()
    scene.run(drop_parts=frozenset({f"{source.folder}/LOAD00000002.csv"}))
    states[5] = scene.rows()
    assert [reference for reference in references(scene) if reference.startswith("load")] == ["load-1", "load-2"]

    done = scene.lakeward.undo(TABLE, to_op=2)
    assert done.op is not None and done.op.strategy == "replace by an earlier state"
    assert scene.rows() == states[2]
    assert {reference for reference in references(scene) if "load-" in reference} == {
        "load-1",
        "undone-6-load-1",
        "undone-6-load-2",
    }
    # The late part is gone from landing: only the reload is new, and generation 2 comes again with other rows.
    other = ("1,another reload,z,1.00", "8,another reload,z,1.00")
    source.reload("LOAD00000001.csv", *other, mtime=JANUARY + 10 * DAY)
    scene.run()
    assert scene.rows() == source.rows()
    assert scene.lakeward.status()[0].generation == 2
    # A late change is folded from the load of its own generation 2.
    source.change("20240115-000000000.csv", "U,8,newer,z,1.00")
    scene.run()
    source.change("20240112-000000000.csv", "U,8,older,z,1.00", "D,1,,,0", "D,7,,,0")
    scene.run()
    assert scene.rows() == source.rows()
    newest = scene.lakeward.status()[0].op

    scene.remove_folder(source.folder)
    scene.run()
    assert scene.rows() == []
    scene.lakeward.undo(TABLE, to_op=newest)
    assert scene.rows() == source.rows()
    for op in (5, 3):
        scene.lakeward.undo(TABLE, to_op=op)
        assert scene.rows() == states[op], f"back to op {op}"
    source._parts, source._changes = first
    check = asked(scene.lakeward, TABLE, op_moment(4))
    assert sorted((tuple(row.values()) for row in check), key=repr) == source.rows()


def test_a_load_that_was_undone_longer_ago_than_the_window_cannot_stand_again(scene: Scene) -> None:
    source = loaded(scene, undo_window="0s")
    source.load("LOAD00000002.csv", "9,late part,x,1.00")
    scene.run()
    for back_to, lost in ((1, 2), (0, 1)):
        scene.lakeward.undo(TABLE, to_op=back_to)
        assert scene.lakeward.maintain(only="expire").tables[0].outcome is Outcome.DONE
        kept = scene.rows()
        with pytest.raises(DataError, match=f"generation 1 as op {lost} left it is no longer kept"):
            scene.lakeward.undo(TABLE, to_op=lost)
        with pytest.raises(DataError, match=f"as op {lost} left it"):
            asked(scene.lakeward, TABLE, op_moment(lost))
        assert scene.rows() == kept
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_back_to_nothing_and_a_crash_while_the_first_load_comes_again(scene: Scene) -> None:
    source = Source(scene)
    gone = source.load("LOAD00000001.csv", *ROWS)
    crash_at(scene, "log.ledger")
    gone.unlink()
    source.empty()
    source.load("LOAD00000002.csv", *ROWS)
    scene.run()
    batch(source, 2)
    with pytest.raises(ConfigurationError, match="op 1 could not be finished and was rolled back by op 2"):
        scene.lakeward.undo(TABLE, to_op=1)
    done = scene.lakeward.undo(TABLE, to_op=0)
    assert [(op.op, op.kind) for op in done.plan.ops] == [(2, "void"), (3, "load"), (4, "batch")]
    assert done.op is not None and done.op.mirror_rows == 0 and scene.rows() == []
    status = scene.lakeward.status()[0]
    assert (status.generation, status.files_pending, status.files_consumed) == (None, 2, 0)
    crash_at(scene, "load.publish")
    assert scene.run().ops[0].strategy == "replace by load"
    assert scene.rows() == source.rows()
    check_books(scene)


def test_a_table_without_key_and_its_bad_rows_go_back(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA, "on_bad_row": "quarantine"}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    source.change("20240102-000000000.csv", "I,1,row 1,x,1.00", "I,1,row 1,x,1.00")
    scene.run()
    kept = scene.rows()
    scene.land("20240103-000000000.csv", "I,1,row 1,x,1.00", "I,2,bad,x,oops")
    scene.run()
    plan = scene.lakeward.plan_undo(TABLE, to_op=2)
    assert plan.rows is not None and (plan.rows.inserted, plan.rows.updated, plan.rows.deleted) == (0, 0, 1)
    scene.lakeward.undo(TABLE, to_op=2)
    assert scene.rows() == kept == source.rows()
    assert scene.lakeward.status()[0].quarantined == 0
    scene.run()
    assert len(scene.rows()) == len(kept) + 1 and scene.lakeward.status()[0].quarantined == 1
    check_books(scene)


def test_a_time_lands_on_the_last_op_before_it_and_never_inside_one(scene: Scene) -> None:
    scene.table(timestamp_column="ts", cdc_start="2024-01-01")
    scene.land("LOAD00000001.csv", "2024-06-01 00:00:00.000000,1,load,x,1.00")
    scene.run()
    for day, commits in ((2, ("01 10:00", "02 10:00")), (4, ("03 10:00", "04 10:00")), (5, ("04 10:00",))):
        lines = [f"U,2024-01-{commit}:00.000000,1,{commit},x,1.00" for commit in commits]
        scene.land(f"2024010{day}-120000000.csv", *lines)
        scene.run()
    undo = scene.lakeward.undo
    for moment, op in (("2024-01-03", 2), ("2024-01-01T09:00:00", 1)):
        plan = scene.lakeward.plan_undo(TABLE, to_time=moment)
        assert plan.back_to == op, moment
    assert plan.reason.startswith("op 1 is the last op before 2024-01-01T090000Z: op 2 holds what was committed after")
    assert scene.lakeward.plan_undo(TABLE, to_time="2024-01-04").op is None
    done = undo(TABLE, to_time="2024-01-04T09:59:59")
    assert done.plan.back_to == 2 and scene.names() == {1: "02 10:00"}
    with pytest.raises(ConfigurationError, match="is not a time"):
        undo(TABLE, to_time="op:2")
    with pytest.raises(ConfigurationError, match="before the start of its capture"):
        undo(TABLE, to_time="2023-12-31")
    with pytest.raises(ConfigurationError, match="either to an op or to a time"):
        undo(TABLE)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["own steps", "all steps"])
def test_a_crash_at_every_step_is_finished_or_taken_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    leave_branches(monkeypatch)
    source = loaded(scene, rewrite_share=10)
    crashes = Crashes(scene)
    if not every:
        crashes.pass_over_what_no_kind_decides()
    kept = scene.rows()
    for _ in range(crashes.inputs):
        batch(source, 2)
        newest, op = scene.rows(), scene.lakeward.status()[0].op
        crashes.through([kept, newest], lambda to=op - 1: scene.lakeward.undo(TABLE, to_op=to))  # type: ignore[misc]
        assert scene.rows() == kept
        assert scene.lakeward.status()[0].op == op + 1, "one op takes back, whatever happens"
    assert sorted(crashes.crossed) == sorted(step for step in STEPS if step not in crashes.passed_over)
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_a_crash_while_a_reload_is_taken_back_is_finished_by_the_next_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_branches(monkeypatch)
    source = loaded(scene)
    source.reload("LOAD00000001.csv", "1,reloaded,z,1.00", mtime=JANUARY + 9 * DAY)
    scene.run()
    for op, step in ((3, "log.publish"), (5, "undo.loads")):
        crash_at(scene, step, lambda: scene.lakeward.undo(TABLE, to_op=1))
        if step == "log.publish":
            scene.forget_state()
        with pytest.raises(DataError, match=f"op {op} is logged and not yet applied"):
            scene.lakeward.plan_undo(TABLE, to_op=1)
        report = scene.run()
        assert [(op.op, op.kind, op.recovered) for op in report.ops] == [
            (op, "undo", True),
            (op + 1, "load", False),
        ]
        assert scene.rows() == source.rows()
    check_books(scene)


def test_of_two_undos_at_once_one_is_refused(scene: Scene) -> None:
    source = loaded(scene)
    batch(source, 2)
    kept, refused = scene.rows(), []
    batch(source, 3)

    def meanwhile(_table: str, step: str) -> None:
        if step == "undo.decided":
            scene.on_step = None
            with pytest.raises(LeaseHeldError):
                scene.lakeward.undo(TABLE, to_op=1)
            # Without a lease between them the other is faster.
            config = parse_config({**scene._settings, "state": "sqlite:///other.db"}, base=scene.folder)
            with Lakeward(config, spark=session_for(scene._root, config)) as other:
                assert other.undo(TABLE, to_op=2).op is not None
            refused.append(step)

    scene.on_step = meanwhile
    with pytest.raises(ConflictError):
        scene.lakeward.undo(TABLE, to_op=1)
    assert refused and scene.rows() == kept
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


CASES = [
    SimulatorOptions(
        seed=21, tables=1, rows=12, changes=50, batches=6, stages=3, format="csv", timestamp_column="cdc_timestamp",
        before_image="pk-only", change_keys=True, unchanged="<same>", delay=0.5, reorder=1.0, null_updates=True,
    ),
    SimulatorOptions(
        seed=8, tables=1, rows=10, changes=40, batches=6, stages=4, format="parquet", timestamp_column="cdc_timestamp",
        composite_keys=True, delay=0.3, reorder=1.0, reloads=1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("options", CASES, ids=lambda options: f"seed{options.seed}")
def test_the_past_is_the_same_after_an_undo_and_a_replay(
    tmp_path: Path, spark: SparkSession, options: SimulatorOptions
) -> None:
    simulation, random = Simulation(options), Random(options.seed)
    config = parse_config({**simulation.configuration(), "state": "sqlite:///state.db"}, base=tmp_path)
    stages, table = simulation.stages(), simulation.tables[0]
    name, after_op = str(table.id), {}
    with Lakeward(config, spark=session_for(spark, config)) as lakeward:
        for stage in stages:
            stage.land(tmp_path / "landing")
            report = lakeward.run().tables[0]
            assert report.outcome in (Outcome.DONE, Outcome.IDLE), report.message
            if report.ops:
                after_op[report.ops[-1].op] = simulation.truth_after(stage)[table.id]
        newest = max(after_op)
        moments = random.sample(simulation.commits(stages[-1]), 2)
        before = {moment: asked(lakeward, name, moment_of(moment)) for moment in moments}
        back = random.choice([op for op in after_op if op != newest])
        done = lakeward.undo(name, to_op=back)
        assert done.op is not None
        rows = [row.asDict() for row in lakeward.sql(f"SELECT * FROM {name}").collect()]
        assert_same_rows(rows, after_op[back], table.key, f"back to op {back} of {options}")
        replayed = lakeward.run().tables[0]
        assert replayed.outcome is Outcome.DONE, replayed.message
        rows = [row.asDict() for row in lakeward.sql(f"SELECT * FROM {name}").collect()]
        assert_same_rows(rows, after_op[newest], table.key, f"replay after going back to op {back} of {options}")
        for moment, expected in before.items():
            found = asked(lakeward, name, moment_of(moment))
            assert_same_rows(found, expected, table.key, f"as of {moment} after undo to {back} of {options}")
        for op, expected in ((newest, after_op[newest]), (done.op.op, after_op[back])):
            assert_same_rows(asked(lakeward, name, op_moment(op)), expected, table.key, f"as of op {op} of {options}")
