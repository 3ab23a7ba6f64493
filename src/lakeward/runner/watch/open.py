"""Opens a watcher from settings: chooses the triggers and timers that fit the landing folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lakeward.errors import ConfigurationError
from lakeward.runner.tables import find_tables
from lakeward.runner.watch.inbox import Inbox
from lakeward.runner.watch.queue import Queue, QueuePoller
from lakeward.runner.watch.requests import PathFilter
from lakeward.runner.watch.triggers import Cron, Every, FolderWatcher, SystemClock
from lakeward.runner.watch.watcher import Watcher
from lakeward.storage.landing import LocalStorage
from lakeward.storage.s3 import is_s3

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Sequence

    from lakeward.config import Config
    from lakeward.config.services import WatchSettings
    from lakeward.mirror.op.context import RunOptions
    from lakeward.mirror.op.report import RunReport
    from lakeward.runner.observers import Observer
    from lakeward.runner.tables import Discovery, KnownTable
    from lakeward.runner.watch.triggers import Timer
    from lakeward.runner.watch.watcher import RunObserver, Trigger
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Storage


class Lake(Protocol):
    """The part of a lake that watching uses; several threads may call ``run`` at a time, for different tables."""

    @property
    def config(self) -> Config:
        """The configuration."""
        ...

    @property
    def spark(self) -> Any:
        """The Spark session, started at first use."""
        ...

    def has_spark(self) -> bool:
        """Whether the Spark application is still running."""
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
        """Bring mirrors up to date; ``observers`` observe this run."""
        ...


class WatchedLake(Lake, Protocol):
    """A lake with access to its landing files and its registry."""

    @property
    def storage(self) -> Storage:
        """The landing folder."""
        ...

    @property
    def state(self) -> StateStore:
        """The state store."""
        ...

    def count_poison(self) -> None:
        """Count a message that could not be read."""
        ...


def open_watcher(
    lake: WatchedLake, names: Iterable[str], settings: WatchSettings, observers: Sequence[RunObserver] = ()
) -> Watcher:
    """Return the watcher for the settings; nothing is started yet.

    Raises:
        ConfigurationError: a table is unknown or inactive, or nothing would ever start a run.
    """
    chosen = tuple(names)
    find_tables(lake.config, lake.state, chosen)
    clock = SystemClock()
    timers = _timers(settings, clock)
    inbox = Inbox(settings.settle, clock)
    triggers = _triggers(lake, settings, inbox)
    return Watcher(lake, inbox, names=chosen, triggers=triggers, timers=timers, observers=observers)


def _timers(settings: WatchSettings, clock: SystemClock) -> list[Timer]:
    timers: list[Timer] = []
    if settings.every is not None:
        timers.append(Every(settings.every, clock, reason=f"every {settings.every:g} s"))
    if settings.cron is not None:
        timers.append(Cron(settings.cron, clock, timezone=settings.timezone))
    if settings.rescan:
        timers.append(Every(settings.rescan, clock, reason="full look"))
    return timers


def _triggers(lake: WatchedLake, settings: WatchSettings, inbox: Inbox) -> list[Trigger]:
    """Return the triggers for new files: the queue, or else the folder; a schedule needs neither."""
    landing = lake.config.resolve(lake.config.landing)
    accepts = PathFilter(settings.prefix, settings.suffix)
    if settings.queue is not None:
        if not is_s3(landing):
            msg = f"the queue {settings.queue} reports objects in S3, but landing is {lake.config.landing}"
            raise ConfigurationError(
                msg, hint="leave out --queue (and watch.queue): a local folder is watched directly"
            )
        return [QueuePoller(Queue(settings.queue), landing, inbox.put, accepts, on_poison=lake.count_poison)]
    if settings.every is not None or settings.cron is not None:
        return []
    if isinstance(lake.storage, LocalStorage):
        return [FolderWatcher(lake.storage.root, inbox.put, accepts)]
    msg = f"landing {lake.config.landing} cannot be watched directly: new objects must be reported by a queue"
    hint = "lakeward watch --queue URL (docs/deploy.md sets it up), or on a schedule: lakeward watch --every 10m"
    raise ConfigurationError(msg, hint=hint)
