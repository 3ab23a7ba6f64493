"""Versions and the plain copy in S3: files in place, the manifest last, unchanged dates copied by the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import DataError
from tests.spark.scene import TABLE
from tests.views.versions import line, made, names, set_up, states

if TYPE_CHECKING:
    from tests.s3.scene import S3Scene

pytestmark = pytest.mark.spark


def test_versions_and_the_copy_of_the_current_state(s3_scene: S3Scene) -> None:
    bucket = s3_scene.bucket
    publish = {"to": f"s3://{bucket.name}/copy", "layout": "dated", "date_column": "sold"}
    set_up(s3_scene, publish=publish)
    place = made(s3_scene, "2020-11-14", to=f"s3://{bucket.name}/out")
    prefix = f"out/{TABLE}/version=2020-11-14/"
    first = bucket.keys(prefix)
    assert {key.removeprefix(prefix) for key in first} >= {"_SUCCESS", "_manifest.json"}
    made(s3_scene, "2020-11-14", to=f"s3://{bucket.name}/out", replace=True)
    second = bucket.keys(prefix)
    assert len(second) == len(first) and len(set(first) & set(second)) == 2
    assert names(s3_scene, place) == {1: "one on 13th", 2: None}

    s3_scene.land("20201117-000000000.csv", line("U", "2020-11-16 10:00:00", 4, "changed", "2020-01-04"))
    s3_scene.run()
    pointer = json.loads(bucket.get(f"copy/{TABLE}/_current.json"))
    assert (pointer["path"], pointer["rows"]) == ("version=op-3", 3)
    kept = [key.rpartition("/")[2] for key in bucket.keys(f"copy/{TABLE}/version=op-2/sold=2020-01-02/")]
    assert [key.rpartition("/")[2] for key in bucket.keys(f"copy/{TABLE}/version=op-3/sold=2020-01-02/")] == kept
    assert names(s3_scene, f"s3://{bucket.name}/copy/{TABLE}/version=op-3")[4] == "changed"
    assert states(s3_scene) == {"2020-11-14": "current", "op-2": "former", "op-3": "current"}

    dated = {"to": f"s3://{bucket.name}/dated", "layout": "dated", "date_column": "sold"}
    made(s3_scene, "2020-11-14", **dated)
    newer = made(s3_scene, "2020-11-15", **dated)
    copied = [
        [key.rpartition("/")[2] for key in bucket.keys(f"dated/{TABLE}/version=2020-11-{day}/sold=2020-01-02/")]
        for day in (14, 15)
    ]
    assert copied[0] == copied[1] != [], "an unchanged date was written again"
    # Replaced in place: the files of unchanged dates are its own already.
    made(s3_scene, "2020-11-15", **dated, replace=True)
    s3_scene.lakeward.snapshots.drop(TABLE, version=f"s3://{bucket.name}/dated/{TABLE}/version=2020-11-14")
    assert names(s3_scene, newer) == {1: "one on 13th", 2: None, 4: "four"}
    s3_scene.lakeward.snapshots.drop(TABLE, version=newer)
    assert bucket.keys("dated/") == []

    bucket.remove(f"{prefix}_SUCCESS")
    with pytest.raises(DataError, match="not finished"):
        s3_scene.lakeward.snapshots.read(place)
    s3_scene.lakeward.snapshots.drop(TABLE, version="2020-11-14")
    assert (bucket.keys(prefix), "2020-11-14" in states(s3_scene)) == ([], False)
