"""A table is removed from registry, configuration file and lake: only what is provably Lakeward's goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakeward.config.loading import load_config
from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import changelog_of, history_of, mirror_of
from lakeward.lake import Lakeward
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from lakeward.session.sessions import session_for
from tests.spark.crash import Crash, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CRASHED = steps_of("remove")
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 4))
PRODUCT = TableId.parse(TABLE)


def registered(scene: Scene) -> Source:
    """Return a scene's source after a run of its one table, which is registered and not declared."""
    scene.configure({})
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    publish = {"to": str(scene.folder / "current")}
    settings = {"schema": SCHEMA, "primary_key": ["id"], "publish": publish}
    scene.lakeward.set_table(TABLE, settings=settings, active=True)
    source.change("20240102-000000000.csv", "U,1,changed,y,2.00")
    scene.run(TABLE)
    return source


def lake_tables(scene: Scene) -> list[bool]:
    return [of(scene.lakeward.spark, PRODUCT).exists() for of in (mirror_of, changelog_of, history_of)]


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def test_a_removed_registration_comes_back_inactive_only(scene: Scene) -> None:
    source = registered(scene)
    before = scene.rows()
    plan = scene.lakeward.plan_remove_table(TABLE)
    assert (plan.registered, plan.returns, plan.file, plan.ops) == (True, True, None, 2)
    assert [(stored.role, stored.rows) for stored in plan.tables] == [("changelog", 5), ("mirror", 3)]
    assert [version.kind for version in plan.versions] == ["current"]
    assert scene.lakeward.find_table(TABLE) is not None

    assert scene.lakeward.remove_table(TABLE).left == ()
    assert scene.lakeward.find_table(TABLE) is None
    assert scene.rows() == before, "the mirror stays"
    assert scene.lakeward.rebuild_state() == []
    assert scene.lakeward.find_table(TABLE) is None
    assert scene.lakeward.discover().new == (PRODUCT,)
    known = scene.lakeward.find_table(TABLE)
    assert known is not None
    assert not known.active
    # Whoever activates it again continues where it was; from then on it is a table like any other.
    scene.lakeward.set_table(TABLE, settings={"schema": SCHEMA, "primary_key": ["id"]}, active=True)
    source.change("20240103-000000000.csv", "U,2,changed,y,2.00")
    assert [op.op for op in scene.run(TABLE).ops] == [3]
    scene.forget_state()
    assert scene.lakeward.rebuild_state() == [TABLE]
    with pytest.raises(ConfigurationError, match=r"no table sales\.other"):
        scene.lakeward.remove_table("sales.other", drop_data=True)


def test_data_is_dropped_whatever_interrupts_it_and_files_of_others_stay(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave_branches(monkeypatch)
    source = registered(scene)
    scene.lakeward.snapshots.create([TABLE], as_of="op:1", to=str(tmp_path / "versions"))
    scene.lakeward.snapshots.create([TABLE], as_of="op:1", tag="kept")
    data, current = scene.folder / "lake" / "data", tmp_path / "current" / TABLE
    version = tmp_path / "versions" / TABLE / "version=op-1"
    foreign = [version / "notes.txt", data / "sales" / "product" / "data" / "mine.parquet", current / "README"]
    for file in foreign:
        file.write_text("mine")
    plan = scene.lakeward.plan_remove_table(TABLE, drop_data=True)
    assert {version.kind for version in plan.versions} == {"current", "files"}
    assert [stored.tags for stored in plan.tables if stored.role == "mirror"] == [("kept",)]

    crashed = []

    def crash(_table: str, step: str) -> None:
        if step not in crashed:
            crashed.append(step)
            raise Crash(step)

    left: tuple[str, ...] | None = None
    while left is None:
        scene.on_step = crash
        try:
            left = scene.lakeward.remove_table(TABLE, drop_data=True).left
        except Crash:
            scene.on_step = None
            scene.close() if len(crashed) % 2 else scene.forget_state()
            if crashed[-1] == Step.REMOVE_EMPTIED:
                scene.lakeward.set_table(TABLE, settings={"schema": SCHEMA, "primary_key": ["id"]}, active=True)
                assert "removal of its data was begun" in (scene.refused().message or "")
                with pytest.raises(ConfigurationError, match="removal of its data was begun"):
                    scene.lakeward.remove_table(TABLE)
    scene.on_step = None
    assert {*CRASHED} <= {*crashed}
    assert lake_tables(scene) == [False, False, False]
    assert [path.removeprefix("file:") for path in left] == [str(foreign[1])]
    assert files_below(data) == {"sales/product/data/mine.parquet"}
    assert files_below(tmp_path / "versions") == {f"{TABLE}/version=op-1/notes.txt"}
    assert files_below(tmp_path / "current") == {f"{TABLE}/README"}
    assert scene.lakeward.find_table(TABLE) is None

    # A new table of the name begins from nothing: all files are new to it.
    scene.lakeward.set_table(TABLE, settings={"schema": SCHEMA, "primary_key": ["id"]}, active=True)
    assert [op.op for op in scene.run(TABLE).ops] == [1, 2]
    assert scene.rows() == source.rows()


def test_a_declared_table_is_removed_from_its_file(tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "lakeward.yaml"
    others = "landing: ./landing\ntables:\n  # first\n  a.b:\n    primary_key: [id]\n"
    file.write_text(f"{others}  sales.product:  # mine\n    primary_key: [id]\n")
    config = load_config(file)
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        plan = lake.plan_remove_table(TABLE)
        assert (plan.file, plan.first_line) == (str(file), 6)
        assert plan.lines == ("  sales.product:  # mine", "    primary_key: [id]")
        assert not plan.returns
        assert json.loads(json.dumps(plan.to_dict()))["lines"] == list(plan.lines)
        lake.remove_table(TABLE)
    assert file.read_text() == others
    assert [str(table) for table in load_config(file).declared()] == ["a.b"]
