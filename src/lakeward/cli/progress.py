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


class Progress(Observer, Protocol):
    """Observes a run, in more detail than its report holds."""

    def on_step(self, table: str, step: Step) -> None:
        """Note that a table's op passed a step; called from the thread that works on the table."""

    def during(self, message: str) -> AbstractContextManager[None]:
        """Show what the command does beside tables, such as starting Spark, until the block ends."""


def open_lake(config: str | None, progress: Progress) -> Lakeward:
    """Open the configured lake for a command, which shows its work as progress."""
    from lakeward import Lakeward

    def on_step(table: str, step: Step) -> None:
        raise_if_interrupted()
        progress.on_step(table, step)

    return Lakeward.open(config, on_step=on_step, observers=[progress], during=partial(interruptible, progress))


@contextmanager
def interruptible(progress: Progress, message: str) -> Iterator[None]:
    """Show what takes time; where Spark starts in the block, Ctrl-C stays with the command."""
    with progress.during(message), keep_interrupts():
        yield


@contextmanager
def open_progress(*, quiet: bool) -> Iterator[Progress]:
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
    """Shows nothing."""

    def on_step(self, table: str, step: Step) -> None:
        """Do nothing."""

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Do nothing."""
        yield


class LogProgress(SilentObserver):
    """Events of the log; what is published and how tables end is logged by every run anyway."""

    def on_step(self, table: str, step: Step) -> None:
        """Log steps that take time."""
        if step.is_logged:
            logger.info("%s: %s", table, step.work_after, extra=event("op.step", table=table, step=step))

    @contextmanager
    def during(self, message: str) -> Iterator[None]:
        """Log that it begins."""
        logger.info(message, extra=event("command"))
        yield


@contextmanager
def announcing(invocation: Invocation) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Show what takes time; yields the ``during`` of library calls."""
    with open_progress(quiet=invocation.quiet) as progress:
        yield partial(interruptible, progress)
