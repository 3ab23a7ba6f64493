"""Versions that another system wrote: registered, listed, compared and forgotten, and never changed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward import diff_snapshots
from lakeward.column_policy import hashed
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.erase import FOREIGN, UNREAD
from lakeward.storage.checksum import checksum_of
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark


def write(path: Path, **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_versions_of_another_system_are_registered_and_never_touched(scene: Scene) -> None:
    folder = scene.folder / "published" / "product"
    ids = pa.array([1, 2], pa.int16())
    write(folder / "v1" / "part-0.parquet", id=ids, name=["a", "b"])
    write(folder / "v2" / "part-0.parquet", id=ids, name=["a", "c"])
    (folder / "v2" / "_SUCCESS").touch()
    snapshots = scene.lakeward.snapshots
    with pytest.raises(ConfigurationError, match="has no mirror yet"):
        snapshots.adopt(TABLE, str(folder))
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,c,x,1.00")
    scene.run()
    tried = snapshots.adopt(TABLE, str(folder), dry_run=True)
    assert [(made.outcome, made.version, made.rows) for made in tried] == [
        ("would be done", "v1", 2), ("would be done", "v2", 2),
    ]  # fmt: skip
    assert snapshots.list() == []
    assert [made.outcome for made in snapshots.adopt(TABLE, str(folder))] == ["done", "done"]
    assert [made.outcome for made in snapshots.adopt(TABLE, str(folder))] == ["there before", "there before"]
    listed = snapshots.list()
    assert [(found.version, found.kind, found.state) for found in listed] == [
        ("v1", "foreign", "foreign"), ("v2", "foreign", "foreign"),
    ]  # fmt: skip
    assert listed[0].content_hash != listed[1].content_hash
    lake = scene.lakeward
    found = diff_snapshots(*(version.location for version in listed), keys=["id"], config=lake.config, spark=lake.spark)
    assert (found.summary.changed, found.summary.unchanged) == (1, 1)
    # Nothing that renews or removes versions concerns them; an erasure names what it must leave.
    assert snapshots.refresh() == snapshots.drop(TABLE, keep=0) == []
    [receipt] = lake.erase(TABLE, [{"id": 2}], reason="test")
    traces = {trace.path: (trace.rows, trace.outcome) for trace in receipt.landing}
    assert traces[listed[0].location] == traces[listed[1].location] == (1, "foreign")
    # Files that are not as they were registered are noticed.
    write(folder / "v1" / "part-1.parquet", id=ids, name=["d", "e"])
    assert [found.state for found in snapshots.list()] == ["missing", "foreign"]
    with pytest.raises(ConfigurationError, match="its files are not those that were registered"):
        snapshots.adopt(TABLE, str(folder))
    assert [made.outcome for made in snapshots.drop(TABLE, version="v1")] == ["forgotten"]
    assert [found.version for found in snapshots.list()] == ["v2"]
    assert (folder / "v1" / "part-0.parquet").exists()
    dated = scene.folder / "published" / "by_date"
    write(dated / "hired=2020-11-13" / "a.parquet", id=[1])
    write(dated / "hired=2020-11-14" / "b.parquet", id=[2, 3])
    [made] = snapshots.adopt(TABLE, str(dated))
    assert (made.version, made.rows) == ("by_date", 3)
    rows = lake.spark.createDataFrame([(1, date(2020, 11, 13)), (2, date(2020, 11, 14)), (3, date(2020, 11, 14))],
                                      "id bigint, hired date")  # fmt: skip
    assert {found.version: found.content_hash for found in snapshots.list()}["by_date"] == checksum_of(rows).text


def test_an_erasure_finds_hashed_keys_in_versions_of_another_system(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "0123456789abcdef0123456789abcdef"
    monkeypatch.setenv("POLICY_KEY", key)
    folder = scene.folder / "published" / "v1"
    write(folder / "part-0.parquet", id=pa.array([1, 2], pa.int16()), name=["a", "b"])
    scene.table(columns={"id": "hash"}, hash_key="env:POLICY_KEY")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,c,x,1.00")
    scene.run()
    [made] = scene.lakeward.snapshots.adopt(TABLE, str(folder))
    [receipt] = scene.lakeward.erase(TABLE, [{"id": hashed(key.encode(), b"2")}], reason="test")
    traces = {trace.path: (trace.rows, trace.outcome) for trace in receipt.landing}
    assert traces[made.location] == (1, "foreign")


@pytest.mark.soak
def test_versions_that_cannot_be_read_are_named_and_keep_no_erasure_from_its_end(scene: Scene) -> None:
    folder, ids = scene.folder / "foreign", pa.array([1], pa.int32())
    write(folder / "conflict" / "a.parquet", id=ids)
    write(folder / "conflict" / "b.parquet", id=["x"])
    write(folder / "date" / "d=2020-02-30" / "a.parquet", name=["a"])
    write(folder / "cut" / "a.parquet", id=ids)
    write(folder / "good" / "a.parquet", id=ids)
    (folder / "cut" / "a.parquet").write_bytes(b"PAR1")
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,c,x,1.00")
    scene.run()
    snapshots = scene.lakeward.snapshots
    for name in ("conflict", "date", "cut"):
        with pytest.raises(DataError, match=f"foreign/{name} cannot be read as a version"):
            snapshots.adopt(TABLE, str(folder / name))
    snapshots.adopt(TABLE, str(folder / "good"))
    write(folder / "good" / "_temporary" / "part.parquet", id=["unfinished"])
    [receipt] = scene.lakeward.erase(TABLE, [{"id": 1}], reason="test")
    assert {trace.path: (trace.rows, trace.outcome) for trace in receipt.landing}[str(folder / "good")] == (1, FOREIGN)
    (folder / "good" / "a.parquet").write_bytes(b"PAR1")
    [receipt] = scene.lakeward.erase(TABLE, [{"id": 2}], reason="test")
    assert {trace.path: trace.outcome for trace in receipt.landing}[str(folder / "good")] == UNREAD
