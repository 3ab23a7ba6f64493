"""Versions that later loads change are reported as stale and are right after a refresh; versions by change sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.crash import crash_at
from tests.spark.scene import TABLE
from tests.views.versions import LOADED, line, made, names, refused, set_up, states

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

# After every change that was landed.
RELOADED = "20201116120000000000"


def test_a_late_part_of_the_load_makes_versions_stale_and_is_in_them_once_refreshed(scene: Scene) -> None:
    set_up(scene)
    location = made(scene, "2020-11-14")
    assert names(scene, location) == {1: "one on 13th", 2: None}
    scene.land("LOAD00000002.csv", line("I", LOADED, 9, "late part"))
    scene.run()
    assert states(scene) == {"2020-11-14": "stale"}
    [listed] = scene.lakeward.snapshots.list()
    assert listed.reason == "a part of its load arrived later"
    scene.lakeward.snapshots.refresh()
    assert states(scene) == {"2020-11-14": "current"}
    assert names(scene, location) == {1: "one on 13th", 2: None, 9: "late part"}


def test_a_reload_makes_versions_stale_only_from_the_moment_on_at_which_it_began(scene: Scene) -> None:
    set_up(scene)
    before, after = made(scene, "2020-11-14"), made(scene, "2020-11-17")
    scene.land("LOAD00000001.csv", line("I", LOADED, 1, "reloaded"))
    scene.run(cut=RELOADED)
    assert states(scene) == {"2020-11-14": "current", "2020-11-17": "stale"}
    scene.lakeward.snapshots.refresh()
    assert set(states(scene).values()) == {"current"}
    assert names(scene, before) == {1: "one on 13th", 2: None}
    assert names(scene, after) == {1: "reloaded"}


def test_a_load_that_is_logged_and_not_yet_applied_is_in_no_version(scene: Scene) -> None:
    set_up(scene)
    before = {1: "one on 13th", 2: None, 4: "four"}
    scene.land("LOAD00000001.csv", line("I", LOADED, 1, "reloaded"))
    crash_at(scene, "log.drop", lambda: scene.run(cut=RELOADED))
    location = made(scene, "2020-11-17")
    assert (names(scene, location), states(scene)) == (before, {"2020-11-17": "current"})
    assert "op 3 is logged and not yet applied" in str(refused(scene, "op:3").message)
    history = scene.lakeward.history
    current = history.scd2(TABLE).filter("is_current").collect()
    assert ({row["id"]: row["name"] for row in current}, history.position(TABLE)) == (before, 2)
    # A tag is made under the lease: what was interrupted is finished first.
    made(scene, "2020-11-17", tag="finished")
    assert scene.names() == {1: "reloaded"}
    assert {version.kind: version.state for version in scene.lakeward.snapshots.list()} == {
        "files": "stale",
        "tag": "current",
    }


def test_a_version_by_change_sequence_holds_what_was_committed_up_to_it(scene: Scene) -> None:
    scene.table(csv={"header": True})
    scene.land("LOAD00000001.csv", "Op,id,name,dept,price,AR_H_CHANGE_SEQ", "I,1,one,x,1.00,", "I,2,two,x,1.00,")
    head = "Op,id,name,dept,price,AR_H_CHANGE_SEQ"
    scene.land("20240101-000000000.csv", head, "U,1,first,x,1.00,100", "D,2,,,0,200", "U,1,last,x,1.00,300")
    scene.run()
    upto = made(scene, "sequence:200")
    assert names(scene, upto) == {1: "first"}
    assert names(scene, made(scene, "sequence:199")) == {1: "first", 2: "two"}
    # It comes late and belongs between the two.
    scene.land("20231231-000000000.csv", head, "I,3,late,x,1.00,200")
    scene.run()
    assert states(scene) == {"sequence-199": "current", "sequence-200": "stale"}
    scene.lakeward.snapshots.refresh([TABLE])
    assert states(scene) == {"sequence-199": "current", "sequence-200": "current"}
    assert names(scene, upto) == {1: "first", 3: "late"}
