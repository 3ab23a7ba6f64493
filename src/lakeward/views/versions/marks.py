"""Marks of points: a point's tags are set table by table, and the mark on a mirror says that all of them are there.

The mark is written last, on the mirror of every table of the point. It names the publication of each table, so that a
tag that was rebuilt or dropped since no longer belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.documents import Record, to_compact_json
from lakeward.text import json_object, reading_property

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable

PREFIX = "lakeward.point."


@dataclass(frozen=True)
class PointMark(Record):
    """A point whose tags are all set: the id of each table's publication, and when that was found."""

    publications: dict[str, str] = field(default_factory=dict)
    completed: str = ""


def read_mark(mirror: TableMetadata, tag: str) -> PointMark | None:
    """Return the mark of a point's tag on one mirror, None without one."""
    name = PREFIX + tag
    text = mirror.property(name)
    if text is None:
        return None
    with reading_property(name, of="mirror"):
        return PointMark.from_dict(json_object(text))


def set_mark(mirror: IcebergTable, tag: str, mark: PointMark) -> None:
    """Write a point's mark, in place of a former one."""
    mirror.set_properties({PREFIX + tag: to_compact_json(mark)})


def remove_marks(mirror: IcebergTable, tags: Iterable[str]) -> None:
    """Remove the marks of tags that are about to be dropped."""
    marked = mirror.metadata().properties(PREFIX)
    if names := {PREFIX + tag: None for tag in tags if PREFIX + tag in marked}:
        mirror.set_properties(names)
