"""Metadata columns in mirror and published files: where each row comes from, through every kind of op."""

from __future__ import annotations

from typing import Any

import pyarrow.dataset
import pytest

from lakeward.mirror.op.report import Outcome
from lakeward.views.verification.report import Verdict
from tests.spark.scene import TABLE, Scene

FOLDER = TABLE.replace(".", "/")
METADATA = {"op": "Op", "commit_time": "committed_at", "op_number": "op_no", "file": "source_file"}
LOAD, FIRST, LATE, SECOND = (
    "LOAD00000001.csv",
    "20240102-000000000.csv",
    "20240101-000000000.csv",
    "20240103-000000000.csv",
)


def origins(scene: Scene) -> dict[int, tuple[Any, ...]]:
    """Operation, op number, and file of every row by its key; the commit time as a day of January 2024."""
    return {
        key: (row["Op"], row["op_no"], row["source_file"].rpartition("/")[2], row["committed_at"].day)
        for key, row in scene.by_key().items()
    }


def verdict(scene: Scene, basis: str) -> Verdict:
    (found,) = scene.lakeward.verify([TABLE], basis=basis).tables
    return found.verdict


def test_every_row_shows_its_last_change_through_all_kinds_of_ops(scene: Scene) -> None:
    scene.table(
        timestamp_column="at", csv={"unchanged": "~"}, on_bad_row="quarantine", metadata_columns=METADATA,
        publish={"to": "out"},
    )  # fmt: skip
    scene.land(LOAD, *(f"2024-01-01 12:00:00,{key},n{key},d,1.00" for key in range(1, 7)))
    scene.run()
    assert origins(scene) == dict.fromkeys(range(1, 7), ("I", 1, LOAD, 1))
    day = "2024-01-03 12:00:00"
    scene.land(FIRST, f"U,{day},1,~,changed,~,", f"D,{day},2,NULL,NULL,NULL,", f"I,{day},7,n7,d,1.00,",
               f"U,{day},9,~,~,~,3", f"U,{day},4,bad,d,many,")  # fmt: skip
    scene.run()
    expected = {
        1: ("U", 2, FIRST, 3), 4: ("I", 1, LOAD, 1), 5: ("I", 1, LOAD, 1), 6: ("I", 1, LOAD, 1),
        7: ("I", 2, FIRST, 3), 9: ("U", 2, FIRST, 3),
    }  # fmt: skip
    assert origins(scene) == expected
    assert scene.by_key()[1]["dept"] == "changed"
    # A late change of another column: the row's last change in the order stays what it was.
    scene.land(LATE, "U,2024-01-02 12:00:00,1,renamed,~,~", "U,2024-01-02 12:00:00,5,n5,late,2.00")
    scene.run()
    expected |= {5: ("U", 3, LATE, 2)}
    assert origins(scene) == expected
    assert scene.by_key()[1]["name"] == "renamed"
    assert verdict(scene, "files") is Verdict.CLEAN
    assert verdict(scene, "changelog") is Verdict.CLEAN
    # A row that was set aside keeps its file and time, and has the number of the op that put it back.
    (bad,) = scene.lakeward.bad_rows(TABLE)
    scene.lakeward.retry_bad_rows(TABLE, replacements={bad.id: f"U,{day},4,good,d,5.00,"})
    expected |= {4: ("U", 4, FIRST, 3)}
    assert origins(scene) == expected
    assert verdict(scene, "files") is Verdict.CLEAN
    scene.lakeward.undo(TABLE, to_op=2)
    assert origins(scene) == {**expected, 5: ("I", 1, LOAD, 1), 4: ("I", 1, LOAD, 1)}
    # Headerless files are read and written again without them.
    scene.lakeward.erase(TABLE, [{"id": 7}], reason="test", landing=True)
    assert ",n7," not in (scene.landing / FOLDER / FIRST).read_text()
    assert set(origins(scene)) == {1, 4, 5, 6, 9}
    assert verdict(scene, "changelog") is Verdict.CLEAN


def test_published_files_history_and_versions_of_rows(scene: Scene) -> None:
    scene.table(timestamp_column="at", metadata_columns=METADATA, publish={"to": "out"})
    scene.land(LOAD, "2024-01-01 12:00:00,1,a,x,1.00", "2024-01-01 12:00:00,2,b,x,1.00")
    # The second change of row 1 sets the values that it has.
    scene.land(FIRST, "U,2024-01-02 12:00:00,1,c,x,1.00", "U,2024-01-03 12:00:00,1,c,x,1.00")
    scene.run()
    files = pyarrow.dataset.dataset(scene.folder / "out" / TABLE / "current").to_table().to_pylist()
    assert {row["id"]: (row["Op"], row["op_no"], row["committed_at"].day) for row in files} == {
        1: ("U", 2, 3), 2: ("I", 1, 1),
    }  # fmt: skip
    history = scene.lakeward.history.row(TABLE, {"id": 1})
    assert [change.after for change in history.changes][1:] == [{"name": "c"}, {}]
    assert scene.lakeward.history.scd2(TABLE, key={"id": 1}).count() == 2


def test_a_repair_from_another_copy_sets_them_and_compares_without_them(scene: Scene) -> None:
    scene.table(timestamp_column="at", metadata_columns=METADATA)
    scene.land(LOAD, "2024-01-01 12:00:00,1,a,x,1.00", "2024-01-01 12:00:00,2,b,x,1.00")
    scene.run()
    copy = scene.folder / "copy"
    copy.mkdir()
    (copy / "rows.csv").write_text("id,name,dept,price\n1,a,x,1.00\n2,other,x,1.00\n")
    (found,) = scene.lakeward.verify([TABLE], against=str(copy), repair=True).tables
    assert (found.verdict, found.differences, found.only_here) == (Verdict.DIFFERENT, 1, ())
    row = scene.by_key()[2]
    assert (row["name"], row["Op"], row["op_no"]) == ("other", "U", 2)
    assert verdict(scene, "changelog") is Verdict.CLEAN


def test_a_table_with_rows_does_not_change_them_in_passing(scene: Scene) -> None:
    scene.table(timestamp_column="at")
    scene.land(LOAD, "2024-01-01 12:00:00,1,a,x,1.00")
    scene.run()
    scene.land(FIRST, "U,2024-01-02 12:00:00,1,b,x,1.00")
    scene.table(timestamp_column="at", metadata_columns={"op": "Op"})
    report = scene.refused()
    assert report.outcome is Outcome.FAILED
    assert "metadata_columns was [], now ['op: Op']" in (report.message or "")
    scene.table(timestamp_column="at")
    scene.run()
    assert scene.names() == {1: "b"}


@pytest.mark.parametrize("column", ["op", "OP"])
def test_a_column_of_the_files_by_that_name_stops_the_table(scene: Scene, column: str) -> None:
    scene.configure({TABLE: {"primary_key": "id", "metadata_columns": {"op": "op"}, "operation_column": "what"}})
    scene.land_parquet("LOAD00000001.parquet", {"id": [1], column: ["x"]})
    assert f"the table has a column {column!r}" in (scene.refused().message or "")
