"""Small column helpers that survive any name a source may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.columns import quote_name
from lakeward.schemas import PREFIX, UNCHANGED, spark_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from lakeward.columns import Column as TableColumn


def column(name: str) -> Column:
    """Return the column of exactly this name, whatever dots, blanks or quotes it holds."""
    return F.col(quote_name(name))


def columns(names: Iterable[str]) -> list[Column]:
    """Return the columns of exactly these names."""
    return [column(name) for name in names]


def conformed(frame: DataFrame, wanted: Collection[TableColumn], renames: Mapping[str, str]) -> DataFrame:
    """Return a frame with the table's columns as an op needs them, after Lakeward's own columns.

    A column that the frame does not have is null; one that it has under the name before a rename is found.
    """
    present, names = set(frame.columns), {target.name for target in wanted}
    former = {new: old for old, new in renames.items() if old in present}
    pending = {old: new for new, old in former.items() if new in names and new not in present}
    frame = with_renamed_unchanged(frame, pending)
    own = [column(name) for name in frame.columns if name.startswith(PREFIX)]
    values = []
    for target in wanted:
        name = target.name if target.name in present else former.get(target.name)
        value = column(name) if name is not None else F.lit(None)
        values.append(value.cast(spark_type(target.lake_type)).alias(target.name))
    return frame.select(*own, *values)


def with_renamed_unchanged(frame: DataFrame, renames: Mapping[str, str]) -> DataFrame:
    """Return changes whose lists of unchanged columns have the columns' new names.

    Under the old name the column would not count as unchanged, and its missing value would be read as NULL.
    """
    if not renames or UNCHANGED not in frame.columns:
        return frame
    names = F.create_map(*[F.lit(name) for pair in renames.items() for name in pair])
    renamed = F.transform(column(UNCHANGED), lambda name: F.coalesce(F.try_element_at(names, name), name))
    return frame.withColumn(UNCHANGED, renamed)
