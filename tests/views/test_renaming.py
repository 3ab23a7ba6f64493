"""A table gets another name with everything it has; between the two catalog renames nothing is done on it."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lakeward.config.loading import load_config
from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import changelog_of, mirror_of
from lakeward.lake import Lakeward
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from lakeward.session.sessions import session_for
from tests.spark.crash import Crash, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CRASHED = steps_of("rename")
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 4))
ITEM = "shop.item"


DECLARED = f"""\
landing: .
state: sqlite:///state.db
tables:
  {TABLE}: {{schema: id int, primary_key: id}}
"""


def begun(scene: Scene, versions: Path) -> tuple[Source, dict[str, Any]]:
    """Return the source and the settings of a registered table with two ops, a published version and a tag."""
    scene.configure({})
    source, settings = Source(scene), {"schema": SCHEMA, "primary_key": ["id"]}
    source.load("LOAD00000001.csv", *ROWS)
    scene.lakeward.set_table(TABLE, settings=settings, active=True)
    source.change("20240102-000000000.csv", "U,1,changed,y,2.00")
    scene.run(TABLE)
    scene.lakeward.snapshots.create([TABLE], as_of="op:1", to=str(versions))
    scene.lakeward.snapshots.create([TABLE], as_of="op:1", tag="kept")
    return source, settings


def check_plan(lake: Lakeward, settings: dict[str, Any]) -> None:
    lake.set_table("sales.taken", settings=settings)
    with pytest.raises(ConfigurationError, match=r"there is a table sales\.taken already"):
        lake.rename_table(TABLE, "sales.taken")
    with pytest.raises(ConfigurationError, match=r"no table sales\.produkt; did you mean sales\.product"):
        lake.plan_rename_table("sales.produkt", ITEM)
    plan = lake.plan_rename_table(TABLE, ITEM)
    assert (plan.path, plan.resumes, plan.file) == ("sales/product", False, None)
    assert plan.tables == {"sales_changes.product": "shop_changes.item", TABLE: ITEM}
    assert [version.kind for version in plan.versions] == ["files"]


def check_between(scene: Scene) -> None:
    """Between the two renames nothing is done on the table, under either name."""
    lake = scene.lakeward
    assert changelog_of(lake.spark, TableId.parse(ITEM)).exists()
    assert mirror_of(lake.spark, TableId.parse(TABLE)).exists()
    report = scene.try_run(TABLE).tables[0]
    assert (report.message or "").startswith("sales.product is being renamed to shop.item")
    assert report.hint == "lakeward tables rename sales.product shop.item"
    for refused in (
        lambda: lake.rename_table(TABLE, "shop.other"),
        lambda: lake.remove_table(TABLE, drop_data=True),
    ):
        with pytest.raises(ConfigurationError, match=r"is being renamed to shop\.item"):
            refused()


def rename_with_crashes(scene: Scene) -> list[str]:
    """Rename until it comes through, with a crash at every step; return the steps."""
    crashed: list[str] = []

    def crash(_table: str, step: str) -> None:
        if step not in crashed:
            crashed.append(step)
            raise Crash(step)

    while True:
        scene.on_step = crash
        try:
            done = scene.lakeward.rename_table(TABLE, ITEM)
        except Crash:
            scene.on_step = None
            scene.close()
            if crashed[-1] == Step.RENAME_MOVED:
                check_between(scene)
            if crashed[-1] == Step.RENAME_REGISTERED:
                refused = scene.try_run(ITEM).tables[0]
                assert refused.hint == "lakeward tables rename sales.product shop.item"
        else:
            scene.on_step = None
            assert done.resumes
            return crashed


def test_everything_follows_the_new_name_whatever_interrupts_it(scene: Scene, tmp_path: Path) -> None:
    source, settings = begun(scene, tmp_path / "versions")
    before = scene.rows()
    check_plan(scene.lakeward, settings)
    uuid = str(mirror_of(scene.lakeward.spark, TableId.parse(TABLE)).load().uuid())
    assert {*rename_with_crashes(scene)} == {*CRASHED}
    lake = scene.lakeward
    assert lake.find_table(TABLE) is None
    assert lake.table(ITEM).settings.path == "sales/product"
    assert scene.rows(ITEM) == before
    assert [(run.done, run.failed) for run in lake.runs(ITEM)] == [(0, 1), (0, 1), (1, 0)]
    assert lake.discover().new == (), "the folder belongs to the renamed table"
    assert str(mirror_of(lake.spark, TableId.parse(ITEM)).load().uuid()) == uuid
    states = {version.kind: version.state for version in lake.snapshots.list([ITEM])}
    assert states == {"files": "current", "tag": "current"}
    source.change("20240103-000000000.csv", "U,2,changed,y,2.00")
    assert [op.op for op in scene.run(ITEM).ops] == [3]
    assert scene.rows(ITEM) == source.rows()
    scene.forget_state()
    assert scene.lakeward.rebuild_state() == [ITEM]
    assert scene.run(ITEM).ops == ()
    # The old name is free: another table may have it.
    scene.lakeward.set_table(TABLE, settings={**settings, "path": "other/product"}, active=True)
    scene.land("LOAD00000001.csv", "1,other,x,1.00", folder="other/product")
    scene.run(TABLE)
    assert [row[1] for row in scene.rows()] == ["other"]
    assert scene.rows(ITEM) == source.rows()


def with_two_tables_in_a_folder(scene: Scene) -> None:
    """Rename a table and set up another one under its former name, whose files Iceberg puts into the same folders."""
    scene.configure({})
    settings = {"schema": SCHEMA, "primary_key": ["id"]}
    scene.land("LOAD00000001.csv", *ROWS)
    scene.lakeward.set_table(TABLE, settings=settings, active=True)
    scene.run(TABLE)
    scene.lakeward.rename_table(TABLE, ITEM)
    scene.land("LOAD00000001.csv", "1,other,x,1.00", folder="other/product")
    scene.lakeward.set_table(TABLE, settings={**settings, "path": "other/product"}, active=True)
    scene.run(TABLE)


def test_orphans_are_not_looked_for_in_a_folder_that_a_renamed_table_has_too(scene: Scene) -> None:
    with_two_tables_in_a_folder(scene)
    lake, item = scene.lakeward, TableId.parse(ITEM)
    before = scene.rows(ITEM)
    for found in (mirror_of(lake.spark, item), changelog_of(lake.spark, item)):
        for number in range(21):  # all metadata files of the time before the renaming are gone, and so is their age
            found.set_properties({"number": str(number)})
    for file in (scene.folder / "lake/data").rglob("*"):
        if file.is_file() and not file.name.endswith(".metadata.json"):
            os.utime(file, (time.time() - 10 * 86_400,) * 2)
    [kept] = lake.maintain([TABLE], only="orphans").tables
    assert "of another table is in it" in str(kept.message) and kept.work == ()
    lake.remove_table(ITEM)
    [kept] = lake.maintain([TABLE], only="orphans").tables
    assert "is the metadata of another table" in str(kept.message) and kept.work == ()
    lake.set_table(ITEM, active=True)
    assert scene.rows(ITEM) == before


def test_removing_a_renamed_table_leaves_what_another_one_publishes_under_its_former_name(
    scene: Scene, tmp_path: Path
) -> None:
    scene.configure({})
    published = tmp_path / "published"
    settings = {"schema": SCHEMA, "primary_key": ["id"], "publish": {"to": str(published)}}
    scene.land("LOAD00000001.csv", *ROWS)
    scene.lakeward.set_table(TABLE, settings=settings, active=True)
    scene.run(TABLE)
    scene.lakeward.rename_table(TABLE, ITEM)
    scene.land("LOAD00000001.csv", "1,other,x,1.00", folder="other/product")
    scene.land("20240102-000000000.csv", "U,1,new,x,1.00", folder="other/product")
    scene.lakeward.set_table(TABLE, settings={**settings, "path": "other/product"}, active=True)
    assert f"points to a version of another table of the name {TABLE}" in str(scene.try_run(TABLE).tables[0].message)
    # Once the user has removed it, the place is free for the other one, from which nothing is taken away.
    pointer = published / TABLE / "_current.json"
    pointer.unlink()
    scene.run(TABLE)
    before = pointer.read_bytes()
    scene.lakeward.remove_table(ITEM, drop_data=True)
    assert pointer.read_bytes() == before
    assert [path.name for path in (published / "_lakeward_versions" / TABLE).iterdir()] == ["version=op-2"]
    assert (published / TABLE / "current").resolve().name == "version=op-2"


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_run_that_reaches_a_table_after_its_rename_or_removal_does_nothing_on_it(
    scene: Scene, *, is_renamed: bool
) -> None:
    scene.configure({}, parallel=1)
    for name in ("sales.first", TABLE):
        scene.land("LOAD00000001.csv", *ROWS, folder=name.replace(".", "/"))
        scene.lakeward.set_table(name, settings={"schema": SCHEMA, "primary_key": ["id"]}, active=True)
    taken: list[str] = []

    def take_the_other(table: str, _step: str) -> None:
        if not taken:
            taken.append(TABLE if table == "sales.first" else "sales.first")
            if is_renamed:
                scene.lakeward.rename_table(taken[0], ITEM)
            else:
                scene.lakeward.remove_table(taken[0], drop_data=True)

    scene.on_step = take_the_other
    reports = {report.table: report for report in scene.try_run().tables}
    scene.on_step = None
    stopped = reports.pop(taken[0])
    assert (stopped.outcome, stopped.error_kind) == ("failed", "conflict")
    assert "was renamed or removed since this run began" in str(stopped.message)
    assert [report.outcome for report in reports.values()] == ["done"]
    assert scene.lakeward.find_table(taken[0]) is None
    assert not mirror_of(scene.lakeward.spark, TableId.parse(taken[0])).exists()
    assert scene.run(*([ITEM] if is_renamed else [])).outcome == ("done" if is_renamed else "idle")


def test_a_lake_that_was_opened_before_a_rename_does_not_build_the_table_anew(
    tmp_path: Path, spark: SparkSession
) -> None:
    file = tmp_path / "lakeward.yaml"
    file.write_text(DECLARED)
    config = load_config(file)
    (tmp_path / "sales/product").mkdir(parents=True)
    (tmp_path / "sales/product/LOAD00000001.csv").write_text("1\n")
    with Lakeward(config, spark=session_for(spark, config)) as stale:
        with Lakeward(load_config(file), spark=session_for(spark, config)) as lake:
            lake.rename_table(TABLE, ITEM)
        [report] = stale.run([]).tables
        assert "was renamed or removed since this run began" in str(report.message)
        assert not mirror_of(stale.spark, TableId.parse(TABLE)).exists()
    with Lakeward(load_config(file), spark=session_for(spark, config)) as lake:
        assert [str(known.table) for known in lake.tables()] == [ITEM]


@pytest.mark.parametrize("is_declared", [True, False])
def test_no_table_is_built_under_the_former_name_once_all_was_renamed(
    tmp_path: Path, spark: SparkSession, *, is_declared: bool
) -> None:
    file, settings = tmp_path / "lakeward.yaml", {"schema": "id int", "primary_key": "id"}
    file.write_text(json.dumps({"state": "sqlite:///state.db", "landing": "."}) if not is_declared else DECLARED)
    (tmp_path / "sales/product").mkdir(parents=True)
    (tmp_path / "sales/product/LOAD00000001.csv").write_text("1\n")
    moved: list[str] = []

    def crash(_table: str, step: str) -> None:
        moved.extend([step] if step == Step.RENAME_MOVED else [])
        if len(moved) == 2:
            raise Crash(step)

    def opened(**options: Any) -> Lakeward:
        config = load_config(file)
        return Lakeward(config, spark=session_for(spark, config), **options)

    with opened(on_step=crash) as lake:
        if not is_declared:
            lake.set_table(TABLE, settings=settings, active=True)
        lake.run([TABLE])
        with pytest.raises(Crash):
            lake.rename_table(TABLE, ITEM)
    with opened() as lake:
        with pytest.raises(ConfigurationError, match=r"no table sales\.product"):
            lake.run([TABLE])
        [report] = lake.run([]).tables
        assert (report.table, report.hint) == (ITEM, "lakeward tables rename sales.product shop.item")
        assert lake.rename_table(TABLE, ITEM).resumes
    with opened() as lake:
        assert [report.outcome for report in lake.run([]).tables] == ["idle"]
        assert lake.sql(f"SELECT * FROM {ITEM}").count() == 1


def test_a_declaration_that_cannot_be_changed_is_found_before_anything_is(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "lakeward.yaml"
    file.write_text("tables:\n  sales.product: &same\n    primary_key: [id]\n  sales.other: *same\n")
    config = load_config(file)
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        with pytest.raises(ConfigurationError, match="was not changed"):
            lake.plan_rename_table(TABLE, ITEM)
        with pytest.raises(ConfigurationError, match="was not changed"):
            lake.plan_remove_table(TABLE, drop_data=True)


def test_a_table_that_transaction_files_know_by_its_own_name_keeps_it(scene: Scene) -> None:
    scene.configure({}, transactions="cdc")
    settings = {"schema": SCHEMA, "primary_key": ["id"]}
    scene.lakeward.set_table(TABLE, settings={**settings, "path": "product"})
    scene.lakeward.set_table("sales.other", settings={**settings, "path": "source/other"})
    with pytest.raises(ConfigurationError, match=r"records in transaction files are found by the name sales\.product"):
        scene.lakeward.plan_rename_table(TABLE, ITEM)
    assert scene.lakeward.plan_rename_table("sales.other", ITEM).path == "source/other"


def test_a_declared_table_is_renamed_in_its_file(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "lakeward.yaml"
    file.write_text("tables:\n  sales.product:  # mine\n    primary_key: [id]\n")
    config = load_config(file)
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        plan = lake.rename_table(TABLE, ITEM)
        assert (plan.file, plan.line, plan.tables) == (str(file), 2, {})
    assert file.read_text() == "tables:\n  shop.item:  # mine\n    path: sales/product\n    primary_key: [id]\n"
    file.write_text("lake: {catalog: 'hadoop://'}\ntables:\n  sales.product: {}\n")
    config = load_config(file)
    with (
        Lakeward(config, spark=session_for(spark, config)) as lake,
        pytest.raises(ConfigurationError, match="a Hadoop catalog cannot rename tables"),
    ):
        lake.plan_rename_table(TABLE, ITEM)


@pytest.mark.soak
def test_what_was_published_under_the_former_name_is_erased_and_refreshed(scene: Scene) -> None:
    shared = scene.folder / "shared"
    settings: dict[str, Any] = {"schema": SCHEMA, "primary_key": ["id"], "publish": {"to": str(shared)}}
    scene.configure({})
    source, versions = Source(scene), scene.folder / "versions"
    source.load("LOAD00000001.csv", *ROWS)
    scene.lakeward.set_table(TABLE, settings=settings, active=True)
    scene.run(TABLE)
    scene.lakeward.snapshots.create([TABLE], as_of="op:1", to=str(versions))
    scene.lakeward.rename_table(TABLE, ITEM)
    for key in (1, 2):
        [receipt] = scene.lakeward.erase(ITEM, [{"id": key}], reason="request")
        assert receipt.proved
        scene.run(ITEM)
    for file in (*versions.rglob("*.parquet"), *shared.rglob("*.parquet")):
        assert pq.ParquetFile(file).read().column("id").to_pylist() == [3]
    manifest = json.loads((versions / TABLE / "version=op-1" / "_manifest.json").read_text())
    assert manifest["table"] == TABLE, "the folder's own name"
    [dropped] = scene.lakeward.snapshots.drop(ITEM, version=str(versions / TABLE / "version=op-1"))
    assert dropped.outcome == "dropped"
