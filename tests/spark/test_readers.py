"""The mirror as other engines see it: an exact copy that a popular reader misreads is not exact."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.readers import rows_by_duckdb, rows_by_pyiceberg
from tests.spark.scene import TABLE, Scene

COUNT = 300


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
    found = scene.rows()
    assert {row[0] for row in found} == set(kept) and len(found) == len(kept)
    names = {row[0]: row[1] for row in found}
    assert (names[5], names[7], names[8], names[COUNT]) == ("back", "first", "load", "new")
    return found


@pytest.mark.parametrize("partition_by", [[], ["dept"]], ids=["whole", "partitioned"])
def test_spark_pyiceberg_and_duckdb_read_the_same_rows(scene: Scene, partition_by: list[str]) -> None:
    expected = changed_mirror(scene, partition_by=partition_by)
    assert rows_by_pyiceberg(scene) == expected
    assert rows_by_duckdb(scene) == expected


def test_format_version_3_with_deletion_vectors_is_read_by_spark_and_pyiceberg(scene: Scene) -> None:
    expected = changed_mirror(scene, format_version=3)
    assert rows_by_pyiceberg(scene) == expected
    assert list(scene.folder.rglob("*.puffin")), "the deletes are not deletion vectors"
