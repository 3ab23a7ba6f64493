"""Errors of Spark, its bridge, the system and this program, given the type that says what to do about them."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakeward.errors import BugError, ConfigurationError, DataError, LakewardError, RetriableError
from lakeward.lake.iceberg.faults import classify_spark_error
from lakeward.lake.iceberg.jvm import spark_died
from lakeward.lake.iceberg.table import first_line
from lakeward.system_errors import UNREACHABLE, scarcity
from lakeward.texts import escape_text

logger = logging.getLogger(__name__)

# What a table's work may end with: whatever it is, a fault of this program included, it is that table's and no other's.
STOPS_A_TABLE = (Exception,)

_MISSING = ("iceberg.exceptions.NotFoundException", "java.io.FileNotFoundException")
# Two processes that make the tables of a new catalog at one time.
_BUSY_CATALOG = "Cannot check and eventually update SQL schema"
# Workers that die, are taken away or cannot be reached; Spark has tried again itself before it says so.
_PASSING = ("ExecutorLostFailure", "FetchFailed", "SparkContext was shut down", "No route to host")


def as_lakeward_error(error: Exception, name: str) -> LakewardError:
    """Give the error that names the table and tells whether trying again helps."""
    if isinstance(error, LakewardError):
        return error
    logger.debug("%s: unexpected error", name, exc_info=error)
    if (died := spark_died(error, name)) is not None:
        return died
    if isinstance(error, (ConnectionError, TimeoutError)):
        return RetriableError(f"{name}: {error}", hint="check the service it names, then run again")
    if isinstance(error, OSError):
        return scarcity(error, name) or _system_error(error, name)
    if isinstance(error, (PySparkException, Py4JError)):
        return classify_spark_error(error, name) or _spark_error(str(error), name)
    return _unexpected(error, name)


def _system_error(error: OSError, name: str) -> LakewardError:
    if error.errno in UNREACHABLE:
        return ConfigurationError(f"{name}: {error}", hint="correct or remove that link or name in landing")
    return DataError(f"{name}: {error}", hint="check the file or folder it names, then run again")


def _unexpected(error: Exception, name: str) -> LakewardError:
    """Return the error for one that nobody foresaw, with the place that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (in {Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    msg = f"{name}: this is a bug in Lakeward: {type(error).__name__}: {error}{where}"
    return BugError(escape_text(msg), hint="the same command with --debug, and report the traceback it shows")


def _spark_error(whole: str, name: str) -> LakewardError:
    text = first_line(whole)
    if any(sign in whole for sign in _MISSING):
        hint = "restore the missing files from a backup; nothing was written"
        return DataError(f"{name}: files of the lake are missing: {text}", hint=hint)
    if _BUSY_CATALOG in whole:
        return RetriableError(f"{name}: the lake's catalog is busy: {text}", hint=f"lakeward run {name}")
    if any(sign in whole for sign in _PASSING):
        return RetriableError(f"{name}: Spark lost workers: {text}", hint=f"lakeward run {name}")
    return BugError(f"{name}: Spark failed: {text}", hint="run again with --debug for the whole error")
