"""A table is read again from landing: readers keep what it was until the new state is there, and it can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ChangedFileError, ConfigurationError, ConflictError, DataError, VanishedError
from lakeward.iceberg.define import LOGGED_STAMP, changelog_of, mirror_of
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.ledger import op_record
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from tests.spark.crash import Crashes, crash_at, leave_branches, steps_of
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books
from tests.views.moments import asked

if TYPE_CHECKING:
    from lakeward.model import Generation
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 6))
JANUARY = 1704067200.0
DAY = 86400.0
CRASHED = steps_of("reset")


def landed(scene: Scene, **settings: Any) -> Source:
    """Land and run a load and two batches: three ops."""
    scene.table(rewrite_share=10, **settings)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS, mtime=JANUARY)
    scene.run()
    for number in (2, 3):
        source.change(f"2024010{number}-000000000.csv", f"U,1,update {number},y,2.00", f"D,{number},,,0")
        scene.run()
    return source


def references(scene: Scene) -> list[str]:
    tables = (of(scene.lakeward.spark, TableId.parse(TABLE)) for of in (mirror_of, changelog_of))
    return [name for table in tables for name in table.branches()]


def test_files_are_read_again_and_the_former_state_is_kept(scene: Scene) -> None:
    source = landed(scene)
    before, files = scene.rows(), ["LOAD00000001.csv", "20240102-000000000.csv", "20240103-000000000.csv"]
    source.change("20240104-000000000.csv", "I,9,never read before,y,1.00")
    plan = scene.lakeward.plan_reset_table(TABLE)
    assert (plan.op, plan.newest_op, plan.rows, plan.file_count, plan.new_files, plan.cut) == (4, 3, 3, 4, 1, "")
    assert {*plan.files} >= {f"sales/product/{name}" for name in files}
    assert scene.rows() == before

    seen = []

    def look(_table: str, step: str) -> None:
        if step in (Step.APPLY_DONE, Step.RESET_READ):
            seen.append(scene.rows())

    scene.on_step = look
    done = scene.lakeward.reset_table(TABLE, newest_op=3)
    scene.on_step = None
    assert [(op.op, op.kind) for op in done.ops] == [(4, "reset"), (5, "load"), (6, "batch")]
    assert seen
    assert all(rows == before for rows in seen), "readers see nothing of it before it is complete"
    assert scene.rows() == source.rows()
    assert done.rows == len(source.rows())
    assert sorted(references(scene)) == sorted(
        ["lakeward-empty", "load-1", "main", "undone-4", "undone-4-load-1", "lakeward-empty", "main"]
    )
    assert scene.run().ops == ()
    check_books(scene)
    assert [op["op"] for op in scene.lakeward.run_detail(scene.lakeward.runs()[1].run_id).tables[0]["ops"]] == [4, 5, 6]

    # What was before the reset can be asked for, also by op, and restored.
    assert sorted(tuple(row.values()) for row in asked(scene.lakeward, TABLE, op_moment(3))) == before
    with pytest.raises(ConflictError, match="is at op 6; it was at op 3"):
        scene.lakeward.reset_table(TABLE, newest_op=3)
    scene.lakeward.undo(TABLE, to_op=3)
    assert scene.rows() == before
    scene.run()
    assert scene.rows() == source.rows()
    assert scene.lakeward.verify([TABLE]).tables[0].verdict == "clean"


@pytest.mark.soak
def test_decisions_about_files_hold_and_erased_rows_stay_erased(scene: Scene) -> None:
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS, mtime=JANUARY)
    source.change("20240102-000000000.csv", "U,1,in the reload,y,2.00")
    scene.run()
    source.reload("LOAD00000001.csv", *(f"{key},reloaded,x,1.00" for key in range(1, 5)), mtime=JANUARY + 10 * DAY)
    scene.run()
    source.change("20240120-000000000.csv", "U,2,after it,y,2.00")
    scene.run()
    source.change("20240121-000000000.csv", "U,3,wrong,y,2.00", "U,4,wrong,y,2.00")
    op = scene.run().ops[-1].op
    fenced = "sales/product/20240121-000000000.csv"
    scene.lakeward.undo(TABLE, to_op=op - 1, skip_files=[fenced])
    # The fenced file is written anew without the row, and stays fenced.
    scene.lakeward.erase(TABLE, [{"id": 4}], reason="test", landing=True)
    assert (scene.landing / fenced).read_text() == "U,3,wrong,y,2.00\n"
    before = scene.rows()
    assert {row[0]: row[1] for row in before} == {1: "reloaded", 2: "after it", 3: "reloaded"}

    plan = scene.lakeward.plan_reset_table(TABLE)
    assert (plan.fenced, plan.erased_keys, plan.generation) == ((fenced,), 1, 2)
    assert plan.cut.startswith("20240111")
    scene.lakeward.reset_table(TABLE)
    assert scene.rows() == before
    # What is fenced stays fenced, and a change file from before the load is still recognised as such.
    source.change("20240103-000000000.csv", "U,2,before the reload,y,2.00")
    assert [op.files for op in scene.run().ops] == [1]
    assert scene.rows() == before
    check_books(scene)


def test_a_reset_is_refused_where_landing_is_not_what_the_table_was_made_from(scene: Scene) -> None:
    source = landed(scene)
    before = scene.rows()
    folder = scene.landing / source.folder
    change, text = folder / "20240102-000000000.csv", (folder / "20240102-000000000.csv").read_text()
    change.unlink()
    with pytest.raises(VanishedError, match=r"of 3 files .* 1 can no longer be found in landing: .*20240102"):
        scene.lakeward.plan_reset_table(TABLE)
    change.write_text(text.replace("update", "UPDATE"))
    with pytest.raises(ChangedFileError, match=r"other content now: .*20240102"):
        scene.lakeward.reset_table(TABLE)
    change.write_text(text)
    # Load files that no run has decided about might be of another load.
    source.load("LOAD00000002.csv", "2,of another load,x,1.00", mtime=JANUARY + 90 * DAY)
    with pytest.raises(ConfigurationError, match=r"no run has decided about them: .*LOAD00000002") as refusal:
        scene.lakeward.plan_reset_table(TABLE)
    assert "lakeward run sales.product" in refusal.value.hint
    (folder / "LOAD00000002.csv").unlink()
    # A new file that cannot be read ends the reset, and everything is as it was.
    bad = source.folder + "/20240109-000000000.csv"
    (scene.landing / bad).write_text("U,1,bad,y,oops\n")
    with pytest.raises(DataError, match="oops"):
        scene.lakeward.reset_table(TABLE)
    assert not [name for name in references(scene) if name.startswith("lakeward-reset")]
    assert scene.rows() == before
    (scene.landing / bad).unlink()
    assert scene.lakeward.status()[0].op == 3
    scene.lakeward.undo(TABLE, to_op=0)
    with pytest.raises(ConfigurationError, match="is empty: no file counts as read"):
        scene.lakeward.plan_reset_table(TABLE)


def test_files_that_no_rule_reads_any_more_are_named(scene: Scene) -> None:
    files = {"load": "part-*.csv", "changes": "delta_*.csv", "order": "name"}
    scene.table(files=files)
    scene.land("part-0.csv", "1,a,x,1.00")
    scene.land("part-1.csv", "2,a,x,1.00")
    scene.run()
    scene.table(files={**files, "load": "part-0.csv"})
    with pytest.raises(ConfigurationError, match=r"fit no rule that reads files now: sales/product/part-1.csv\n"):
        scene.lakeward.plan_reset_table(TABLE)


def test_content_that_was_accepted_and_ignored_is_not_read_after_an_erasure_either(scene: Scene) -> None:
    scene.table(rewrite_share=10, max_delete_share=1)
    scene.land("LOAD00000001.csv", *ROWS, mtime=JANUARY)
    scene.land("20240102-000000000.csv", "U,1,right,x,1.00")
    scene.run()
    scene.lakeward.erase(TABLE, [{"id": 5}], reason="test", landing=True)
    assert scene.lakeward.plan_reset_table(TABLE).erased_keys == 1
    scene.land("20240102-000000000.csv", "U,1,wrong,x,1.00")
    scene.run(accept_changed=frozenset({"sales/product/20240102-000000000.csv"}))
    with pytest.raises(ChangedFileError, match=r"accepted and ignored: sales/product/20240102"):
        scene.lakeward.plan_reset_table(TABLE)


def test_a_load_file_that_was_left_out_is_not_passed_over_once_it_holds_something_else(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", mtime=JANUARY)
    scene.land("LOAD00000002.csv", "1,left behind,x,1.00", mtime=JANUARY - 90 * DAY)
    scene.run(drop_parts=frozenset({"sales/product/LOAD00000002.csv"}))
    assert scene.lakeward.plan_reset_table(TABLE).left_out == ("sales/product/LOAD00000002.csv",)
    scene.land("LOAD00000002.csv", "2,new part,x,1.00", mtime=JANUARY)
    with pytest.raises(ConfigurationError, match=r"no run has decided about them: .*LOAD00000002"):
        scene.lakeward.plan_reset_table(TABLE)


@pytest.mark.parametrize("steps", [pytest.param("every", marks=pytest.mark.soak), "own"])
def test_a_crash_leaves_the_table_as_it_was_or_is_finished(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, steps: str
) -> None:
    leave_branches(monkeypatch)
    source = landed(scene)
    before = scene.rows()
    source.change("20240104-000000000.csv", "I,9,new,y,1.00")
    after = source.rows()
    act = lambda: scene.lakeward.reset_table(TABLE)  # noqa: E731
    if steps == "every":
        crashes = Crashes(scene)
        crashes.passed_over = steps_of("choose", "check")
        crashes.through([before, after], act)
        assert {*CRASHED} <= {*crashes.crossed}
    else:
        crash_at(scene, Step.RESET_READ, act)
        assert scene.rows() == before
        # A run works on the former state: a late change is folded into the load that it had.
        source.change("20240101-120000000.csv", "U,5,late,y,7.00", "I,2,late,y,7.00")
        assert [(op.op, op.late) for op in scene.run().ops] == [(4, True)]
        before = after = source.rows()
        assert scene.rows() == before
        scene.forget_state()
        crash_at(scene, Step.RESET_LOGGED, act)
        assert scene.rows() == before
        plan = scene.lakeward.plan([TABLE])[0]
        assert "the ops of a reset, 5 to 7, are not applied yet" in (plan.message or "")
        scene.run()
        assert scene.lakeward.status()[0].op == 7
    assert scene.rows() == after
    assert not [name for name in references(scene) if name.startswith("lakeward-reset")]
    scene.run()
    check_books(scene)


def test_when_a_load_began_stays_known(scene: Scene) -> None:
    files = {"load": "part-*.csv", "changes": "d_*.csv", "order": "arrival"}
    schema = "id int, name string, ts timestamp"
    scene.table(timestamp_column="ts", schema=schema, landing_times="trusted", rewrite_share=10, files=files)
    scene.land("part-0.csv", *(f"{key},load,2023-01-01 00:00:00" for key in (1, 2)), mtime=JANUARY)
    scene.land("d_1.csv", "U,1,before,2024-01-15 00:00:00", mtime=JANUARY + 14 * DAY)
    scene.run()
    scene.land("part-0.csv", *(f"{key},reload,2023-01-01 00:00:00" for key in (1, 2)), mtime=JANUARY + 31 * DAY)
    scene.run()

    def current() -> Generation:
        log = changelog_of(scene.lakeward.spark, TableId.parse(TABLE))
        head = log.require_head().id
        last = int(log.metadata().stamp_at(LOGGED_STAMP, head) or 0)
        generation = op_record(log.read(head), last).progress.generation
        assert generation is not None
        return generation

    before = current()
    assert (before.number, before.since[:8], before.load_from) == (2, "20240115", 1705276800000001)
    scene.lakeward.reset_table(TABLE)
    assert (current().since, current().load_from) == (before.since, before.load_from)
    # A change from before the load does not go on top of it.
    scene.land("d_0.csv", "U,2,late,2024-01-10 00:00:00", mtime=JANUARY + 60 * DAY)
    assert "name and content contradict each other" in (scene.refused().message or "")


@pytest.mark.soak
def test_files_keep_the_order_in_which_they_were_first_seen(scene: Scene) -> None:
    files = {"load": "part-*.csv", "changes": "delta_*.csv", "order": "arrival"}
    scene.table(rewrite_share=10, files=files, max_files=1)
    scene.land("part-0.csv", *ROWS)
    scene.land("delta_b.csv", "U,1,seen first,y,1.00")
    scene.run()
    scene.land("delta_a.csv", "U,1,seen last,y,1.00")
    scene.run()
    before = scene.rows()
    assert before[0][1] == "seen last"
    scene.land("delta_0.csv", "U,2,never read before,y,1.00")
    plan = scene.lakeward.plan_reset_table(TABLE)
    assert (plan.file_count, plan.new_files) == (4, 1)
    scene.lakeward.reset_table(TABLE)
    assert [row[1] for row in scene.rows()][:2] == ["seen last", "never read before"]
    assert scene.lakeward.verify([TABLE]).tables[0].verdict == "clean"
