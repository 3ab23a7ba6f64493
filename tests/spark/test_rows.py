"""Hazards in the rows: what each kind of change must leave in the mirror."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from lakeward.mirror.op.checkpoints import Moment, MomentKind
from lakeward.mirror.op.report import Outcome
from tests.spark.scene import TABLE, Scene
from tests.views.moments import asked

FOLDER = TABLE.replace(".", "/")


def test_update_that_sets_null_removes_the_old_value(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,apple,fruit,1.50", "2,pear,fruit,2.00")
    scene.land("20240101-000000000.csv", "U,1,apple,NULL,NULL")
    scene.run()
    assert scene.rows() == [(1, "apple", None, None), (2, "pear", "fruit", Decimal("2.00"))]


def test_null_token_empty_text_and_quoted_token_are_three_things(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,NULL,,1.00", '2,"NULL","",2.00', '3,"a ""b"", c\nd",",",3.00')
    scene.run()
    assert scene.rows() == [
        (1, None, "", Decimal("1.00")),
        (2, "NULL", "", Decimal("2.00")),
        (3, 'a "b", c\nd', ",", Decimal("3.00")),
    ]


def test_delete_row_that_carries_only_the_key(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240101-000000000.csv", "D,1,NULL,NULL,NULL")
    scene.run()
    assert scene.names() == {2: "b"}


def test_unchanged_marker_keeps_the_earlier_value_column_by_column(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"})
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,1,~,y,~", "U,1,~,~,3.00", "U,2,~,NULL,~", "U,3,new,~,~")
    scene.run()
    assert scene.rows() == [
        (1, "a", "y", Decimal("3.00")),
        (2, "b", None, Decimal("1.00")),
        (3, "new", None, None),
    ]


def test_insert_of_a_known_key_update_and_delete_of_unknown_keys(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,1,b,x,1.00", "U,2,c,x,1.00", "D,3,d,x,1.00")
    scene.run()
    assert scene.names() == {1: "b", 2: "c"}


def test_key_change_with_before_image_moves_the_row(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240101-000000000.csv", "U,9,a9,x,1.00,1", "I,3,c,x,1.00,")
    scene.run()
    assert scene.names() == {9: "a9", 2: "b", 3: "c"}


def test_partial_key_changes_carry_the_old_rows_values_along_a_chain(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"})
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,2,~,y,~,1", "U,3,~,~,5.00,2", "I,1,fresh,z,0.10,")
    scene.run()
    assert scene.rows() == [(1, "fresh", "z", Decimal("0.10")), (3, "a", "y", Decimal("5.00"))]
    # A late change of the first key, before the moves, reaches the row where it is now.
    scene.land("20230101-000000000.csv", "U,1,late,~,~,")
    scene.run()
    assert scene.rows() == [(1, "fresh", "z", Decimal("0.10")), (3, "late", "y", Decimal("5.00"))]


def test_key_change_without_before_image_leaves_the_old_row(scene: Scene) -> None:
    # Nothing in such a file shows that the key changed; the documentation states this limit.
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240101-000000000.csv", "U,9,a,x,1.00")
    scene.run()
    assert scene.names() == {1: "a", 2: "b", 9: "a"}


def test_update_without_its_unchanged_large_column_keeps_it(scene: Scene) -> None:
    # In Parquet the column may be absent, or null where it was not logged.
    scene.configure({TABLE: {"primary_key": "id", "null_means_unchanged": "body"}})
    scene.land_parquet("LOAD00000001.parquet", {"id": [1, 2, 3], "name": ["a", "b", "c"], "body": ["A", "B", "C"]})
    scene.run()
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "D"], "id": [1, 3], "name": ["a2", None]})
    scene.land_parquet(
        "20240102-000000000.parquet",
        {"Op": ["U", "I", "U"], "id": [2, 3, 1], "name": [None, "c2", "a3"], "body": [None, None, "A3"]},
    )
    scene.run()
    # Null in an insert means null: the row before it was deleted.
    assert scene.rows() == [(1, "a3", "A3"), (2, None, "B"), (3, "c2", None)]


def test_table_without_a_key_takes_each_insert_once_and_refuses_the_rest(scene: Scene) -> None:
    scene.table(primary_key=[])
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,1,a,x,1.00", "I,2,b,x,1.00")
    scene.run()
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    expected = [(1, "a"), (1, "a"), (1, "a"), (2, "b")]
    assert [row[:2] for row in scene.rows()] == expected
    scene.land("20240102-000000000.csv", "I,3,c,x,1.00", "U,1,changed,x,1.00")
    assert "row 2, column Op, value 'U': an update or delete cannot be placed" in (scene.refused().message or "")
    assert [row[:2] for row in scene.rows()] == expected


def test_without_key_stop_refuses_updates_and_deletes_even_where_bad_rows_are_set_aside(scene: Scene) -> None:
    scene.table(primary_key=[], without_key="stop", on_bad_row="quarantine")
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,2,b,x,1.00", "I,3,c,x,not a price")
    assert scene.run().rows_quarantined == 1
    scene.land("20240102-000000000.csv", "I,4,d,x,1.00", "D,1,a,x,1.00", "I,5,e,x,no price either")
    stopped = scene.refused()
    assert "1 update or delete needs a key, and without_key is stop" in (stopped.message or "")
    assert "row 2, column Op, value 'D'" in (stopped.message or "")
    assert "row 3" not in (stopped.message or "")
    assert [row[:2] for row in scene.rows()] == [(1, "a"), (2, "b")]


def test_without_key_quarantine_sets_updates_and_deletes_aside_and_other_bad_rows_still_stop(scene: Scene) -> None:
    scene.table(primary_key=[], without_key="quarantine")
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,2,b,x,1.00", "U,1,changed,x,1.00", "D,1,a,x,1.00")
    report = scene.run()
    assert (report.rows_quarantined, report.rows_ignored) == (2, 0)
    found = [(row.row, row.reason) for row in scene.lakeward.bad_rows(TABLE)]
    assert found == [(row, "an update or delete cannot be placed without a key") for row in (2, 3)]
    # What was set aside is not ignored by a rule that is set later: a person decides on it.
    scene.table(primary_key=[], without_key="inserts")
    assert (len(scene.lakeward.retry_bad_rows(TABLE).still_bad), scene.lakeward.status()[0].rows_ignored) == (2, 0)
    assert scene.lakeward.drop_bad_rows(TABLE).handled == 2
    scene.table(primary_key=[], without_key="quarantine")
    scene.land("20240102-000000000.csv", "U,1,changed,x,1.00", "I,3,c,x,not a price")
    message = scene.refused().message or ""
    assert "1 bad row" in message
    assert "row 2, column price" in message
    assert "row 1" not in message
    assert [row[:2] for row in scene.rows()] == [(1, "a"), (2, "b")]


def test_without_key_inserts_counts_the_rows_it_ignores_durably(scene: Scene) -> None:
    def ignored() -> int:
        return scene.lakeward.status()[0].rows_ignored

    scene.table(primary_key=[], without_key="inserts")
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,2,b,x,1.00", "U,1,changed,x,1.00", "D,1,a,x,1.00")
    report = scene.run()
    assert (report.rows_in, report.rows_quarantined, report.rows_ignored, ignored()) == (2, 0, 2, 2)
    scene.land("20240102-000000000.csv", "D,2,b,x,1.00")
    plan = scene.lakeward.plan()[0].op
    assert plan is not None
    assert (plan.read.rows, plan.read.ignored) == (0, 1)
    assert scene.run().rows_ignored == 1
    assert [row[:2] for row in scene.rows()] == [(1, "a"), (2, "b")]
    assert sum(run.rows_ignored for run in scene.lakeward.runs()) == 3
    scene.forget_state()
    assert (ignored(), scene.run().outcome) == (3, Outcome.IDLE)
    assert scene.lakeward.verify(basis="files").exit_code == 0
    # Under another rule the files read as they did, but for what becomes of rows that are left out.
    scene.table(primary_key=[])
    assert scene.lakeward.verify(basis="files").exit_code == 0
    last = scene.lakeward.status()[0].op
    scene.lakeward.undo(TABLE, to_op=last - 1)
    assert ignored() == 2
    scene.table(primary_key=[], without_key="inserts")
    assert (scene.run().rows_ignored, ignored()) == (1, 3)
    assert scene.lakeward.verify(basis="files").exit_code == 0
    newest = scene.lakeward.status()[0].op
    then = asked(scene.lakeward, TABLE, Moment(MomentKind.OP, newest, "newest"))
    assert sorted((row["id"], row["name"]) for row in then) == [(1, "a"), (2, "b")]


def test_repeats_in_a_table_without_a_key_are_distinguished_by_the_change_sequence(scene: Scene) -> None:
    scene.configure({TABLE: {}})
    scene.land_parquet(
        "20240101-000000000.parquet", {"Op": ["I", "I"], "name": ["a", "a"], "AR_H_CHANGE_SEQ": ["9", "10"]}
    )
    scene.run()
    # The capture resumes at its last change, which it sends again, and then twice more.
    columns = {"Op": ["I"] * 3, "name": ["a", "b", "b"], "AR_H_CHANGE_SEQ": ["10", "11", "11"]}
    scene.land_parquet("20240102-000000000.parquet", columns)
    scene.run()
    assert scene.rows() == [("a",), ("a",), ("b",)]
    # A sequence that different rows share does not show which of them were read before, in one file or in two.
    columns = {"Op": ["I", "I"], "name": ["c", "d"], "AR_H_CHANGE_SEQ": ["11", "12"]}
    path = scene.land_parquet("20240103-000000000.parquet", columns)
    assert "11: 2 rows in sales/product/20240102-000000000.parquet and sales" in (scene.refused().message or "")
    scene.land_parquet(path.name, {**columns, "AR_H_CHANGE_SEQ": ["12", "12"]})
    assert "1 value of it belongs to different rows" in (scene.refused().message or "")
    assert scene.rows() == [("a",), ("a",), ("b",)]


def test_composite_keys_compare_whole_and_a_null_equals_a_null(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": "a string, b int, v string", "primary_key": ["a", "b"]}})
    scene.land("LOAD00000001.csv", "x,1,load", "x,2,load", "x,NULL,load", "NULL,NULL,load", "NULL,1,load", '"",1,load')
    scene.run()
    changes = ["U,x,NULL,changed", "D,NULL,NULL,", "U,NULL,1,changed", "D,x,1,", "I,NULL,2,new"]
    scene.land("20240101-000000000.csv", *changes)
    scene.run()
    assert scene.rows() == [
        ("", 1, "load"), ("x", 2, "load"), ("x", None, "changed"), (None, 1, "changed"), (None, 2, "new"),
    ]  # fmt: skip


def test_bad_rows_stop_the_batch_or_are_set_aside_retried_in_place_and_dropped(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    faults = {
        2: ("X,1,wrong letter,x,1.00", "column Op, value 'X'"),
        3: ("U,2,repaired,x,cheap", "column price, value 'cheap': not a value of type decimal(10,2)"),
        4: ("I,3,too few", "3 fields"),
        5: ("I,4,too many,x,1.00,1,2,3,4,5,6", "11 fields"),
    }
    lines = ["U,1,good,x,1.00", *(line for line, _ in faults.values()), "U,2,later,x,2.00", "D,5,e,x,1.00"]
    file = f"{FOLDER}/20240102-000000000.csv"
    scene.land("20240102-000000000.csv", *lines)
    message = scene.refused().message or ""
    for number, (_, reason) in faults.items():
        assert any(f"{file}, row {number}" in line and reason in line for line in message.splitlines()), message
    assert scene.names() == {1: "a", 2: "b"}

    scene.table(on_bad_row="quarantine")
    report = scene.run()
    assert (report.rows_in, report.rows_applied, report.rows_quarantined) == (7, 3, 4)
    assert scene.names() == {1: "good", 2: "later"}
    found = {row.row: (row.id, row.raw) for row in scene.lakeward.bad_rows(TABLE)}
    assert found == {number: (f"{file}:{number}", line) for number, (line, _) in faults.items()}
    # Put back at their own places: 2 and 5 were changed later, 3 was not.
    repaired = {f"{file}:3": "U,2,repaired,x,1.00", f"{file}:4": "I,3,c,x,1.00", f"{file}:5": "I,5,gone,x,1.00"}
    retried = scene.lakeward.retry_bad_rows(TABLE, [f"{file}:2"], repaired)
    assert (retried.handled, [row.row for row in retried.still_bad]) == (3, [2])
    assert scene.names() == {1: "good", 2: "later", 3: "c"}
    assert scene.lakeward.drop_bad_rows(TABLE, [f"{file}:2"]).handled == 1
    scene.forget_state()
    assert list(scene.lakeward.bad_rows(TABLE)) == []
    assert scene.run().outcome is Outcome.IDLE
    assert scene.names() == {1: "good", 2: "later", 3: "c"}


def test_repaired_row_stands_against_an_older_file_that_comes_after_the_repair(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine")
    scene.land("20240102-000000000.csv", "U,1,newer,x,cheap")
    scene.run()
    scene.lakeward.retry_bad_rows(TABLE, replacements={f"{FOLDER}/20240102-000000000.csv:1": "U,1,newer,x,1.00"})
    scene.land("20240101-000000000.csv", "U,1,older,x,1.00", "U,2,b,x,1.00")
    scene.run()
    assert scene.names() == {1: "newer", 2: "b"}


def test_partitioned_mirror_keeps_text_moves_rows_and_empties_partitions(scene: Scene) -> None:
    # Text that looks like a number (007) as a partition value, beside partition transforms.
    schema = "id int, dept string, at timestamp_ntz, v string"
    partitions = ["dept", "days(at)", "bucket(4, id)"]
    scene.configure({TABLE: {"schema": schema, "primary_key": "id", "partition_by": partitions, "rewrite_share": 9}})
    moments = ["1899-12-31 23:59:59.999999", "2024-01-01 00:00:00.000000"]
    scene.land(
        "LOAD00000001.csv",
        f"1,007,{moments[0]},a", f"2,7,{moments[0]},b", f"3,7.0,{moments[1]},c", f"4,NULL,{moments[1]},d",
    )  # fmt: skip
    scene.run()
    scene.land("20240101-000000000.csv", f"U,1,7,{moments[1]},moved", "D,3,NULL,NULL,NULL", f"U,4,,{moments[1]},d2")
    report = scene.run()
    assert report.ops[0].strategy == "broadcast delete + append"
    early, late = datetime(1899, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1)
    assert scene.rows() == [(1, "7", late, "moved"), (2, "7", early, "b"), (4, "", late, "d2")]
    query = "SELECT dept, count(*) FROM sales.product WHERE dept IN ('007', '7', '7.0', '') GROUP BY dept"
    assert {tuple(row) for row in scene.lakeward.sql(query).collect()} == {("7", 2), ("", 1)}
    layout = scene.lakeward.sql("SELECT partition.* FROM lake.sales.product.partitions").columns
    assert layout == ["dept", "at_day", "id_bucket"]


def test_decision_on_a_bad_row_does_not_outlive_a_reload_that_reads_it_again(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", mtime=1_704_067_200)
    scene.land("20240201-000000000.csv", "I,2,b,x,not a price")
    scene.run()
    assert scene.lakeward.drop_bad_rows(TABLE).handled == 1
    assert not list(scene.lakeward.bad_rows(TABLE))
    # The reload is older than the change file, which therefore belongs to it and is read anew.
    scene.land("LOAD00000001.csv", "1,again,x,1.00", mtime=1_704_153_600)
    scene.run()
    assert scene.names() == {1: "again"}
    assert [row.id for row in scene.lakeward.bad_rows(TABLE)] == ["sales/product/20240201-000000000.csv:1"]


def test_late_full_row_under_earlier_partial_ones_in_a_table_without_a_load(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"})
    scene.land("20240102-000000000.csv", "U,1,~,y,~")
    scene.run()
    scene.land("20240101-000000000.csv", "I,1,late,x,1.00")
    scene.run()
    assert scene.rows() == [(1, "late", "y", Decimal("1.00"))]
