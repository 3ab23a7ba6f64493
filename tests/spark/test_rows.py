"""Hazards in the rows: what each kind of change must leave in the mirror."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.spark.scene import Scene


def test_update_that_sets_null_removes_the_old_value(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,apple,fruit,1.50", "2,pear,fruit,2.00")
    scene.land("20240101-000000000.csv", "U,1,apple,NULL,NULL")
    scene.run()
    assert scene.rows() == [(1, "apple", None, None), (2, "pear", "fruit", Decimal("2.00"))]


def test_null_token_empty_text_and_quoted_token_are_three_things(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,NULL,,1.00", '2,"NULL","",2.00')
    scene.run()
    assert scene.rows() == [(1, None, "", Decimal("1.00")), (2, "NULL", "", Decimal("2.00"))]


def test_delete_row_that_carries_only_the_key(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240101-000000000.csv", "D,1,NULL,NULL,NULL")
    scene.run()
    assert scene.names() == {2: "b"}


def test_unchanged_marker_keeps_the_earlier_value_column_by_column(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"})
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,1,~,y,~", "U,1,~,~,3.00", "U,2,~,NULL,~", "U,3,new,~,~")
    scene.run()
    assert scene.rows() == [
        (1, "a", "y", Decimal("3.00")),
        (2, "b", None, Decimal("1.00")),
        (3, "new", None, None),
    ]


def test_insert_of_a_known_key_update_and_delete_of_unknown_keys(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.land("20240101-000000000.csv", "I,1,b,x,1.00", "U,2,c,x,1.00", "D,3,d,x,1.00")
    scene.run()
    assert scene.names() == {1: "b", 2: "c"}


def test_key_change_with_before_image_moves_the_row(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00", "2,b,x,1.00")
    scene.land("20240101-000000000.csv", "U,9,a9,x,1.00,1", "I,3,c,x,1.00,")
    scene.run()
    assert scene.names() == {9: "a9", 2: "b", 3: "c"}


def test_partial_key_changes_carry_the_old_rows_values_along_a_chain(scene: Scene) -> None:
    scene.table(csv={"unchanged": "~"})
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.run()
    scene.land("20240101-000000000.csv", "U,2,~,y,~,1", "U,3,~,~,5.00,2", "I,1,fresh,z,0.10,")
    scene.run()
    assert scene.rows() == [(1, "fresh", "z", Decimal("0.10")), (3, "a", "y", Decimal("5.00"))]
    # A late change of the first key, before the moves, reaches the row where it is now.
    scene.land("20230101-000000000.csv", "U,1,late,~,~,")
    scene.run()
    assert scene.rows() == [(1, "fresh", "z", Decimal("0.10")), (3, "late", "y", Decimal("5.00"))]
