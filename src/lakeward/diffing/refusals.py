"""Rows that make a job fail because the input must be refused, and the way from Spark's error back to its words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakeward.diffing.joining import duplicate_key_in
from lakeward.errors import RefusedInputError
from lakeward.transforms.failing import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

_MARK, _END = "lakeward-refused: ", " :lakeward-refused"


def refuse_unless(condition: Column, *message: Column | str) -> Column:
    """Give a condition that every row meets; one that does not makes the job fail with the message."""
    return F.when(condition, F.lit(True)).otherwise(refusal(*message))


def refusal(*message: Column | str) -> Column:
    """Give a condition that makes the job fail with the message when it is asked."""
    parts = [F.lit(one) if isinstance(one, str) else one for one in message]
    return failure(F.lit(_MARK), *parts, F.lit(_END))


def refused_row_in(error: BaseException) -> str | None:
    """Give the message of :func:`refuse_unless` from an error of Spark, None where it is about something else."""
    _, found, rest = str(error).partition(_MARK)
    return rest.partition(_END)[0] if found else None


@contextmanager
def refusals(*, hint: str | None = None) -> Iterator[None]:
    """Turn the failure of a job at a row that was refused, or at a key that comes twice, into words.

    Raises:
        RefusedInputError: a row was refused.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = refused_row_in(error)
        if message is None and (key := duplicate_key_in(error)) is not None:
            message = f"the key {key} comes more than once: it does not say which row is meant"
        if message is None:
            raise
        raise RefusedInputError(message, hint=hint) from error
