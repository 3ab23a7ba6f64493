"""The demo's project in its folder."""

import hashlib

import pytest

from lakeward.config import load_config
from lakeward.demo import TABLES, land_changes, project, write_demo
from lakeward.errors import ConfigurationError


def contents(folder):
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_the_data_is_the_same_every_time(tmp_path):
    for name in ("first", "second"):
        write_demo(tmp_path / name)
        land_changes(tmp_path / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    assert len(contents(tmp_path / "first")) == 10


def test_the_data_is_as_described(tmp_path):
    loaded = {table.name: table.loaded for table in TABLES}
    assert loaded["sampledb.store"] == len(project.stores())
    assert loaded["sampledb.product"] == len(project.products())
    assert loaded["sampledb.productorder"] == len({row["id"] for row in project.order_rows()})
    assert loaded["people.persons"] == len(project.persons())
    assert len({row["id"] for row in project.order_rows() + project.new_orders()}) == 9_770
    assert (project.new_store()["id"], project.changed_product()["id"]) == (1009, 1001)
    assert set(load_config(write_demo(tmp_path / "demo")).tables) == set(loaded)


def test_a_folder_that_is_not_empty_is_refused_without_force(tmp_path, call):
    (tmp_path / "notes.txt").write_text("mine")
    result = call("demo", str(tmp_path))
    assert result.exit_code == 2
    assert "is not an empty folder" in result.stderr
    write_demo(tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_force_replaces_a_demo_and_never_another_project(tmp_path):
    demo, other = tmp_path / "demo", tmp_path / "other"
    write_demo(demo)
    land_changes(demo)
    write_demo(demo, force=True)
    assert len(contents(demo)) == 6
    own = "lake/data/sampledb_changes/productorder/data/00000-1-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-00001.parquet"
    for name in (
        own,
        "landing/sampledb/store/mine.csv",
        "lake/data/mine/t/data/x.parquet",
        "lake/data/sampledb/store/data/x",
    ):
        (demo / name).parent.mkdir(parents=True, exist_ok=True)
        (demo / name).write_text("mine")
        if name == own:
            continue
        before = contents(demo)
        with pytest.raises(ConfigurationError, match="files that it did not write"):
            write_demo(demo, force=True)
        assert (contents(demo), (demo / name).read_text()) == (before, "mine")
        (demo / name).unlink()
    write_demo(demo, force=True)
    assert not (demo / own).exists()
    (other / "landing").mkdir(parents=True)
    (other / "lakeward.yaml").write_text("tables: {}")
    with pytest.raises(ConfigurationError, match="not a demo"):
        write_demo(other, force=True)
    assert (other / "lakeward.yaml").read_text() == "tables: {}"
