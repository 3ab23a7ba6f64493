"""Columns that differ only in case, and columns named like Iceberg's own or Lakeward's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from lakeward.columns import ICEBERG_NAMES, UNREADABLE_NAMES
from lakeward.errors import ConfigurationError
from lakeward.views.verification.report import Verdict
from tests.spark.readers import rows_by_pyiceberg
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def test_all_names_that_iceberg_reserves_are_refused(spark: SparkSession) -> None:
    java: Any = spark._jvm
    loader = java.Thread.currentThread().getContextClassLoader()
    fields = java.java.lang.Class.forName("org.apache.iceberg.MetadataColumns", True, loader).getFields()
    values = [field.get(None) for field in fields]
    names = {value if isinstance(value, str) else value.name() for value in values if not isinstance(value, int)}
    is_own = java.org.apache.iceberg.MetadataColumns.isMetadataColumn
    assert {name for name in names if is_own(name)} == UNREADABLE_NAMES
    assert {name for name in names if name.startswith("_")} == ICEBERG_NAMES


def test_names_are_refused_before_anything_is_written_and_renames_help(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id"}})
    load = {"id": ints(1, 2), "v": ["a", "b"], "V": ["A", "B"], "_file": ["f", "g"], "_LW_kind": ["k", "l"]}
    scene.land_parquet("LOAD00000001.parquet", load)
    refused = scene.refused()
    for words in ("'V' differs only in case from 'v'", "'_file' is the name of one of Iceberg's", "'_LW_kind' starts"):
        assert words in (refused.message or "")
    assert "renames={V: V_2, _file: file, _LW_kind: kind}" in (refused.hint or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)
    renames = {"V": "V_2", "_file": "file", "_LW_kind": "kind"}
    scene.configure({TABLE: {"primary_key": "id", "renames": renames}})
    scene.run()
    assert scene.rows() == [(1, "a", "A", "f", "k"), (2, "b", "B", "g", "l")]
    # A column that comes later is refused as well, and nothing of its batch arrives.
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["U"], "id": ints(1), "v": ["new"], "_Pos": [7]})
    assert "'_Pos' is the name of one of Iceberg's own columns" in (scene.refused().message or "")
    assert scene.rows() == [(1, "a", "A", "f", "k"), (2, "b", "B", "g", "l")]
    scene.configure({TABLE: {"primary_key": "id", "renames": {**renames, "_Pos": "pos"}}})
    scene.run()
    assert scene.rows() == [(1, "new", "A", "f", "k", 7), (2, "b", "B", "g", "l", None)]


@pytest.mark.parametrize(
    ("odd", "renames", "error"),
    [
        (("v", "V"), {"V": "V_2"}, AnalysisException),
        (("_file", "_pos"), {"_file": "file", "_pos": "pos"}, Py4JJavaError),
    ],
)
def test_table_that_cannot_be_read_is_repaired(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, odd: tuple[str, str], renames: dict[str, str], error: type[Exception]
) -> None:
    first, second = odd
    scene.configure({TABLE: {"primary_key": "id"}})
    with monkeypatch.context() as before:
        # As it was when any name was taken.
        before.setattr("lakeward.mirror.op.schema.name_problems", lambda names, present=(): [])
        load = {"id": ints(1, 2, 3), first: ["a", "b", "c"], second: ["A", "B", "C"]}
        scene.land_parquet("LOAD00000001.parquet", load)
        scene.run()
        # A change that does not speak of the second column.
        scene.land_parquet("20240102-000000000.parquet", {"Op": ["U", "D"], "id": ints(1, 2), first: ["a2", None]})
        scene.try_run()
    with pytest.raises(error):
        scene.rows()
    refused = scene.refused()
    assert "its mirror has columns that readers cannot read" in (refused.message or "")
    assert "lakeward tables repair sales.product" in (refused.hint or "")
    with pytest.raises(ConfigurationError, match="readers cannot read"):
        scene.lakeward.undo(TABLE, to_op=0)
    with pytest.raises(ConfigurationError, match="readers cannot read"):
        scene.lakeward.repair_table(TABLE)
    scene.configure({TABLE: {"primary_key": "id", "renames": renames}})
    assert scene.lakeward.repair_table(TABLE, dry_run=True).renamed == renames
    assert scene.lakeward.repair_table(TABLE).renamed == renames
    assert scene.lakeward.repair_table(TABLE).renamed == {}
    scene.run()
    expected = [(1, "a2", "A"), (3, "c", "C")]
    assert scene.rows() == expected == rows_by_pyiceberg(scene)
    # A late change folds the partial one again, from the changelog that was written under the old names.
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U"], "id": ints(1), first: ["late"], second: ["late"]})
    assert scene.run().ops[0].late
    assert scene.rows() == [(1, "a2", "late"), (3, "c", "C")]
    [verified] = scene.lakeward.verify([TABLE]).tables
    assert verified.verdict is Verdict.CLEAN, verified
    # The past was written under the old names, load and all.
    scene.lakeward.undo(TABLE, to_op=1)
    assert scene.rows() == [(1, "a", "A"), (2, "b", "B"), (3, "c", "C")]
    scene.run()
    assert scene.rows() == [(1, "a2", "late"), (3, "c", "C")]


def test_header_taken_for_a_row_is_refused_and_one_that_was_taken_is_put_right(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"schema": "code string, name string", "primary_key": "code"}
    scene.configure({TABLE: texts})
    scene.land("LOAD00000001.csv", "code,name", "a,b")
    assert "csv.header is not set: set csv.header: true" in (scene.refused().message or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)
    # As it was before, or as the user declared.
    scene.configure({TABLE: {**texts, "csv": {"header": False}}})
    scene.run()
    assert scene.rows() == [("a", "b"), ("code", "name")]
    scene.configure({TABLE: {**texts, "csv": {"header": True}}})
    scene.land("20240102-000000000.csv", "Op,code,name", "I,c,d")
    scene.run()
    assert "csv.header was False, now True" in caplog.text and f"lakeward undo {TABLE} --to-op 0" in caplog.text
    scene.lakeward.undo(TABLE, to_op=0)
    scene.run()
    assert scene.rows() == [("a", "b"), ("c", "d")]
    # Bad rows name the setting that they suggest.
    typed = {"schema": "id int, name string", "primary_key": "id"}
    scene.configure({"sales.typed": typed, "sales.divided": typed})
    scene.land("LOAD00000001.csv", "number,title", "1,b", folder="sales/typed")
    scene.land("LOAD00000001.csv", "1;a", "2;b", folder="sales/divided")
    hints = {table.table: table.hint or "" for table in scene.try_run("sales.typed", "sales.divided").tables}
    assert "--set csv.header=true" in hints["sales.typed"]
    assert "--set 'csv.delimiter=\";\"'" in hints["sales.divided"]


def test_commit_time_that_became_a_column_leaves_the_mirror_by_an_explicit_step(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id"}})
    early, late = "2024-01-01 00:00:00.000000", "2024-01-02 00:00:00.000000"
    scene.land_parquet("LOAD00000001.parquet", {"ts": [early], "id": ints(1), "name": ["a"]})
    scene.run()
    assert scene.rows() == [(early, 1, "a")]
    scene.configure({TABLE: {"primary_key": "id", "timestamp_column": "ts"}})
    scene.land_parquet("20240103-000000000.parquet", {"Op": ["U"], "ts": [late], "id": ints(1), "name": ["b"]})
    scene.run()
    assert scene.rows() == [(late, 1, "b")]
    assert scene.lakeward.repair_table(TABLE).dropped == ("ts",)
    assert scene.rows() == [(1, "b")]
    scene.lakeward.undo(TABLE, to_op=0)
    # By its file the later one, by its time the earlier one.
    scene.land_parquet("20240104-000000000.parquet", {"Op": ["U"], "ts": [early], "id": ints(1), "name": ["old"]})
    scene.run()
    assert scene.rows() == [(1, "b")]
