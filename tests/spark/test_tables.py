"""Hazards of whole tables: missing loads, folders and lake files, guards, settings, and a state store that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.errors import ConfigurationError
from lakeward.pipeline.planner import Strategy
from lakeward.pipeline.report import Outcome
from tests.spark.scene import SCHEMA, TABLE, Scene


def lake_files(scene: Scene) -> dict[str, int]:
    """Every file of the lake but the catalog, with its size."""
    root = scene.folder / "lake" / "data"
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def test_changes_without_a_load_count_and_a_load_that_comes_later_cannot_undo_them(scene: Scene) -> None:
    # Hazard 25 first: the load cannot be read, so nothing of the table is published, the changes neither.
    broken = scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,free")
    scene.land("20240101-000000000.csv", "U,1,changed,x,1.00", "D,2,b,x,1.00", "I,3,new,x,1.00")
    assert "row 2, column price, value 'free'" in (scene.refused().message or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)
    # Hazard 24: without a load the table began empty.
    broken.unlink()
    [op] = scene.run().ops
    assert (op.kind, op.writes, op.removals) == ("batch", 2, 1)
    assert scene.names() == {1: "changed", 3: "new"}
    # The load comes after all: what was changed stays changed, what was deleted stays deleted.
    scene.land("LOAD00000001.csv", "1,load,x,1.00", "2,load,x,1.00", "3,load,x,1.00", "4,load,x,1.00")
    assert [op.kind for op in scene.run().ops] == ["load"]
    assert scene.names() == {1: "changed", 3: "new", 4: "load"}


def test_one_table_fails_the_others_run_and_the_run_says_so(scene: Scene) -> None:
    # Hazard 26; sales.empty never had a folder, sales.gone is not even declared.
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
    assert {one.table: one.state for one in scene.lakeward.status()}["sales.bad"] == "failed"
    with pytest.raises(ConfigurationError, match=r"no table sales\.gone"):
        scene.try_run("sales.gone")


def test_hundreds_of_tables_are_all_found(scene: Scene) -> None:
    # Hazard 29.
    names = sorted(f"shop{number % 7}.table {number}" for number in range(400))
    for name in names:
        scene.land("LOAD00000001.csv", "1", folder=name.replace(".", "/"))
    scene.configure({})
    assert sorted(str(table) for table in scene.lakeward.discover().new) == names
    assert [str(one.table) for one in scene.lakeward.tables()] == names
    assert scene.lakeward.discover().new == ()


def test_vanished_folder_stops_the_table_or_empties_it_as_configured(scene: Scene) -> None:
    # Hazard 28.
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


def test_missing_lake_files_are_an_error_and_never_an_empty_table(scene: Scene) -> None:
    # Hazard 27. The partial update needs the mirror's rows, which makes it read what is missing.
    scene.table(csv={"unchanged": "~"}, rewrite_share=9)
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,1,~,y,1.00")
    folders = {path.name: path for path in (scene.folder / "lake" / "data").rglob("*") if path.is_dir()}
    assert {"sales", "sales_changes"} <= folders.keys()
    before = lake_files(scene)
    for lost in ("sales/product/data", "sales/product/metadata", "sales_changes/product/metadata"):
        folder = scene.folder / "lake" / "data" / lost
        folder.rename(scene.folder / "lost")
        refused = scene.refused()
        assert "files of the lake are missing" in (refused.message or ""), (lost, refused)
        shutil.rmtree(folder, ignore_errors=True)
        (scene.folder / "lost").rename(folder)
    assert {name for name in before if "/data/" in name} <= lake_files(scene).keys()
    # One of the two tables gone from the catalog: the other tells that it was there.
    changelog = "lake.sales_changes.product"
    metadata = max(Path(scene.folder, "lake/data/sales_changes/product/metadata").glob("*.metadata.json"))
    scene.lakeward.sql(f"DROP TABLE {changelog}", allow_writes=True)
    assert "the changelog is gone" in (scene.refused().message or "")
    assert not scene.lakeward.spark.catalog.tableExists(changelog)
    register = f"CALL lake.system.register_table('sales_changes.product', '{metadata}')"
    scene.lakeward.sql(register, allow_writes=True)
    scene.run()
    assert [row[:3] for row in scene.rows()] == [(1, "a", "y"), (2, "b", "x")]
    scene.lakeward.sql("DROP TABLE lake.sales.product", allow_writes=True)
    assert "the mirror is gone" in (scene.refused().message or "")


def test_empty_or_missing_landing_is_a_mistake_in_the_configuration(scene: Scene) -> None:
    for is_there in (False, True):
        if is_there:
            scene.landing.mkdir()
        with pytest.raises(ConfigurationError, match="missing or empty") as refused:
            scene.try_run()
        assert refused.value.exit_code == 2 and refused.value.hint
    assert lake_files(scene) == {}


def test_plan_writes_nothing_and_the_delete_guard_stops_until_it_is_allowed(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", *(f"{key},load,x,1.00" for key in range(1200)))
    [plan] = scene.lakeward.plan()
    assert plan.op is not None and plan.files == ("sales/product/LOAD00000001.csv",)
    assert (plan.op.strategy, plan.op.read.rows, plan.op.schema_changes[0]) == (Strategy.LOAD, 1200, "add id int")
    assert lake_files(scene) == {}
    assert scene.lakeward.sql("SHOW NAMESPACES IN lake").collect() == []
    scene.run()
    # Deletes of rows that are not there delete nothing, however many.
    scene.land("20240101-000000000.csv", *(f"D,{key},,,1.00" for key in range(1000, 2500)))
    before = lake_files(scene)
    [plan] = scene.lakeward.plan()
    assert plan.op is not None and plan.op.read.deletes == 1500
    assert (plan.op.strategy, plan.op.mirror_snapshot) == (Strategy.REWRITE, None)
    assert lake_files(scene) == before
    report = scene.run()
    assert (report.mirror_rows, report.ops[0].reason) == (1000, plan.op.reason)
    # More than half of the table is too much to believe.
    scene.land("20240102-000000000.csv", *(f"D,{key},,,1.00" for key in range(501)))
    before = lake_files(scene)
    refused = scene.refused()
    assert "would delete 501 of 1,000 rows (50%), more than max_delete_share 50%" in (refused.message or "")
    assert "--allow-deletes" in (refused.hint or "")
    [plan] = scene.lakeward.plan()
    assert (plan.outcome, plan.message) == (Outcome.FAILED, refused.message)
    assert lake_files(scene) == before
    assert scene.run(allow_deletes=True).mirror_rows == 499
    assert sorted(scene.names()) == list(range(501, 1000))


def test_another_key_or_partitioning_than_the_mirror_was_built_with_is_refused(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,a,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,1,b,x,1.00")
    for setting, value, said in (("primary_key", "name", "['name']"), ("partition_by", "dept", "['dept']")):
        scene.table(**{setting: value})
        refused = scene.refused()
        assert f"{setting} was" in (refused.message or "") and said in (refused.message or "")
        assert refused.exit_code == 2
    scene.table()
    scene.run()
    assert scene.names() == {1: "b", 2: "a"}


def test_state_deleted_between_runs_loses_history_and_settings_are_rebuilt_from_the_lake(scene: Scene) -> None:
    # A table set by command: its settings live in the state store and, since its first run, in the lake.
    scene.configure({})
    scene.land_parquet("LOAD00000001.parquet", {"id": ["007", "7"], "name": ["a", "b"]})
    assert [str(table) for table in scene.lakeward.discover().new] == [TABLE]
    assert scene.try_run().tables == ()
    scene.lakeward.set_table(TABLE, settings={"primary_key": ["id"]}, active=True)
    scene.run()
    scene.forget_state()
    assert scene.lakeward.rebuild_state() == [TABLE]
    assert scene.lakeward.table(TABLE).settings.primary_key == ("id",)
    assert scene.lakeward.status()[0].files_consumed == 1
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["U", "D"], "id": ["007", "7"], "name": ["new", None]})
    scene.run()
    scene.forget_state()
    scene.lakeward.rebuild_state()
    # The ledger is the lake's: nothing is read again, and a late file still finds its place.
    assert scene.run().outcome is Outcome.IDLE
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "I"], "id": ["007", "7"], "name": ["old", "back?"]})
    scene.run()
    assert scene.rows() == [("007", "new")]
