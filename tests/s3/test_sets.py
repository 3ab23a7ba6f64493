"""Snapshot sets in S3: written and compared there, by tasks that fetch a bucket's files themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.frames.pairs import PlannedPairs, shaped
from lakeward.diffing.plans.buckets import bucket_pairs
from lakeward.diffing.stored.addresses import FoundSet, Side
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.sets import write_set

if TYPE_CHECKING:
    from tests.s3.scene import S3Scene

pytestmark = pytest.mark.spark


def test_sets_in_s3_are_compared_bucket_by_bucket(s3_scene: S3Scene) -> None:
    lakeward = s3_scene.lakeward
    root = f"s3://{s3_scene.bucket.name}/sets é"
    rows = lakeward.spark.range(100).select("id", F.lit("old").alias("v"))
    changed = F.when(F.col("id") == 7, F.lit("new")).otherwise(F.col("v")).alias("v")
    sides = []
    for name, frame, count in (("past", rows, 4), ("current", rows.filter("id <> 8").select("id", changed), 8)):
        folder = f"{root}/{name}"
        store = open_filesystem(lakeward.spark, lakeward.config, folder)
        layout = write_set(frame, store, folder, ["id"], count=count)
        assert len(s3_scene.bucket.keys(f"sets é/{name}/")) == len(layout.buckets) == count
        sides.append(Side(name, frame, ("id",), FoundSet(store, folder, layout)))

    options = DiffOptions()
    alignment = align(sides[0].frame.schema, sides[1].frame.schema, ["id"], options, evolve=True)
    found = bucket_pairs(sides[0], sides[1], alignment, options, exact=False)

    assert isinstance(found, PlannedPairs)
    assert {tuple(row) for row in shaped(found.pairs, options).collect()} == {
        ("C", 7, "old", "new"),
        ("D", 8, "old", None),
    }
