"""Rows without the plan that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stored(frame: DataFrame) -> DataFrame:
    """Return a small frame's rows as if they were read from somewhere.

    Its plan is no part of what is done with them.
    """
    return frame.sparkSession.createDataFrame(frame.collect(), frame.schema)
