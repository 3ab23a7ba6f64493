"""The resources of work on Spark, released at its end: persisted frames, other resources, temporary settings.

Nothing here imports pyspark before it is used: code that never starts Spark uses this module, too.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession


_Held = TypeVar("_Held")


class Workspace:
    """Persisted frames and open resources that are released at the end of a ``with`` block."""

    def __init__(self) -> None:
        """Start with nothing kept."""
        self._stack = ExitStack()

    def keep(self, frame: DataFrame) -> DataFrame:
        """Return the frame persisted in memory or on disk at its first use."""
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._stack.callback(kept.unpersist)
        return kept

    def hold(self, resource: AbstractContextManager[_Held]) -> _Held:
        """Enter a context that is left at the end of the workspace."""
        return self._stack.enter_context(resource)

    def settle(self, frame: DataFrame) -> DataFrame:
        """Return the frame computed now, without its plan: plans that build on one another would grow without bound.

        Partitions lost with an executor are not recomputed: the op fails then, and the next run repeats it.
        """
        return frame.localCheckpoint(eager=True)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set Spark settings during a ``with`` block and restore the previous ones."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)
