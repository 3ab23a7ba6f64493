"""Sides as they are opened: published versions, mirrors as of a day, tables of the lake, and folders by words."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.api.diffs import SideOpener
from lakeward.diffing.comparison import SideComparison, keys_of
from lakeward.diffing.frames.options import DiffOptions
from lakeward.errors import ConfigurationError, RefusedInputError
from tests.spark.scene import TABLE, Scene
from tests.views.versions import made, set_up


def test_versions_mirrors_and_tables_of_one_lake(scene: Scene) -> None:
    set_up(scene)
    versions = Path(made(scene, "2020-11-13")).parent
    made(scene, "2020-11-14")
    lake = scene.lakeward
    with SideOpener(lake.config, spark=lake.spark) as opener:
        past, current = opener.open(f"{versions}/previous"), opener.open(f"{versions}/2020-11-14")
        assert (past.identity["kind"], past.identity["version"]) == ("version", "2020-11-13")
        assert (past.primary_key, past.rows, keys_of(past, current, ())) == (("id",), 3, ("id",))
        mirrors = [opener.open(f"mirror:{TABLE}@{day}") for day in ("2020-11-13", "2020-11-14")]
        assert mirrors[0].identity["as_of"] == "2020-11-13"
        summaries = []
        for sides in ((past, current), mirrors):
            with SideComparison(sides[0], sides[1], keys_of(sides[0], sides[1], ()), DiffOptions()) as found:
                summaries.append(found.summary())
        assert summaries[0] == summaries[1]
        assert (summaries[0].changed, summaries[0].deleted, summaries[0].unchanged) == (1, 1, 1)
        now = opener.open(f"iceberg:{TABLE}")
        with SideComparison(mirrors[1], now, ["id"], DiffOptions()) as found:
            assert (found.summary().inserted, found.summary().unchanged) == (1, 2)
        with pytest.raises(RefusedInputError, match="2 complete snapshots"):
            opener.open(str(versions))
        (Path(past.identity["location"]) / "_SUCCESS").unlink()
        with pytest.raises(RefusedInputError, match="not finished"):
            opener.open(past.identity["location"])
        assert opener.open(past.identity["location"], incomplete_ok=True).frame.count() == 3


def test_folders_of_files(spark: Any, tmp_path: Path) -> None:
    hive = tmp_path / "hive"
    spark.range(10).selectExpr("id", "id % 2 as dept").write.partitionBy("dept").parquet(str(hive))
    (hive / "_SUCCESS").unlink()
    dated = tmp_path / "dated"
    spark.range(10).selectExpr("id", "id % 2 as day").write.partitionBy("day").parquet(str(dated))
    shutil.copytree(hive / "dept=0", tmp_path / "[odd] {name}*")
    one = next((hive / "dept=1").glob("*.parquet"))
    with SideOpener(spark=spark) as opener:
        for path, columns in ((hive, ["id", "dept"]), (dated, ["id", "day"])):
            side = opener.open(str(path))
            assert (side.frame.columns, side.frame.count(), side.format) == (columns, 10, "parquet")
        assert opener.open(str(tmp_path / "[odd] {name}*")).frame.count() == 5
        assert opener.open(str(one)).frame.columns == ["id"]
        assert opener.open(f"file://{one}").identity["complete"]
        (dated / "_SUCCESS").unlink()
        with pytest.raises(RefusedInputError, match="day=0 below it"):
            opener.open(str(dated))
        side = opener.open(str(hive))
        with pytest.raises(ConfigurationError, match="different keys"):
            keys_of(replace(side, primary_key=("id",)), replace(side, primary_key=("dept",)), ())
        both = replace(side, primary_key=("id", "dept")), replace(side, primary_key=("dept", "id"))
        assert keys_of(*both, ()) == ("id", "dept")


def test_values_of_folder_names_are_text_unless_a_schema_declares_their_type(spark: Any, tmp_path: Path) -> None:
    rows = [(1, "007"), (2, "7"), (3, "1,A")]
    spark.createDataFrame(rows, "id int, dept string").write.partitionBy("dept").parquet(str(tmp_path / "texts"))
    numbers = spark.createDataFrame([(1, 7, "x"), (2, 8, "y")], "id int, dept int, text string")
    numbers.write.partitionBy("dept").parquet(str(tmp_path / "numbers"))
    numbers.write.parquet(str(tmp_path / "flat"))
    (tmp_path / "csv/dept=007").mkdir(parents=True)
    (tmp_path / "csv/dept=007/a.csv").write_text("id,text\n1,x\n")
    with SideOpener(spark=spark) as opener:
        assert sorted(map(tuple, opener.open(str(tmp_path / "texts")).frame.collect())) == rows
        csv = [opener.open(str(tmp_path / "csv"), schema=f"id int, text string{more}") for more in ("", ", dept int")]
        assert [side.frame.collect() for side in csv] == [[(1, "x", "007")], [(1, "x", 7)]]
        past, flat = opener.open(str(tmp_path / "numbers")), opener.open(str(tmp_path / "flat"))
        with (
            pytest.raises(RefusedInputError, match="'dept' is string") as refused,
            SideComparison(past, flat, ["id"], DiffOptions()),
        ):
            pass
        assert "--past-schema" in str(refused.value.hint)
        # Parquet contains its own columns: a schema neither takes one away nor changes it.
        past = opener.open(str(tmp_path / "numbers"), schema="id string, dept int")
        assert past.frame.schema.simpleString() == "struct<id:int,text:string,dept:int>"
        with SideComparison(past, flat, ["id"], DiffOptions()) as found:
            assert found.summary().is_same
        texts = opener.open(str(tmp_path / "texts"), schema="dept int")
        with (
            pytest.raises(RefusedInputError, match="does not fit"),
            SideComparison(texts, flat, ["id"], DiffOptions()) as found,
        ):
            found.summary()
        dates = opener.open(str(tmp_path / "csv"), schema="id int, text string, dept date")
        with (
            pytest.raises(RefusedInputError, match=r"a\.csv: column dept holds '007', which is no date"),
            SideComparison(dates, dates, ["id"], DiffOptions()) as found,
        ):
            found.summary()
