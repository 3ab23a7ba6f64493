"""A JVM that is gone is missed by name, whatever exception its end leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException, PySparkRuntimeError

from lakeward.errors import ConfigurationError, DataError, RetriableError, SparkDiedError
from lakeward.spark.errors import as_lakeward_error
from lakeward.spark.jvm import starting_jvm

EXITED, OTHER = PySparkRuntimeError("[JAVA_GATEWAY_EXITED]"), PySparkException("no such class")


def python(code: str, **options):
    """A process that replaces the JVM, started as pyspark does."""
    return java_gateway.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, **options)


@pytest.fixture
def gone(monkeypatch):
    """A gateway whose process was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.kill()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused")]
)
def test_a_table_whose_jvm_was_killed_reports_that_and_is_not_retried(gone, error) -> None:
    found = as_lakeward_error(error, "sales.product")
    assert isinstance(found, SparkDiedError) and not isinstance(found, RetriableError)
    assert found.message.startswith("sales.product: the JVM of Spark was killed (SIGKILL); what was published stays")
    assert "memory" in found.hint
    assert (found.kind, found.exit_code) == ("spark", 3)


def test_a_running_jvm_is_not_reported_as_dead(monkeypatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        assert isinstance(as_lakeward_error(ConnectionResetError(104, "reset"), "t"), RetriableError)
        process.communicate(b"\n")


def test_a_jvm_that_dies_at_its_start_is_reported_with_its_last_output() -> None:
    def start() -> None:
        with python("import sys; sys.exit('Error: Invalid maximum heap size: -Xmx9e9g')") as process:
            process.wait()
        raise EXITED

    before = java_gateway.Popen
    words = "ended with exit code 1 before it was ready: Error: Invalid maximum heap size: -Xmx9e9g"
    with pytest.raises(SparkDiedError, match=words), starting_jvm():
        start()
    assert java_gateway.Popen is before


def test_a_jvm_that_is_killed_at_its_start_is_reported() -> None:
    def start() -> None:
        with python("input()") as process:
            process.send_signal(signal.SIGKILL)
        raise EXITED

    with pytest.raises(SparkDiedError, match=r"was killed \(SIGKILL\) before it was ready"), starting_jvm():
        start()


def test_an_error_while_the_jvm_runs_keeps_its_type() -> None:
    with pytest.raises(PySparkException, match="no such class"), starting_jvm():
        raise OTHER


def test_javas_noise_is_kept_from_standard_error_and_nothing_else(capfd) -> None:
    noise, words = "WARNING: Using incubator modules: jdk.incubator.vector", "WARNING: something else"
    with starting_jvm():
        process = python(f"import sys; print({noise!r}, {words!r}, sep='\\n', file=sys.stderr)")
    process.communicate()
    process.wait()
    while words not in (printed := capfd.readouterr().err):
        pass
    assert printed == f"{words}\n"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("java.io.IOException: No space left on device", RetriableError, "t: a disk is full: java.io.IOException"),
        ("java.io.FileNotFoundException: /x/name=aaa (File name too long)", DataError, "value of a partition"),
        (
            f"java.io.IOException: Mkdirs failed to create file:/x/n={'a' * 300} (exists=false)",
            DataError,
            "of a partition",
        ),
        (
            "java.io.IOException: Mkdirs failed to create file:/x/n=a (exists=false)",
            ConfigurationError,
            "cannot be created",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", SparkDiedError, "t: Spark has no memory left"),
    ],
)
def test_an_exhausted_resource_of_spark_is_reported(text, kind, words) -> None:
    found = as_lakeward_error(PySparkException(f"Job aborted\n{text}\n\tat x"), "t")
    assert type(found) is kind and words in found.message
