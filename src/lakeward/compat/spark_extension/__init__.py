"""Lakeward's diff under the names of spark-extension's Python package (``gresearch.spark.diff``).

Importing this package adds ``diff``, ``diffwith``, ``diff_with_options`` and ``diffwith_with_options`` to Spark's
DataFrame, as importing that package does; nothing else of Lakeward imports it. ``docs/diff.md`` lists what differs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from lakeward.compat.spark_extension.comparators import (
    DefaultDiffComparator,
    DiffComparator,
    DiffComparators,
    DurationDiffComparator,
    EpsilonDiffComparator,
    MapDiffComparator,
    NullSafeEqualDiffComparator,
    StringDiffComparator,
)
from lakeward.compat.spark_extension.differ import (
    Differ,
    DiffMode,
    DiffOptions,
    diff,
    diff_with_options,
    diffwith,
    diffwith_with_options,
)

__all__ = [
    "DefaultDiffComparator",
    "DiffComparator",
    "DiffComparators",
    "DiffMode",
    "DiffOptions",
    "Differ",
    "DurationDiffComparator",
    "EpsilonDiffComparator",
    "MapDiffComparator",
    "NullSafeEqualDiffComparator",
    "StringDiffComparator",
    "diff",
    "diff_with_options",
    "diffwith",
    "diffwith_with_options",
]

for _method in (diff, diffwith, diff_with_options, diffwith_with_options):
    setattr(DataFrame, _method.__name__, _method)
