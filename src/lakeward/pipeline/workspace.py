"""Frames that an op keeps in Spark's storage, let go together when the op ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame


class Workspace:
    """Keeps frames for the time of a ``with`` block."""

    def __init__(self) -> None:
        """Start with nothing kept."""
        self._kept: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame once, at its first use, in memory or on disk."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept

    def settle(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now and forget how: plans that are built on one another in rounds grow without bound.

        What is lost with an executor is not computed again: the op then fails and the next run repeats it.
        """
        return frame.localCheckpoint(eager=True)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for frame in reversed(self._kept):
            frame.unpersist()
        self._kept.clear()
