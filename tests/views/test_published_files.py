"""What tools without Iceberg read at the fixed place of a publication, in every shape that settings can ask for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds
import pytest

from lakeward.views.versions import current
from lakeward.views.versions.places import VERSIONS
from tests.spark.crash import crash_at, leave_branches
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Texts that a reader would take for numbers, for the parts of a path, or for no text at all.
DEPTS = {1: "007", 2: "7", 3: "a/b=c%2F d", 4: "Grün", 5: None, 6: "007"}
REGISTERED = "shop.product_now"


@pytest.fixture(autouse=True)
def _catalog_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be registered in the catalog of the tests' session; crashes leave what they wrote."""
    monkeypatch.setattr(current, "require_lasting", lambda *_: None)
    leave_branches(monkeypatch)


def publish(scene: Scene, **settings: Any) -> Path:
    """Publish in a shape and return the table's folder."""
    scene.table(publish={"to": "./shared", **settings})
    scene.run()
    return scene.folder / "shared" / TABLE


def published(scene: Scene) -> list[tuple[Any, ...]]:
    """Read the current version, as Lakeward does."""
    pointer = json.loads((scene.folder / "shared" / TABLE / "_current.json").read_text())
    return sorted((tuple(row) for row in scene.lakeward.snapshots.read(pointer["location"]).collect()), key=repr)


def registered(scene: Scene) -> dict[int, str]:
    """Read the external table, in a session that knows nothing of its files yet."""
    scene.lakeward.spark.sql(f"REFRESH TABLE spark_catalog.{REGISTERED}")
    rows = scene.lakeward.spark.sql(f"SELECT * FROM spark_catalog.{REGISTERED}").collect()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["dept"] for row in rows}


def test_folders_by_value_are_read_once_by_every_reader(scene: Scene) -> None:
    quoted = {key: "NULL" if dept is None else f'"{dept}"' for key, dept in DEPTS.items()}
    scene.table()
    scene.land("LOAD00000001.csv", *(f"I,{key},n{key},{dept},1.50" for key, dept in quoted.items()))
    root = publish(scene, partition_by=["dept"], columns=["dept", "id"], register=REGISTERED)
    expected = sorted(((dept, key) for key, dept in DEPTS.items()), key=repr)
    assert published(scene) == expected
    assert sorted(path.name for path in root.iterdir()) == ["_current.json", "current"]
    assert {path.name for path in (root / "current").iterdir() if path.is_dir()} == {
        "dept=007", "dept=7", "dept=a%2Fb%3Dc%252F d", "dept=Grün", "dept=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    assert registered(scene) == DEPTS
    described = scene.lakeward.spark.sql(f"DESCRIBE spark_catalog.{REGISTERED}").collect()
    assert [(row[0], row[1]) for row in described[:2]] == [("id", "int"), ("dept", "string")]

    # A second version, after a crash between readers' places and the pointer: nothing is written again.
    scene.land("20240101-000000000.csv", 'U,2,n2,"8",1.50', "D,4,NULL,NULL,NULL")
    crash_at(scene, "publish.placed")
    [written] = (root / "current").glob("dept=8/*.parquet")
    scene.run()
    assert [path.stat().st_ino for path in (root / "current").glob("dept=8/*")] == [written.stat().st_ino]
    after = {**DEPTS, 2: "8"}
    del after[4]
    assert registered(scene) == after
    assert sorted(path.name for path in (root.parent / VERSIONS / TABLE).iterdir()) == ["version=op-1", "version=op-2"]
    # Whoever is handed the folder itself, and takes all below it, finds each row once or not at all.
    assert scene.lakeward.spark.read.parquet(f"file://{root}").count() == len(after)
    assert ds.dataset(str(root), format="parquet", partitioning=None).count_rows() == len(after)
    # Not the connection that all of a process share: a failed statement ends its transaction.
    with duckdb.connect() as refused, pytest.raises(duckdb.IOException, match="No files found"):
        refused.sql(f"SELECT * FROM read_parquet('{root}/**/*.parquet')")
    with duckdb.connect() as reader:
        by_duckdb = reader.sql(
            f"SELECT id, dept FROM read_parquet('{root}/current/*/*.parquet', hive_types={{'dept': VARCHAR}})"
        )
        assert dict(by_duckdb.fetchall()) == after

    # Values that no folder shows: refused with the number of rows, and readers keep what they have.
    scene.land("20240102-000000000.csv", 'I,9,n9,"",1.50')
    message = str(scene.refused().message)
    assert "In 1 rows it is an empty text" in message
    assert registered(scene) == after
    publish(scene, columns=["id", "dept"])
    assert published(scene) == sorted([*after.items(), (9, "")], key=repr)
    assert not scene.lakeward.spark.catalog.tableExists(f"spark_catalog.{REGISTERED}"), "it would read removed files"


def test_a_registered_table_is_dropped_with_its_setting_wherever_the_copy_was(scene: Scene) -> None:
    def exist() -> list[str]:
        tables = scene.lakeward.spark.catalog
        return [name for name in ("shop.x", "shop.y") if tables.tableExists(f"spark_catalog.{name}")]

    scene.table(publish={"to": "./shared", "register": "shop.x"})
    scene.land("LOAD00000001.csv", "I,1,one,a,1.50")
    # No pointer names the table yet, and the record that does is replaced by the next run.
    crash_at(scene, "publish.registered")
    assert exist() == ["shop.x"]
    publish(scene)
    assert exist() == []
    publish(scene, register="shop.x")
    publish(scene, to="./elsewhere", register="shop.y")
    assert exist() == ["shop.y"], "it would go on pointing to a version that is not kept up"
    assert {version.registered for version in scene.lakeward.snapshots.list()} == {"", "shop.y"}
    publish(scene, to="./elsewhere")
    assert exist() == []


def test_one_file_at_a_fixed_name(scene: Scene) -> None:
    scene.table()
    scene.land("LOAD00000001.csv", 'I,2,"say ""hi"", ok",b,2.00', "I,1,one,a,1.50", 'I,3,,"",NULL')
    root = publish(scene, single_file="final.csv")
    assert (root / "final.csv").read_text() == (
        'id,name,dept,price\n1,one,a,1.50\n2,"say ""hi"", ok",b,2.00\n3,"","",\n'
    )
    assert sorted(path.name for path in root.iterdir()) == ["_current.json", "final.csv"]
    assert scene.lakeward.spark.read.csv(f"file://{root}", header=True).count() == 3
    [version] = scene.lakeward.snapshots.list()
    assert (version.layout, version.state) == ("single", "current")
    # Crashes before and after the file is in its place; the next run knows the file for its own.
    scene.land("20240101-000000000.csv", "U,1,uno,a,1.50")
    for step in ("publish.moved", "publish.placed"):
        crash_at(scene, step)
    scene.run()
    assert "1,uno,a,1.50\n" in (root / "final.csv").read_text()
    # Whoever edits it in place edits the version's file, too: it is written again.
    with (root / "final.csv").open("a") as file:
        file.write("8,edited,,\n")
    assert "is not what Lakeward wrote" in str(scene.refused().message)
    (root / "final.csv").unlink()
    scene.run()
    assert "edited" not in (root / "final.csv").read_text()
    # Somebody else's content is not replaced, and nothing is lost.
    before = (root / "final.csv").read_text()
    (root / "final.csv").unlink()
    (root / "final.csv").write_text(before + "9,mine,,\n")
    assert [version.state for version in scene.lakeward.snapshots.list()] == ["missing"]
    scene.land("20240102-000000000.csv", "D,2,NULL,NULL,NULL")
    assert "is not what Lakeward wrote" in str(scene.refused().message)
    assert (root / "final.csv").read_text().endswith("mine,,\n")
    (root / "final.csv").unlink()
    # Other names: the former file is gone with its name, also where the pointer does not describe it yet.
    crash_at(scene, "publish.placed")
    publish(scene, single_file="final.csv.gz", header=False, columns=["name", "id"])
    assert gzip.decompress((root / "final.csv.gz").read_bytes()).decode() == 'uno,1\n"",3\n'
    assert published(scene) == [("", 3), ("uno", 1)]
    publish(scene, single_file="final.jsonl", columns=["name", "dept"])
    assert [json.loads(line) for line in (root / "final.jsonl").read_text().splitlines()] == [
        {"name": "", "dept": ""}, {"name": "uno", "dept": "a"},
    ]  # fmt: skip
    assert sorted(path.name for path in root.iterdir()) == ["_current.json", "final.jsonl"]
    # The copy does not show keys: what an erasure finds and leaves is known all the same.
    scene.lakeward.erase(TABLE, [{"id": 1}], reason="request 1")
    assert (root / "final.jsonl").read_text() == '{"name":"","dept":""}\n'
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    assert not [path for path in (root.parent / VERSIONS).rglob("*") if path.is_file() and "uno" in path.read_text()]
    # Without rows it is a valid file still.
    scene.land("20240103-000000000.csv", "D,3,NULL,NULL,NULL")
    scene.run(allow_deletes=True)
    assert (root / "final.jsonl").read_bytes() == b""
    publish(scene, single_file="final.csv")
    assert (root / "final.csv").read_text() == "id,name,dept,price\n"
    root = publish(scene)
    assert sorted(path.name for path in root.iterdir()) == ["_current.json", "current"]


@pytest.mark.soak
def test_two_lakes_leave_the_copies_of_each_other_alone(scene: Scene, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "other").mkdir()
    other, shared = Scene(tmp_path / "other", spark), str(tmp_path / "shared")
    try:
        scene.table(publish={"to": shared, "register": REGISTERED})
        scene.land("LOAD00000001.csv", "I,1,mine,d,1.00")
        scene.run()
        pointer = (tmp_path / "shared" / TABLE / "_current.json").read_text()
        scene.close()
        other.land("LOAD00000001.csv", "I,1,theirs,d,1.00")
        for publication, reason in (
            ({"to": shared}, "points to a version of another table"),
            ({"to": "./own", "register": REGISTERED}, "belongs to another table of the name sales.product"),
        ):
            other.table(publish=publication)
            assert reason in (other.refused().message or "")
            other.close()
        assert (tmp_path / "shared" / TABLE / "_current.json").read_text() == pointer
        assert [row[1] for row in scene.lakeward.spark.table(f"spark_catalog.{REGISTERED}").collect()] == ["mine"]
    finally:
        scene.lakeward.spark.sql(f"DROP TABLE IF EXISTS spark_catalog.{REGISTERED}")


@pytest.mark.soak
def test_a_damaged_copy_is_written_again(scene: Scene) -> None:
    scene.table()
    scene.land("LOAD00000001.csv", "I,1,one,d,1.00")
    root = publish(scene, register=REGISTERED)
    [data] = (root.parent / VERSIONS).rglob("*.parquet")
    try:
        data.write_bytes(data.read_bytes()[:-1])
        assert [version.state for version in scene.lakeward.snapshots.list()] == ["missing"]
        [made] = scene.lakeward.snapshots.refresh([TABLE], version="op-1")
        assert (made.outcome, len(published(scene))) == ("done", 1), made.message
        [data] = (root.parent / VERSIONS).rglob("*.parquet")
        data.unlink()
        scene.run()
        assert len(published(scene)) == 1
        assert scene.lakeward.snapshots.refresh([TABLE], version="op-1") == []
        scene.lakeward.spark.sql(f"DROP TABLE spark_catalog.{REGISTERED}")
        scene.lakeward.snapshots.refresh([TABLE], version="op-1")
        assert registered(scene) == {1: "d"}
    finally:
        scene.lakeward.spark.sql(f"DROP TABLE IF EXISTS spark_catalog.{REGISTERED}")
