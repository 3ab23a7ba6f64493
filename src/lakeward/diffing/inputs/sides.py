"""One of the two things that are compared: its rows, and what is known of them without reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.storage.filesystem import FileSystem
    from lakeward.storage.sets import SetLayout


@dataclass(frozen=True)
class FoundSet:
    """Files of a snapshot that lie in buckets by key; ``folder`` is what their paths count from."""

    store: FileSystem
    folder: str
    layout: SetLayout


@dataclass(frozen=True)
class IcebergState:
    """A table of the lake at one of its snapshots; ``store`` is the file system of its files, where known."""

    table: IcebergTable
    snapshot_id: int
    store: FileSystem | None = None


@dataclass(frozen=True)
class Side:
    """A side of a comparison.

    ``label`` is how it was asked for. ``rows`` and ``checksum`` are those of a manifest, where there is one.
    ``identity`` is what a change set says of its parent: ``kind``, ``location``, ``created``, ``rows``, ``checksum``
    and what else tells it from others, as far as known.
    """

    label: str
    frame: DataFrame
    primary_key: tuple[str, ...] = ()
    set: FoundSet | None = None
    iceberg: IcebergState | None = None
    rows: int | None = None
    checksum: str | None = None
    format: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)

    def bytes_per_row(self) -> float | None:
        """Give how many bytes a row takes in the side's files; None where it is not known."""
        size = self.identity.get("bytes")
        return int(size) / self.rows if size is not None and self.rows else None
