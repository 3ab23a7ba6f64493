"""The ``maintenance:`` settings of tables: how much debt is too much, and how much one go at it may do."""

from __future__ import annotations

from pydantic import Field

from lakeward.config.base import Settings, Span


class MaintenanceSettings(Settings):
    """How much debt a table may have before maintenance takes it up, and how far maintenance goes at a time."""

    deleted_share: float = Field(
        0.2, gt=0, le=1, description="a data file is rewritten when this share of its rows is deleted"
    )
    delete_files: int = Field(20, ge=1, description="delete files that may gather before they are merged")
    small_files: int = Field(50, ge=1, description="files more than needed that may gather before they are merged")
    snapshots: int = Field(100, ge=1, description="snapshots that may gather beyond the undo window")
    file_bytes: int = Field(128 << 20, ge=1 << 20, description="size that data files of mirrors are merged up to")
    slice_bytes: int = Field(
        512 << 20, ge=1 << 20, description="bytes that are rewritten at a time: a run that comes meanwhile waits for it"
    )
    max_seconds: Span = Field(
        60.0, gt=0, description="after this long, maintenance after a run begins no further slice"
    )
    max_bytes: int = Field(4 << 30, ge=1, description="after so many bytes rewritten, likewise")
    orphan_age: Span = Field(
        3 * 86_400.0, ge=86_400.0, description="files that no snapshot knows are removed when they are older than this"
    )
