"""Hazards of whole tables: missing loads, folders and lake files, guards, settings, and a state store that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.effect import Strategy
from lakeward.mirror.op.report import Outcome
from tests.spark.scene import TABLE, Scene


def lake_files(scene: Scene) -> dict[str, int]:
    """Every file of the lake but the catalog, with its size."""
    root = scene.folder / "lake" / "data"
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def test_missing_lake_files_are_an_error_and_never_an_empty_table(scene: Scene) -> None:
    # The files of the mirror are gone. The partial update needs the mirror's rows, which makes it read what is missing.
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
    # One of the two tables gone from the catalog: the other shows that it existed.
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
    for setting, value, earlier in (("primary_key", "name", "['name']"), ("partition_by", "dept", "['dept']")):
        scene.table(**{setting: value})
        refused = scene.refused()
        assert f"{setting} was" in (refused.message or "") and earlier in (refused.message or "")
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
