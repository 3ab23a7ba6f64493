"""Progress on standard error: a live display on a terminal, events in the log elsewhere, or none."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakeward import Observer, SilentObserver, event
from lakeward.cli.output import console_on
from lakeward.cli.process import keep_interrupts, raise_if_interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lakeward import Lakeward, Step
    from lakeward.cli.options import Invocation


logger = logging.getLogger(__name__)


class ProgressObserver(Observer, Protocol):
    """An observer of a run that also follows its steps."""

    def on_step(self, table: str, step: Step) -> None:
        """Handle a step that a table's op has passed; called from the thread that works on the table."""

    def during(self, message: str) -> AbstractContextManager[None]:
        """Show a message until the block ends, for work outside of tables such as starting Spark."""


def open_lake(config: str | None, progress: ProgressObserver) -> Lakeward:
    """Return the configured lake, whose work is shown as progress."""
    from lakeward import Lakeward

    def on_step(table: str, step: Step) -> None:
        raise_if_interrupted()
        progress.on_step(table, step)

    return Lakeward.open(config, on_step=on_step, observers=[progress], during=partial(interruptible, progress))


@contextmanager
def interruptible(progress: ProgressObserver, message: str) -> Iterator[None]:
    """Show a message until the block ends, and keep Ctrl-C working if Spark starts in the block."""
    with progress.during(message), keep_interrupts():
        yield


@contextmanager
def open_progress(*, quiet: bool) -> Iterator[ProgressObserver]:
    """Yield the progress that fits standard error."""
    if quiet:
        yield NoProgress()
    elif console_on(sys.stderr).is_terminal:
        from lakeward.cli.live import LiveProgress

        with LiveProgress() as live:
            yield live
    else:
        yield LogProgress()


class NoProgress(SilentObserver):
    """Progress that is not shown."""

    def on_step(self, table: str, step: Step) -> None:
        """Do nothing."""

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Do nothing."""
        yield


class LogProgress(SilentObserver):
    """Progress as events of the log, beside those that every run logs."""

    def on_step(self, table: str, step: Step) -> None:
        """Log steps that take time."""
        if step.is_logged:
            logger.info("%s: %s", table, step.work_after, extra=event("op.step", table=table, step=step))

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Log the message when the block begins."""
        logger.info(message, extra=event("command"))
        yield


@contextmanager
def announcing(invocation: Invocation) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Show progress; yields the ``during`` argument of library calls."""
    with open_progress(quiet=invocation.quiet) as progress:
        yield partial(interruptible, progress)
