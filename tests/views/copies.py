"""A copy of the current state as plain files, and what readers find in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from lakeward.views.versions.places import VERSIONS

if TYPE_CHECKING:
    from pathlib import Path


DATED = {"to": "./copy", "layout": "dated", "date_column": "sold"}


def versions_of(root: Path) -> Path:
    """Return the folder of the versions that readers of a copy do not see."""
    return root.parent / VERSIONS / root.name


def seen_by_readers(root: Path, *, is_switched: bool = True) -> dict[int, str | None]:
    """What a reader without Iceberg or Lakeward finds; once readers are switched, the pointer agrees with the link."""
    if is_switched:
        assert str((root / "current").readlink()) == json.loads((root / "_current.json").read_text())["path"]
    rows = [row for file in (root / "current").glob("**/*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows)
    return found
