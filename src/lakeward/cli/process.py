"""Set-up of the command's process: standard output for results only, signals and logging."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from lakeward import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SPARK_LOG_VARIABLE = "LAKEWARD_SPARK_LOG"
_interrupted = threading.Event()


def reserve_stdout() -> None:
    """Keep the real standard output for results alone.

    The JVM and its Python workers inherit file descriptor 1. It is pointed at standard error, and only this
    process's ``sys.stdout`` still reaches what the caller reads.
    """
    sys.stdout.flush()
    results = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, newline="\n")
    os.dup2(2, 1)
    sys.stdout = results


def drop_stdout() -> None:
    """Detach a standard output whose reader is gone, so that the interpreter's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, io.UnsupportedOperation):
        sys.stdout = io.StringIO()
    finally:
        os.close(nowhere)


def end_on_signals() -> None:
    """Handle SIGTERM as Ctrl-C: leases are released, nothing half done is published."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Background jobs of a shell and of nohup ignore Ctrl-C, and must go on doing so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """Restore Ctrl-C after Spark started: its handler waits for the very call that is to be interrupted."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def was_interrupted() -> bool:
    """Whether a signal asked the command to end.

    The exception it raised may be lost: one raised inside a call to Spark can come out as a network error.
    """
    return _interrupted.is_set()


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal asked the command to end."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def set_up_logging(*, debug: bool, quiet: bool, log_format: Literal["auto", "text", "json"] = "auto") -> None:
    """Send logs to standard error: events and warnings, and with --debug the whole log of Lakeward and Spark."""
    handler = log_to_stderr(log_format)
    # py4j logs a traceback for every interrupt, which the command reports in one line.
    handler.addFilter(lambda record: debug or "while sending command" not in record.getMessage())
    level = logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO
    logging.getLogger("lakeward").setLevel(level)
    if debug:
        os.environ.setdefault(_SPARK_LOG_VARIABLE, "info")
