"""The diff of two frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.arguments import FRAME, takes
from lakeward.diffing.alignment import align
from lakeward.diffing.joining import joined
from lakeward.diffing.options import COLUMN_NAMES, OPTIONS, DiffOptions, column_names
from lakeward.diffing.shaping import shaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


@takes(past=FRAME, current=FRAME, keys=COLUMN_NAMES, options=OPTIONS)
def diff(
    past: DataFrame, current: DataFrame, keys: str | Sequence[str] = (), options: DiffOptions | None = None
) -> DataFrame:
    """Give what changed between two frames: a row for each key that was inserted, changed or deleted.

    Without keys all columns identify a row, so that it is inserted or deleted, never changed. Nothing is read before
    the result is: a key that comes twice is found then, and ends the query.
    """
    chosen = options or DiffOptions()
    case_sensitive = is_case_sensitive(past.sparkSession)
    names = column_names(keys)
    alignment = align(past.schema, current.schema, names, chosen, evolve=chosen.evolve, case_sensitive=case_sensitive)
    return shaped(joined(past, current, alignment, chosen, whole=chosen.include_unchanged), chosen)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Tell whether a session holds two spellings of a column's name for two columns."""
    return spark.conf.get("spark.sql.caseSensitive") == "true"
