"""Sources of one table for tests with several writers, with a key and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import Source

if TYPE_CHECKING:
    from tests.spark.scene import Scene

ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 11))


OTHER_STATE = "sqlite:///other-state.db"


def keyed_source(scene: Scene) -> Source:
    scene.table(rewrite_share=10)
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    return source


def keyless_source(scene: Scene) -> Source:
    scene.configure({TABLE: {"schema": SCHEMA}})
    source = Source(scene, keyless=True)
    source.load("LOAD00000001.csv", *ROWS)
    return source


def change(source: Source, number: int) -> None:
    if source.keyless:
        lines: tuple[str, ...] = ("I,1,row 1,x,1.00", f"I,{number},new,x,1.00")
    else:
        lines = (f"U,1,update {number},y,2.00", f"D,{number + 1},,,0", f"I,{number + 20},new,y,3.00")
    source.change(f"2024010{number}-000000000.csv", *lines)
