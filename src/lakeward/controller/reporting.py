"""Who hears of every run of a lake, by its configuration."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.config import Config
    from lakeward.controller.metrics import Metrics
    from lakeward.controller.observers import Observer
    from lakeward.controller.status import TableStatus
    from lakeward.state.base import StateStore


class Reporting:
    """The observers that a lake has from its configuration, made when the first run needs them."""

    def __init__(
        self, config: Config, state: StateStore, status: Callable[[Sequence[str]], Sequence[TableStatus]]
    ) -> None:
        """Take what they need; ``status`` tells how named tables stand."""
        self._config = config
        self._state = state
        self._status = status
        self._making = threading.Lock()

    @cached_property
    def metrics(self) -> Metrics:
        """Figures for Prometheus. Once asked for, or with ``metrics: file:``, every run is taken in."""
        from lakeward.controller.metrics import Metrics

        file = self._config.metrics.file
        return Metrics(file=Path(self._config.resolve(file)) if file else None, status=self._status)

    def observers(self) -> tuple[Observer, ...]:
        """Give the log of runs, the upkeep of their history, notifications and metrics, as configured.

        Raises:
            ConfigurationError: notifications cannot be sent as configured.
        """
        # Two runs that begin at one time must not get two sets.
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                return (*self._always, self.metrics)
            return self._always

    def count_poison(self) -> None:
        """Count a message that could not be read, where figures are kept."""
        with self._making:
            if self._config.metrics.file or "metrics" in self.__dict__:
                self.metrics.count_poison()

    def close(self) -> None:
        """Let go of what metrics hold."""
        if "metrics" in self.__dict__:
            self.metrics.close()

    @cached_property
    def _always(self) -> tuple[Observer, ...]:
        from lakeward.controller.history import HistoryUpkeep
        from lakeward.controller.notify import Notifier, open_channels
        from lakeward.controller.runlog import RunLog

        observers: list[Observer] = [RunLog(), HistoryUpkeep(self._state, days=self._config.history_days)]
        if (settings := self._config.notify) is not None:
            observers.append(Notifier(self._state, open_channels(settings), on=settings.on))
        return tuple(observers)
