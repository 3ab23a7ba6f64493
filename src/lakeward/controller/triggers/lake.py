"""What watching needs of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from lakeward.config import Config
    from lakeward.controller.discovery import Discovery
    from lakeward.controller.observers import Observer
    from lakeward.controller.tables import KnownTable
    from lakeward.pipeline.context import RunOptions
    from lakeward.pipeline.report import RunReport


class Lake(Protocol):
    """A lake as watching sees it; several threads may call ``run`` at one time, for different tables."""

    config: Config

    @property
    def spark(self) -> Any:
        """The Spark session, started at first use."""
        ...

    def has_spark(self) -> bool:
        """Tell whether the Spark application still runs."""
        ...

    def tables(self) -> list[KnownTable]:
        """All tables that are declared or registered."""
        ...

    def discover(self) -> Discovery:
        """Register tables found in landing."""
        ...

    def run(
        self,
        tables: Iterable[str] = (),
        *,
        options: RunOptions | None = None,
        stop: threading.Event | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunReport:
        """Bring mirrors up to date; ``observers`` hear of this run."""
        ...
