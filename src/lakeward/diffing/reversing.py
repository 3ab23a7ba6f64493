"""A diff the other way round: what leads from current back to past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.arguments import FRAME, NONE, takes
from lakeward.diffing.options import COLUMN_NAMES, OPTIONS, DiffMode
from lakeward.diffing.reading_diffs import read_diff
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.reading_diffs import ReadDiff


@takes(diff=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def reverse(diff: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None) -> DataFrame:
    """Give the diff from current to past: inserted rows are deleted ones, and each side takes the other's place.

    It has the mode, the names and the list of changes of the diff, also where that is sparse. Without keys, those
    columns are keys that belong to neither side.

    Raises:
        RefusedInputError: the diff has one side only, so that the other one's values are not known; or nothing tells
            the keys.
    """
    return reversed_diff(read_diff(diff, keys, options))


def reversed_diff(diff: ReadDiff) -> DataFrame:
    """Give a diff that was taken apart the other way round."""
    options = diff.options
    if diff.left is None or diff.right is None:
        missing = "past" if diff.left is None else "current"
        msg = f"a diff in {options.diff_mode} mode cannot be reversed: it does not have the {missing} values"
        raise RefusedInputError(msg, hint="make the diff in column-by-column, side-by-side or structs mode")
    action = (
        F.when(diff.action == F.lit(options.insert_value), F.lit(options.delete_value))
        .when(diff.action == F.lit(options.delete_value), F.lit(options.insert_value))
        .otherwise(diff.action)
    )
    own = [action.alias(options.diff_column), *([diff.changed] if diff.changed is not None else [])]
    keys = [column(name) for name in diff.key_names]
    return diff.rows(unchanged=True).select(*own, *keys, *_swapped(diff))


def _swapped(diff: ReadDiff) -> list[Column]:
    assert diff.left is not None
    assert diff.right is not None
    left, right = diff.options.left_column_prefix, diff.options.right_column_prefix
    if diff.options.diff_mode is DiffMode.STRUCTS:
        return [column(right).alias(left), column(left).alias(right)]
    new_left = {one.name: one.value.alias(f"{left}_{one.name}") for one in diff.right}
    new_right = {one.name: one.value.alias(f"{right}_{one.name}") for one in diff.left}
    if diff.options.diff_mode is DiffMode.SIDE_BY_SIDE:
        return [*new_left.values(), *new_right.values()]
    names = dict.fromkeys(name for name in _in_order(diff))
    return [side[name] for name in names for side in (new_left, new_right) if name in side]


def _in_order(diff: ReadDiff) -> list[str]:
    """Give the names of the value columns as the diff has them, each at its first place."""
    places = {one.container: one.name for side in (diff.left, diff.right) for one in side or ()}
    return [places[name] for name in diff.frame.columns if name in places]
