"""Tables as Spark and Iceberg see them: names that never collide, partitions, loads, and statements that only read."""

from __future__ import annotations

from itertools import product
from threading import Barrier, Thread

import pytest
from pyspark.errors import PySparkException

from lakeward.columns import Column, quote_name
from lakeward.errors import ConflictError
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.listing import list_files
from lakeward.iceberg.define import create_mirror, evolve, mirror_of
from lakeward.iceberg.partitions import partition_problems
from lakeward.mirror.op.reading import check_keys, check_keys_with_spark
from lakeward.model import TableId
from lakeward.runner import validation
from lakeward.session.sessions import table_session
from lakeward.spark.errors import commit_errors
from tests.spark.scene import TABLE, Scene

pytestmark = pytest.mark.spark

# One is named as a table of Iceberg's metadata, one like nothing that needs no quotes.
NAMES = ("sales.product", "h`r 人.product", "sales.Product", "sales.history", """sales.it's "the `odd`".数量""")
LAKE_TYPES = (
    "boolean", "int", "bigint", "float", "double", "decimal(10,2)", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
TRANSFORMS = {
    "{}": "identity", "years({})": "year", "months({})": "month", "days({})": "day", "hours({})": "hour",
    "bucket(4, {})": "bucket[4]", "truncate(4, {})": "truncate[4]",
}  # fmt: skip


def rows_of(scene: Scene, name: str) -> list[tuple[object, ...]]:
    table = TableId.parse(name)
    return scene.rows(f"lake.{quote_name(table.schema)}.{quote_name(table.name)}")


def test_names_that_differ_little_never_collide(scene: Scene) -> None:
    scene.configure({})
    folders = {name: name.replace(".", "/", 1) for name in NAMES}
    for name, folder in folders.items():
        scene.land_parquet("LOAD00000001.parquet", {"id": [1, 2], "name": [name, "gone"]}, folder=folder)
    assert {str(table) for table in scene.lakeward.discover().new} == set(NAMES)
    for name in NAMES:
        scene.lakeward.set_table(name, settings={"primary_key": ["id"]}, active=True)
    report = scene.try_run()
    assert {table.table: table.mirror_rows for table in report.tables} == dict.fromkeys(NAMES, 2)
    # The lake alone knows all of them.
    scene.forget_state()
    assert sorted(scene.lakeward.rebuild_state()) == sorted(NAMES)
    changes = {"Op": ["U", "D"], "id": [1, 2], "name": ["changed", None]}
    scene.land_parquet("20240101-000000000.parquet", changes, folder=folders["sales.product"])
    scene.try_run()
    assert rows_of(scene, "sales.product") == [(1, "changed")]
    others = NAMES[1:]
    assert {name: rows_of(scene, name) for name in others} == {name: [(1, name), (2, "gone")] for name in others}
    assert scene.lakeward.check_tables() == []


def test_a_partition_accepts_what_iceberg_accepts(scene: Scene) -> None:
    jvm = scene.lakeward.spark._jvm
    types, transforms = jvm.org.apache.iceberg.types.Types, jvm.org.apache.iceberg.transforms.Transforms
    iceberg = {
        "boolean": types.BooleanType, "int": types.IntegerType, "bigint": types.LongType, "float": types.FloatType,
        "double": types.DoubleType, "string": types.StringType, "binary": types.BinaryType, "date": types.DateType,
    }  # fmt: skip
    java = {name: kind.get() for name, kind in iceberg.items()} | {
        "decimal(10,2)": types.DecimalType.of(10, 2),
        "timestamp": types.TimestampType.withZone(),
        "timestamp_ntz": types.TimestampType.withoutZone(),
    }
    for lake_type, (form, name) in product(LAKE_TYPES, TRANSFORMS.items()):
        problems = list(partition_problems([form.format("c")], [Column("c", lake_type)]))
        assert bool(problems) != transforms.fromString(name).canTransform(java[lake_type]), (lake_type, name, problems)


def test_a_mirror_is_partitioned_by_every_kind_and_what_cannot_be_stops_the_plan(scene: Scene) -> None:
    columns = {"id": [1, 2], "share": [0.5, float("nan")], "code": [b"\x00", b"\xff"]}
    scene.land_parquet("LOAD00000001.parquet", columns)
    scene.configure({TABLE: {"primary_key": "id", "partition_by": ["share", "days(code)"]}})
    [plan] = scene.lakeward.plan()
    assert plan.exit_code == 2
    assert "days() takes date, timestamp, timestamp_ntz, and code is binary" in (plan.message or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)
    scene.configure({TABLE: {"primary_key": "id", "partition_by": ["share", "code", "bucket(2, id)"]}})
    scene.run()
    assert [row[0] for row in scene.rows()] == [1, 2]


def test_a_renamed_column_keeps_its_place_inside_a_partition_transform(scene: Scene) -> None:
    settings = {"primary_key": "id", "schema": "id int, sold timestamp_ntz"}
    scene.configure({TABLE: {**settings, "partition_by": "day(sold)"}})
    scene.land("LOAD00000001.csv", "1,2024-01-01 10:00:00", "2,2024-01-02 10:00:00")
    scene.run()
    renamed = {**settings, "schema": "id int, sold_at timestamp_ntz", "renames": {"sold": "sold_at"}}
    for number, partition in enumerate(("days(sold_at)", "days(sold)"), start=3):
        scene.configure({TABLE: {**renamed, "partition_by": partition}})
        scene.land(
            f"2024010{number}-000000000.csv", f"I,{number},2024-01-0{number} 10:00:00", "D,2,2024-01-02 10:00:00"
        )
        scene.run()
    rows = scene.lakeward.sql(f"SELECT id, day(sold_at) FROM {TABLE} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, 1), (3, 3), (4, 4)]
    days = scene.lakeward.sql(f"SELECT day(partition.sold_day), record_count FROM lake.{TABLE}.partitions").collect()
    assert {row[0] for row in days if row[1]} >= {1, 3, 4}
    scene.configure({TABLE: {**renamed, "partition_by": "months(sold_at)"}})
    assert "partition_by was ['days(sold_at)'], now ['months(sold_at)']" in (scene.refused().message or "")


def test_of_a_key_that_comes_twice_the_row_of_the_later_part_stays_whatever_its_digits(scene: Scene) -> None:
    for part in ("LOAD2", "LOAD9", "LOAD10", "LOAD0F"):
        scene.land(f"{part}.csv", f"1,{part},x,1.00")
    scene.land("LOAD0000000A.csv", "2,a,x,1.00")
    [plan] = scene.lakeward.plan()
    assert plan.op is not None
    assert "3 rows whose key comes again later in the load are left out" in plan.op.reason
    scene.run()
    # Hexadecimal: 10 comes after 0F, and as text after neither 2 nor 9.
    assert scene.names() == {1: "LOAD10", 2: "a"}


def test_a_large_loads_keys_are_checked_by_spark_with_the_same_result(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.configure({})
    scene.land_parquet("LOAD00000001.parquet", {"id": [1, 2, 2, None], "region": ["a", "b", "b", "c"]})
    scene.land_parquet("LOAD00000002.parquet", {"id": [1, None], "region": ["a", "c"]})
    scene.lakeward.set_table(TABLE, settings={"primary_key": ["id", "region"]})
    settings = scene.lakeward.table(TABLE).settings
    spec = ReadSpec(TableId.parse(TABLE), (Column("id", "bigint"), Column("region", "string")), settings)
    parts = list(list_files(scene.lakeward.storage, "sales/product", settings))
    here = check_keys(scene.lakeward.storage, parts, spec)
    there = check_keys_with_spark(table_session(scene.lakeward.spark), scene.lakeward.storage, parts, spec)
    assert here.nulls == there.nulls == {"id": 2, "region": 0}
    assert (here.rows, here.repeated) == (there.rows, there.repeated) == (6, 3)
    assert sorted(map(repr, here.examples)) == sorted(map(repr, there.examples))
    monkeypatch.setattr(validation, "LOCAL_BYTES", 10)
    assert "3 keys occur more than once" in scene.lakeward.check_tables([TABLE])[0].message


def test_two_writers_that_create_the_same_table_meet_in_a_conflict(scene: Scene) -> None:
    spark, columns = scene.lakeward.spark, [Column("id", "int")]
    mirror = mirror_of(spark, TableId("race", "track"))
    start, seen = Barrier(4), []

    def create() -> None:
        start.wait()
        try:
            create_mirror(mirror, columns, partition_by=(), format_version=2)
        except ConflictError as conflict:
            seen.append(conflict)

    threads = [Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Whoever came second starts over and finds it done.
    create_mirror(mirror, columns, partition_by=(), format_version=2)
    assert mirror.head() is not None and len(seen) < 4
    with pytest.raises(ConflictError, match="another writer committed first"), commit_errors("race.track"):
        spark.sql("CREATE TABLE lake.race.track (id INT) USING iceberg")
    mirror.create_branch("mine", mirror.require_head().id)
    with pytest.raises(ConflictError):
        mirror.create_branch("mine", mirror.require_head().id)
    with pytest.raises(ConflictError), commit_errors("race.track"):
        spark.sql("ALTER TABLE lake.race.track ADD COLUMN id INT")
    evolve(mirror, [*columns, Column("name", "string")], renames={})
    # The same words in a name are no conflict.
    with pytest.raises(PySparkException, match="already exists"), commit_errors("race.track"):
        spark.sql("SELECT `already exists` FROM lake.race.track")
