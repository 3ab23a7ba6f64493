"""Pairs of rows turned into the diff: what happened to each, and its values in the layout that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.diffing.comparing import equal_values, plainly_equal
from lakeward.diffing.layout import side_columns, value_columns
from lakeward.diffing.options import DiffMode
from lakeward.diffing.pairs import HAS_LEFT, HAS_RIGHT, SURPLUS
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of
from lakeward.transforms.normalising import uncomparable_part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakeward.diffing.alignment import AlignedColumn
    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.pairs import Pairs

ACTION, CHANGED = f"{S.PREFIX}action", f"{S.PREFIX}changed"
INSERTED, CHANGED_ROW, DELETED, UNCHANGED = "I", "C", "D", "N"


def classified(pairs: Pairs, options: DiffOptions) -> DataFrame:  # noqa: ARG001 (as every step that makes output)
    """Give pairs with what happened to each (``ACTION``: I, C, D or N) and the columns that did (``CHANGED``).

    The columns are an array of names in the order of the past: empty for an unchanged row, null where a side has none.
    """
    compared = pairs.alignment.compared
    equal = [equal_values(pairs.left(one), pairs.right(one), one) for one in compared]
    # Not a filter over an array: Spark compiles no query with a lambda in it.
    none = F.array().cast("array<string>")
    names = [F.when(same, none).otherwise(F.array(F.lit(one.name))) for one, same in zip(compared, equal, strict=True)]
    is_paired = column(HAS_LEFT) & column(HAS_RIGHT)
    changed = F.when(is_paired, F.concat(*names) if names else none)
    action = (
        F.when(~column(HAS_LEFT), F.lit(INSERTED))
        .when(~column(HAS_RIGHT), F.lit(DELETED))
        .when(F.lit(False) if pairs.is_differing else all_of(equal), F.lit(UNCHANGED))
        .otherwise(F.lit(CHANGED_ROW))
    )
    rows = pairs.frame if SURPLUS in pairs.frame.columns else pairs.frame.withColumn(SURPLUS, F.lit(0))
    return rows.withColumn(CHANGED, changed).withColumn(ACTION, action)


def shaped(pairs: Pairs, options: DiffOptions) -> DataFrame:
    """Give the diff in the chosen mode; unchanged rows only where the options include them."""
    return shaped_from(classified(pairs, options), pairs, options)


def shaped_from(rows: DataFrame, pairs: Pairs, options: DiffOptions) -> DataFrame:
    """Give the diff from classified pairs, which may have been observed or limited in between."""
    if not options.include_unchanged:
        rows = rows.filter(column(ACTION) != UNCHANGED)
    keys = [F.coalesce(pairs.left(one), pairs.right(one)).alias(one.name) for one in pairs.alignment.keys]
    return rows.select(*_labels(options), *keys, *_values(pairs, options))


def _labels(options: DiffOptions) -> list[Column]:
    labels = {
        INSERTED: options.insert_value,
        DELETED: options.delete_value,
        CHANGED_ROW: options.change_value,
    }
    label = F.lit(options.nochange_value)
    for action, text in labels.items():
        label = F.when(column(ACTION) == action, F.lit(text)).otherwise(label)
    changed = [] if options.change_column is None else [column(CHANGED).alias(options.change_column)]
    return [label.alias(options.diff_column), *changed]


def _values(pairs: Pairs, options: DiffOptions) -> list[Column]:
    if options.diff_mode is DiffMode.STRUCTS:
        return [
            _struct(pairs, options, is_left=True).alias(options.left_column_prefix),
            _struct(pairs, options, is_left=False).alias(options.right_column_prefix),
        ]
    return [
        _shown(pairs, one.column, options, is_left=one.is_left).alias(one.name)
        for one in value_columns(pairs.alignment, options)
    ]


def _struct(pairs: Pairs, options: DiffOptions, *, is_left: bool) -> Column:
    fields = []
    for one in side_columns(pairs.alignment, is_left=is_left):
        name = one.in_left if is_left else one.in_right
        assert name is not None
        fields.append(_shown(pairs, one, options, is_left=is_left).alias(name))
    return F.when(column(HAS_LEFT if is_left else HAS_RIGHT), F.struct(*fields))


def _shown(pairs: Pairs, one: AlignedColumn, options: DiffOptions, *, is_left: bool) -> Column:
    """Give a value as it is shown: in sparse mode, null where the other side has the same."""
    value = pairs.left(one) if is_left else pairs.right(one)
    if not options.sparse_mode or one.is_key or not _is_blankable(one):
        return value
    return F.when(~plainly_equal(pairs.left(one), pairs.right(one), one), value)


def _is_blankable(one: AlignedColumn) -> bool:
    """Tell whether two values can be the same at all: the column is on both sides, in a type that can be compared."""
    is_on_both = one.left_type is not None and one.right_type is not None
    return is_on_both and one.has_one_type and uncomparable_part(one.type) is None
