"""Rules for all tests: no setting of the developer's own, and on request no skipping."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.durations import file_seconds, longest_first

# The functions in tests/spark/hazards.py are run as tests: an assertion that fails shows its values.
pytest.register_assert_rewrite("tests.spark.hazards")
# Fixtures for every folder: calls of the command, the one Spark application, and servers that tests share.
pytest_plugins = (
    "tests.commands",
    "tests.spark.fixtures",
    "tests.servers.cassandra",
    "tests.servers.dynamodb",
    "tests.servers.moto",
    "tests.servers.postgres",
    "tests.servers.s3",
)

_HERE = Path(__file__).parent
# Where jars come from and whether skips count is the machine's business; every other setting is the test's.
_KEPT = {
    "LAKEWARD_CACHE", "LAKEWARD_JARS", "LAKEWARD_NO_SKIP", "LAKEWARD_SPARK_LOG", "LAKEWARD_STORIES",
    "LAKEWARD_TEST_CASSANDRA",
}  # fmt: skip
_FOREIGN_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS")
# No JVM of a test lives long enough to get back what the better compiler costs, nor what threads that collect garbage
# do: those that Spark starts here and in processes of tests, its launcher, and masters and workers. Code has the room
# that it has with both compilers.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Djdk.lang.Process.launchMechanism=VFORK"
)
_SPARKS_JVMS = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")


# The time that an example takes depends on the machine and not on the code. A failure prints the line that makes the
# same example again (`@reproduce_failure`), on any machine.
settings.register_profile("lakeward", deadline=None, print_blob=True)
settings.load_profile("lakeward")


def pytest_configure() -> None:
    for name in [*os.environ]:
        if name in _FOREIGN_SPARK or (name.startswith(("LAKEWARD_", "AWS_")) and name not in _KEPT):
            del os.environ[name]
    os.environ.update(dict.fromkeys(_SPARKS_JVMS, QUICK_JVM))
    # Tests bring their keys; without them nobody shall wait for a cloud machine's.
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest files first: processes that share the files then end at about the same time."""
    files = {item: item.nodeid.partition("::")[0] for item in items}
    slow = {file for item, file in files.items() if item.get_closest_marker("slow")}
    order = longest_first(dict.fromkeys(files.values()), file_seconds(_HERE / "durations.txt"), slow)
    places = {file: number for number, file in enumerate(order)}
    items.sort(key=lambda item: places[files[item]])


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Undo what a command that ran within the test set up for its log: other tests read theirs."""
    root, own = logging.getLogger(), logging.getLogger("lakeward")
    handlers, level = list(root.handlers), own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Make new files readable by everyone, as on most machines."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: Any = yield
    # An expected failure is reported as skipped too, and is none.
    if not hasattr(report, "wasxfail"):
        _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report: Any = yield
    _forbid_skip(report)
    return report


def _forbid_skip(report: Any) -> None:
    """Under LAKEWARD_NO_SKIP=1 a skipped test or module has failed, with its reason."""
    if report.skipped and os.environ.get("LAKEWARD_NO_SKIP"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}  (LAKEWARD_NO_SKIP: nothing may be skipped here)"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many inputs fuzz targets were given; reports carry it here from the processes that run tests."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    counts = [value for report in reports for name, value in report.user_properties if name == "fuzz_executions"]
    if counts:
        terminalreporter.write_line(f"{sum(counts):,} inputs given to {len(counts)} fuzz targets")
