"""Maintenance of a lake in S3: files are merged and removed by Iceberg's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.mirror.maintenance import WorkKind
from lakeward.mirror.op.report import Outcome
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from tests.s3.scene import S3Scene

pytestmark = pytest.mark.spark


def test_files_are_merged_and_removed(s3_scene: S3Scene) -> None:
    s3_scene.table(rewrite_share=10, undo_window=0)
    source = Source(s3_scene)
    source.load("LOAD00000001.csv", *(f"{key},row {key},x,1.00" for key in range(1, 21)))
    s3_scene.run()
    for number in (1, 2):
        source.change(f"2024010{number}-000000000.csv", f"U,1,update {number},y,2.00", f"D,{number + 1},,,0")
        s3_scene.run()
    folder = "lake/sales/product/data/"
    before = len(list(s3_scene.bucket.keys(folder)))
    [found] = s3_scene.lakeward.maintain().tables
    assert (found.outcome, found.message) == (Outcome.DONE, None)
    assert {work.kind for work in found.work} == {WorkKind.COMPACT, WorkKind.CLUSTER, WorkKind.EXPIRE}
    # The load's own file, and the one that is the mirror now.
    assert (before, len(list(s3_scene.bucket.keys(folder)))) == (5, 2)
    assert s3_scene.rows() == source.rows()
    source.change("20240103-000000000.csv", "U,9,last,y,2.00")
    s3_scene.run()
    assert s3_scene.rows() == source.rows()
    check_books(s3_scene)
