"""One table's turn on the shared Spark application: its jobs' name, pool and description, its time, its end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from lakeward.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import SparkContext

    from lakeward.pipeline.steps import Step

_DESCRIPTION = "spark.job.description"
_POOL = "spark.scheduler.pool"


class Turn:
    """A table's time with the application. The thread that works on the table calls everything but :meth:`look`."""

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
        """Whether the table has had its time: no further op is begun."""
        return self._limit is not None and time.monotonic() - self._began >= self._limit

    def passed(self, step: Step) -> None:
        """Describe the jobs that follow, or end the work here if it shall end.

        Raises:
            KeyboardInterrupt: the whole run shall end.
            TimeLimitError: the op took too long.
        """
        self.require_time()
        if step.work_after:
            self._context.setLocalProperty(_DESCRIPTION, f"{self.table}: {step.work_after}")

    def require_time(self) -> None:
        """End the work here if it shall end; jobs that were cancelled for it fail with an error of Spark's."""
        if self._stop.is_set():
            raise KeyboardInterrupt
        if self._expired.is_set():
            msg = f"{self.table}: an op took longer than time_limit {self._limit:g} s and was taken back"
            hint = f"raise time_limit, or lower max_files or max_bytes for {self.table}"
            raise TimeLimitError(msg, hint=hint)

    def look(self) -> None:
        """Cancel an op that has gone on for longer than the table's limit; called from outside."""
        if self._limit is None or self._expired.is_set():
            return
        if time.monotonic() - self._op_began >= self._limit:
            self._expired.set()
            self.cancel()

    def cancel(self) -> None:
        """Cancel the jobs that run now."""
        self._context.cancelJobGroup(self.group)


def step_listener(turn: Turn, listener: Callable[[str, Step], None] | None) -> Callable[[Step], None]:
    """Return the function that is called with every step that the turn's table passes."""

    def reached(step: Step) -> None:
        turn.passed(step)
        if listener:
            listener(turn.table, step)

    return reached
