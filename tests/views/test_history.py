"""The history of one row: every change in order, what it changed, and what became of it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ConfigurationError
from lakeward.views.history.keys import row_key
from lakeward.views.history.rows import ChangeVerdict
from lakeward.views.history.timeline import read_timeline
from tests.spark.scene import SCHEMA, TABLE

if TYPE_CHECKING:
    from lakeward.views.history.rows import RowHistory
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

FEBRUARY = 1706745600.0
DAY = 86400.0


def summary(history: RowHistory) -> list[tuple[str, int, str, dict[str, Any] | None, dict[str, Any] | None]]:
    return [
        (change.operation, change.op, change.verdict.value, change.before, change.after) for change in history.changes
    ]


def test_every_change_of_a_row_is_reported_with_its_outcome(scene: Scene) -> None:
    scene.table(on_bad_row="quarantine", timestamp_column="ts")
    scene.land(
        "LOAD00000001.csv",
        "2024-01-01 00:00:00,7,load,x,1.00",
        "2024-01-01 00:00:00,8,other,x,1.00",
        mtime=FEBRUARY - 30 * DAY,
    )
    scene.run()
    scene.land(
        "20240110-000000000.csv", "U,2024-01-10 00:00:00,7,first,x,1.00", "U,2024-01-10 00:00:01,7,second,x,2.00"
    )
    scene.run()
    scene.land(
        "20240120-000000000.csv",
        "D,2024-01-20 00:00:00,7,second,x,2.00",
        "U,2024-01-20 00:00:01,7,bad,x,oops",
        "U,2024-01-20 00:00:02,8,bad,x,7.00",
    )
    scene.run()
    late = scene.land("20240105-000000000.csv", "U,2024-01-05 00:00:00,7,late,x,9.00")
    scene.run()
    history = scene.lakeward.history.row(TABLE, {"id": 7})
    row = {"id": 7, "name": "load", "dept": "x", "price": Decimal("1.00")}
    assert summary(history) == [
        ("L", 1, "won", None, row),
        ("U", 4, "stale", {"name": "load", "price": Decimal("1.00")}, {"name": "late", "price": Decimal("9.00")}),
        ("U", 2, "superseded", {"name": "late", "price": Decimal("9.00")}, {"name": "first", "price": Decimal("1.00")}),
        ("U", 2, "won", {"name": "first", "price": Decimal("1.00")}, {"name": "second", "price": Decimal("2.00")}),
        ("D", 3, "won", {**row, "name": "second", "price": Decimal("2.00")}, None),
        ("?", 3, "quarantined", None, None),
    ]
    assert history.now is None and not history.is_cut
    stale, bad = history.changes[1], history.changes[-1]
    assert (stale.file, stale.row, stale.commit_time) == (
        late.relative_to(scene.landing).as_posix(), 1, "2024-01-05T00:00:00.000000Z",
    )  # fmt: skip
    assert stale.reason == "op 2 had already applied a later change"
    assert bad.reason == "price 'oops': not a value of type decimal(10,2)" and bad.raw is not None
    assert history.changes[0].file == "sales/product/LOAD00000001.csv"
    # Of a long history the newest changes are reported, with the rows before them.
    newest = scene.lakeward.history.row(TABLE, {"id": "7"}, limit=3)
    assert summary(newest) == summary(history)[-3:] and newest.is_cut
    never = scene.lakeward.history.row(TABLE, {"id": 99})
    assert (never.changes, never.now) == ((), None)
    with pytest.raises(ConfigurationError, match="is not a value of the key column id"):
        scene.lakeward.history.row(TABLE, {"id": "seven"})
    # A reload without the row ends it; a change of the load before it that comes later changes nothing.
    scene.land("LOAD00000001.csv", "2024-02-01 00:00:00,8,reloaded,x,1.00", mtime=FEBRUARY)
    scene.land("20240301-000000000.csv", "I,2024-03-01 00:00:00,7,again,x,1.00")
    scene.run()
    scene.land("20240121-000000000.csv", "U,2024-01-21 00:00:00,7,before the reload,x,1.00")
    scene.run()
    assert [change[:3] for change in summary(scene.lakeward.history.row(TABLE, {"id": 7}))][5:] == [
        ("?", 3, "quarantined"), ("U", 7, "superseded"), ("L", 5, "won"), ("I", 6, "won"),
    ]  # fmt: skip
    ended = scene.lakeward.history.row(TABLE, {"id": 7}).changes[-2]
    assert (ended.reason, ended.after, ended.file) == (
        "generation 2 began without the row", None, "sales/product/LOAD00000001.csv",
    )  # fmt: skip
    other = scene.lakeward.history.row(TABLE, {"id": 8})
    assert [change[:3] for change in summary(other)] == [("L", 1, "won"), ("U", 3, "won"), ("L", 5, "won")]
    assert other.now == {"id": 8, "name": "reloaded", "dept": "x", "price": Decimal("1.00")}


def test_key_changes_partial_rows_repeats_and_undone_ops_are_reported(scene: Scene) -> None:
    csv = {"header": True, "unchanged": "-"}
    scene.table(timestamp_column="ts", csv=csv)
    head = "Op,ts,id,name,dept,price,AR_H_CHANGE_SEQ,BI_id"

    def change(number: int, text: str) -> str:
        operation, rest = text.split(",", 1)
        *values, before = rest.split(",")
        return ",".join([operation, f"2024-01-01 00:00:{number:02}", *values, f"{number:035}", before])

    scene.land("LOAD00000001.csv", "id,name,dept,price", "1,load,x,1.00")
    scene.land("20240102-000000000.csv", head, change(1, "U,1,-,-,2.00,1"), change(2, "U,1,first,-,-,1"))
    scene.run()
    scene.land("20240103-000000000.csv", head, change(3, "U,5,-,y,-,1"), change(2, "U,1,first,-,-,1"))
    scene.run()
    scene.land("20240104-000000000.csv", head, change(4, "U,5,wrong,-,-,5"))
    scene.run()
    scene.lakeward.undo(TABLE, to_op=3)
    new, old = (scene.lakeward.history.row(TABLE, {"id": key}) for key in (5, 1))
    row = {"id": 5, "name": "first", "dept": "y", "price": Decimal("2.00")}
    assert summary(new) == [("U", 3, "won", None, row), ("U", 4, "undone", None, {"id": 5, "name": "wrong"})]
    assert new.changes[0].moved_from == {"id": 1} and new.now == row
    assert new.changes[1].reason == "op 5 undid it"
    assert [(change.operation, change.op, change.verdict) for change in old.changes] == [
        ("L", 1, ChangeVerdict.WON),
        ("U", 2, ChangeVerdict.WON),
        ("U", 2, ChangeVerdict.WON),
        ("U", 3, ChangeVerdict.REPEATED),
        ("D", 3, ChangeVerdict.WON),
    ]
    assert old.changes[-1].moved_to == {"id": 5} and old.now is None
    assert (old.changes[2].before, old.changes[2].after) == ({"name": "load"}, {"name": "first"})


def test_only_files_that_may_hold_the_key_are_read(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA, "primary_key": ["id", "name"]}})
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    for day in range(1, 5):
        scene.land(f"2024010{day}-000000000.csv", f"U,{day * 10},a,x,1.00", f"U,{day * 10 + 5},NULL,x,1.00")
        scene.run()
    context = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE))
    timeline = read_timeline(context)
    key = row_key(TABLE, timeline.bases.columns, timeline.keys, {"id": "25", "name": None})
    changes = timeline.changes.filter(key.matches())
    assert [row["id"] for row in changes.collect()] == [25]
    # Iceberg receives the condition and leaves out files by their statistics.
    [scan] = re.findall(r"BatchScan [^\n]*", changes._jdf.queryExecution().executedPlan().toString())
    assert "id = 25" in scan and "name IS NULL" in scan, scan
    [entry] = scene.lakeward.history.row(TABLE, {"id": 25, "name": None}).changes
    assert (entry.op, entry.verdict) == (3, ChangeVerdict.WON)
    with pytest.raises(ConfigurationError, match=r"the key of .* is id, name; found id"):
        scene.lakeward.history.row(TABLE, {"id": 25})
