"""Rows in the order in which they are written: unit by unit, rows of a partition together, no partition hot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.cassandra.schema import ColumnKind
from lakeward.cassandra.writing.plan import ACTION, CHANGES, EXPIRY, KEY, UNIT, VALUE, WRITTEN
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.cassandra.writing.matching import Matched

_PLACE, _CHUNK = f"{S.PREFIX}place", f"{S.PREFIX}chunk"
# A unit is what is written again after a kill: small against the whole, and not so small that recording it costs.
_ROWS_PER_UNIT, _FEWEST_UNITS, MOST_UNITS = 4_000, 8, 512


@dataclass(frozen=True)
class Parts:
    """Expressions over a frame for what tasks need of a row; times are given for every value or for none."""

    partition_key: Sequence[Column]
    clustering: Sequence[Column]
    values: Sequence[Column]
    writetimes: Sequence[Column] = field(default_factory=tuple)
    expiries: Sequence[Column] = field(default_factory=tuple)
    action: Column | None = None
    changes: Column | None = None


def split_key(pairs: Sequence[Matched]) -> tuple[list[Column], list[Column], list[Column]]:
    """Give the values of the partition key, the clustering columns and all others."""
    kinds = [(one.column.kind, one.value) for one in pairs]
    return (
        [value for kind, value in kinds if kind is ColumnKind.PARTITION_KEY],
        [value for kind, value in kinds if kind is ColumnKind.CLUSTERING],
        [value for kind, value in kinds if not kind.is_key],
    )


def unit_count(rows: int | None) -> int:
    """Choose the number of units for so many rows: a power of two."""
    wanted = (rows or 0) // _ROWS_PER_UNIT
    return min(max(1 << (wanted - 1).bit_length() if wanted > 1 else 1, _FEWEST_UNITS), MOST_UNITS)


def spread(frame: DataFrame, parts: Parts, *, units: int, done: Collection[int], tasks: int, chunk: int) -> DataFrame:
    """Give the rows of all units that are not done, each unit in one task.

    All rows of a partition are in one unit. Within it, partitions take turns: the first rows of each, as many as go
    into a batch, then the next ones of those that have more.
    """
    place = F.xxhash64(*parts.partition_key)
    wanted = frame.select(
        place.alias(_PLACE),
        F.pmod(place, F.lit(units)).cast("int").alias(UNIT),
        *([] if parts.action is None else [parts.action.alias(ACTION)]),
        *([] if parts.changes is None else [parts.changes.alias(CHANGES)]),
        *_numbered(KEY, [*parts.partition_key, *parts.clustering]),
        *_numbered(VALUE, parts.values),
        *_numbered(WRITTEN, parts.writetimes),
        *_numbered(EXPIRY, parts.expiries),
    )
    if done:
        wanted = wanted.filter(~column(UNIT).isin(sorted(done)))
    placed = wanted.repartition(tasks, column(UNIT))
    if not parts.clustering:
        return placed.sortWithinPartitions(UNIT, _PLACE).drop(_PLACE)
    window = Window.partitionBy(UNIT, _PLACE).orderBy(_PLACE)
    numbered = placed.withColumn(_CHUNK, F.floor((F.row_number().over(window) - 1) / F.lit(chunk)))
    return numbered.sortWithinPartitions(UNIT, _CHUNK, _PLACE).drop(_PLACE, _CHUNK)


def _numbered(mark: str, expressions: Sequence[Column]) -> list[Column]:
    return [one.alias(f"{mark}{number}") for number, one in enumerate(expressions)]
