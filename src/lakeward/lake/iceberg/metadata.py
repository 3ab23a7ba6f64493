"""A table's metadata as of one moment: schema, properties, branches and snapshots. Reading it again loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.lake.iceberg.types import lake_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.datatypes import Column

MAIN = "main"


@dataclass(frozen=True)
class Snapshot:
    """A table snapshot as far as Lakeward reads it."""

    id: int
    parent: int | None
    summary: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Live rows, from metadata alone: position deletes never point at a row twice."""
        return int(self.summary.get("total-records", 0)) - int(self.summary.get("total-position-deletes", 0))


class TableMetadata:
    """Iceberg's Java table object, as it was when it was loaded."""

    def __init__(self, java: Any) -> None:
        """Wrap a loaded table."""
        self.java = java

    def columns(self) -> tuple[Column, ...]:
        """The source's columns and their lake types."""
        return lake_columns(self.java.schema())

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.java.properties())

    def references(self) -> list[str]:
        """Names of all branches and tags."""
        return sorted(self.java.refs().keySet())

    def head(self, reference: str = MAIN) -> Snapshot | None:
        """The snapshot that a branch or tag stands at, None when there is none."""
        found = self.java.snapshot(reference)
        return _snapshot(found) if found is not None else None

    def lineage(self, snapshot_id: int) -> Iterator[Snapshot]:
        """The snapshot and its ancestors, newest first, as far as they are kept."""
        current = self.java.snapshot(snapshot_id)
        while current is not None:
            found = _snapshot(current)
            yield found
            current = self.java.snapshot(found.parent) if found.parent is not None else None

    def stamp_at(self, name: str, snapshot_id: int) -> str | None:
        """The newest value of a summary property in a snapshot's ancestry."""
        return next((one.summary[name] for one in self.lineage(snapshot_id) if name in one.summary), None)


def _snapshot(found: Any) -> Snapshot:
    return Snapshot(found.snapshotId(), found.parentId(), dict(found.summary()))
