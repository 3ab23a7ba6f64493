"""The watching loop: collect requests, start runs of the tables they concern, and plan their repetition.

:func:`open_watcher` chooses the triggers and timers that fit the settings and the landing folder.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.logs import event
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.report import Outcome
from lakeward.runner.observers import SilentObserver
from lakeward.runner.tables import find_tables
from lakeward.runner.watch.inbox import Inbox, PendingRuns
from lakeward.runner.watch.queue import Queue, QueuePoller
from lakeward.runner.watch.requests import Lookup, PathFilter, RunRequest
from lakeward.runner.watch.schedules import SnapshotTimes
from lakeward.runner.watch.triggers import Cron, Every, FolderWatcher, SystemClock
from lakeward.storage.s3 import is_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakeward.config import Config
    from lakeward.config.services import WatchSettings
    from lakeward.mirror.op.report import RunReport, TableReport
    from lakeward.runner.observers import Observer
    from lakeward.runner.tables import Discovery, KnownTable
    from lakeward.runner.watch.triggers import Clock, Timer
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing


_LOOK_SECONDS = 0.2
# A run that is stopped takes up to a minute to finish its current commit.
_GRACE_SECONDS = 65.0


@dataclass(eq=False)
class Round:
    """A run in progress. ``left`` are its unfinished tables; at its end it has a report or an error.

    Every round has its own ``stop``: a run sets it when it fails, which must not end the others.
    """

    left: set[str]
    stop: threading.Event = field(default_factory=threading.Event)
    report: RunReport | None = None
    error: BaseException | None = None
    is_begun: bool = False
    is_over: bool = False

    @property
    def is_going(self) -> bool:
        """Whether the run has started and not ended; a round whose thread could not start never is."""
        return self.is_begun and not self.is_over


class Rounds:
    """The runs in progress, each in its own thread. One thread calls the methods; ``wake`` is called for news.

    A table is reported as soon as it is done and need not wait for the slower ones of its round. Retries are left to
    the caller: a table that waits for its next attempt would otherwise count as running.
    """

    def __init__(self, lake: Lake, wake: Callable[[], None]) -> None:
        self._lake = lake
        self._wake = wake
        self._rounds: list[Round] = []
        self._news: queue.SimpleQueue[tuple[Round, TableReport | None]] = queue.SimpleQueue()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return the number of rounds whose end was not yet returned by ``news``."""
        return len(self._rounds)

    @property
    def at_work(self) -> int:
        """The number of tables that are running; a round whose tables are done but that has not ended counts as one."""
        parallel = self._lake.config.parallel
        return sum(max(1, min(parallel, len(begun.left))) for begun in self._rounds)

    def begin(self, tables: Sequence[str]) -> None:
        """Start a run of tables that are in no other run."""
        begun = Round(set(tables))
        self._rounds.append(begun)
        # A daemon, so that a second Ctrl-C ends the process even if a round hangs.
        threading.Thread(target=self._run, args=(begun, tuple(tables)), name="lakeward-round", daemon=True).start()

    def news(self) -> Iterator[TableReport | Round]:
        """Yield the tables that finished since the last call, and each round that ended after its tables."""
        while not self._news.empty():
            begun, report = self._news.get()
            if report is None:
                self._rounds.remove(begun)
                yield begun
            else:
                begun.left.discard(report.table)
                yield report

    def end(self) -> int:
        """End all runs early, as Ctrl-C would, wait for them, and return the number that did not end in time."""
        deadline = time.monotonic() + _GRACE_SECONDS
        for begun in self._rounds:
            begun.stop.set()
        with self._changed:
            # In short waits, so that a second Ctrl-C works on every system.
            while (left := sum(begun.is_going for begun in self._rounds)) and time.monotonic() < deadline:
                self._changed.wait(_LOOK_SECONDS)
        return left

    def _run(self, begun: Round, tables: Sequence[str]) -> None:
        begun.is_begun = True
        try:
            begun.report = self._lake.run(
                tables, options=RunOptions(attempts=0), stop=begun.stop, observers=[_RoundObserver(self, begun)]
            )
        except BaseException as error:  # the thread that watches decides what it means
            begun.error = error
        self.notify(begun, None)
        with self._changed:
            begun.is_over = True
            self._changed.notify_all()

    def notify(self, begun: Round, report: TableReport | None) -> None:
        """Add the report of a finished table, or None for the end of the round; called from any thread."""
        self._news.put((begun, report))
        self._wake()


class _RoundObserver(SilentObserver):
    """An observer that passes on the finished tables of a round."""

    def __init__(self, rounds: Rounds, begun: Round) -> None:
        self._rounds = rounds
        self._round = begun

    def table_finished(self, report: TableReport) -> None:
        """Pass the report on."""
        self._rounds.notify(self._round, report)


_FIRST, _MOST = 1.0, 300.0
_WAITING_MOST = 30.0
# Kinds of errors that are temporary.
_PASSING = ("retriable", "conflict")


class Reruns:
    """The delays until tables that wait, were locked or failed temporarily run again, longer each time."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def delay(self, report: TableReport, load_settle: float = 0.0) -> float | None:
        """Return the seconds after which a table is run again; None if it is done, or a person must act first."""
        if not _comes_again(report):
            self._times.pop(report.table, None)
            return None
        times = self._times.get(report.table, 0)
        self._times[report.table] = times + 1
        return min(backoff(times), _longest(report, load_settle))


def backoff(times: int) -> float:
    """Return a delay in seconds that doubles each time, up to five minutes."""
    return min(_FIRST * 2.0 ** min(times, 30), _MOST)


def _comes_again(report: TableReport) -> bool:
    if report.outcome is Outcome.FAILED:
        return report.error_kind in _PASSING
    return report.outcome in (Outcome.WAITING, Outcome.LOCKED)


def _longest(report: TableReport, load_settle: float) -> float:
    """Return the longest delay; for a load that settles a quarter of its settle time."""
    if report.outcome is not Outcome.WAITING:
        return _MOST
    return min(max(load_settle / 4, _FIRST), _WAITING_MOST) if load_settle else _WAITING_MOST


logger = logging.getLogger(__name__)

# The longest sleep, after which a changed wall clock or a suspended machine is noticed.
_LONGEST_WAIT = 30.0


class Trigger(Protocol):
    """A source of requests, which puts them into the inbox from its own thread."""

    def start(self) -> None:
        """Start, and return when no later event can be missed."""
        ...

    def drain(self) -> None:
        """Instead of starting a run, queue a request for what waits now."""
        ...

    def stop(self) -> None:
        """Stop."""
        ...


class RunObserver(Protocol):
    """An observer of every run, called in the thread that watches."""

    def run_finished(self, report: RunReport) -> None:
        """Handle the end of a run."""
        ...


class Watcher:
    """A loop that runs tables as triggers and timers request it, until it is interrupted.

    Runs have their own threads and overlap: a table that takes long, or waits after a fault, delays no other table. A
    round takes all requested tables that are in no run. It starts while fewer than ``parallel`` tables are running, so
    that fewer than twice ``parallel`` run at a time; with ``parallel: 1`` nothing overlaps.
    """

    def __init__(
        self,
        lake: Lake,
        inbox: Inbox,
        *,
        names: Iterable[str] = (),
        triggers: Sequence[Trigger] = (),
        timers: Sequence[Timer] = (),
        observers: Sequence[RunObserver] = (),
        clock: Clock | None = None,
    ) -> None:
        """Prepare the loop. ``names`` restricts runs to these tables; none: all active ones."""
        self._lake = lake
        self._inbox = inbox
        self._triggers = triggers
        self._timers = timers
        self._observers = observers
        self._lookup = Lookup(lake, names)
        self._snapshots = SnapshotTimes(self._watched, lake.config.timezone, clock or SystemClock())
        self._pending = PendingRuns()
        self._rounds = Rounds(lake, inbox.wake)
        self._reruns = Reruns()
        self._outages = 0
        self._outage: str | None = None
        self._stopping = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether runs are in progress."""
        return len(self._rounds) > 0

    def stop(self) -> None:
        """End ``run`` and the runs in progress, as Ctrl-C would; may be called from any thread."""
        self._stopping.set()
        self._inbox.close()

    def run(self) -> None:
        """Run everything that waits, then what is requested, until ``stop`` or an exception such as an interrupt.

        Raises:
            ConfigurationError: a trigger cannot start.
            RetriableError: the Spark application has ended.
        """
        started: list[Trigger] = []
        try:
            for trigger in self._triggers:
                started.append(trigger)
                trigger.start()
            _ = self._lake.spark
            self._inbox.put_later(RunRequest("start", everything=True), 0.0, "start")
            while not self._stopping.is_set():
                self.step()
        finally:
            try:
                self._end_rounds()
            finally:
                for trigger in reversed(started):
                    trigger.stop()

    def once(self) -> RunReport | None:
        """Run everything that waits, delete its messages, and return the report; errors are raised."""
        try:
            for trigger in self._triggers:
                trigger.drain()
            self._take_in([RunRequest("once", everything=True), *self._inbox.take_all()])
            if not (tables := self._pending.free()):
                return None
            self._log_round(tables, self._pending.begin(tables))
            report = self._lake.run(tables)
            for table in report.tables:
                self._pending.finish(table.table, table.outcome)
            self._notify(report)
            return report
        finally:
            for trigger in self._triggers:
                trigger.stop()

    def step(self) -> None:
        """Handle the next requests and finished tables; return after a while even if there are none."""
        for timer in self._timers:
            if timer.tick():
                self._inbox.put_later(RunRequest(timer.reason, everything=True), 0.0, timer.reason)
        if due := self._snapshots.due():
            self._inbox.put_later(RunRequest("snapshots are due", tables=due), 0.0, due)
        waits = [self._snapshots.wait(), *(timer.wait() for timer in self._timers)]
        patience = min([_LONGEST_WAIT, *(wait for wait in waits if wait is not None)])
        requests = self._inbox.take(patience)
        try:
            self._take_in(requests)
        except Exception as error:
            self._require_spark()
            delay = self._log_outage(error)
            for request in requests:
                self._inbox.put_later(request, delay, request if request.receipt is None else id(request.receipt))
        for news in self._rounds.news():
            self._handle(news)
        self._begin_round()

    def _watched(self) -> Iterable[KnownTable]:
        return self._lookup.active.values()

    def _take_in(self, requests: Sequence[RunRequest]) -> None:
        """Find the tables that requests concern, and keep them until they can run."""
        if not requests:
            return
        for request, tables in zip(requests, self._lookup.concerned(requests), strict=True):
            self._pending.add(request, tables)
        self._pending.forget_all_but(self._lookup.active)

    def _begin_round(self) -> None:
        tables = self._pending.free()
        if tables and self._rounds.at_work < self._lake.config.parallel and not self._stopping.is_set():
            self._log_round(tables, self._pending.begin(tables))
            self._rounds.begin(tables)

    def _handle(self, news: TableReport | Round) -> None:
        if not isinstance(news, Round):
            self._run_again(news)
            self._pending.finish(news.table, news.outcome)
        elif news.report is not None:
            self._recover()
            self._notify(news.report)
            if news.report.failed:
                self._require_spark()
        elif isinstance(news.error, Exception):
            self._require_spark()
            self._pending.put_back(news.left)
            delay, key = self._log_outage(news.error), frozenset(news.left)
            self._inbox.put_later(RunRequest("again", tables=key), delay, key)
        elif news.error is not None:
            raise news.error

    def _end_rounds(self) -> None:
        """End the runs in progress, and delete the messages of what they have committed."""
        self._stopping.set()
        if left := self._rounds.end():
            logger.warning("%d runs did not end in time; what they had begun is finished by the next run", left)
        for news in self._rounds.news():
            if not isinstance(news, Round):
                self._pending.finish(news.table, news.outcome)
            elif news.report is not None:
                self._notify(news.report)
            elif news.error is not None and not isinstance(news.error, (KeyboardInterrupt, Exception)):
                raise news.error

    def _run_again(self, report: TableReport) -> None:
        """Schedule the next run of a table that waits or failed temporarily."""
        name, known = report.table, self._lookup.active.get(report.table)
        delay = self._reruns.delay(report, known.settings.load_settle if known else 0.0)
        if delay is not None:
            fields = event("watch.again", table=name, outcome=str(report.outcome), delay=delay)
            logger.info("%s is %s and runs again in %.0f s", name, report.outcome, delay, extra=fields)
            self._inbox.put_later(RunRequest("again", tables=frozenset([name])), delay, name)

    def _notify(self, report: RunReport) -> None:
        for observer in self._observers:
            try:
                observer.run_finished(report)
            except Exception as error:  # what was published stays, and watching continues
                logger.warning("%s failed: %s: %s", type(observer).__name__, type(error).__name__, error)

    def _log_round(self, tables: Sequence[str], reasons: Sequence[str]) -> None:
        fields = event("watch.round", reasons=reasons, tables=len(tables))
        logger.info("%s: running %s", ", ".join(reasons), _shown(tables), extra=fields)

    def _log_outage(self, error: BaseException) -> float:
        """Log an outage of landing or state, once and not at every attempt, and return the seconds to wait."""
        delay = backoff(self._outages)
        self._outages += 1
        message = error.message if isinstance(error, LakewardError) else f"{type(error).__name__}: {error}"
        level = logging.DEBUG if message == self._outage else logging.WARNING
        logger.log(level, "nothing was run: %s; trying again", message, extra=event("watch.outage", delay=delay))
        self._outage = message
        return delay

    def _recover(self) -> None:
        if self._outage:
            logger.info("works again after: %s", self._outage, extra=event("watch.recovered"))
        self._outages, self._outage = 0, None

    def _require_spark(self) -> None:
        """Raise if the Spark application has ended: the process must be started again."""
        if not self._lake.has_spark():
            msg = "the Spark application has ended, so that no table can be run any more"
            raise RetriableError(msg, hint="start lakeward watch again; a service manager does so by itself")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


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
    def storage(self) -> Landing:
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
    return Watcher(lake, inbox, names=chosen, triggers=triggers, timers=timers, observers=observers, clock=clock)


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
    if lake.storage.is_local:
        return [FolderWatcher(lake.storage.root, inbox.put, accepts)]
    msg = f"landing {lake.config.landing} cannot be watched directly: new objects must be reported by a queue"
    hint = "lakeward watch --queue URL (docs/deploy.md sets it up), or on a schedule: lakeward watch --every 10m"
    raise ConfigurationError(msg, hint=hint)
