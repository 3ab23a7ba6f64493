"""Versions as tags: nothing is copied, main is never touched, and later questions start from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.spark.workspace import Workspace
from tests.spark.scene import TABLE
from tests.views.versions import line, made, refused, set_up, states

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark


def tagged(scene: Scene, tag: str) -> dict[int, str | None]:
    rows = scene.lakeward.sql(f"SELECT id, name FROM {TABLE} VERSION AS OF '{tag}'").collect()
    found = {row[0]: row[1] for row in rows}
    assert len(found) == len(rows)
    return found


def asked(scene: Scene, day: str) -> tuple[dict[int, str | None], int | None]:
    """Return the rows as of a day, and the snapshot that they were laid upon."""
    context = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE))
    with Workspace() as workspace:
        found = rows_as_of(context, workspace, parse_moment(day, "Europe/Berlin"))
        rows = {row["id"]: row["name"] for row in found.rows.collect()}
        return rows, found.checkpoint.snapshot if found.checkpoint else None


def test_tags_hold_days_and_later_questions_start_from_them(scene: Scene) -> None:
    set_up(scene)
    mirror = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE)).mirror
    before, head = scene.rows(), mirror.require_head().id
    assert made(scene, "2020-11-13", tag="") == "2020-11-13"
    made(scene, "2020-11-14", tag="month end")
    made(scene, "op:2", tag="newest")
    assert tagged(scene, "2020-11-13") == {1: "one on 13th", 2: "two", 3: "three"}
    assert tagged(scene, "month end") == {1: "one on 13th", 2: None}
    tags = mirror.metadata().tags()
    assert (mirror.require_head().id, tags["newest"], scene.rows()) == (head, head, before)
    assert asked(scene, "2020-11-14") == ({1: "one on 13th", 2: None}, tags["month end"])
    assert asked(scene, "2020-11-15T00:00:00") == ({1: "one on 13th", 2: None}, tags["month end"])
    # A change that arrives late belongs before the tag: the question comes out right, and the tag is stale.
    scene.land("20201117-000000000.csv", line("U", "2020-11-13 10:00:00", 2, "two after all"))
    scene.run()
    assert asked(scene, "2020-11-13")[0] == {1: "one on 13th", 2: "two after all", 3: "three"}
    assert asked(scene, "2020-11-14")[0] == {1: "one on 13th", 2: None}
    assert states(scene) == {"2020-11-13": "stale", "2020-11-14": "stale", "op-2": "current"}
    assert {snapshot.outcome for snapshot in scene.lakeward.snapshots.refresh()} == {"done"}
    assert tagged(scene, "2020-11-13") == {1: "one on 13th", 2: "two after all", 3: "three"}
    assert set(states(scene).values()) == {"current"}


def test_names_that_would_mislead_and_tags_of_others(scene: Scene) -> None:
    set_up(scene)
    mirror = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE)).mirror
    mirror.create_tag("theirs", mirror.require_head().id)
    for name in ("20201114", "main", "load-1", "undone-3", "theirs"):
        refused(scene, "op:2", tag=name)
    made(scene, "op:2", tag="ours")
    assert "--replace" in str(refused(scene, "op:1", tag="ours").hint)
    made(scene, "op:1", tag="ours", replace=True)
    assert set(tagged(scene, "ours")) == {1, 2, 3}
    with pytest.raises(ConfigurationError, match="no version 'theirs'"):
        scene.lakeward.snapshots.drop(TABLE, version="theirs")
    assert scene.lakeward.snapshots.drop(TABLE, version="op-1", dry_run=True)[0].outcome == "would drop"
    scene.lakeward.snapshots.drop(TABLE, version="op-1")
    assert ("ours" in mirror.metadata().tags(), scene.lakeward.snapshots.list()) == (False, [])


def test_a_table_without_key_by_op_and_by_time(scene: Scene) -> None:
    set_up(scene, primary_key=[], on_bad_row="quarantine")
    scene.land(
        "20201117-000000000.csv",
        line("I", "2020-11-14 10:00:00", 9, "nine"),
        line("I", "2020-11-18 10:00:00", 9, "nine"),
    )
    scene.run()
    made(scene, "2020-11-15", tag="")
    rows = scene.lakeward.sql(f"SELECT id FROM {TABLE} VERSION AS OF '2020-11-15' ORDER BY id").collect()
    assert [row[0] for row in rows] == [1, 2, 3, 4, 9]
