"""Versions on a schedule: made when their day is complete, renewed by late changes, dropped beyond keep, listed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.mirror.op.steps import Step
from lakeward.model import micros_of
from lakeward.views.versions import current, schedule, scheduled
from tests.spark.crash import crash_at, leave_branches
from tests.spark.scene import TABLE
from tests.views.versions import SETTINGS, line, made, names, set_up, states

if TYPE_CHECKING:
    from lakeward import TableReport
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark


CRASHED = (Step.PUBLISH_NOTED, Step.PUBLISH_LISTED, Step.PUBLISH_UNLISTED)
MAKING = (Step.PUBLISH_NOTED, Step.PUBLISH_RECORDED, Step.PUBLISH_LISTED, Step.PUBLISH_REGISTERED)


class Clock:
    """The time by which versions are due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0
        for module in (schedule, scheduled):
            monkeypatch.setattr(module, "now_micros", lambda: self._now)

    def at(self, text: str) -> None:
        """Set the time, in UTC."""
        self._now = micros_of(datetime.fromisoformat(f"{text}+00:00"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def plan_for(scene: Scene, **settings: Any) -> dict[str, Any]:
    return {"every": "day", "at": "00:30", "to": str(scene.folder / "out"), **settings}


def done(report: TableReport) -> list[tuple[str, str]]:
    return [(snapshot.action, snapshot.version) for snapshot in report.snapshots]


def folder(scene: Scene, version: str) -> str:
    return str(scene.folder / "out" / TABLE / f"version={version}")


def listed(scene: Scene, name: str, columns: str = "version, id, name") -> list[tuple[Any, ...]]:
    scene.lakeward.spark.sql(f"REFRESH TABLE spark_catalog.{name}")
    rows = scene.lakeward.spark.sql(f"SELECT {columns} FROM spark_catalog.{name} ORDER BY version, id").collect()
    return [tuple(row) for row in rows]


def test_a_run_makes_the_version_of_each_past_day_renews_it_and_keeps_the_newest(scene: Scene, clock: Clock) -> None:
    clock.at("2020-11-15T10:00:00")
    set_up(scene, snapshots=plan_for(scene, keep=2, register="shop.latest", register_all="shop.{table}_versions"))
    assert states(scene) == {}, "versions of days before the schedule were made without being asked for"
    made(scene, "2020-11-14")
    [status] = scene.lakeward.status()
    assert status.schedule is not None
    assert (status.schedule.next_version, status.schedule.next_at) == ("2020-11-15", "2020-11-15T23:30:00+00:00")

    clock.at("2020-11-15T23:29:00")
    assert scene.run().outcome == "idle"
    clock.at("2020-11-15T23:31:00")
    assert scene.lakeward.plan()[0].snapshots_due == ("2020-11-15",)
    assert done(first := scene.run()) == [("made", "2020-11-15")]
    assert (first.outcome, scene.run().outcome) == ("done", "idle")
    assert names(scene, folder(scene, "2020-11-15")) == {1: "one on 13th", 2: None, 4: "four"}
    assert listed(scene, "shop.product_versions") == [
        ("2020-11-15", 1, "one on 13th"), ("2020-11-15", 2, None), ("2020-11-15", 4, "four"),
    ]  # fmt: skip

    # The 16th and the 17th are due, and a change of the 15th is late; one file is left to the next run.
    clock.at("2020-11-18T00:00:00")
    scene.land("20201118-000000000.csv", line("D", "2020-11-15 12:00:00", 1, "NULL"))
    scene.land("20201117-100000000.csv", line("U", "2020-11-16 12:00:00", 4, "changed"))
    only = frozenset([f"{TABLE.replace('.', '/')}/20201118-000000000.csv"])
    assert done(scene.run(files=only)) == [("renewed", "2020-11-15")]
    [due] = scene.lakeward.snapshots.schedule()
    assert (due.due, due.overdue, due.waits) == (
        ("2020-11-16", "2020-11-17"), True, "files that landed are not applied yet",
    )  # fmt: skip
    assert scene.lakeward.snapshots.make_scheduled() == []
    assert done(scene.run()) == [("made", "2020-11-16"), ("made", "2020-11-17"), ("dropped", "2020-11-15")]
    assert states(scene) == {"2020-11-14": "current", "2020-11-16": "current", "2020-11-17": "current"}
    assert not Path(folder(scene, "2020-11-15")).exists()
    assert listed(scene, "shop.product_versions") == [
        ("2020-11-16", 2, None), ("2020-11-16", 4, "changed"), ("2020-11-17", 2, None), ("2020-11-17", 4, "changed"),
    ]  # fmt: skip
    assert [row[0] for row in scene.lakeward.spark.sql("SELECT id FROM spark_catalog.shop.latest").collect()] == [2, 4]

    # A column is added, and earlier days are asked for.
    clock.at("2020-11-19T00:00:00")
    wider = {**SETTINGS, "schema": f"{SETTINGS['schema']}, extra int"}
    scene.configure({TABLE: {**wider, "snapshots": plan_for(scene, register_all="shop.{table}_versions")}})
    scene.land("20201118-120000000.csv", line("U", "2020-11-18 10:00:00", 2, "two") + ",7")
    assert done(scene.run()) == [("made", "2020-11-18")]
    assert listed(scene, "shop.product_versions", "version, id, extra")[-2:] == [
        ("2020-11-18", 2, 7), ("2020-11-18", 4, None),
    ]  # fmt: skip
    asked = scene.lakeward.snapshots.make_scheduled(since="2020-11-13")
    assert [(found.version, found.outcome) for found in asked] == [("2020-11-13", "done"), ("2020-11-15", "done")]
    assert {row[0] for row in listed(scene, "shop.product_versions")} == {
        f"2020-11-{day}" for day in (13, 15, 16, 17, 18)
    }
    scene.lakeward.snapshots.drop(TABLE, version="2020-11-13")
    assert {row[0] for row in listed(scene, "shop.product_versions")} == {f"2020-11-{day}" for day in (15, 16, 17, 18)}
    assert (scene.run().outcome, "2020-11-13" in states(scene)) == ("idle", False), "what was dropped came back"
    # A table of another kind is not taken over; the rows and the version are there all the same.
    # The one of that name was dropped when the settings left it out.
    scene.lakeward.spark.sql("CREATE TABLE spark_catalog.shop.latest (id int) USING parquet")
    clock.at("2020-11-20T00:00:00")
    scene.configure({TABLE: {**wider, "snapshots": plan_for(scene, register_all="shop.latest")}})
    scene.land("20201119-120000000.csv", line("D", "2020-11-19 10:00:00", 2, "NULL") + ",7")
    failed = scene.refused()
    assert "not one that Lakeward made over all versions of sales.product" in str(failed.message)
    assert (len(failed.ops), failed.exit_code, names(scene, folder(scene, "2020-11-19"))) == (1, 2, {4: "changed"})
    [report] = scene.lakeward.snapshots.create([TABLE], as_of="2020-11-19", to=str(scene.folder / "out"), replace=True)
    assert "was made by the schedule" in str(report.message)
    for name in ("product_versions", "latest"):
        scene.lakeward.spark.sql(f"DROP TABLE spark_catalog.shop.{name}")


def test_a_crash_at_any_step_is_made_good_by_the_next_run(
    scene: Scene, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_branches(monkeypatch)
    clock.at("2020-11-14T10:00:00")
    catalog = {"register": "crash.latest", "register_all": "crash.all_versions", "version_column": "of"}
    set_up(scene, snapshots=plan_for(scene, start="2020-11-14", **catalog))
    spark = scene.lakeward.spark
    days: list[str] = []

    def seen() -> tuple[dict[str, str], set[str], int]:
        """Return the versions' states, those in the table over all, and the rows of the latest."""
        for name in ("latest", "all_versions"):
            spark.sql(f"REFRESH TABLE spark_catalog.crash.{name}")
        rows = spark.sql("SELECT DISTINCT of FROM spark_catalog.crash.all_versions").collect()
        return states(scene), {row[0] for row in rows}, spark.table("spark_catalog.crash.latest").count()

    for number, step in enumerate(MAKING):
        clock.at(f"2020-11-{15 + number}T00:00:00")
        days.append(f"2020-11-{14 + number}")
        crash_at(scene, step)
        scene.run()
        assert seen() == (dict.fromkeys(days, "current"), set(days), 2 if number == 0 else 3), step
    scene.land("20201119-000000000.csv", line("I", "2020-11-14 13:00:00", 9, "late"))
    for step in (Step.PUBLISH_RECORDED, Step.PUBLISH_LISTED):
        crash_at(scene, step)
    scene.run()
    assert seen() == (dict.fromkeys(days, "current"), set(days), 4)
    assert {version.rows for version in scene.lakeward.snapshots.list() if version.version != days[0]} == {4}
    scene.table(**{**SETTINGS, "snapshots": plan_for(scene, start="2020-11-14", keep=len(days) - 1, **catalog)})
    crash_at(scene, Step.PUBLISH_UNLISTED)
    scene.run()
    assert seen() == (dict.fromkeys(days[1:], "current"), set(days[1:]), 4)
    # What is removed with its table leaves the table over all versions, too.
    scene.configure({})
    assert scene.lakeward.remove_table(TABLE, drop_data=True).left == ()
    assert not list((scene.folder / "out").rglob("*.parquet"))
    assert spark.sql("SHOW PARTITIONS spark_catalog.crash.all_versions").collect() == []
    assert not spark.catalog.tableExists("spark_catalog.crash.latest")
    spark.sql("DROP TABLE spark_catalog.crash.all_versions")


def test_the_registered_table_follows_settings_and_what_is_dropped(
    scene: Scene, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def location(name: str) -> str:
        spark = scene.lakeward.spark
        if not spark.catalog.tableExists(f"spark_catalog.{name}"):
            return ""
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED spark_catalog.{name}").collect()
        return str({row[0]: row[1] for row in rows}["Location"]).removeprefix("file:")

    monkeypatch.setattr(current, "require_lasting", lambda *_: None)
    clock.at("2020-11-15T10:00:00")
    set_up(scene, publish={"to": "./shared", "register": "moved.x"})
    # Its name is used again, for the schedule.
    clock.at("2020-11-17T00:00:00")
    scene.configure({TABLE: {**SETTINGS, "snapshots": plan_for(scene, register="moved.x", start="2020-11-15")}})
    assert done(scene.run()) == [("made", "2020-11-15"), ("made", "2020-11-16")]
    assert location("moved.x") == folder(scene, "2020-11-16")
    scene.lakeward.snapshots.drop(TABLE, version="2020-11-16")
    assert location("moved.x") == ""
    scene.run()
    assert location("moved.x") == folder(scene, "2020-11-15")
    scene.configure({TABLE: {**SETTINGS, "snapshots": plan_for(scene, register="moved.y", start="2020-11-15")}})
    scene.run()
    assert (location("moved.x"), location("moved.y")) == ("", folder(scene, "2020-11-15"))
    scene.lakeward.spark.sql("DROP TABLE spark_catalog.moved.y")
