"""Rows that make a query fail with a message of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def failure(*message: Column) -> Column:
    """Give a condition that makes the query fail when it is asked; the parts of the message are texts, none null."""
    # An empty text that Spark cannot foresee. Otherwise it derives conditions on every other name of every column from
    # this one, which are exponentially many, and takes minutes to plan.
    unforeseen = F.substring(F.monotonically_increasing_id().cast("string"), 1, 0)
    return F.raise_error(F.concat(*message, unforeseen)).cast("boolean")
