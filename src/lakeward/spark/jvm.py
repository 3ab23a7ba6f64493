"""The JVM process of Spark: filtering its output at the start, and noticing when it has died.

When the system kills the JVM, any running call fails in Python with a broken connection or an empty answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, java_gateway

from lakeward.errors import SparkDiedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# Java warns at every start about a module that Spark needs; users cannot change that.
_NOISE = b"WARNING: Using incubator modules: "
_STDERR = 2
_KEPT_LINES = 20
# A connection breaks shortly before the process ends.
_WAIT_SECONDS = 2.0
MEMORY_HINT = (
    "the usual reason is a lack of memory: dmesg shows whether the system killed it (OOM); give the machine or "
    "container more, or use less: spark: conf: spark.driver.memory, and fewer tables at a time (parallel:)"
)


@contextmanager
def starting_jvm() -> Iterator[None]:
    """Filter Java's warnings while Spark starts a JVM, and raise an error if it ends before it is ready.

    Raises:
        SparkDiedError: inside the context; the JVM ended, or could not be started.
    """
    started: list[_StartedJvm] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(_StartedJvm(*arguments, **options))
        return started[-1].process

    # pyspark has no option for the JVM's standard error.
    names = vars(java_gateway)
    before = names["Popen"]
    names["Popen"] = start
    try:
        yield
    except Exception as error:
        # Whatever failed, the cause is that the JVM is gone.
        if not started or (end := _end_of(started[-1].process, timeout=_WAIT_SECONDS)) is None:
            raise
        reason = started[-1].last_line()
        msg = f"the JVM of Spark {end} before it was ready{f': {reason}' if reason else ''}"
        raise SparkDiedError(msg, hint=MEMORY_HINT) from error
    finally:
        names["Popen"] = before


def quiet_accumulators(context: SparkContext) -> None:
    """Keep pyspark's accumulator server from printing a traceback when the JVM is gone."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    handle = server.handle_error

    def handle_error(request: Any, client: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            handle(request, client)

    server.handle_error = handle_error


class _StartedJvm:
    """A JVM whose standard error passes through this process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # A pipe that only the thread uses: pyspark cannot close or read it.
        read_end, write_end = os.pipe()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(*arguments, **{**options, "stderr": write_end})
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        stream = os.fdopen(read_end, "rb")
        self._reader = threading.Thread(target=self._pass_on, args=(stream,), name="jvm-stderr", daemon=True)
        self._reader.start()

    def _pass_on(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                if not line.startswith(_NOISE):
                    self._lines.append(line)
                    os.write(_STDERR, line)

    def last_line(self) -> str:
        """Return the last line that the JVM wrote."""
        self._reader.join(timeout=1)
        lines = [line.decode("utf-8", "replace").strip() for line in self._lines]
        return next((line for line in reversed(lines) if line), "")


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the JVM of a session finds a Java class."""
    java: Any = spark._jvm
    try:
        java.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def spark_died(error: BaseException, what: str) -> SparkDiedError | None:
    """Return the error for work that failed because its JVM died; None where it runs, or was never started."""
    process = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
    if process is None or isinstance(error, Py4JJavaError):
        return None
    end = _end_of(process, timeout=_WAIT_SECONDS if isinstance(error, (Py4JError, OSError)) else 0)
    if end is None:
        return None
    stays = "what was published stays, the next run finishes or undoes the rest"
    return SparkDiedError(f"{what}: the JVM of Spark {end}; {stays}", hint=MEMORY_HINT)


def _end_of(process: subprocess.Popen[bytes], *, timeout: float) -> str | None:
    """Return how a process ended, None where it still runs after ``timeout`` seconds."""
    try:
        code = process.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed ({signal.Signals(-code).name})"
