"""Fold changes into the rows that result from them, per key and per column.

A change may be partial: ``_lw_unchanged`` names the columns it does not set, which keep their earlier value. Folding
starts at a key's last full image or delete, and every column takes the value of the last change that sets it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame


KIND_BASE = "base"
_LOAD_PART = r"^(.*)LOAD([0-9][0-9A-Fa-f]*)([.][^/]*)$"
_COUNTER_DIGITS = 32


def place() -> Column:
    """Return a change's place: base rows first, then sequence, file time, file, row, step.

    Spark compares structs field by field with nulls first. A null sequence marks a load row that was set aside
    and repaired later: it sorts before every change of its generation, as load rows must.
    """
    rank = F.when(column(S.KIND) == KIND_BASE, F.lit(0)).otherwise(F.lit(1))
    return F.struct(rank.alias("rank"), *columns((S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP)))


def sortable_load_part() -> Column:
    """Return a load part's path in a form that sorts by its hexadecimal counter.

    LOAD9 and LOAD0000000F sort before LOAD10. Other paths stay as they are. The counter as it is written comes last:
    LOAD1 and LOAD01 may be two parts where ``files.load`` names them.
    """
    before, counter, after = (F.regexp_extract(column(S.FILE), _LOAD_PART, group) for group in (1, 2, 3))
    sortable = F.concat(before, F.lpad(F.lower(counter), _COUNTER_DIGITS, "0"), after, F.lit(" "), counter)
    return F.when(column(S.FILE).rlike(_LOAD_PART), sortable).otherwise(column(S.FILE))


def is_from_load() -> Column:
    """Whether a row comes from a load's file, whose name has no time; rows set aside and put back count as well."""
    return F.coalesce(column(S.FILE_TIME), F.lit("")) == ""


def lacks_commit_time() -> Column:
    """Whether a change's commit time is unknown; rows of a load need none."""
    return column(S.COMMIT_TIME).isNull() & ~is_from_load()


def as_base(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return rows of a mirror or load branch as the full images that folding starts from."""
    fields = {field.name: F.lit(None).cast(field.dataType).alias(field.name) for field in S.RECORD_FIELDS}
    fields[S.KIND] = F.lit(KIND_BASE).alias(S.KIND)
    fields[S.OPERATION] = F.lit("U").alias(S.OPERATION)
    return rows.select(*fields.values(), *columns(names))


def latest_per_key(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Keep each key's last change; this is enough where every change is a full image or a delete."""
    by_key = Window.partitionBy(*columns(keys)).orderBy(place().desc_nulls_last())
    position = f"{S.PREFIX}position"
    return changes.withColumn(position, F.row_number().over(by_key)).filter(column(position) == 1).drop(position)


_AT = f"{S.PREFIX}at"


def is_partial() -> Column:
    """Whether a change leaves some column unset."""
    return F.coalesce(F.size(column(S.UNCHANGED)), F.lit(0)) > 0


def is_delete() -> Column:
    """Whether a change removes its row."""
    return column(S.OPERATION).eqNullSafe(F.lit("D"))


def fold(changes: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return one row per key with its final operation (``D``: the row is gone) and every column's value."""
    reset, at = f"{S.PREFIX}reset", _AT
    by_key = Window.partitionBy(*columns(keys)).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    restarts = F.when(is_delete() | ~is_partial(), place())
    relevant = (
        changes.withColumn(reset, F.max(restarts).over(by_key))
        .withColumn(at, place())
        .filter(column(reset).isNull() | (column(at) >= column(reset)))
    )
    values = [_last_set(name).alias(name) for name in names if name not in keys]
    operation = F.max_by(column(S.OPERATION), column(at)).alias(S.OPERATION)
    return relevant.groupBy(*columns(keys)).agg(operation, *values).select(S.OPERATION, *columns(names))


def is_set(name: str) -> Column:
    """Whether a change sets a column."""
    return ~F.coalesce(F.array_contains(column(S.UNCHANGED), name), F.lit(False))


def _last_set(name: str) -> Column:
    """Return the value of the last change that sets a column; a delete sets all columns to null."""
    value = F.when(~is_delete(), column(name))
    return F.max_by(value, F.when(is_set(name) | is_delete(), column(_AT)))


def is_standing(undone: Iterable[tuple[int, int]]) -> Column:
    """Whether a row's op is outside all ranges of op numbers that were undone, both ends included."""
    kept = (~column(S.OP).between(first, last) for first, last in undone)
    return reduce(lambda left, right: left & right, kept, F.lit(True))


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
    return rows.join(renamed, reduce(lambda left, right: left & right, conditions), how)
