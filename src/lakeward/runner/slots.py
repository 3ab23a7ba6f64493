"""A pool of threads for tables, and a table's turn on the shared Spark application."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark import InheritableThread

from lakeward.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark import SparkContext

    from lakeward.mirror.op.steps import Step


Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_SECONDS = 0.2
# Cancelled jobs end within a second or two; a commit that is under way is waited for.
_GRACE_SECONDS = 60.0


class Slots(Generic[Item, Result]):
    """A pool that calls ``work`` for every item in order, in threads that each have their own thread in the JVM.

    ``stop`` is set to end the work: after an exception of ``work``, by Ctrl-C, or from outside. ``look`` is called a
    few times a second meanwhile, and ``cancel`` when the work ends early.
    """

    def __init__(
        self,
        work: Callable[[Item], Result],
        *,
        stop: threading.Event,
        look: Callable[[], None],
        cancel: Callable[[], None],
    ) -> None:
        self._work = work
        self._stop = stop
        self._look = look
        self._cancel = cancel
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._working = 0
        self._next = 0
        self._results: dict[int, Result] = {}
        self._error: BaseException | None = None

    def run(self, items: Sequence[Item], *, slots: int) -> list[Result]:
        """Return the results in the items' order.

        Raises:
            BaseException: the exception of the first ``work`` that failed; the others have ended.
            KeyboardInterrupt: Ctrl-C, a signal or ``stop``; jobs were cancelled and leases released.
        """
        self._working = min(slots, len(items))
        for number in range(self._working):
            # A second Ctrl-C must end the process whatever the threads do.
            InheritableThread(target=self._take_turns, args=(items,), name=f"slot-{number}", daemon=True).start()
        try:
            while not self._stop.is_set() and self._is_working(_LOOK_SECONDS):
                self._look()
        except KeyboardInterrupt:
            self._end()
            raise
        if self._stop.is_set():
            self._end()
            raise self._error or KeyboardInterrupt
        return [self._results[number] for number in range(len(items))]

    def _take_turns(self, items: Sequence[Item]) -> None:
        try:
            while (number := self._take(len(items))) is not None:
                result = self._work(items[number])
                with self._lock:
                    self._results[number] = result
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._stop.set()
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _take(self, count: int) -> int | None:
        with self._lock:
            if self._stop.is_set() or self._next == count:
                return None
            self._next += 1
            return self._next - 1

    def _end(self) -> None:
        """Cancel running jobs and wait until every thread has cleaned up."""
        self._stop.set()
        deadline = time.monotonic() + _GRACE_SECONDS
        self._cancel()
        while self._is_working(_LOOK_SECONDS) and time.monotonic() < deadline:
            # A job may have started after the last call.
            self._cancel()

    def _is_working(self, patience: float) -> bool:
        """Wait a moment for the last thread, and return whether any is still working.

        Without ``Thread.join``: interrupted by Ctrl-C, it may treat a working thread as ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._working, patience)
            return self._working > 0


_DESCRIPTION = "spark.job.description"
_POOL = "spark.scheduler.pool"


class Turn:
    """A table's turn on the Spark application: its job group, pool and time limit.

    The thread that works on the table calls everything but :meth:`look`.
    """

    def __init__(
        self, context: SparkContext, table: str, run_id: str, limit: float | None, stop: threading.Event
    ) -> None:
        self.table = table
        self.group = f"{run_id} {table}"
        self._context = context
        self._limit = limit
        self._stop = stop
        self._began = self._op_began = time.monotonic()
        self._expired = threading.Event()

    def begin(self) -> None:
        """Put the jobs of this thread into the table's group and pool, where they can be seen and cancelled."""
        self._context.setJobGroup(self.group, f"{self.table}: looking", interruptOnCancel=True)
        self._context.setLocalProperty(_POOL, self.table)

    def begin_op(self) -> None:
        """Start the clock of an op."""
        self._op_began = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the table's time is used up, so that no further op starts."""
        return self._limit is not None and time.monotonic() - self._began >= self._limit

    def passed(self, step: Step) -> None:
        """Set the description of the jobs that follow, unless the work has to end.

        Raises:
            KeyboardInterrupt: the whole run has to end.
            TimeLimitError: the op took too long.
        """
        self.require_time()
        if step.work_after:
            self._context.setLocalProperty(_DESCRIPTION, f"{self.table}: {step.work_after}")

    def require_time(self) -> None:
        """Raise if the work has to end; the jobs cancelled for that fail with an error of Spark."""
        if self._stop.is_set():
            raise KeyboardInterrupt
        if self._expired.is_set():
            msg = f"{self.table}: an op took longer than time_limit {self._limit:g} s and was rolled back"
            hint = f"raise time_limit, or lower max_files or max_bytes for {self.table}"
            raise TimeLimitError(msg, hint=hint)

    def look(self) -> None:
        """Cancel an op that takes longer than the table's limit; called from another thread."""
        if self._limit is None or self._expired.is_set():
            return
        if time.monotonic() - self._op_began >= self._limit:
            self._expired.set()
            self.cancel()

    def cancel(self) -> None:
        """Cancel the jobs that run now."""
        self._context.cancelJobGroup(self.group)


def step_listener(turn: Turn, listener: Callable[[str, Step], None] | None) -> Callable[[Step], None]:
    """Return a function to be called with every step that the table passes."""

    def reached(step: Step) -> None:
        turn.passed(step)
        if listener:
            listener(turn.table, step)

    return reached
