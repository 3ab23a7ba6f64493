"""The lake of another system as a table's first load: rows, change files that count, and what stops the table."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakeward import DiffOptions, diff_snapshots
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from tests.servers.former import FormerSystem, oracle
from tests.spark.crash import crash_at
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("dept", pa.string())])
LOAD = [{"id": number, "name": f"n{number}", "dept": ("007", "toys", "a b/c")[number % 3]} for number in range(1, 10)]
FIRST = [
    {"Op": "U", "id": 1, "name": "changed", "dept": "toys"},
    {"Op": "D", "id": 2, "name": None, "dept": None},
    {"Op": "I", "id": 20, "name": "", "dept": "toys"},
]
SECOND = [{"Op": "U", "id": 20, "name": None, "dept": "a b/c"}, {"Op": "D", "id": 4, "name": None, "dept": None}]
AFTER = [{"Op": "U", "id": 3, "name": "later", "dept": "007"}, {"Op": "I", "id": 30, "name": "new", "dept": "new"}]


def moved_in(scene: Scene, **settings: Any) -> FormerSystem:
    """A deployment that has applied two change files, and the table's settings for the move."""
    former = FormerSystem(
        scene.landing / "sales" / "product", scene.folder / "old" / "product", SCHEMA, keys=("id",), partition=("dept",)
    )
    former.land("LOAD00000001.parquet", LOAD, changes=False)
    former.load_initial()
    former.land("20240101-000000000.parquet", FIRST)
    former.load_incremental()
    former.land("20240102-000000000.parquet", SECOND)
    former.load_incremental()
    (former.landing / "LOAD00000001.parquet").unlink()
    adopt = {"lake": str(former.lake), "last_file": former.last_file, **settings.pop("adopt", {})}
    scene.configure({TABLE: {"primary_key": "id", "adopt": adopt, **settings}})
    return former


def expected(*changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    rows = oracle(LOAD, [change for file in changes for change in file], ("id",)).values()
    return sorted(((row["id"], row["name"], row["dept"]) for row in rows), key=repr)


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def test_a_lake_is_adopted_and_changes_count_from_its_newest_file_on(scene: Scene) -> None:
    former = moved_in(scene)
    adopt = {"lake": str(former.lake), "last_file": former.last_file}
    former.land("20240103-000000000.parquet", AFTER)
    before = files_of(former.lake)
    [plan] = scene.lakeward.plan()
    assert plan.op.kind == "load"
    report = scene.run()
    assert [op.kind for op in report.ops] == ["load", "batch"]
    assert scene.rows() == expected(FIRST, SECOND, AFTER)
    schema = scene.lakeward.sql(f"SELECT * FROM {TABLE}").schema
    assert schema.simpleString() == "struct<id:int,name:string,dept:string>"
    assert files_of(former.lake) == before
    # Nothing is read twice, also when the state store is gone, and the mirror is proven against all files.
    scene.forget_state()
    assert scene.run().outcome == "idle"
    assert scene.lakeward.verify().exit_code == 0
    # Once the former system has applied the same files, the command that the import shows finds no difference.
    former.load_incremental()
    found = diff_snapshots(
        str(former.lake), f"iceberg:{TABLE}", keys=["id"], options=DiffOptions(evolve=True, ignore_columns=("Op",)),
        config=scene.lakeward.config, spark=scene.lakeward.spark,
    )  # fmt: skip
    assert found.summary.is_same
    assert found.summary.unchanged == len(scene.rows())
    with pytest.raises(ConfigurationError, match="it began with a lake that another system wrote"):
        scene.lakeward.plan_reset_table(TABLE)
    # A file that arrives late with a name that the former system had passed stops the table.
    former.land("20240101-120000000.parquet", [{"Op": "U", "id": 5, "name": "lost", "dept": "toys"}])
    refused = scene.refused()
    assert "20240101-120000000.parquet first, named like files whose changes the adopted lake" in refused.message
    assert "--cut 20240101-120000000" in refused.hint
    scene.run(cut="20240101-120000000")
    late = [{"Op": "U", "id": 5, "name": "lost", "dept": "toys"}]
    assert scene.rows() == expected(FIRST, late, SECOND, AFTER)
    # All ops are undone: the next run adopts the lake again.
    scene.lakeward.undo(TABLE, to_op=0)
    assert scene.rows() == []
    refused = scene.refused()
    assert "written after files whose names sort after theirs" in refused.message
    scene.configure({TABLE: {"primary_key": "id"}})
    assert "it began with a lake that another system wrote" in scene.refused(cut="20240101-120000000").message
    scene.configure({TABLE: {"primary_key": "id", "adopt": adopt}})
    scene.run(cut="20240101-120000000")
    assert scene.rows() == expected(FIRST, late, SECOND, AFTER)


def test_a_reload_replaces_an_adopted_lake(scene: Scene) -> None:
    former = moved_in(scene)
    # A crash between the record of the adoption and the mirror: the next run finishes it.
    crash_at(scene, Step.LOG_PUBLISH)
    scene.run()
    assert scene.rows() == expected(FIRST, SECOND)
    former.land("LOAD00000001.parquet", LOAD[:6], changes=False)
    scene.choices = {"allow_deletes": True, "cut": "20240103"}
    scene.run()
    # A reset does not adopt the lake again, which is older than that load.
    with pytest.raises(ConfigurationError, match="adopt is set"):
        scene.lakeward.reset_table(TABLE)
    scene.configure({TABLE: {"primary_key": "id"}})
    scene.lakeward.reset_table(TABLE)
    assert scene.rows() == sorted(((row["id"], row["name"], row["dept"]) for row in LOAD[:6]), key=repr)


def test_rows_that_the_lake_holds_twice_stop_the_table(scene: Scene) -> None:
    former = moved_in(scene)
    former.removal_fails = True
    former.land("20240103-000000000.parquet", AFTER)
    former.load_incremental()
    settings = {"lake": str(former.lake), "last_file": former.last_file}
    scene.configure({TABLE: {"primary_key": "id", "adopt": settings}})
    refused = scene.refused()
    assert "occur more than once in the adopted lake" in refused.message
    assert "adopt.leave_out=" in refused.hint
    stale = refused.hint.split("adopt.leave_out=[")[1].split("]")[0].replace("'", "").replace('"', "").split(", ")
    scene.configure({TABLE: {"primary_key": "id", "adopt": {**settings, "leave_out": stale}}})
    scene.run()
    assert scene.rows() == expected(FIRST, SECOND, AFTER)
    # An erasure names the files of the lake that hold the key, also one that was left out, and leaves them.
    before = files_of(former.lake)
    [receipt] = scene.lakeward.erase(TABLE, [{"id": 3}], reason="test", landing=True)
    found = {trace.path: trace.outcome for trace in receipt.landing}
    holding = {str(path) for path, rows in former.files().items() if any(row["id"] == 3 for row in rows)}
    assert {path for path, outcome in found.items() if outcome == "foreign"} == holding
    assert len(holding) == 2
    assert files_of(former.lake) == before


def test_op_can_be_kept_and_load_files_in_landing_are_not_ignored(scene: Scene) -> None:
    former = moved_in(scene, adopt={"keep_op": True})
    former.land("LOAD00000001.parquet", LOAD, changes=False)
    refused = scene.refused()
    assert "landing holds load files" in refused.message
    scene.run(drop_parts=("sales/product/LOAD00000001.parquet",))
    former.land("20240103-000000000.parquet", AFTER)
    scene.run()
    found = {row["id"]: row["Op"] for row in scene.by_key().values()}
    assert found == {1: "U", 3: "U", 5: "I", 6: "I", 7: "I", 8: "I", 9: "I", 20: "U", 30: "I"}
    assert scene.run().outcome == "idle"


def test_metadata_columns_and_rules_for_columns_hold_for_the_rows_of_a_lake(scene: Scene) -> None:
    wanted = {"op": "written_by", "op_number": "written_in", "file": "came_from"}
    former = moved_in(scene, metadata_columns=wanted, columns={"dept": "mask"})
    assert "dept cannot have the rule mask" in scene.refused().message
    adopt = {"lake": str(former.lake), "last_file": former.last_file}
    table = {"primary_key": "id", "adopt": adopt, "metadata_columns": wanted, "columns": {"name": "mask"}}
    scene.configure({TABLE: {**table, "files": {"changes": "*.parquet", "order": "name"}}})
    assert "adopt and files.changes" in scene.refused().message
    scene.configure({TABLE: table})
    assert not [found for found in scene.lakeward.check_tables() if found.is_error]
    former.land("20240103-000000000.parquet", AFTER)
    scene.run()
    found = scene.by_key()
    lake = {row["id"]: str(path) for path, rows in former.files().items() for row in rows}
    changed = "sales/product/20240103-000000000.parquet"
    assert {key: (row["written_by"], row["written_in"], row["came_from"]) for key, row in found.items()} == {
        **{key: ("I", 1, path) for key, path in lake.items()}, 3: ("U", 2, changed), 30: ("I", 2, changed),
    }  # fmt: skip
    assert {row["name"] for row in found.values()} == {"***", None}
    depts = sorted((key, row["dept"]) for key, row in found.items())
    assert depts == sorted((row[0], row[2]) for row in expected(FIRST, SECOND, AFTER))
    stored = scene.lakeward.sql("SELECT DISTINCT name FROM sales_changes.product").collect()
    assert {row["name"] for row in stored} == {"***", None}
    assert scene.lakeward.verify().exit_code == 0
    # As the command that the import shows.
    former.load_incremental()
    same = diff_snapshots(
        str(former.lake), f"iceberg:{TABLE}", keys=["id"],
        options=DiffOptions(evolve=True, ignore_columns=("Op", *wanted.values(), "name")),
        config=scene.lakeward.config, spark=scene.lakeward.spark,
    )  # fmt: skip
    assert same.summary.is_same


def test_a_lake_that_changed_since_it_was_imported_stops_the_table(scene: Scene) -> None:
    former = moved_in(scene, adopt={"listing": "3 files, 0000000000000000"})
    refused = scene.refused()
    assert "is not as it was when it was imported" in refused.message
    shutil.rmtree(former.lake)
    assert "holds no Parquet file" in scene.refused().message


@pytest.mark.parametrize("name", ["dept=007/part-0.parquet"])
def test_the_type_of_a_folder_is_never_guessed(scene: Scene, name: str) -> None:
    former = moved_in(scene)
    shutil.rmtree(former.landing)
    refused = scene.refused()
    assert "only in the names of its folders" in refused.message
    assert "adopt.partition_types={dept: string}" in refused.hint
