"""What merge-on-read and many small commits leave for maintenance, told from metadata alone: no Spark job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.lake.iceberg.metadata import TableMetadata


@dataclass(frozen=True)
class Debt:
    """A table's files, deleted rows and kept snapshots.

    ``deleted_share`` is the part of the stored rows that every reader reads and throws away again.
    ``average_file_bytes`` is over data and delete files.
    """

    data_files: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    deleted_share: float = 0.0
    average_file_bytes: int = 0
    snapshots: int = 0


def debt_of(table: TableMetadata) -> Debt:
    """Measure a table's debt at the head of ``main``."""
    head = table.head()
    summary = head.summary if head else {}

    def total(name: str) -> int:
        return int(summary.get(f"total-{name}", 0))

    rows, deleted = total("records"), total("position-deletes")
    files = total("data-files") + total("delete-files")
    return Debt(
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        deleted_rows=deleted,
        deleted_share=deleted / rows if rows else 0.0,
        average_file_bytes=total("files-size") // files if files else 0,
        snapshots=table.snapshot_count(),
    )
