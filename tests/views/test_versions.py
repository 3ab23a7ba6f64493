"""Versions of a table as of days, asked in any order, as files in every format and layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError, DataError
from lakeward.storage.checksum import checksum_of
from lakeward.storage.hadoop import HadoopFileSystem
from tests.spark.scene import TABLE, Scene
from tests.views.versions import LOADED, SETTINGS, create, line, made, names, refused, set_up, states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Scene:
    """A table that the tests of this module only read, each into a folder of its own."""
    scene = Scene(tmp_path_factory.mktemp("loaded"), spark)
    set_up(scene)
    return scene


def fingerprint(rows: DataFrame) -> str:
    return checksum_of(rows).text


def test_days_in_any_order_of_calls_and_changes_that_arrive_later(scene: Scene) -> None:
    set_up(scene)
    newest, oldest, middle = (made(scene, day) for day in ("2020-11-15", "2020-11-13", "2020-11-14"))
    assert names(scene, newest) == {1: "one on 13th", 2: None, 4: "four"}
    assert names(scene, oldest) == {1: "one on 13th", 2: "two", 3: "three"}
    assert names(scene, middle) == {1: "one on 13th", 2: None}
    assert set(states(scene).values()) == {"current"}
    # A change of the 14th, and one of the 16th, in a file that comes after all others.
    late = line("U", "2020-11-14 10:00:00", 2, "two after all"), line("U", "2020-11-16 09:00:00", 4, "four later")
    scene.land("20201117-000000000.csv", *late)
    scene.run()
    assert states(scene) == {"2020-11-13": "current", "2020-11-14": "stale", "2020-11-15": "stale"}
    shutil.rmtree(middle)
    assert states(scene)["2020-11-14"] == "missing"
    assert [snapshot.version for snapshot in scene.lakeward.snapshots.refresh([TABLE])] == ["2020-11-15"]
    assert names(scene, newest) == {1: "one on 13th", 2: "two after all", 4: "four"}
    [again] = scene.lakeward.snapshots.refresh(version="2020-11-14")
    assert (again.outcome, names(scene, middle)) == ("done", {1: "one on 13th", 2: "two after all"})
    assert set(states(scene).values()) == {"current"}
    assert len(scene.lakeward.snapshots.list([TABLE])) == 3


def test_the_manifest_of_a_version_describes_it(loaded: Scene, tmp_path: Path) -> None:
    folder = Path(made(loaded, "2020-11-14", to=str(tmp_path)))
    assert folder == tmp_path / TABLE / "version=2020-11-14"
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert {key: manifest[key] for key in ("table", "as_of", "rows", "primary_key", "format", "layout")} == {
        "table": TABLE, "as_of": "2020-11-14T22:59:59.999999+00:00", "rows": 2, "primary_key": ["id"],
        "format": "parquet", "layout": "flat",
    }  # fmt: skip
    assert (manifest["lineage"]["op"], manifest["lineage"]["generation"]) == (2, 1)
    assert manifest["content_hash"] == fingerprint(loaded.lakeward.snapshots.read(str(folder)))
    files = {file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.iterdir()}
    assert {file["path"]: file["size"] for file in manifest["files"]} == {
        path: size for path, size in files.items() if not path.startswith("_")
    }
    assert {path for path in files if not path.endswith(".parquet")} == {"_manifest.json", "_SUCCESS"}
    [bucket] = manifest["set"]["buckets"]
    assert (manifest["set"]["keys"], manifest["set"]["count"]) == (["id"], 1)
    assert (bucket["rows"], bucket["size"]) == (2, files[bucket["path"]])
    rows = loaded.lakeward.snapshots.read(str(folder))
    assert manifest["set"]["checksum"] == checksum_of(rows).text
    text = Path(made(loaded, "2020-11-14", to=str(tmp_path / "csv"), format="csv"))
    assert "set" not in json.loads((text / "_manifest.json").read_text())


def test_invalid_requests_and_overwriting_ones_are_refused(loaded: Scene, tmp_path: Path) -> None:
    snapshots, to = loaded.lakeward.snapshots, str(tmp_path)
    # The 13th began in Berlin at 23:00 UTC.
    for early in ("2020-11-12", "2020-11-12T22:59:59Z"):
        assert "before the start of its capture" in str(refused(loaded, early, to=to).message)
    made(loaded, "2020-11-12T23:00:00Z", to=f"{to}/first")
    assert "no op 9" in str(refused(loaded, "op:9", to=to).message)
    made(loaded, "op:1", to=to)
    assert "--replace" in str(refused(loaded, "op:1", to=to).hint)
    assert "of type string" in str(refused(loaded, "op:2", to=to, layout="dated", date_column="name").message)
    for wrong in ({"to": to, "tag": ""}, {}, {"tag": "x", "register": ""}, {"to": to, "layout": "dated"}):
        with pytest.raises(ConfigurationError):
            snapshots.create([TABLE], as_of="op:1", **wrong)
    made(loaded, "op:2", to=to)
    with pytest.raises(ConfigurationError, match="no version 'op-9'"):
        snapshots.refresh(version="op-9")
    with pytest.raises(DataError, match="holds 2: version=op-1, version=op-2"):
        snapshots.read(f"{to}/{TABLE}")


# Half past eleven at night in UTC is the next day in Berlin.
DATES = {
    "": set(),
    "seen": {"seen_date=2020-01-01", "seen_date=2020-01-02", "seen_date=__HIVE_DEFAULT_PARTITION__"},
    "sold": {"sold=0001-01-01", "sold=2020-01-02", "sold=__HIVE_DEFAULT_PARTITION__"},
}


def test_rows_come_back_exactly_in_every_format_and_each_from_one_date_alone(scene: Scene) -> None:
    scene.configure({TABLE: {**SETTINGS, "cdc_start": None}}, timezone="Europe/Berlin")
    scene.land(
        "LOAD00000001.csv",
        line("I", LOADED, 1, '" two  lines,\nand a ""quote"""', "0001-01-01", "2020-01-01 23:30:00.123456"),
        line("I", LOADED, 2, '""', "2020-01-02", "2020-01-01 22:30:00"),
        line("I", LOADED, 3, "NULL"),
        line("I", LOADED, 4, '"NULL"', "2020-01-02", "2020-01-01 23:00:00"),
    )
    scene.run()
    wanted = scene.rows()
    # As Spark 3.5 has it without a setting for ancient dates.
    scene.lakeward.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "EXCEPTION")
    for kind, dates in (("parquet", "seen"), ("csv", ""), ("csv", "seen"), ("json", "sold"), ("orc", "sold")):
        layout = {"layout": "dated", "date_column": dates} if dates else {}
        place = made(scene, "op:1", to=str(scene.folder / f"out [{kind}{dates}]"), format=kind, **layout)
        found = scene.lakeward.snapshots.read(place).collect()
        assert sorted((tuple(row) for row in found), key=repr) == wanted, kind
        assert {path.name for path in Path(place).iterdir() if path.is_dir()} == DATES[dates]
    # ORC has no place for the last second before 1970 and reads it as the first one after.
    scene.land("20201115-000000000.csv", line("I", LOADED, 5, "five", seen="1969-12-31 23:59:59.999999"))
    scene.run()
    other = create(scene, "op:2", format="orc")
    assert (other.outcome, "every value of seen as it was" in str(other.message)) == ("failed", True), other.message
    left = [path for path in (scene.folder / "out").rglob("*") if path.is_file()]
    assert left == [], "files of the refused version are left"


def test_a_row_that_moved_between_dates_is_in_its_new_folder_alone(loaded: Scene, tmp_path: Path) -> None:
    before = made(loaded, "op:1", to=str(tmp_path), layout="dated", date_column="sold")
    after = made(loaded, "2020-11-13", to=str(tmp_path), layout="dated", date_column="sold")
    assert {path.name for path in Path(before).iterdir() if path.is_dir()} >= {"sold=2020-01-01"}
    assert {path.name for path in Path(after).iterdir() if path.is_dir()} == {
        "sold=2020-01-02", "sold=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    assert names(loaded, after) == {1: "one on 13th", 2: "two", 3: "three"}


def test_a_registered_table_follows_the_newest_version(loaded: Scene, tmp_path: Path) -> None:
    spark, to = loaded.lakeward.spark, str(tmp_path)
    dated = {"to": to, "layout": "dated", "date_column": "sold", "register": "shop.products"}
    first = made(loaded, "2020-11-13", **dated)
    read = "SELECT id, name, CAST(sold AS STRING) FROM spark_catalog.shop.products ORDER BY id"
    assert [tuple(row) for row in spark.sql(read).collect()] == [
        (1, "one on 13th", "2020-01-02"), (2, "two", "2020-01-02"), (3, "three", None),
    ]  # fmt: skip
    made(loaded, "2020-11-15", **dated)
    assert [row[0] for row in spark.sql(read).collect()] == [1, 2, 4]
    assert names(loaded, first)[3] == "three"
    # A version whose name the next one begins with is made anew: the table stays where it points.
    made(loaded, "2020-11-13T22:00:00Z", **dated)
    shutil.rmtree(first)
    [again] = loaded.lakeward.snapshots.refresh(version=first)
    assert again.outcome == "done", again.message
    assert [row[1] for row in spark.sql(read).collect()] == ["one", "two", "three"]
    made(loaded, "2020-11-13", **{**dated, "to": f"{to}/csv", "format": "csv", "layout": "flat", "date_column": None})
    spark.sql("REFRESH TABLE spark_catalog.shop.products")
    assert [row[0] for row in spark.sql(read).collect()] == [1, 2, 3]
    spark.sql("CREATE TABLE spark_catalog.default.product_snapshot (id int) USING parquet")
    try:
        assert "not made by Lakeward" in str(create(loaded, "op:1", to=to, register="").message)
    finally:
        spark.sql("DROP TABLE spark_catalog.default.product_snapshot")
        spark.sql("DROP TABLE spark_catalog.shop.products")


def test_hadoop_file_systems_do_what_the_local_disk_does(loaded: Scene, tmp_path: Path) -> None:
    store, root = HadoopFileSystem(loaded.lakeward.spark, "file"), f"file://{tmp_path}"
    assert store.can_rename
    for text in ("first", "second"):
        store.write_text(f"{root}/a b/pointer.json", text)
    assert store.read_text(f"{root}/a b/pointer.json") == "second"
    store.link({f"{root}/a b/pointer.json": f"{root}/c/x=1/copy.json"})
    assert {path for path in store.files(root) if not path.endswith(".crc")} == {"a b/pointer.json", "c/x=1/copy.json"}
    assert store.folders(root) == ["a b", "c"]
    store.move(f"{root}/c", f"{root}/d")
    assert (store.exists(f"{root}/c"), store.read_text(f"{root}/d/x=1/copy.json")) == (False, "second")
    store.move(f"{root}/d/x=1/copy.json", f"{root}/d/y/z/moved.json")
    store.write_text(f"{root}/d/y/theirs", "theirs")
    store.remove(root, ["d/y/z/moved.json", "d/y/missing", "d/y"])
    assert (store.files(f"{root}/d/y/z"), store.read_text(f"{root}/d/y/theirs")) == ({}, "theirs")
    store.prune(f"{root}/d")
    assert store.folders(f"{root}/d") == ["y"]
    store.remove(root, ["d/y/theirs"])
    assert (store.files(f"{root}/d"), store.folders(f"{root}/d"), store.read_text(f"{root}/d")) == ({}, [], None)


def test_a_table_that_was_empty_is_an_empty_version(scene: Scene) -> None:
    scene.configure({TABLE: SETTINGS})
    scene.land("20201113-100000000.csv", line("I", "2020-11-13 10:00:00", 1, "one", "2020-01-01"))
    scene.land("20201114-100000000.csv", line("D", "2020-11-14 10:00:00", 1, "NULL"))
    scene.run()
    for layout in ({}, {"layout": "dated", "date_column": "sold"}):
        to = str(scene.folder / f"out{len(layout)}")
        assert names(scene, made(scene, "2020-11-14", to=to, **layout)) == {}
        assert names(scene, made(scene, "2020-11-13", to=to, **layout)) == {1: "one"}
