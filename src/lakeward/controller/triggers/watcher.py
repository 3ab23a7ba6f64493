"""The watching loop: gather asks, begin runs of the tables they concern, decide what comes again."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from lakeward.controller.triggers.affected import Lookup
from lakeward.controller.triggers.asks import Ask
from lakeward.controller.triggers.desk import Desk
from lakeward.controller.triggers.reruns import Reruns, backoff
from lakeward.controller.triggers.rounds import Round, Rounds
from lakeward.errors import LakewardError, RetriableError
from lakeward.logs import event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.controller.triggers.inbox import Inbox
    from lakeward.controller.triggers.lake import Lake
    from lakeward.controller.triggers.timers import Timer
    from lakeward.pipeline.report import RunReport, TableReport

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
            for one in report.tables:
                self._desk.finish(one.table, one.outcome)
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
