"""Files under names of the user's own choice, from landing to the mirror: the parts that are decided in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.mirror.op.report import Outcome
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from tests.spark.scene import Scene

FOLDER = TABLE.replace(".", "/")
FILES = {"load": "part-*.csv", "changes": "**/delta_*.csv"}
SCHEMA = "id int, name string"


def test_arrival_is_recorded_and_survives_refusals_undos_and_a_lost_state_store(scene: Scene) -> None:
    scene.table(schema=SCHEMA, files={**FILES, "order": "arrival"}, landing_times="untrusted")
    scene.land("part-0.csv", "1,load", "2,load")
    scene.land("LOAD00000001.csv", "9,nobody reads it")
    scene.run()
    # What is refused has its number already, and a file that comes later a greater one.
    scene.land("delta_b.csv", "X,1,b")
    scene.refused()
    scene.land("delta_a.csv", "U,1,a")
    scene.land("delta_b.csv", "U,1,b")
    plan = scene.lakeward.plan()[0]
    assert sorted(plan.files) == [f"{FOLDER}/delta_a.csv", f"{FOLDER}/delta_b.csv"]
    status = scene.lakeward.status()[0]
    assert (status.files_pending, status.files_consumed) == (2, 1)
    [unread] = status.unread_files
    assert (unread.path, unread.pattern) == (f"{FOLDER}/LOAD00000001.csv", "LOAD*.csv")
    report = scene.run()
    assert [op.files for op in report.ops] == [0, 2]
    assert scene.names() == {1: "a", 2: "load"}
    # A copy would be applied after everything seen since.
    copy = scene.land("delta_c.csv", "U,1,b")
    assert "delta_c.csv has the content of sales/product/delta_b.csv" in (scene.refused().message or "")
    copy.unlink()
    scene.forget_state()
    scene.lakeward.undo(TABLE, to_op=1)
    assert scene.names() == {1: "load", 2: "load"}
    scene.run()
    assert scene.names() == {1: "a", 2: "load"}
    assert scene.lakeward.verify(basis="files").tables[0].verdict == "clean"
    # Nothing shows which files follow a reload: the user decides, also about files that were read already.
    scene.land("part-0.csv", "1,reload", "2,reload")
    stopped = scene.refused()
    assert f"--cut after:{FOLDER}/delta_a.csv" in (stopped.hint or "")
    scene.run(cut=f"file:{FOLDER}/delta_a.csv")
    assert scene.names() == {1: "a", 2: "reload"}
    assert scene.run().outcome is Outcome.IDLE


def test_a_column_orders_changes_and_nothing_else_does(scene: Scene) -> None:
    files = {**FILES, "order": "column"}
    scene.table(schema=SCHEMA, files=files, timestamp_column="ts", landing_times="untrusted", on_bad_row="fail")
    scene.land("part-0.csv", "2024-01-01 00:00:00,1,load", "2024-01-01 00:00:01,2,load")
    scene.land("2024/delta_x.csv", "U,2024-01-03 00:00:00,1,newest", "U,2024-01-02 00:00:00,2,two")
    scene.run()
    scene.land("delta_a.csv", "U,2024-01-02 00:00:00,1,older")
    # The same change in another file is no question, another change with the same time is one.
    scene.land("delta_b.csv", "U,2024-01-02 00:00:00,2,two")
    scene.run()
    assert scene.names() == {1: "newest", 2: "two"}
    tie = scene.land("delta_c.csv", "U,2024-01-03 00:00:00,1,which?")
    stopped = scene.refused()
    assert "1 key has different changes with equal values in two files" in (stopped.message or "")
    assert "2024/delta_x.csv and sales/product/delta_c.csv" in (stopped.message or "")
    tie.unlink()
    scene.land("part-0.csv", "2024-01-05 00:00:00,1,reload", "2024-01-05 00:00:01,2,reload")
    scene.land("delta_d.csv", "U,2024-01-06 00:00:00,2,after")
    scene.run()
    assert scene.names() == {1: "reload", 2: "after"}
    assert scene.lakeward.verify().tables[0].verdict == "clean"
