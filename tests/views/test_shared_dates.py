"""Versions by date share the files of unchanged dates, and each of them stays whole whatever happens to the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.scene import TABLE
from tests.views.versions import SETTINGS, line, made, names, set_up, states

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

DATED = {"layout": "dated", "date_column": "sold"}
SECOND, FOURTH, NONE = "sold=2020-01-02", "sold=2020-01-04", "sold=__HIVE_DEFAULT_PARTITION__"


def files(place: str) -> dict[str, int]:
    """Date folder to the inode of its one file."""
    return {file.parent.name: file.stat().st_ino for file in Path(place).glob("*/*.parquet")}


def test_only_changed_dates_are_written_and_no_version_needs_another(scene: Scene) -> None:
    set_up(scene)
    third, fourth, first = (made(scene, f"2020-11-{day}", **DATED) for day in (14, 15, 13))
    before = files(fourth)
    assert set(before) == {SECOND, FOURTH}
    assert before[SECOND] == files(third)[SECOND], "an unchanged date was written again"
    assert files(first)[SECOND] != before[SECOND], "a changed date was shared"
    # A late change of the 14th to one date: the versions after it get that date anew, and share it.
    late = line("I", "2020-11-14 10:00:00", 7, "late", "2020-01-04")
    scene.land("20201117-000000000.csv", late)
    scene.run()
    assert states(scene) == {"2020-11-13": "current", "2020-11-14": "stale", "2020-11-15": "stale"}
    assert [report.outcome for report in scene.lakeward.snapshots.refresh()] == ["done", "done"]
    assert names(scene, third) == {1: "one on 13th", 2: None, 7: "late"}
    assert names(scene, fourth) == {1: "one on 13th", 2: None, 4: "four", 7: "late"}
    assert files(third)[SECOND] == files(fourth)[SECOND] == before[SECOND], "a renewal wrote an unchanged date"
    assert files(fourth)[FOURTH] not in {before[FOURTH], files(third)[FOURTH]}
    # The version from which the others took a file goes, and its files stay theirs.
    scene.lakeward.snapshots.drop(TABLE, version="2020-11-14")
    assert names(scene, fourth) == {1: "one on 13th", 2: None, 4: "four", 7: "late"}
    again = made(scene, "2020-11-14", **DATED)
    scene.lakeward.erase(TABLE, [{"id": 2}], reason="request 4711")
    assert [names(scene, place) for place in (first, again, fourth)] == [
        {1: "one on 13th", 3: "three"},
        {1: "one on 13th", 7: "late"},
        {1: "one on 13th", 4: "four", 7: "late"},
    ]
    kept = {inode for place in (first, again, fourth) for inode in files(place).values()}
    assert before[SECOND] not in kept, "a file with an erased row is still linked"


def test_a_file_from_before_a_rename_is_not_shared(scene: Scene) -> None:
    set_up(scene)
    made(scene, "2020-11-14", **DATED)
    # The new name has the same place among the names in their order, in which a checksum counts values.
    settings = {**SETTINGS, "schema": str(SETTINGS["schema"]).replace("name string", "nama string")}
    scene.configure({TABLE: {**settings, "renames": {"name": "nama"}}})
    scene.land("20201117-000000000.csv", line("I", "2020-11-16 10:00:00", 5, "five", "2020-01-05"))
    scene.run()
    rows = scene.lakeward.snapshots.read(made(scene, "2020-11-15", **DATED)).collect()
    assert {row["id"]: row["nama"] for row in rows} == {1: "one on 13th", 2: None, 4: "four"}
