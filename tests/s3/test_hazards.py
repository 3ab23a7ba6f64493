"""The hazards of files, writers and whole tables once more, with landing and lake in S3."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lakeward.mirror.op.effect import Strategy
from lakeward.mirror.op.report import Outcome
from tests.s3.scene import LANDING
from tests.spark.hazards import HAZARDS
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.s3.scene import S3Scene
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark
FOLDER = TABLE.replace(".", "/")


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.__name__)
def test_hazard_of_the_local_disk(s3_scene: S3Scene, hazard: Callable[[Scene], None]) -> None:
    hazard(s3_scene)


def test_consumed_objects_are_never_read_again_and_changed_ones_stop_the_table(s3_scene: S3Scene) -> None:
    # Replayed files would set 1 back and bring 2 again.
    scene = s3_scene
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240102-000000000.csv", "U,1,first,x,1.00", "I,3,c,x,1.00")
    scene.land("20240103-000000000.csv", "U,1,second,x,1.00", "D,2,b,x,1.00")
    scene.run()
    expected = {1: "second", 3: "c"}
    assert scene.names() == expected
    scene.forget_state()
    assert scene.run().outcome is Outcome.IDLE
    # The same content put again has another time, which S3 counts in seconds, and is the same file.
    time.sleep(1.1)
    scene.land("20240102-000000000.csv", "U,1,first,x,1.00", "I,3,c,x,1.00")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    report = scene.run()
    assert [(op.files, op.strategy) for op in report.ops] == [(0, Strategy.LOG_ONLY)]
    assert scene.names() == expected and "--same-load" in report.warnings[0]
    # Other content of the same length and within the same second: the ETag differs.
    changed = scene.land("20240102-000000000.csv", "U,1,fixed,x,1.00", "I,3,c,x,1.00")
    refused = scene.refused()
    assert f"{FOLDER}/20240102-000000000.csv was consumed by op" in (refused.message or "")
    assert scene.names() == expected
    scene.run(accept_changed=frozenset({str(changed).split(f"{LANDING}/")[1]}))
    assert scene.names() == expected


def test_missing_lake_objects_are_an_error_and_never_an_empty_table(s3_scene: S3Scene) -> None:
    # The files of the mirror are gone. The partial update needs the mirror's rows, which makes it read what is missing.
    scene, bucket = s3_scene, s3_scene.bucket
    scene.table(csv={"unchanged": "~"}, rewrite_share=9)
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,1,~,y,1.00")
    for lost in ("sales/product/data", "sales/product/metadata", "sales_changes/product/metadata"):
        kept = {key: bucket.get(key) for key in bucket.keys(f"lake/{lost}/")}
        bucket.remove(*kept)
        refused = scene.refused()
        assert "files of the lake are missing" in (refused.message or ""), (lost, refused)
        for key, content in kept.items():
            bucket.put(key, content)
    scene.run()
    assert [row[:3] for row in scene.rows()] == [(1, "a", "y"), (2, "b", "x")]


def test_odd_keys_and_uploads_in_parts_are_read_as_they_are(s3_scene: S3Scene) -> None:
    odd, name = "täble #1+50%?", "sch ema.täble 1+50%"
    settings = {"schema": "id int, name string", "primary_key": "id", "path": f"sch ema/{odd}"}
    scene = s3_scene.configure({f"sch ema.{odd}": settings})
    scene.land("2024/05/01/20240501-000000000.csv", "U,7,changed", "D,8,", folder=f"sch ema/{odd}")
    # In landing a name may be anything. In the lake Iceberg would make one object of all the table's files.
    refused = scene.refused()
    assert "cuts the path" in (refused.message or "") and refused.exit_code == 2
    assert scene.bucket.keys("lake/") == []
    scene.configure({name: settings}).forget_state()
    lines = [f"{key},{'x' * 60}{key}" for key in range(90_000)]
    scene.bucket.put_in_parts(f"{LANDING}/sch ema/{odd}/LOAD00000001.csv", "\n".join(lines).encode())
    report = scene.run()
    assert [(op.kind, op.files) for op in report.ops] == [("load", 1), ("batch", 1)]
    assert report.mirror_rows == 89_999
    found = scene.by_key("`sch ema`.`täble 1+50%`")
    assert found[7]["name"] == "changed" and found[89_999]["name"].endswith("x89999") and 8 not in found
