"""Objects of others below the prefixes that are written, replaced and dropped: none of them is ever touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.storage.claims import Claim, Writer, listed_files, remove_listed
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.publish import publish_folder
from lakeward.storage.sets import write_set
from tests.s3.bucket import Bucket
from tests.spark.scene import TABLE
from tests.views.versions import made, names, refused, set_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tests.s3.scene import S3Scene

pytestmark = pytest.mark.spark
SPARK_NAME = "part-00000-0c2ba1b0-5f5c-4c7e-8f6b-4a4f1f4a2f10-c000.snappy.parquet"
FOREIGN = ("notes.txt", ".hidden", "deep/er/part-00000.parquet", SPARK_NAME, "_writing", "sold=2020-01-01/theirs")


def put_foreign(bucket: Bucket, prefix: str, *names: str) -> dict[str, bytes]:
    found = {f"{prefix}/{name}": f"theirs {name}".encode() for name in names or FOREIGN}
    for key, data in found.items():
        bucket.put(key, data)
    return found


def read(bucket: Bucket, theirs: dict[str, bytes]) -> dict[str, bytes]:
    return {key: bucket.get(key) for key in theirs}


def test_a_folder_in_s3_that_holds_objects_of_others_is_refused_and_they_stay(s3_scene: S3Scene) -> None:
    lakeward, bucket = s3_scene.lakeward, s3_scene.bucket
    store = open_filesystem(lakeward.spark, lakeward.config, f"s3://{bucket.name}/x")
    for number, name in enumerate((*FOREIGN, "_manifest.json", "_SUCCESS")):
        theirs = put_foreign(bucket, f"taken/{number}", name)
        with pytest.raises(RefusedInputError, match=r"nothing shows that Lakeward wrote|exists already"):
            publish_folder(store, f"s3://{bucket.name}/taken/{number}", lambda claim: (None, "{}"))
        assert (read(bucket, theirs), bucket.keys(f"taken/{number}/")) == (theirs, list(theirs))
    bucket.put("taken/object", b"theirs")
    with pytest.raises((RefusedInputError, ConfigurationError)):
        publish_folder(store, f"s3://{bucket.name}/taken/object", lambda claim: (None, "{}"))
    assert bucket.get("taken/object") == b"theirs"


def _filled(rows: DataFrame) -> Callable[[Claim], tuple[None, str]]:
    def write(claim: Claim) -> tuple[None, str]:
        layout = write_set(rows, claim.store, claim.folder, ["id"], count=2)
        files = [{"path": bucket.path, "size": bucket.size} for bucket in layout.buckets]
        return None, json.dumps({"id": claim.id, "lakeward": "0", "files": files})

    return write


def test_what_a_dead_writer_left_in_s3_is_removed_and_nothing_else(
    s3_scene: S3Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakeward, bucket = s3_scene.lakeward, s3_scene.bucket
    folder = f"s3://{bucket.name}/out/set é"
    store = open_filesystem(lakeward.spark, lakeward.config, folder)
    rows = lakeward.spark.range(10).select("id", F.lit("old").alias("v"))
    here = Writer.here()
    with monkeypatch.context() as killed:
        killed.setattr(Writer, "here", lambda: Writer(here.host, 2**22 + 1, 1.0, here.last_seen))
        claim = Claim.begin(store, folder, files=["_manifest.json"])
    layout = write_set(rows, claim.store, folder, ["id"], count=2)
    assert all(bucket_file.path.startswith(f"part-w{claim.id}-") for bucket_file in layout.buckets), (
        "Spark named files otherwise"
    )
    bucket.put(f"out/set é/_temporary/0/attempt/part-w{claim.id}-00001-x.parquet")
    claim.release()

    publish_folder(store, folder, _filled(rows))
    manifest = store.read_text(f"{folder}/_manifest.json")
    own = listed_files(manifest) or {}
    assert set(bucket.keys("out/set é/")) == {f"out/set é/{name}" for name in (*own, "_SUCCESS", "_manifest.json")}
    assert not any(claim.id in name for name in own)

    theirs = put_foreign(bucket, "out/set é")
    assert remove_listed(store, folder, manifest) == sorted(FOREIGN)
    assert (read(bucket, theirs), len(bucket.keys("out/set é/"))) == (theirs, len(theirs))


def test_versions_in_s3_are_replaced_and_dropped_around_objects_of_others(s3_scene: S3Scene) -> None:
    bucket = s3_scene.bucket
    set_up(s3_scene)
    to, prefix = f"s3://{bucket.name}/out", f"out/{TABLE}/version=2020-11-14"
    theirs = put_foreign(bucket, prefix)
    taken = refused(s3_scene, "2020-11-14", to=to, replace=True)
    assert "nothing shows that Lakeward wrote" in str(taken.message)
    assert (read(bucket, theirs), len(bucket.keys(f"{prefix}/"))) == (theirs, len(theirs))
    bucket.remove(*theirs)

    place = made(s3_scene, "2020-11-14", to=to)
    theirs = put_foreign(bucket, prefix)
    made(s3_scene, "2020-11-14", to=to, replace=True)
    assert names(s3_scene, place) == {1: "one on 13th", 2: None}
    s3_scene.lakeward.snapshots.drop(TABLE, version="2020-11-14")
    assert (read(bucket, theirs), len(bucket.keys(f"{prefix}/"))) == (theirs, len(theirs))
