"""Versions and the plain copy in S3: files in place, the manifest last, unchanged dates copied by the store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import DataError
from lakeward.model import micros_of
from lakeward.views.versions import schedule, scheduled
from lakeward.views.versions.places import VERSIONS
from tests.spark.crash import crash_at
from tests.spark.scene import TABLE
from tests.views.versions import SETTINGS, line, made, names, set_up, states

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
    versions = f"copy/{VERSIONS}/{TABLE}"
    assert (pointer["path"], pointer["rows"]) == (f"../{VERSIONS}/{TABLE}/version=op-3", 3)
    kept = [key.rpartition("/")[2] for key in bucket.keys(f"{versions}/version=op-2/sold=2020-01-02/")]
    assert [key.rpartition("/")[2] for key in bucket.keys(f"{versions}/version=op-3/sold=2020-01-02/")] == kept
    assert names(s3_scene, pointer["location"])[4] == "changed"
    # What Athena, Trino and Hive read: one list of files for each folder.
    lists = f"copy/{TABLE}/_symlink_format_manifest/"
    assert bucket.keys(f"copy/{TABLE}/") == sorted(
        [f"copy/{TABLE}/_current.json", *(f"{lists}sold=2020-01-0{day}/manifest" for day in (2, 4))]
    )
    listed = [uri for key in bucket.keys(lists) for uri in bucket.get(key).decode().split()]
    written = [key for key in bucket.keys(f"{versions}/version=op-3/") if key.endswith(".parquet")]
    assert sorted(listed) == [f"s3://{bucket.name}/{key}" for key in sorted(written)]
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
    require_a_single_file(s3_scene)


def require_a_single_file(s3_scene: S3Scene) -> None:
    """Publish the same table as one file at a fixed name, known by the property that only our copy has."""
    bucket = s3_scene.bucket
    single = {"to": f"s3://{bucket.name}/copy", "single_file": "final.csv", "columns": ["id", "name"]}
    s3_scene.configure({TABLE: {**SETTINGS, "publish": single}})
    s3_scene.run()
    assert bucket.get(f"copy/{TABLE}/final.csv").decode() == "id,name\n1,one on 13th\n2,\n4,changed\n"
    assert bucket.keys(f"copy/{TABLE}/") == [f"copy/{TABLE}/_current.json", f"copy/{TABLE}/final.csv"]
    s3_scene.land("20201118-000000000.csv", line("D", "2020-11-17 10:00:00", 4, "NULL"))
    s3_scene.run()
    assert bucket.get(f"copy/{TABLE}/final.csv").decode() == "id,name\n1,one on 13th\n2,\n"
    # A version of the same op in another shape is not written among the files that readers have open.
    s3_scene.configure({TABLE: {**SETTINGS, "publish": {**single, "header": False}}})
    bucket.put(f"copy/{TABLE}/final.csv", b"mine")
    assert "is not what Lakeward wrote" in str(s3_scene.refused().message)
    bucket.remove(f"copy/{TABLE}/final.csv")
    s3_scene.run()
    assert bucket.get(f"copy/{TABLE}/final.csv").decode() == "1,one on 13th\n2,\n"
    assert {key.split("/")[3] for key in bucket.keys(f"copy/{VERSIONS}/{TABLE}/")} == {"version=op-4.2"}


@pytest.mark.soak
def test_a_scheduled_version_that_a_catalog_reads_is_renewed_beside_the_former_one(
    s3_scene: S3Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (schedule, scheduled):
        monkeypatch.setattr(module, "now_micros", lambda: micros_of(datetime(2020, 11, 16, tzinfo=UTC)))
    bucket, spark = s3_scene.bucket, s3_scene.lakeward.spark
    plan = {"every": "day", "to": f"s3://{bucket.name}/days", "start": "2020-11-14", "register_all": "s3days.product"}
    set_up(s3_scene, snapshots=plan)
    root = f"days/{TABLE}/version="

    def places() -> dict[str, str]:
        found = {}
        for row in spark.sql("SHOW PARTITIONS spark_catalog.s3days.product").collect():
            day = row[0].rpartition("=")[2]
            about = spark.sql(f"DESCRIBE EXTENDED spark_catalog.s3days.product PARTITION (version='{day}')").collect()
            found[day] = next(entry[1] for entry in about if entry[0] == "Location").rpartition("=")[2]
        return found

    assert places() == {"2020-11-14": "2020-11-14", "2020-11-15": "2020-11-15"}
    s3_scene.land("20201118-000000000.csv", line("U", "2020-11-15 10:00:00", 4, "late", "2020-01-04"))
    crash_at(s3_scene, "publish.listed")
    assert bucket.keys(f"{root}2020-11-15/"), "the former version was removed before the new one was listed"
    assert s3_scene.run().outcome == "idle"
    assert places() == {"2020-11-14": "2020-11-14", "2020-11-15": "2020-11-15.2"}
    assert states(s3_scene) == {"2020-11-14": "current", "2020-11-15.2": "current"}
    assert names(s3_scene, f"s3://{bucket.name}/{root}2020-11-15.2")[4] == "late"
    assert bucket.keys(f"{root}2020-11-15/") == []
    s3_scene.lakeward.snapshots.drop(TABLE, version="2020-11-15")
    assert (places(), bucket.keys(f"{root}2020-11-15")) == ({"2020-11-14": "2020-11-14"}, [])
    spark.sql("DROP TABLE spark_catalog.s3days.product")
