"""A crash at every step of publishing: the next call finishes it or takes it back. Nothing lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeward.iceberg.attempt import BRANCH_PREFIX
from lakeward.mirror.op.steps import Step
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.views.versions.folders import find_version
from tests.spark.crash import crash_at, leave_branches
from tests.spark.scene import TABLE
from tests.views.copies import DATED, seen_by_readers, versions_of
from tests.views.versions import line, made, names, set_up, states

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CRASHED = (
    Step.PUBLISH_ROWS,
    Step.PUBLISH_WRITTEN,
    Step.PUBLISH_STAGED,
    Step.PUBLISH_RECORDED,
    Step.PUBLISH_ASIDE,
    Step.PUBLISH_MOVED,
    Step.PUBLISH_REGISTERED,
    Step.PUBLISH_BRANCH,
    Step.PUBLISH_TAGGED,
    Step.PUBLISH_UNTAGGED,
    Step.PUBLISH_REMOVED,
    Step.PUBLISH_FORGOTTEN,
    Step.PUBLISH_DATES,
    Step.PUBLISH_PLACED,
    Step.PUBLISH_FLIPPED,
)
REPLACING = CRASHED[:7]


@pytest.fixture(autouse=True)
def _leave_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)


def hidden(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith(".")]


def test_replacing_files_and_dropping_them(scene: Scene) -> None:
    set_up(scene)
    place = made(scene, "2020-11-14")
    for step in REPLACING:
        crash_at(scene, step, lambda: made(scene, "2020-11-14", replace=True, register=""))
        found = find_version(LocalFileSystem(), place)
        assert found.manifest.rows == 2, f"readers find neither the former version nor the new one after {step}"
    made(scene, "2020-11-14", replace=True)
    assert names(scene, place) == {1: "one on 13th", 2: None}
    assert (states(scene), hidden(Path(place).parent)) == ({"2020-11-14": "current"}, [])
    for step in ("publish.removed", "publish.forgotten"):
        crash_at(scene, step, lambda: scene.lakeward.snapshots.drop(TABLE, version="2020-11-14"))
    assert (states(scene), Path(place).exists()) == ({}, False)
    made(scene, "2020-11-14")
    scene.lakeward.spark.sql("DROP TABLE IF EXISTS spark_catalog.default.product_snapshot")


def test_setting_and_dropping_a_tag(scene: Scene) -> None:
    set_up(scene)
    mirror = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE)).mirror
    before = scene.rows()
    after = {"publish.rows": {}, "publish.branch": {}, "publish.recorded": {"2020-11-14": "missing"}}
    for step, state in after.items():
        crash_at(scene, step, lambda: made(scene, "2020-11-14", tag="kept"))
        assert states(scene) == state
    made(scene, "2020-11-14", tag="kept")
    crash_at(scene, "publish.tagged", lambda: made(scene, "2020-11-14", tag="kept", replace=True))
    made(scene, "2020-11-14", tag="kept", replace=True)
    assert (states(scene), scene.rows()) == ({"2020-11-14": "current"}, before)
    assert [branch for branch in mirror.branches() if branch.startswith(BRANCH_PREFIX)] == []
    crash_at(scene, "publish.untagged", lambda: scene.lakeward.snapshots.drop(TABLE, version="kept"))
    assert ("kept" in mirror.metadata().tags(), states(scene)) == (False, {"2020-11-14": "missing"})
    scene.lakeward.snapshots.drop(TABLE, version="kept")
    assert states(scene) == {}


def test_refreshing_the_copy_of_the_current_state(scene: Scene) -> None:
    set_up(scene, publish=DATED)
    root = scene.folder / "copy" / TABLE
    scene.land("20201117-000000000.csv", line("U", "2020-11-16 10:00:00", 4, "changed", "2020-01-04"))
    for step in ("publish.dates", "publish.recorded", "publish.moved", "publish.placed", "publish.flipped"):
        crash_at(scene, step)
        assert seen_by_readers(root, is_switched=step != "publish.placed")[4] in ("four", "changed")
    scene.run()
    assert (seen_by_readers(root)[4], hidden(root), hidden(versions_of(root))) == ("changed", [], [])
    assert states(scene) == {"op-2": "former", "op-3": "current"}
    scene.land("20201118-000000000.csv", line("D", "2020-11-17 10:00:00", 4, "NULL"))
    for step in ("publish.removed", "publish.forgotten"):
        crash_at(scene, step)
        assert 4 not in seen_by_readers(root)
    scene.run()
    assert states(scene) == {"op-3": "former", "op-4": "current"}
