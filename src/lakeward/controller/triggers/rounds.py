"""Runs that go on beside one another, each in a thread of its own, and what is heard of them."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.controller.observers import SilentObserver
from lakeward.pipeline.context import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward.controller.triggers.lake import Lake
    from lakeward.pipeline.report import RunReport, TableReport

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
        """Give the number of rounds whose end was not heard of yet."""
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
        """Give the tables that are done since the last call, and after its tables each round that is over."""
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
