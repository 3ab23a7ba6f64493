"""Hazards of files, writers and whole tables that are tested with landing and lake on a disk and in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.effect import Strategy
from lakeward.mirror.op.report import OpReport, Outcome
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source, check_books
from tests.spark.sources import OTHER_STATE, change, keyed_source
from tests.spark.writer import Writer

if TYPE_CHECKING:
    from tests.spark.scene import Scene

FOLDER = TABLE.replace(".", "/")


def run_until_idle(scene: Scene) -> list[OpReport]:
    """All ops until nothing waits; what a run finds after its last listing is the next run's."""
    ops: list[OpReport] = []
    while (report := scene.run()).outcome is not Outcome.IDLE:
        ops += report.ops
    return ops


def late_file_with_a_smaller_name_takes_its_own_place(scene: Scene) -> None:
    # A file arrives after one with a greater name; the delete of key 5 arrives before its late insert.
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    late = scene.land("20240101-000000000.csv", "U,1,old,x,1.00", "U,2,late,x,1.00", "I,5,back?,x,1.00", "I,6,f,x,1.00")
    newer = scene.land("20240102-000000000.csv", "U,1,new,x,1.00", "D,5,e,x,1.00")
    # A run may be restricted to files, by path under landing or by address.
    scene.run(files=frozenset({f"{FOLDER}/LOAD00000001.csv", str(newer)}))
    assert scene.names() == {1: "new", 2: "b"}
    scene.forget_state()
    report = scene.run()
    assert [(op.files, op.late) for op in report.ops] == [(1, True)]
    assert scene.names() == {1: "new", 2: "late", 6: "f"}
    assert late.exists()


def files_that_land_or_grow_while_a_run_reads_count_once_and_whole(scene: Scene) -> None:
    # Files land between listing and reading. In a table without a key, reading twice cannot be hidden.
    scene.table(primary_key=[])
    scene.land("20240101-000000000.csv", "I,1,whole,x,1.00")
    growing = scene.land("20240102-000000000.csv", "I,2,half,x,1.00")
    listed: list[str] = []

    def meddle(_table: str, step: str) -> None:
        if step == "choose.files" and not listed:
            listed.append(step)
            growing.write_text("I,2,half,x,1.00\nI,3,other half,x,1.00\n", encoding="utf-8")
            scene.land("20240101-120000000.csv", "I,4,landed meanwhile,x,1.00")

    scene.on_step = meddle
    ops = run_until_idle(scene)
    assert [(op.files, op.unstable_files) for op in ops] == [(1, (f"{FOLDER}/20240102-000000000.csv",)), (2, ())]
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    assert [row[:2] for row in scene.rows()] == [(1, "whole"), (2, "half"), (3, "other half"), (4, "landed meanwhile")]


def nothing_but_half_copied_files_means_waiting(scene: Scene) -> None:
    path = scene.land("20240102-000000000.csv", "I,2,half,x,1.00")
    scene.on_step = lambda _table, step: path.write_text("I,2,x") and None if step == "choose.files" else None
    waiting = scene.try_run().tables[0]
    assert (waiting.outcome, waiting.ops) == (Outcome.WAITING, ())
    assert "still being written" in (waiting.message or "")


def more_than_a_thousand_files_in_one_folder_are_all_seen_in_bounded_batches(scene: Scene) -> None:
    # One page of a listing in S3 has 1000 objects.
    scene.table(max_files=600)
    for number in range(1101):
        scene.land(f"20240101-{number:09}.csv", f"U,{number % 7},{number},x,1.00")
    report = scene.run()
    assert [op.files for op in report.ops] == [600, 501]
    assert scene.names() == {key: str(max(range(key, 1101, 7))) for key in range(7)}
    assert scene.run().outcome is Outcome.IDLE


def second_run_yields_with_a_message_and_succeeds(scene: Scene) -> None:
    source = keyed_source(scene)
    with Writer(scene) as first:
        first.start(stop_at="log.append")
        report = scene.lakeward.run()
        assert report.exit_code == 0
        assert report.tables[0].outcome is Outcome.LOCKED
        assert f"{TABLE} is being written by run" in (report.tables[0].message or "")
        assert report.tables[0].hint == f"lakeward run {TABLE} --wait"
        assert first.finish().outcome is Outcome.DONE
    assert scene.run().outcome is Outcome.IDLE
    assert scene.rows() == source.rows()
    check_books(scene)


def changes_without_a_load_count_and_a_load_that_comes_later_cannot_undo_them(scene: Scene) -> None:
    # First the load cannot be read, so nothing of the table is published, the changes neither.
    broken = scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,free")
    scene.land("20240101-000000000.csv", "U,1,changed,x,1.00", "D,2,b,x,1.00", "I,3,new,x,1.00")
    assert "row 2, column price, value 'free'" in (scene.refused().message or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)
    # Without a load the table began empty.
    broken.unlink()
    [op] = scene.run().ops
    assert (op.kind, op.writes, op.removals) == ("batch", 2, 1)
    assert scene.names() == {1: "changed", 3: "new"}
    # The load comes after all: what was changed stays changed, what was deleted stays deleted.
    scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,1.00", "3,load,x,1.00", "4,load,x,1.00")
    assert [op.kind for op in scene.run().ops] == ["load"]
    assert scene.names() == {1: "changed", 3: "new", 4: "load"}


def one_table_fails_the_others_run_and_the_run_reports_it(scene: Scene) -> None:
    # Table sales.empty never had a folder, sales.gone is not even declared.
    settings = {"schema": SCHEMA, "primary_key": "id"}
    tables = {f"sales.{name}": settings for name in ("a", "bad", "c", "empty")}
    scene.configure({**tables, "sales.c": {**settings, "path": "a/folder/of its own/"}})
    scene.land("LOAD00000001.csv", "1,a,x,1.00", folder="sales/a")
    scene.land("LOAD00000001.csv", "1,c,x,1.00", folder="a/folder/of its own")
    scene.land("LOAD00000001.csv", "1,bad,x,free", folder="sales/bad")
    report = scene.try_run()
    assert {table.table: table.outcome for table in report.tables} == {
        "sales.a": Outcome.DONE, "sales.bad": Outcome.FAILED, "sales.c": Outcome.DONE, "sales.empty": Outcome.IDLE,
    }  # fmt: skip
    assert report.exit_code == 3
    assert "sales/bad/LOAD00000001.csv, row 1" in (report.table("sales.bad").message or "")
    assert [row[1] for name in ("a", "c") for row in scene.rows(f"sales.{name}")] == ["a", "c"]
    assert {table.table: table.state for table in scene.lakeward.status()}["sales.bad"] == "failed"
    with pytest.raises(ConfigurationError, match=r"no table sales\.gone"):
        scene.try_run("sales.gone")


def hundreds_of_tables_are_all_found(scene: Scene) -> None:
    names = sorted(f"shop{number % 7}.table {number}" for number in range(400))
    for name in names:
        scene.land("LOAD00000001.csv", "1", folder=name.replace(".", "/"))
    scene.configure({})
    assert sorted(str(table) for table in scene.lakeward.discover().new) == names
    assert [str(table.table) for table in scene.lakeward.tables()] == names
    assert scene.lakeward.discover().new == ()


def vanished_folder_stops_the_table_or_empties_it_as_configured(scene: Scene) -> None:
    # A truncate at the source may remove the table's folder from landing.
    scene.land("other.txt", "landing itself is there", folder="sales")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.remove_folder("sales/product")
    refused = scene.refused()
    assert "is gone from landing" in (refused.message or "") and "truncate" in (refused.hint or "")
    assert scene.names() == {1: "a", 2: "b"}
    scene.table(on_missing_folder="truncate")
    [op] = scene.run().ops
    assert (op.kind, op.strategy) == ("truncate", Strategy.CLEAR)
    assert scene.rows() == []
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    # The table fills again: the same names are new files now.
    scene.land("20240101-000000000.csv", "I,3,c,x,1.00")
    scene.run()
    assert scene.names() == {3: "c"}


def race_without_a_lease(source: Source) -> None:
    """Let two writers with state stores of their own write the same changes, one of them stopped on its way."""
    scene = source.scene
    scene.run()
    with Writer(scene) as slow, Writer(scene, state=OTHER_STATE) as fast:
        for number, step in enumerate(("check.fold", "log.append", "log.publish", "apply.append", "apply.publish"), 1):
            change(source, number)
            slow.start(stop_at=step)
            # The fast writer takes the slow one's branches for those of a dead one.
            assert fast.run().outcome in (Outcome.DONE, Outcome.IDLE)
            assert slow.finish().outcome in (Outcome.DONE, Outcome.IDLE)
            assert scene.rows() == source.rows(), f"differs after the slow writer stopped at {step}"
    scene.run()
    check_books(scene)


HAZARDS = (
    late_file_with_a_smaller_name_takes_its_own_place,
    files_that_land_or_grow_while_a_run_reads_count_once_and_whole,
    nothing_but_half_copied_files_means_waiting,
    more_than_a_thousand_files_in_one_folder_are_all_seen_in_bounded_batches,
    second_run_yields_with_a_message_and_succeeds,
    changes_without_a_load_count_and_a_load_that_comes_later_cannot_undo_them,
    one_table_fails_the_others_run_and_the_run_reports_it,
    hundreds_of_tables_are_all_found,
    vanished_folder_stops_the_table_or_empties_it_as_configured,
)
