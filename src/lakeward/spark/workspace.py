"""Frames that an op keeps in Spark's storage and what else it holds, let go together when the op ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from pyspark import StorageLevel

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pyspark.sql import DataFrame

_Held = TypeVar("_Held")


class Workspace:
    """Keeps frames, and holds other things open, for the time of a ``with`` block."""

    def __init__(self) -> None:
        """Start with nothing kept."""
        self._stack = ExitStack()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame once, at its first use, in memory or on disk."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._stack.callback(kept.unpersist)
        return kept

    def hold(self, thing: AbstractContextManager[_Held]) -> _Held:
        """Enter a block that ends with the workspace."""
        return self._stack.enter_context(thing)

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
        self._stack.close()
