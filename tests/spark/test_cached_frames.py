"""Spark may lose what it keeps of an op and compute it again: from files that changed since, it must be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.iceberg.define import changelog_of, mirror_of
from lakeward.mirror.op.effect import Strategy
from lakeward.model import OpKind, TableId
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.scene import Scene

ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 11))
FILE = "20240101-000000000.csv"


def lose_kept_frames_at(scene: Scene, step: str, change_file: Callable[[], object]) -> None:
    """Once, at a step: throw away all that Spark keeps and change the file that it came from."""

    def lose(_table: str, passed: str) -> None:
        if passed == step:
            scene.on_step = None
            scene.lakeward.spark.catalog.clearCache()
            change_file()

    scene.on_step = lose


def heads(scene: Scene) -> list[object]:
    spark, name = scene.lakeward.spark, TableId.parse(TABLE)
    return [mirror_of(spark, name).head(), changelog_of(spark, name).head()]


@pytest.fixture
def source(scene: Scene) -> Source:
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    return source


def test_file_that_changes_between_check_and_log(scene: Scene, source: Source) -> None:
    scene.run()
    source.change(FILE, "U,1,checked,y,2.00", "D,2,,,0")
    before = heads(scene)
    # As many rows as before: only the file's identity shows that it is another.
    lose_kept_frames_at(scene, "log.branch", lambda: source.change(FILE, "U,1,rewritten,y,3.00", "D,3,,,0"))
    refusal = scene.refused()
    assert "rows were written, expected" in (refusal.message or "")
    assert heads(scene) == before
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)


def test_load_part_that_changes_between_log_and_load(scene: Scene, source: Source) -> None:
    lose_kept_frames_at(scene, "load.branch", lambda: source.load("LOAD00000001.csv", *ROWS[:5]))
    refusal = scene.refused()
    assert "rows were written, expected" in (refusal.message or "")
    assert scene.rows() == []
    assert [op.kind for op in scene.run().ops] == [OpKind.VOID, OpKind.LOAD]
    assert scene.rows() == source.rows()
    check_books(scene)


BATCHES = {
    "writes and deletes": ("U,1,logged,y,2.00", "D,2,,,0"),
    "deletes alone": ("D,1,,,0", "D,2,,,0"),
}


@pytest.mark.parametrize("lines", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("strategy", [Strategy.BROADCAST_DELETE, Strategy.REWRITE])
def test_file_that_vanishes_between_log_and_apply(
    scene: Scene, source: Source, lines: tuple[str, ...], strategy: Strategy
) -> None:
    scene.table(rewrite_share=0.01 if strategy is Strategy.REWRITE else 10)
    scene.run()
    before = scene.rows()
    file = source.change(FILE, *lines)
    lose_kept_frames_at(scene, "apply.branch", file.unlink)
    refusal = scene.refused()
    assert "nothing was published" in (refusal.message or "")
    assert scene.rows() == before
    # The op is logged: it is finished from the changelog, without the file.
    report = scene.run()
    assert [(op.op, op.recovered, op.strategy) for op in report.ops] == [(2, True, strategy)]
    assert scene.rows() == source.rows()
    check_books(scene)
