"""Frames restricted to the keys that an op touches."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_TOUCHED = f"{S.PREFIX}touched_"


def having_keys(rows: DataFrame, touched: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Keep the rows whose key is among ``touched``; a null equals a null."""
    return _joined(rows, touched, keys, "left_semi")


def lacking_keys(rows: DataFrame, touched: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Keep the rows whose key is not among ``touched``."""
    return _joined(rows, touched, keys, "left_anti")


def _joined(rows: DataFrame, touched: DataFrame, keys: Sequence[str], how: str) -> DataFrame:
    renamed = touched.select(*[column(key).alias(_TOUCHED + key) for key in keys])
    conditions = [column(key).eqNullSafe(column(_TOUCHED + key)) for key in keys]
    return rows.join(renamed, reduce(lambda one, other: one & other, conditions), how)
