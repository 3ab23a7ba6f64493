"""The total order of changes as one sortable column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

KIND_BASE = "base"
_LOAD_PART = r"^(.*)LOAD([0-9][0-9A-Fa-f]*)([.][^/]*)$"
_COUNTER_DIGITS = 32


def place() -> Column:
    """Give a change's place: base rows first, then sequence, file time, file, row, step.

    Spark compares structs field by field with nulls first. A null sequence marks a load row that was set aside
    and repaired later: it sorts before every change of its generation, as load rows must.
    """
    rank = F.when(column(S.KIND) == KIND_BASE, F.lit(0)).otherwise(F.lit(1))
    return F.struct(rank.alias("rank"), *columns((S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP)))


def sortable_load_part() -> Column:
    """Give a load part's path so that it sorts by its hexadecimal counter: LOAD9 before LOAD10, LOAD0000000F before."""
    before, counter, after = (F.regexp_extract(column(S.FILE), _LOAD_PART, group) for group in (1, 2, 3))
    return F.concat(before, F.lpad(F.lower(counter), _COUNTER_DIGITS, "0"), after)


def is_from_load() -> Column:
    """Tell rows that a load's file held, also those that were set aside and put back: its name has no time."""
    return F.coalesce(column(S.FILE_TIME), F.lit("")) == ""


def lacks_commit_time() -> Column:
    """Tell changes whose commit time is not known; rows of a load need none."""
    return column(S.COMMIT_TIME).isNull() & ~is_from_load()


def as_base(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Make rows of a mirror or load branch the full images that folding starts from."""
    fields = {field.name: F.lit(None).cast(field.dataType).alias(field.name) for field in S.RECORD_FIELDS}
    fields[S.KIND] = F.lit(KIND_BASE).alias(S.KIND)
    fields[S.OPERATION] = F.lit("U").alias(S.OPERATION)
    return rows.select(*fields.values(), *columns(names))


def latest_per_key(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Keep each key's last change. Right where every change is a full image or a delete."""
    by_key = Window.partitionBy(*columns(keys)).orderBy(place().desc_nulls_last())
    position = f"{S.PREFIX}position"
    return changes.withColumn(position, F.row_number().over(by_key)).filter(column(position) == 1).drop(position)
