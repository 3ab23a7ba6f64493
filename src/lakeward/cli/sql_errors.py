"""Errors of a query in one line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
# Spark's condition, such as [DIVIDE_BY_ZERO], stands before the sentence that matters.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .*")


@contextmanager
def sql_errors() -> Iterator[None]:
    """Turn Spark's errors, which are pages long, into one that says what is wrong with the query."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        hint = 'lakeward sql "SHOW TABLES IN SCHEMA", lakeward tables list' if _MISSING in text else None
        raise ConfigurationError(short_message(text), hint=hint) from error


def short_message(text: str) -> str:
    """Give the line of a Spark error that says what happened."""
    if match := _CONDITION.search(text):
        return f"the query failed: {match[0].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((line for line in lines if "Exception" in line), lines[0] if lines else "no reason was given")
    return f"the query failed: {told}"
