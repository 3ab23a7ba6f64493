"""Rows that change their keys: shifts, swaps and cycles in a commit, however it is spread over files and runs."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.spark.workspace import Workspace
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from collections.abc import Sequence

AT = "2024-01-01 00:00:0{}.000000"


def land(scene: Scene, name: str, changes: Sequence[tuple[Any, ...]], *, start: int = 0, images: bool = False) -> None:
    """Land a Parquet file of changes: (operation, old id, new id, name, commit time or None[, name before])."""
    columns: dict[str, Any] = {"Op": [change[0] for change in changes], "id": [change[2] for change in changes]}
    columns["name"] = [change[3] for change in changes]
    if all(change[4] is not None for change in changes):
        columns["at"] = [AT.format(change[4]) for change in changes]
    columns["AR_H_CHANGE_SEQ"] = [str(start + number) for number in range(len(changes))]
    columns["BI_id"] = [change[1] for change in changes]
    if images:
        columns["BI_name"] = [change[5] for change in changes]
    scene.land_parquet(name, columns)


def configure(scene: Scene, **settings: Any) -> None:
    scene.configure({TABLE: {"schema": "id bigint, name string", "primary_key": "id", **settings}})


def begin(scene: Scene, rows: dict[int, str], *, timed: bool = False) -> None:
    """Configure the table and land its load."""
    configure(scene, **({"timestamp_column": "at"} if timed else {}))
    columns: dict[str, Any] = {"id": list(rows), "name": list(rows.values())}
    if timed:
        columns["at"] = [AT.format(0)] * len(rows)
    scene.land_parquet("LOAD00000001.parquet", columns)


ABC = {1: "a", 2: "b", 3: "c"}


def shift(commit: int | None = None) -> list[tuple[Any, ...]]:
    return [("U", 1, 2, "a", commit), ("U", 2, 3, "b", commit), ("U", 3, 4, "c", commit)]


def test_shift_swap_and_cycle_of_one_commit_lose_no_row_and_every_way_to_read_the_table_agrees(scene: Scene) -> None:
    begin(scene, ABC, timed=True)
    land(scene, "20240101-000000000.parquet", shift(1))
    scene.run()
    shifted = {2: "a", 3: "b", 4: "c"}
    assert scene.names() == shifted
    swap = [("U", 2, 3, "a", 2), ("U", 3, 2, "b", 2)]
    cycle = [("U", 2, 3, "b", 3), ("U", 3, 4, "a", 3), ("U", 4, 2, "c", 3)]
    land(scene, "20240102-000000000.parquet", [*swap, *cycle], start=10)
    scene.run()
    assert scene.names() == {2: "c", 3: "b", 4: "a"}
    lake = scene.lakeward
    assert lake.verify([TABLE]).tables[0].verdict == "clean"
    past = {moment: as_of(scene, moment) for moment in (1, 2, 3)}
    assert past == {1: shifted, 2: {2: "b", 3: "a", 4: "c"}, 3: {2: "c", 3: "b", 4: "a"}}
    versions = lake.history.scd2(TABLE).orderBy("id", "valid_from").collect()
    assert [(row["id"], row["name"]) for row in versions] == [
        (1, "a"), (2, "b"), (2, "a"), (2, "b"), (2, "c"), (3, "c"), (3, "b"), (3, "a"), (3, "b"), (4, "c"), (4, "a"),
    ]  # fmt: skip
    reported = lake.history.row(TABLE, {"id": 3}).changes
    assert [(change.after or {}).get("name") for change in reported] == ["c", "b", "a", "b"]
    lake.undo(TABLE, to_op=2)
    assert scene.names() == shifted


@pytest.mark.parametrize("commit", [1, None])
def test_commit_that_is_split_over_files_and_runs_ends_as_if_it_came_at_once(scene: Scene, commit: int | None) -> None:
    begin(scene, ABC, timed=commit is not None)
    scene.run()
    names = [f"2024010{number}-000000000.parquet" for number in (1, 2, 3)]
    for number in (0, 2, 1):
        land(scene, names[number], shift(commit)[number : number + 1], start=number)
        scene.run()
    assert scene.names() == {2: "a", 3: "b", 4: "c"}
    assert scene.lakeward.verify([TABLE]).tables[0].verdict == "clean"


def test_rows_that_are_alike_stop_the_table_until_it_is_declared_what_a_commit_is(scene: Scene) -> None:
    begin(scene, {1: "a", 2: "a", 22: "d"})
    on = [("U", 21, 22, "d", None), ("U", 22, 23, "d", None)]
    land(scene, "20240101-000000000.parquet", [("U", 1, 2, "a", None), ("U", 2, 3, "a", None)])
    message = scene.refused().message or ""
    assert "id=2" in message
    assert "20240101-000000000.parquet, row 2" in message
    configure(scene, key_moves="set")
    scene.run()
    assert scene.names() == {2: "a", 3: "a", 22: "d"}
    # One row that moved twice, and the load was read in between; or the second of two rows has moved on since.
    configure(scene)
    land(scene, "20240102-000000000.parquet", on, start=10)
    assert "id=22" in (scene.refused().message or "")
    configure(scene, key_moves="single")
    scene.run()
    assert scene.names() == {2: "a", 3: "a", 23: "d"}


def test_before_image_decides_which_of_two_rows_leaves_where_a_constraint_is_deferred(scene: Scene) -> None:
    begin(scene, {1: "a", 2: "b"})
    on = [("U", 1, 2, "a", None, "a"), ("U", 2, 3, "a2", None, "a")]
    land(scene, "20240101-000000000.parquet", on, images=True)
    scene.run()
    assert scene.names() == {2: "b", 3: "a2"}
    assert scene.lakeward.verify([TABLE]).tables[0].verdict == "clean"


def test_partial_rows_take_their_missing_values_along_any_chain_of_moves(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"}, key_moves="set")
    scene.land("LOAD00000001.csv", *(f"{key},n{key},x,1.00" for key in range(1, 8)))
    scene.run()
    shifted = [f"U,{key + 1},~,y{key},~,{key}" for key in range(1, 8)]
    # One row then moves on nine times, and changes on the way.
    onward = [f"U,{key + 1},~,~,{key}.00,{key}" for key in range(8, 17)]
    scene.land("20240102-000000000.csv", *shifted, *onward)
    scene.run()
    expected = [
        (17, "n7", "y7", Decimal("16.00")),
        *((key + 1, f"n{key}", f"y{key}", Decimal(1)) for key in range(1, 7)),
    ]
    assert sorted(scene.rows()) == sorted(expected)
    # A late change before the moves reaches the row where it is now.
    scene.land("20240101-000000000.csv", "U,7,late,~,~,", "U,1,first,~,~,")
    scene.run()
    found = {row[0]: row[1] for row in scene.rows()}
    assert found == {17: "late", 2: "first", **{key + 1: f"n{key}" for key in range(2, 7)}}


def as_of(scene: Scene, second: int) -> dict[int, str]:
    """Names by key at the end of a second."""
    context = scene.lakeward._opened.workbench().context(scene.lakeward.table(TABLE))
    with Workspace() as workspace:
        rows = rows_as_of(context, workspace, parse_moment(f"2024-01-01T00:00:0{second}", "UTC")).rows.collect()
    return {row["id"]: row["name"] for row in rows}


def test_key_that_was_null_moves_where_that_is_declared_and_stops_the_table_where_not(scene: Scene) -> None:
    keys = {"schema": "a string, b int, v string", "primary_key": ["a", "b"], "csv": {"header": True}}
    scene.configure({TABLE: keys})
    scene.land("LOAD00000001.csv", "a,b,v", "NULL,1,old", "y,1,other")
    scene.run()
    scene.land("20240101-000000000.csv", "Op,a,b,v,BI_a,BI_b", "U,x,1,new,NULL,1")
    message = scene.refused().message or ""
    assert "before_image_nulls: value" in (scene.refused().hint or message)
    scene.configure({TABLE: {**keys, "before_image_nulls": "value"}})
    scene.run()
    assert scene.rows() == [("x", 1, "new"), ("y", 1, "other")]


@pytest.mark.soak
def test_soak_one_statement_shifts_every_row(scene: Scene) -> None:
    """Work grows with the keys, not with the links of the chain."""
    count = 300_000
    configure(scene, key_moves="set", schema_mode="evolve", max_delete_share=1.0)
    rows = list(range(1, count + 1))
    scene.land_parquet("LOAD00000001.parquet", {"id": rows, "name": [f"n{key}" for key in rows]})
    scene.run()
    columns = {"Op": ["U"] * count, "id": [key + 1 for key in rows], "BI_id": rows}
    columns["AR_H_CHANGE_SEQ"] = [f"{key:020}" for key in rows]
    # The name is absent: every row takes it over from the one that left its old key.
    scene.land_parquet("20240101-000000000.parquet", columns)
    started = time.monotonic()
    scene.run()
    print(f"{count:,} keys shifted in {time.monotonic() - started:.0f} s")
    wrong = scene.lakeward.sql(f"SELECT count(*) FROM {TABLE} WHERE name != concat('n', id - 1)").collect()[0][0]
    assert (scene.lakeward.sql(f"SELECT count(*) FROM {TABLE}").collect()[0][0], wrong) == (count, 0)
