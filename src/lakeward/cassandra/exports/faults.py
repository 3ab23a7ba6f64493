"""Errors of tasks on their way to the driver process, where Spark would leave a mere traceback of them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakeward import errors
from lakeward.lake.iceberg.faults import classify_spark_error

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK, _END = "lakeward-task: ", " :lakeward-task"


class TaskError(Exception):
    """What Spark shows of an error in a task; it holds the error's words."""


@contextmanager
def readable_in_driver() -> Iterator[None]:
    """In a task: let errors that are meant for people keep their words."""
    try:
        yield
    except errors.LakewardError as error:
        words = json.dumps({"type": type(error).__name__, "message": error.message, "hint": error.hint})
        msg = f"{_MARK}{words}{_END}"
        raise TaskError(msg) from error


@contextmanager
def raised_by_tasks() -> Iterator[None]:
    """In the driver process: raise the error of a task as it was raised there.

    Raises:
        LakewardError: that of the task.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        _, found, rest = str(error).partition(_MARK)
        if not found:
            raise
        # Spark shows a text of Python as it is, with no escapes of its own.
        words = json.loads(rest.partition(_END)[0])
        raise getattr(errors, words["type"])(words["message"], hint=words["hint"]) from error


@contextmanager
def told_by_spark(folder: str) -> Iterator[None]:
    """Let errors of Spark's own writing to a folder say what to do about them, where that is known.

    Raises:
        ConfigurationError: the storage refuses it.
        RetriableError: the storage does not answer, or is full.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = classify_spark_error(error, folder)
        if found is None:
            raise
        raise found from error
