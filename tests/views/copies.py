"""A copy of the current state as plain files, and what readers find in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path


DATED = {"to": "./copy", "layout": "dated", "date_column": "sold"}


def seen_by_readers(root: Path) -> dict[int, str | None]:
    """What a reader without Iceberg or Lakeward finds."""
    assert (root / "current").readlink().name == json.loads((root / "_current.json").read_text())["path"]
    rows = [row for file in (root / "current").glob("**/*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows)
    return found
