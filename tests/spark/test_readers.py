"""The mirror as other engines see it: an exact copy that a popular reader misreads is not exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.scene import TABLE, Scene

COUNT = 300


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """DuckDB with the extensions that the development environment pins: nothing is downloaded."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        [folder] = package.__path__
        connection.load_extension(f"{folder}/extensions/v{duckdb.__version__}/{name}.duckdb_extension")
    return connection


def by_spark(scene: Scene) -> list[tuple[Any, ...]]:
    return scene.rows()


def by_pyiceberg(scene: Scene) -> list[tuple[Any, ...]]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{scene.folder}/lake/catalog.db")
    try:
        rows = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    finally:
        catalog.engine.dispose()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def by_duckdb(scene: Scene) -> list[tuple[Any, ...]]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{scene.folder}/lake/catalog.db")
    try:
        location = catalog.load_table(TABLE).metadata_location
    finally:
        catalog.engine.dispose()
    with open_duckdb() as connection:
        return sorted(connection.execute("SELECT * FROM iceberg_scan(?)", [location]).fetchall(), key=repr)


def changed_mirror(scene: Scene, **settings: Any) -> list[tuple[Any, ...]]:
    """Load, update, delete and insert over two batches; give the rows that must be there."""
    schema = "id bigint, name string, dept string, price decimal(10,2), at timestamp_ntz"
    scene.configure({TABLE: {"schema": schema, "primary_key": "id", **settings}})
    moment = "1899-01-01 00:00:00.000001"
    scene.land("LOAD00000001.csv", *(f"{key},load,d{key % 3},1.00,{moment}" for key in range(COUNT)))
    scene.land("20240101-000000000.csv", *(f"U,{key},first,d{key % 3},NULL,{moment}" for key in range(0, COUNT, 7)))
    scene.run()
    deletes = [f"D,{key},,,NULL,NULL" for key in range(0, COUNT, 5)]
    scene.land("20240102-000000000.csv", *deletes, f"I,5,back,d9,5.00,{moment}", f"I,{COUNT},new,d9,7.00,{moment}")
    report = scene.run()
    assert report.ops[0].strategy == "broadcast delete + append"
    kept = [key for key in range(COUNT + 1) if key % 5 or key in (5, COUNT)]
    assert report.mirror_rows == len(kept)
    found = by_spark(scene)
    assert {row[0] for row in found} == set(kept) and len(found) == len(kept)
    names = {row[0]: row[1] for row in found}
    assert (names[5], names[7], names[8], names[COUNT]) == ("back", "first", "load", "new")
    return found


@pytest.mark.parametrize("partition_by", [[], ["dept"]], ids=["whole", "partitioned"])
def test_spark_pyiceberg_and_duckdb_read_the_same_rows(scene: Scene, partition_by: list[str]) -> None:
    expected = changed_mirror(scene, partition_by=partition_by)
    assert by_pyiceberg(scene) == expected
    assert by_duckdb(scene) == expected


def test_format_version_3_with_deletion_vectors_is_read_by_spark_and_pyiceberg(scene: Scene) -> None:
    expected = changed_mirror(scene, format_version=3)
    assert by_pyiceberg(scene) == expected
    puffins = [path for path in Path(scene.folder, "lake").rglob("*.puffin")]
    assert puffins, "the deletes are not deletion vectors"
