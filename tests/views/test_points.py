"""Points: at each of them the tables of one database agree, although their heads differ; nothing is half tagged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from tests.spark.crash import crash_at, leave_branches, steps_of

if TYPE_CHECKING:
    from lakeward import Point
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CRASHED = steps_of("point")
TABLES = ("bank.a", "bank.b", "bank.c")
ALL = 600
ACCOUNTS = (("bank.a", 1), ("bank.b", 1), ("bank.c", 2))


@pytest.fixture(autouse=True)
def _leave_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)


class Bank:
    """Three tables of accounts with 100 each; every transaction moves an amount, mostly from one table to another."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.balances = {(table, account): 100 for table in TABLES for account in (1, 2)}
        scene.configure(self.tables(), transactions="cdc")
        for table in TABLES:
            rows = [f"I,2024-04-01 09:00:0{account},{account},100" for account in (1, 2)]
            scene.land("LOAD00000001.csv", *rows, folder=table.replace(".", "/"))

    def tables(self, **settings: dict[str, Any]) -> dict[str, Any]:
        """Settings of the tables, with further ones for some of them."""
        columns = {"schema": "id int, balance int", "primary_key": "id", "timestamp_column": "at"}
        return {table: {**columns, **settings.get(table, {})} for table in TABLES}

    def move(self, second: int, *moves: tuple[tuple[str, int], tuple[str, int], int]) -> list[str]:
        """Return the records of one transaction."""
        records = []
        for source, target, amount in moves:
            for key, change in ((source, -amount), (target, amount)):
                self.balances[key] += change
                schema, table = key[0].split(".")
                records.append(f"U,{table},{schema},2024-04-01 10:00:{second:02},{key[1]},{self.balances[key]}")
        return records

    def land(self, second: int, *records: str) -> None:
        """Write a transaction file."""
        self.scene.land(f"CDC_TXN-202404011000{second:02}000.csv", *records, folder="cdc")

    def points(self, *tables: str) -> dict[str, Point]:
        """Ends of files by the seconds of their names."""
        report = self.scene.lakeward.points.list(tables)
        return {point.name.removeprefix("point-2024-04-01T1000").rstrip("Z"): point for point in report.points}

    def total(self, version: str) -> tuple[int, dict[tuple[str, int], int]]:
        """The sum over all accounts at a tag, and each of them."""
        found = {
            (table, row[0]): row[1]
            for table in TABLES
            for row in self.scene.lakeward.sql(f"SELECT * FROM {table} VERSION AS OF '{version}'").collect()
        }
        return sum(found.values()), found


def point(second: int) -> str:
    return f"point-2024-04-01T1000{second}Z"


def proven(points: dict[str, Point]) -> list[str]:
    return sorted(second for second, found in points.items() if found.is_proven)


def reasons(points: dict[str, Point], second: str) -> str:
    return " | ".join(f"{found.table}: {found.reason}" for found in points[second].prevented)


def test_tables_whose_heads_differ_agree_at_every_point(scene: Scene) -> None:
    bank = Bank(scene)
    a, b, c = ACCOUNTS
    bank.land(10, *bank.move(5, (a, b, 10)))
    # A transaction of more rows than its first file takes.
    short, long = bank.move(12, (c, b, 1)), bank.move(15, (b, c, 20), (a, c, 5))
    bank.land(20, *short, *long[:3])
    bank.land(30, *long[3:])
    at_30 = dict(bank.balances)
    bank.land(40, *bank.move(35, (b, a, 7)))
    # Runs stop between tables: one is up to date, one has read its load and two files, one nothing.
    scene.run("bank.a")
    scene.try_run("bank.b", max_files=3)
    points = bank.points()
    assert proven(points) == [] and "bank.c: it has not been run yet" in reasons(points, "10")
    assert "bank.b: it has not read cdc/CDC_TXN-20240401100030000.csv" in reasons(points, "30")
    assert proven(bank.points("bank.a", "bank.b")) == ["10"]
    scene.run("bank.b", "bank.c")
    points = bank.points()
    assert proven(points) == ["10", "30"]
    assert "a transaction may be in both" in reasons(points, "20")
    assert "no change that was committed later has arrived" in reasons(points, "40")

    # A tag of an older state is computed; the total is right, and so is each table.
    crash_at(scene, Step.POINT_MARKED, lambda: tag(bank, "newest"))
    assert bank.points()["30"].tags == "partial"
    assert tag(bank, point(30)) == (True, 0)
    assert bank.total(point(30)) == (ALL, at_30)

    # A file that belongs before a point makes tags stale; they are set again on all mirrors, or on none.
    bank.land(25, "U,a,bank,2024-04-01 10:00:15,2,90", "U,b,bank,2024-04-01 10:00:15,2,110")
    scene.run("bank.a")
    points = bank.points()
    assert (proven(points), points["30"].tags) == (["10"], "stale")
    assert "bank.b: it has not read cdc/CDC_TXN-20240401100025000.csv" in reasons(points, "30")
    scene.run("bank.b", "bank.c")
    assert tag(bank, point(30), replace=True) == (True, 0)
    assert bank.total(point(30)) == (ALL, {**at_30, ("bank.a", 2): 90, ("bank.b", 2): 110})


@pytest.mark.soak
def test_rows_set_aside_refusals_files_and_crashes(scene: Scene) -> None:
    bank = Bank(scene)
    a, b, c = ACCOUNTS
    at_0 = dict(bank.balances)
    bank.land(40, *bank.move(35, (b, a, 7)))
    at_40 = dict(bank.balances)
    # One table stops at a bad row; then it sets the row aside, which is no better until the row is put back.
    moved = bank.move(45, (a, c, 3))
    bank.land(50, *moved[:1], "U,c,bank,2024-04-01 10:00:45,2,wrong")
    assert {table.table: str(table.outcome) for table in scene.try_run().tables}["bank.c"] == "failed"
    assert proven(bank.points("bank.a", "bank.b")) == ["40"]
    scene.configure(bank.tables(**{"bank.c": {"on_bad_row": "quarantine"}}))
    scene.run()
    bank.land(58, *bank.move(55, (c, a, 2)))
    scene.run()
    points = bank.points()
    assert "(bank.c: 1 bad row was set aside and not put back" in reasons(points, "40")
    assert "bank.c: 1 bad row was set aside and not put back" in reasons(points, "50")
    [bad] = scene.lakeward.bad_rows("bank.c")
    scene.lakeward.retry_bad_rows("bank.c", replacements={bad.id: moved[1]})
    assert proven(bank.points()) == ["40", "50"]
    assert f"{point(58)} is not a point of these tables" in refused(bank, point(58))
    assert "no transaction file that was read is named so" in refused(bank, point(11))
    assert "is not the name of a point" in refused(bank, "point-2024")
    for options in ({"tag": "", "point": point(40)}, {"to": "x", "point": point(40), "as_of": "op:1"}, {"to": "x"}):
        with pytest.raises(ConfigurationError):
            scene.lakeward.snapshots.create(**options)

    crash_at(scene, Step.PUBLISH_RECORDED, lambda: tag(bank, "newest"))
    assert bank.points()["50"].tags == "stale", "the tag is recorded and not set"
    assert tag(bank, "newest") == (False, 3)
    assert tag(bank, "newest", replace=True) == (True, 0)
    assert (tag(bank, point(40)), bank.total(point(40))) == ((True, 0), (ALL, at_40))
    made = scene.lakeward.snapshots.create(point=point(50), to=str(scene.folder / "out"))
    assert [report.outcome for report in made] == ["done"] * 3
    rows = [row for report in made for row in scene.lakeward.snapshots.read(str(report.location)).collect()]
    assert sum(row["balance"] for row in rows) == ALL == bank.total(point(50))[0] == sum(at_0.values())
    bank.land(49, "U,a,bank,2024-04-01 10:00:44,2,90", "U,b,bank,2024-04-01 10:00:44,2,110")
    scene.run()
    assert scene.lakeward.snapshots.refresh() == []
    with pytest.raises(ConfigurationError, match="several tables"):
        scene.lakeward.snapshots.refresh(version=point(50))
    scene.lakeward.snapshots.drop("bank.c", version=point(40))
    points = bank.points()
    assert (points["40"].tags, points["50"].tags) == ("partial", "stale")

    # Declared, the end of the newest file is a point at once.
    scene.configure(whole_transactions=True)
    assert proven(bank.points()) == ["40", "49", "50", "58"]


def tag(bank: Bank, name: str, **options: Any) -> tuple[bool, int]:
    report = bank.scene.lakeward.points.tag(name, **options)
    return report.is_complete, report.exit_code


def refused(bank: Bank, name: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        bank.scene.lakeward.points.tag(name)
    return str(caught.value.message)
