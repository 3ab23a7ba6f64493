"""Hazards in files and their order: late, repeated, changed and half-written files, loads and reloads."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from pyspark import cloudpickle

from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.effect import Strategy
from lakeward.mirror.op.report import Outcome
from lakeward.storage.landing import Landing
from tests.spark.hazards import run_until_idle
from tests.spark.scene import TABLE, Scene
from tests.views.versions import refused

FOLDER = TABLE.replace(".", "/")


def at(day: str) -> float:
    """A modification time."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def touch(path: Path, day: str) -> None:
    os.utime(path, (at(day), at(day)))


def test_consumed_files_are_never_read_again_and_changed_ones_stop_the_table(scene: Scene) -> None:
    # Replayed files would set 1 back and bring 2 again.
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00", mtime=at("2024-01-01"))
    first = scene.land("20240102-000000000.csv", "U,1,first,x,1.00", "I,3,c,x,1.00", mtime=at("2024-01-02"))
    scene.land("20240103-000000000.csv", "U,1,second,x,1.00", "D,2,b,x,1.00", mtime=at("2024-01-03"))
    published = scene.run().ops[-1].mirror_snapshot
    expected = {1: "second", 3: "c"}
    assert scene.names() == expected
    assert scene.run().outcome is Outcome.IDLE
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    # The same content with another time is the same file: nothing is read, its new time is remembered.
    touch(first, "2024-02-01")
    again = scene.run()
    assert [(op.files, op.strategy) for op in again.ops] == [(0, Strategy.LOG_ONLY)]
    assert again.ops[0].mirror_snapshot != published
    assert scene.names() == expected
    # Other content under a consumed name is neither read nor passed over.
    scene.land("20240102-000000000.csv", "U,1,rewritten,x,1.00", mtime=at("2024-02-02"))
    refused = scene.refused()
    assert f"{FOLDER}/20240102-000000000.csv was consumed by op" in (refused.message or "")
    assert "--accept-changed" in (refused.hint or "")
    assert scene.names() == expected
    scene.run(accept_changed=frozenset({f"{FOLDER}/20240102-000000000.csv"}))
    assert scene.names() == expected
    assert scene.run().outcome is Outcome.IDLE


def test_commit_time_then_file_then_row_decide_and_never_the_loads_own_time(scene: Scene) -> None:
    scene.table(timestamp_column="ts")
    # The load's time is later than every commit. The changes win, and the run warns: it may be a reload.
    scene.land("LOAD00000001.csv", *(f"2024-06-01 00:00:00.000000,{key},load,x,1.00" for key in (1, 2, 3)))
    same = "2024-01-01 10:00:00.000000"
    # One key, one file, one commit time, far enough apart to be in different blocks and tasks.
    filling = [f"I,{same},{key},fill,x,1.00" for key in range(100, 2100)]
    scene.land("20240101-120000000.csv", f"U,{same},1,first,x,1.00", *filling, f"U,{same},1,second,x,1.00")
    # Rows of one day in a file named the next day; what was committed last stands, not what was named last.
    midnight = "2024-01-01 23:59:59.999999", "2024-01-02 00:00:00.000001"
    scene.land("20240102-000500000.csv", f"U,{midnight[1]},2,committed last,x,1.00", f"U,{same},3,file 2,x,1.00")
    scene.land("20240102-001000000.csv", f"U,{midnight[0]},2,named last,x,1.00", f"U,{same},3,file 3,x,1.00")
    assert "3 change files created before" in scene.run().warnings[0]
    names = scene.names()
    assert {key: names[key] for key in (1, 2, 3)} == {1: "second", 2: "committed last", 3: "file 3"}
    assert len(names) == 2003


def test_change_sequence_orders_and_a_file_without_it_stops_the_table(scene: Scene) -> None:
    columns = {"id": [1, 1], "name": ["later", "earlier"], "AR_H_CHANGE_SEQ": ["100", "99"]}
    scene.configure({TABLE: {"primary_key": "id"}})
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "U"], **columns})
    scene.run()
    assert scene.names() == {1: "later"}
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["U"], "id": [1], "name": ["of no order"]})
    assert "AR_H_CHANGE_SEQ" in (scene.refused().message or "")
    assert scene.names() == {1: "later"}


def test_first_run_days_late_reads_hex_parts_segments_date_folders_and_gzip(scene: Scene) -> None:
    # The load must not win over the days between, whatever the folders' names sort like.
    for key, name in enumerate(
        ("LOAD00000009", "LOAD0000000A", "LOAD00000010", "SEGMENT1_LOAD00000001", "north/LOAD001")
    ):
        scene.land(f"{name}.csv", f"{key},{name},x,1.00")
    scene.land_bytes("LOAD00000011.csv.gz", gzip.compress(b"5,zipped,x,1.00\n6,load,x,1.00\n"))
    # Compressed without a suffix: recognised by its first bytes.
    scene.land_bytes("2024/01/31/20240131-235959000.csv", gzip.compress(b"U,6,day 1,x,1.00\nU,0,zipped too,x,1.00\n"))
    scene.land("2024-02-01-07/20240201-0700000000.csv", "U,6,day 2,x,1.00")
    scene.land("02022024/20240202-000000000.csv", "U,6,day 3,x,1.00")
    scene.land("01022024/20240203-000001000.csv", "U,6,the day after,x,1.00")
    for ignored in ("_20240204-000000000.csv", ".20240204-000000000.csv", "20240204-000000000.csv.tmp", "notes.txt"):
        scene.land(ignored, "U,6,not a change file,x,1.00")
    report = scene.run()
    assert [(op.kind, op.files) for op in report.ops] == [("load", 6), ("batch", 4)]
    assert scene.names() == {
        0: "zipped too", 1: "LOAD0000000A", 2: "LOAD00000010", 3: "SEGMENT1_LOAD00000001", 4: "north/LOAD001",
        5: "zipped", 6: "the day after",
    }  # fmt: skip
    assert scene.lakeward.status()[0].unknown_files == (f"{FOLDER}/notes.txt",)


def test_load_part_after_its_changes_then_a_reload_with_fewer_parts(scene: Scene) -> None:
    # A part arrives after another was consumed; later the reload has fewer parts.
    scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,1.00", mtime=at("2024-01-01"))
    scene.land("20240102-000000000.csv", "U,3,changed,x,1.00", "D,4,load,x,1.00", "U,1,changed,x,1.00")
    later = scene.land("20240601-000000000.csv", "U,2,after the reload,x,1.00", "I,9,nine,x,1.00")
    scene.run()
    scene.land("LOAD00000002.csv", "3,load,x,1.00", "4,load,x,1.00", "5,load,x,1.00", mtime=at("2024-01-01"))
    assert [op.kind for op in scene.run().ops] == ["load"]
    before = {1: "changed", 2: "after the reload", 3: "changed", 5: "load", 9: "nine"}
    assert scene.names() == before
    # A part that shares a key with the load is of another load.
    scene.land("LOAD00000003.csv", "2,other load,x,1.00", "8,other load,x,1.00", mtime=at("2024-04-01"))
    refused = scene.refused()
    assert "that load holds 1 key of it" in (refused.message or "") and "--keep-part" in (refused.hint or "")
    left_over = f"{FOLDER}/LOAD00000003.csv"
    scene.run(drop_parts=frozenset({left_over}))
    assert scene.names() == before
    # Only part 1 comes anew: whether part 2 belongs to the reload, only the user knows. Changes named before the
    # reload's time are in it, later ones are not.
    scene.land("LOAD00000001.csv", "1,reload,x,1.00", "2,reload,x,1.00", "7,reload,x,1.00", mtime=at("2024-05-01"))
    scene.forget_state()
    refused = scene.refused()
    assert "LOAD00000002.csv was not written again" in (refused.message or "")
    assert scene.names() == before
    dropped = frozenset({f"{FOLDER}/LOAD00000002.csv"})
    [plan] = scene.lakeward.plan(options=RunOptions(drop_parts=dropped))
    assert plan.op is not None and plan.op.decision is not None and plan.replaces is not None
    assert (plan.op.decision.evidence, plan.op.decision.before, plan.op.decision.after) == ("landing times", 1, 1)
    assert (plan.replaces.inserted, plan.replaces.updated, plan.replaces.deleted) == (1, 2, 3)
    ops = scene.run(drop_parts=dropped).ops
    assert [(op.kind, op.generation, op.files) for op in ops] == [("load", 2, 1), ("batch", 2, 1)]
    assert ops[0].strategy == Strategy.REPLACE
    expected = {1: "reload", 2: "after the reload", 7: "reload", 9: "nine"}
    assert scene.names() == expected
    # A file of the time before the reload is logged and cannot reach the mirror; nor does it draw a consumed file,
    # which comes again at the same time, into another reading.
    scene.land("20240103-000000000.csv", "U,1,of the old load,x,1.00")
    touch(later, "2024-07-01")
    ops = run_until_idle(scene)
    assert [(op.strategy, op.generation, op.files) for op in ops] == [
        (Strategy.LOG_ONLY, 1, 1),
        (Strategy.LOG_ONLY, 2, 0),
    ]
    assert "a newer load replaced" in ops[0].reason
    assert scene.names() == expected
    [verified] = scene.lakeward.verify().tables
    assert (verified.verdict, verified.landing, verified.exit_code) == ("clean", (), 0)
    assert "by landing times" in " ".join(verified.notes)


def test_touched_and_copied_load_files_change_nothing_until_the_user_decides(scene: Scene) -> None:
    # A load file is touched, or copied again with the same bytes (rsync, aws s3 sync).
    load = scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,1.00", mtime=at("2024-01-01"))
    old = scene.land("20240102-000000000.csv", "U,1,old change,x,1.00", mtime=at("2024-01-02"))
    new = scene.land("20240104-000000000.csv", "U,2,new change,x,1.00", mtime=at("2024-01-04"))
    scene.run()
    expected = {1: "old change", 2: "new change"}
    for path in (load, old, new):
        touch(path, "2024-03-01")
    report = scene.run()
    assert [op.strategy for op in report.ops] == [Strategy.LOG_ONLY]
    assert "--same-load" in report.warnings[0] and "--reload" in report.warnings[0]
    assert scene.names() == expected
    scene.forget_state()
    assert scene.run().warnings == report.warnings
    assert scene.lakeward.status()[0].warnings == report.warnings
    scene.run(same_load=True)
    assert scene.run().warnings == () and scene.names() == expected
    # A reload that ends in the same content: only the user knows of it, and which changes follow it.
    touch(load, "2024-02-01")
    scene.run()
    report = scene.run(reload=True, cut="20240103000000000000")
    assert [(op.kind, op.generation, op.files) for op in report.ops] == [("load", 2, 1), ("batch", 2, 1)]
    assert scene.names() == {1: "load", 2: "new change"}


def test_reload_with_a_timestamp_column_is_placed_by_the_times_inside_the_files(scene: Scene) -> None:
    scene.table(timestamp_column="ts", landing_times="untrusted")
    scene.land("LOAD00000001.csv", *(f"2024-01-01 00:00:00,{key},load,x,1.00" for key in (1, 2, 3)))
    scene.land("20240102-000000000.csv", "U,2024-01-02 00:00:00,1,before,x,1.00")
    scene.land("20240301-000000000.csv", "U,2024-03-01 00:00:00,2,after,x,1.00", "D,2024-03-01 00:00:00,3,,,0")
    scene.run()
    # Both arrive late: a change that precedes the reload is applied to the old load first.
    scene.land("20240115-000000000.csv", "I,2024-01-15 00:00:00,5,before,x,1.00")
    scene.land("LOAD00000001.csv", *(f"2024-02-01 00:00:0{key},{key},reload,x,1.00" for key in (1, 2, 3)))
    ops = run_until_idle(scene)
    assert [(op.kind, op.generation) for op in ops] == [("batch", 1), ("load", 2), ("batch", 2)]
    assert scene.names() == {1: "reload", 2: "after"}
    [verified] = scene.lakeward.verify().tables
    assert (verified.verdict, verified.landing) == ("clean", ())
    assert "proves again" in " ".join(verified.notes)
    # Without such times nothing shows what follows, and a reload that empties the table is not believed.
    scene.land("LOAD00000001.csv", *(f"2024-02-01 00:00:00,{key},same time,x,1.00" for key in (1, 2, 3)))
    refused = scene.refused()
    assert "not later than the load before" in (refused.message or "") and "--cut 2" in (refused.hint or "")
    scene.land("LOAD00000001.csv")
    assert "never all of them" in (scene.refused(cut="20240401" + "0" * 12).message or "")
    assert scene.names() == {1: "reload", 2: "after"}


def test_load_waits_until_no_part_has_come_for_a_while(scene: Scene) -> None:
    scene.table(load_settle=3600)
    part = scene.land("LOAD00000001.csv", "1,load,x,1.00", mtime=time.time())
    scene.land("20240102-000000000.csv", "U,1,changed,x,1.00")
    waiting = scene.try_run().tables[0]
    assert (waiting.outcome, waiting.ops) == (Outcome.WAITING, ())
    assert "load parts arrived" in (waiting.message or "")
    touch(part, "2024-01-01")
    scene.run()
    assert scene.names() == {1: "changed"}


def test_transaction_files_feed_every_table_that_they_name(scene: Scene) -> None:
    tables = {TABLE: {"schema": "id int, name string", "primary_key": "id"},
              "sales.store": {"schema": "no string, city string", "primary_key": "no"}}  # fmt: skip
    scene.configure(tables, transactions="cdc")
    scene.land("LOAD00000001.csv", "1,load")
    scene.land("CDC_TXN-20240101000000001.csv", "I,store,sales,007,Rome", "U,product,sales,1,first", folder="cdc")
    scene.land(
        "CDC_TXN-20240101000000002.csv", "U,product,sales,1,second", "U,store,sales,007,Paris", "I,other,sales,1",
        folder="cdc",
    )  # fmt: skip
    scene.run()
    assert (scene.rows(), scene.rows("sales.store")) == ([(1, "second")], [("007", "Paris")])
    assert all(table.outcome is Outcome.IDLE for table in scene.try_run().tables)


def test_transaction_files_from_before_a_truncate_do_not_bring_rows_back(scene: Scene) -> None:
    table = {"schema": "id int, name string", "primary_key": "id", "on_missing_folder": "truncate"}
    scene.configure({TABLE: table}, transactions="cdc")
    scene.land("LOAD00000001.csv", "1,load")
    scene.land("CDC_TXN-20240101000000001.csv", "I,product,sales,2,first", folder="cdc")
    scene.run()
    assert scene.rows() == [(1, "load"), (2, "first")]
    scene.remove_folder("sales/product")
    scene.run()
    assert scene.rows() == []
    scene.land("CDC_TXN-20240102000000001.csv", "I,product,sales,3,before or after", folder="cdc")
    scene.land("CDC_TXN-20990101000000001.csv", "I,product,sales,4,after", folder="cdc")
    assert "may precede that truncate or follow it" in (scene.refused().message or "")
    scene.run(cut="20240102" + "0" * 12)
    assert scene.rows() == [(3, "before or after"), (4, "after")]


class _CountingStorage(Landing):
    """Writes the path of every file that is opened, by whatever process, into a file outside of landing."""

    def spool(self, path: str) -> AbstractContextManager[tuple[str, str]]:
        with (Path(self.root).parent / "opened").open("a") as log:
            log.write(f"{path}\n")
        return super().spool(path)


def test_transaction_file_is_read_once_per_run_whatever_the_number_of_tables(scene: Scene) -> None:
    tables = {f"sales.{name}": {"schema": "id int, name string", "primary_key": "id"} for name in ("a", "b", "c")}
    tables["sales.other"] = {"schema": "Id int, other string", "primary_key": "Id", "csv": {"null": "-"}}
    scene.configure(tables, transactions="cdc")
    scene.land("LOAD00000001.csv", "1,load", folder="sales/a")
    for second in range(4):
        lines = [f"I,{name},sales,{second + 10},NULL" for name in ("a", "b", "other")]
        scene.land(f"CDC_TXN-2024010100000{second}000.csv", *lines, folder="cdc")
    cloudpickle.register_pickle_by_value(sys.modules[_CountingStorage.__module__])
    scene.lakeward._opened.storage = _CountingStorage(scene.landing)
    scene.run()
    opened = Counter((scene.folder / "opened").read_text().splitlines())
    assert set(opened.values()) == {1} and len(opened) == 5, opened
    assert scene.rows("sales.b") == [(10, None), (11, None), (12, None), (13, None)]
    assert scene.rows("sales.other") == [(10, "NULL"), (11, "NULL"), (12, "NULL"), (13, "NULL")]
    scene.land("CDC_TXN-20240101000009000.csv", "U,a,sales,10,new", folder="cdc")
    scene.run()
    assert (10, "new") in scene.rows("sales.a")
    opened = Counter((scene.folder / "opened").read_text().splitlines())
    assert set(opened.values()) == {1} and len(opened) == 6, opened


def test_reload_before_the_first_run_is_declared_by_the_user(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,reloaded,x,1.00")
    scene.land("20240101-000000000.csv", "U,1,before the reload,x,1.00", "I,2,gone since,x,1.00")
    scene.land("20240301-000000000.csv", "I,3,after the reload,x,1.00")
    scene.run(cut="20240201" + "0" * 12)
    assert scene.names() == {1: "reloaded", 3: "after the reload"}
    scene.forget_state()
    scene.land("20240102-000000000.csv", "I,4,late and before the reload,x,1.00")
    scene.run()
    assert scene.names() == {1: "reloaded", 3: "after the reload"}
    assert "lies before its first load, which began at 20240201" in str(refused(scene, "2024-01-15").message)
