"""The feed of changes: a job that follows it op by op has the mirror's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ConfigurationError, DataError
from lakeward.views.history.feed import in_feed_order
from tests.spark.scene import SCHEMA, TABLE

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

FEBRUARY = 1706745600.0
DAY = 86400.0


class Follower:
    """A downstream job: keeps the newest place per key, and its position."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.position = 0
        self.generation = 0
        self.rows: dict[int, tuple[tuple[Any, ...], Any]] = {}

    def follow(self) -> list[str]:
        history = self.scene.lakeward.history
        until = history.position(TABLE)
        since = f"op:{self.position}" if self.position else None
        feed = in_feed_order(history.changes(TABLE, since=since, until=f"op:{until}")).collect()
        for row in feed:
            self._take(row.asDict())
        self.position = until
        return [row["_lw_operation"] for row in feed]

    def _take(self, row: dict[str, Any]) -> None:
        if row["_lw_generation"] < self.generation:
            return
        self.generation = row["_lw_generation"]
        if row["_lw_operation"] == "T":
            self.rows.clear()
            return
        place = tuple(row[f"_lw_{name}"] or "" for name in ("sequence", "file_time", "file"))
        place += (row["_lw_row"] or 0, row["_lw_step"] or 0)
        if row["id"] not in self.rows or self.rows[row["id"]][0] <= place:
            self.rows[row["id"]] = (place, None if row["_lw_operation"] == "D" else row["name"])

    def names(self) -> dict[int, str]:
        return {key: name for key, (_, name) in self.rows.items() if name is not None}


def test_a_job_that_follows_op_by_op_has_the_mirrors_rows(scene: Scene) -> None:
    scene.table(timestamp_column="ts", rewrite_share=10)
    job = Follower(scene)
    scene.land("LOAD00000001.csv", "2023-12-31 00:00:00,1,load,x,1.00", "2023-12-31 00:00:00,2,load,x,1.00", mtime=0)
    scene.land("20240110-000000000.csv", "U,2024-01-10 00:00:00,1,newer,x,1.00", "D,2024-01-10 00:00:00,2,,,0")
    scene.run()
    assert job.follow() == ["L", "L", "U", "D"] and job.names() == scene.names()
    scene.land("20240105-000000000.csv", "U,2024-01-05 00:00:00,1,late,x,1.00", "I,2024-01-05 00:00:00,3,new,x,1.00")
    scene.land("LOAD00000002.csv", "2023-12-31 00:00:00,4,late part,x,1.00")
    scene.run()
    assert sorted(job.follow()) == ["I", "L", "U"] and job.names() == scene.names()
    history = scene.lakeward.history
    # By time: what was committed after the first moment up to the second, without loads.
    feed = in_feed_order(history.changes(TABLE, since="2024-01-04", until="2024-01-09"))
    assert [(row["_lw_operation"], row["id"], row["_lw_op"]) for row in feed.collect()] == [("U", 1, 4), ("I", 3, 4)]
    scene.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,reload,x,1.00", mtime=FEBRUARY)
    scene.run(drop_parts=frozenset({"sales/product/LOAD00000002.csv"}))
    assert job.follow() == ["T", "L"] and job.names() == scene.names() == {1: "reload"}
    # A job that has taken in what was undone cannot go on; others never see it.
    scene.land("20240301-000000000.csv", "U,2024-03-01 00:00:00,1,wrong,x,1.00")
    scene.run()
    before = job.position
    job.follow()
    scene.lakeward.undo(TABLE, to_op=before)
    with pytest.raises(ConfigurationError, match=f"op {job.position} was undone: what came after op {before}"):
        job.follow()
    assert history.changes(TABLE, since=f"op:{before}").collect() == []
    for since, until, message in (
        ("op:1", "2024-01-09", "moments of two kinds"),
        ("op:3", "op:1", "but op:1 comes first"),
        ("op:99", None, "there is no op 99"),
        ("tomorrow", None, "is not a moment"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            history.changes(TABLE, since=since, until=until)


def test_rows_of_a_load_are_returned_once_in_a_table_without_a_key(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA, "undo_window": 0}})
    scene.land("LOAD00000001.csv", "1,load,x,1.00", mtime=FEBRUARY)
    scene.run()
    scene.land("LOAD00000002.csv", "2,late part,x,1.00", mtime=FEBRUARY)
    scene.run()
    history = scene.lakeward.history
    assert [row["id"] for row in history.changes(TABLE, since="op:1").collect()] == [2]
    scene.lakeward.maintain(only="expire")
    with pytest.raises(DataError, match="no longer kept: its rows would be returned twice"):
        history.changes(TABLE, since="op:1")
    assert sorted(row["id"] for row in history.changes(TABLE).collect()) == [1, 2]
