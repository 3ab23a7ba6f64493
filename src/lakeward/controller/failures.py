"""Errors of Spark, its bridge and the system, given the type that says what to do about them."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakeward.errors import BugError, DataError, LakewardError, RetriableError
from lakeward.lake.iceberg.faults import classify_spark_error
from lakeward.lake.iceberg.table import first_line

logger = logging.getLogger(__name__)

# What a table's work may end with. Anything else is a fault of the program and ends the run.
STOPS_A_TABLE = (LakewardError, PySparkException, Py4JError, OSError)

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
    if isinstance(error, (ConnectionError, TimeoutError)):
        return RetriableError(f"{name}: {error}", hint="check the service it names, then run again")
    if isinstance(error, OSError):
        return DataError(f"{name}: {error}", hint="check the file or folder it names, then run again")
    return classify_spark_error(error, name) or _spark_error(str(error), name)


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
