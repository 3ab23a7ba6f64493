"""The watching loop: gather asks, begin runs of the tables they concern, decide what comes again."""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakeward.errors import LakewardError, RetriableError
from lakeward.logs import event
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.report import Outcome
from lakeward.runner.observers import SilentObserver
from lakeward.runner.watch.inbox import Desk
from lakeward.runner.watch.requests import Ask, Lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakeward.mirror.op.report import RunReport, TableReport
    from lakeward.runner.watch.inbox import Inbox
    from lakeward.runner.watch.open import Lake
    from lakeward.runner.watch.timers import Timer


# Runs that go on beside one another, each in a thread of its own, and what is heard of them.


_LOOK_SECONDS = 0.2
# A run that is told to end takes up to a minute for a commit that is under way.
_GRACE_SECONDS = 65.0


@dataclass(eq=False)
class Round:
    """One run in flight. ``left`` are its tables that were not heard of yet; at its end it has a report or an error.

    ``stop`` is its own: a run sets it when it fails, which is no business of the others.
    """

    left: set[str]
    stop: threading.Event = field(default_factory=threading.Event)
    report: RunReport | None = None
    error: BaseException | None = None
    is_begun: bool = False
    is_over: bool = False

    @property
    def is_going(self) -> bool:
        """Whether there is an end to wait for; a round whose thread could not start has none."""
        return self.is_begun and not self.is_over


class Rounds:
    """Begins runs without waiting for them. One thread calls everything here; ``wake`` is told that there is news.

    A table is heard of as soon as it is done, so that it need not wait for the slower ones of its round. Faults that
    pass are left to the caller: a table that is waiting for its next attempt would look as if it were being run.
    """

    def __init__(self, lake: Lake, wake: Callable[[], None]) -> None:
        self._lake = lake
        self._wake = wake
        self._rounds: list[Round] = []
        self._news: queue.SimpleQueue[tuple[Round, TableReport | None]] = queue.SimpleQueue()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return the number of rounds whose end was not heard of yet."""
        return len(self._rounds)

    @property
    def at_work(self) -> int:
        """Tables that are being run now; a round whose tables are done and that still tells of it counts as one."""
        parallel = self._lake.config.parallel
        return sum(max(1, min(parallel, len(one.left))) for one in self._rounds)

    def begin(self, tables: Sequence[str]) -> None:
        """Start a run of tables that are in no other one."""
        begun = Round(set(tables))
        self._rounds.append(begun)
        # Whatever a round hangs on, a second Ctrl-C ends the process.
        threading.Thread(target=self._run, args=(begun, tuple(tables)), name="lakeward-round", daemon=True).start()

    def news(self) -> Iterator[TableReport | Round]:
        """Yield the tables that are done since the last call, and after its tables each round that is over."""
        while not self._news.empty():
            told, report = self._news.get()
            if report is None:
                self._rounds.remove(told)
                yield told
            else:
                told.left.discard(report.table)
                yield report

    def end(self) -> int:
        """End all runs early, as Ctrl-C would, and wait until they gave back their leases; give how many did not."""
        deadline = time.monotonic() + _GRACE_SECONDS
        for one in self._rounds:
            one.stop.set()
        with self._changed:
            # In short waits: a second Ctrl-C is then heard on every system.
            while (left := sum(one.is_going for one in self._rounds)) and time.monotonic() < deadline:
                self._changed.wait(_LOOK_SECONDS)
        return left

    def _run(self, begun: Round, tables: Sequence[str]) -> None:
        begun.is_begun = True
        try:
            begun.report = self._lake.run(
                tables, options=RunOptions(attempts=0), stop=begun.stop, observers=[_Ear(self, begun)]
            )
        except BaseException as error:  # the thread that watches decides what it means
            begun.error = error
        self.tell(begun, None)
        with self._changed:
            begun.is_over = True
            self._changed.notify_all()

    def tell(self, told: Round, report: TableReport | None) -> None:
        """Pass on that a table of a round, or with None all of it, is done; called from the threads that did it."""
        self._news.put((told, report))
        self._wake()


class _Ear(SilentObserver):
    """Hears which tables of a round are done."""

    def __init__(self, rounds: Rounds, begun: Round) -> None:
        self._rounds = rounds
        self._round = begun

    def table_finished(self, report: TableReport) -> None:
        """Pass it on."""
        self._rounds.tell(self._round, report)


# Tables that must be run again although nothing new lands: they wait, were locked, or failed in passing.


_FIRST, _MOST = 1.0, 300.0
_WAITING_MOST = 30.0
# Kinds of errors that may pass without anybody's doing.
_PASSING = ("retriable", "conflict")


class Reruns:
    """Decides when a table is to be run again, ever later as long as nothing changes."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def delay(self, report: TableReport, load_settle: float = 0.0) -> float | None:
        """Return the seconds after which a table is run again; None when it is done, or somebody must act first."""
        if not _comes_again(report):
            self._times.pop(report.table, None)
            return None
        times = self._times.get(report.table, 0)
        self._times[report.table] = times + 1
        return min(backoff(times), _longest(report, load_settle))


def backoff(times: int) -> float:
    """Return a wait that doubles with every time, up to five minutes."""
    return min(_FIRST * 2.0 ** min(times, 30), _MOST)


def _comes_again(report: TableReport) -> bool:
    if report.outcome is Outcome.FAILED:
        return report.error_kind in _PASSING
    return report.outcome in (Outcome.WAITING, Outcome.LOCKED)


def _longest(report: TableReport, load_settle: float) -> float:
    """A load that settles is looked at often enough to be late by no more than a quarter of its own time."""
    if report.outcome is not Outcome.WAITING:
        return _MOST
    return min(max(load_settle / 4, _FIRST), _WAITING_MOST) if load_settle else _WAITING_MOST


logger = logging.getLogger(__name__)

# The longest sleep: a wall clock that is set, or a machine that was suspended, is noticed by then.
_LONGEST_WAIT = 30.0


class Trigger(Protocol):
    """Something that puts asks into the inbox from a thread of its own."""

    def start(self) -> None:
        """Begin; returns once nothing is missed."""
        ...

    def drain(self) -> None:
        """Instead of beginning, put asks for what waits now."""
        ...

    def stop(self) -> None:
        """End."""
        ...


class RunObserver(Protocol):
    """Hears of every run that watching did, one after the other, in the thread that watches."""

    def run_finished(self, report: RunReport) -> None:
        """Hear of a run."""
        ...


class Watcher:
    """Runs tables as triggers and timers ask for it, until it is interrupted.

    Runs go on in threads of their own and overlap: a table that takes long, or waits after a fault, delays no other
    one. A round takes all tables that are asked for and in no run. It begins while fewer than ``parallel`` tables are
    at work, which makes fewer than twice ``parallel`` at one time; with ``parallel: 1`` nothing overlaps.
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
    ) -> None:
        """Take what to watch. ``names`` restricts runs to these tables; none: all active ones."""
        self._lake = lake
        self._inbox = inbox
        self._triggers = triggers
        self._timers = timers
        self._observers = observers
        self._lookup = Lookup(lake, names)
        self._desk = Desk()
        self._rounds = Rounds(lake, inbox.wake)
        self._reruns = Reruns()
        self._outages = 0
        self._outage: str | None = None
        self._stopping = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether runs are in flight."""
        return len(self._rounds) > 0

    def stop(self) -> None:
        """Let ``run`` come back, ending the runs in flight as Ctrl-C would; may be called from any thread."""
        self._stopping.set()
        self._inbox.close()

    def run(self) -> None:
        """Run everything that waits, then whatever is asked for, until ``stop`` or an exception such as an interrupt.

        Raises:
            ConfigurationError: a trigger cannot start.
            RetriableError: the Spark application has ended, without which nothing can be done.
        """
        started: list[Trigger] = []
        try:
            for trigger in self._triggers:
                started.append(trigger)
                trigger.start()
            _ = self._lake.spark
            self._inbox.put_later(Ask("start", everything=True), 0.0, "start")
            while not self._stopping.is_set():
                self.step()
        finally:
            try:
                self._end_rounds()
            finally:
                for trigger in reversed(started):
                    trigger.stop()

    def once(self) -> RunReport | None:
        """Run everything that waits, end the messages that told of it, and come back; errors are raised."""
        try:
            for trigger in self._triggers:
                trigger.drain()
            self._take_in([Ask("once", everything=True), *self._inbox.take_all()])
            if not (tables := self._desk.free()):
                return None
            self._say_round(tables, self._desk.begin(tables))
            report = self._lake.run(tables)
            for table in report.tables:
                self._desk.finish(table.table, table.outcome)
            self._tell(report)
            return report
        finally:
            for trigger in self._triggers:
                trigger.stop()

    def step(self) -> None:
        """Wait until something is asked for or is done, and act on it; comes back after a while even if nothing is."""
        for timer in self._timers:
            if timer.tick():
                self._inbox.put_later(Ask(timer.reason, everything=True), 0.0, timer.reason)
        patience = min([_LONGEST_WAIT, *(timer.wait() for timer in self._timers)])
        asks = self._inbox.take(patience)
        try:
            self._take_in(asks)
        except Exception as error:
            self._require_spark()
            delay = self._say_outage(error)
            for ask in asks:
                self._inbox.put_later(ask, delay, ask if ask.receipt is None else id(ask.receipt))
        for news in self._rounds.news():
            self._hear(news)
        self._begin_round()

    def _take_in(self, asks: Sequence[Ask]) -> None:
        """Find out which tables asks concern, and keep it until they can be run."""
        if not asks:
            return
        for ask, tables in zip(asks, self._lookup.concerned(asks), strict=True):
            self._desk.ask(ask, tables)
        self._desk.forget_all_but(self._lookup.active)

    def _begin_round(self) -> None:
        tables = self._desk.free()
        if tables and self._rounds.at_work < self._lake.config.parallel and not self._stopping.is_set():
            self._say_round(tables, self._desk.begin(tables))
            self._rounds.begin(tables)

    def _hear(self, news: TableReport | Round) -> None:
        if not isinstance(news, Round):
            self._run_again(news)
            self._desk.finish(news.table, news.outcome)
        elif news.report is not None:
            self._recover()
            self._tell(news.report)
            if news.report.failed:
                self._require_spark()
        elif isinstance(news.error, Exception):
            self._require_spark()
            self._desk.put_back(news.left)
            delay, key = self._say_outage(news.error), frozenset(news.left)
            self._inbox.put_later(Ask("again", tables=key), delay, key)
        elif news.error is not None:
            raise news.error

    def _end_rounds(self) -> None:
        """End the runs in flight, and the messages of what they have committed."""
        self._stopping.set()
        if left := self._rounds.end():
            logger.warning("%d runs did not end in time; what they had begun is finished by the next run", left)
        for news in self._rounds.news():
            if not isinstance(news, Round):
                self._desk.finish(news.table, news.outcome)
            elif news.report is not None:
                self._tell(news.report)
            elif news.error is not None and not isinstance(news.error, (KeyboardInterrupt, Exception)):
                raise news.error

    def _run_again(self, report: TableReport) -> None:
        """Plan the next run of a table that waits or failed in passing."""
        name, known = report.table, self._lookup.active.get(report.table)
        delay = self._reruns.delay(report, known.settings.load_settle if known else 0.0)
        if delay is not None:
            told = event("watch.again", table=name, outcome=str(report.outcome), delay=delay)
            logger.info("%s is %s and runs again in %.0f s", name, report.outcome, delay, extra=told)
            self._inbox.put_later(Ask("again", tables=frozenset([name])), delay, name)

    def _tell(self, report: RunReport) -> None:
        for observer in self._observers:
            try:
                observer.run_finished(report)
            except Exception as error:  # what was published stands, and watching goes on
                logger.warning("%s failed: %s: %s", type(observer).__name__, type(error).__name__, error)

    def _say_round(self, tables: Sequence[str], reasons: Sequence[str]) -> None:
        told = event("watch.round", reasons=reasons, tables=len(tables))
        logger.info("%s: running %s", ", ".join(reasons), _shown(tables), extra=told)

    def _say_outage(self, error: BaseException) -> float:
        """Tell of an outage of landing or state, once and not at every attempt; give how long to wait."""
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
        """Give up when the Spark application is gone: whoever started this process can start it anew."""
        if not self._lake.has_spark():
            msg = "the Spark application has ended, so that no table can be run any more"
            raise RetriableError(msg, hint="start lakeward watch again; a service manager does so by itself")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
