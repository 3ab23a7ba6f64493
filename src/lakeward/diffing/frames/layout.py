"""Which columns a diff has in each mode, in which order and under which names.

Every side shows the columns that it has. So a column that is new is there as a current value only, and the schema of
each side can be read off the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.diffing.frames.options import DiffMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.options import DiffOptions


@dataclass(frozen=True)
class ValueColumn:
    """A value column of the output."""

    name: str
    column: AlignedColumn
    is_left: bool


def value_columns(alignment: Alignment, options: DiffOptions) -> list[ValueColumn]:
    """Return the output's columns behind the keys; none in the mode of structs, where there are just two."""
    compared = alignment.compared
    if options.diff_mode is DiffMode.COLUMN_BY_COLUMN:
        ordered = (*compared, *_as_ignored(alignment, options))
        return [one for value in ordered for one in _prefixed([value], options, left=True, right=True)]
    if options.diff_mode is DiffMode.SIDE_BY_SIDE:
        lefts = [*_in_order(compared, alignment, is_left=True), *_ignored_of(alignment, is_left=True)]
        rights = [*_in_order(compared, alignment, is_left=False), *_ignored_of(alignment, is_left=False)]
        return _prefixed(lefts, options, left=True) + _prefixed(rights, options, right=True)
    if options.diff_mode is DiffMode.STRUCTS:
        return []
    is_left = options.diff_mode is DiffMode.LEFT_SIDE
    shown = (*compared, *_ignored_of(alignment, is_left=is_left))
    return [ValueColumn(name, one, is_left) for one in shown if (name := _name(one, is_left=is_left)) is not None]


def side_columns(alignment: Alignment, *, is_left: bool) -> list[AlignedColumn]:
    """Return all columns of a side, keys too, in the side's own order: the fields of its struct."""
    return _in_order(alignment.columns, alignment, is_left=is_left)


def _prefixed(
    columns: Iterable[AlignedColumn], options: DiffOptions, *, left: bool = False, right: bool = False
) -> list[ValueColumn]:
    found = []
    for column in columns:
        if left and column.in_left is not None:
            found.append(ValueColumn(f"{options.left_column_prefix}_{column.in_left}", column, is_left=True))
        if right and column.in_right is not None:
            found.append(ValueColumn(f"{options.right_column_prefix}_{column.in_right}", column, is_left=False))
    return found


def _as_ignored(alignment: Alignment, options: DiffOptions) -> list[AlignedColumn]:
    """Return the ignored columns in the order in which they were named."""
    names = [name.lower() for name in options.ignore_columns]
    exact = list(options.ignore_columns)
    ignored = [value for value in alignment.values if value.is_ignored]
    return sorted(
        ignored, key=lambda one: exact.index(one.name) if one.name in exact else names.index(one.name.lower())
    )


def _ignored_of(alignment: Alignment, *, is_left: bool) -> list[AlignedColumn]:
    return _in_order([value for value in alignment.values if value.is_ignored], alignment, is_left=is_left)


def _in_order(columns: Iterable[AlignedColumn], alignment: Alignment, *, is_left: bool) -> list[AlignedColumn]:
    """Return the columns that a side has, in its order."""
    names = (alignment.left if is_left else alignment.right).names
    placed = [(names.index(name), column) for column in columns if (name := _name(column, is_left=is_left)) is not None]
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])]


def _name(one: AlignedColumn, *, is_left: bool) -> str | None:
    return one.in_left if is_left else one.in_right


# Names of a diff's own columns that no column of the two sides has.


def with_free_names(options: DiffOptions, keys: Sequence[str], columns: Sequence[str]) -> DiffOptions:
    """Return options whose names are not those of keys, or of values where these keep theirs.

    Without keys all columns that are not ignored are keys. A name or prefix that is taken gets ``_lw_`` before it. The
    list of changes keeps its name, which can be chosen.
    """
    ignored = {name.lower() for name in options.ignore_columns}
    names = {name.lower() for name in keys or columns} - ignored
    values = [name.lower() for name in columns if name.lower() not in names]
    prefixes = options.left_column_prefix, options.right_column_prefix
    left, right = (
        prefix if names.isdisjoint(_made(prefix, values, options)) else f"{S.PREFIX}{prefix}" for prefix in prefixes
    )
    taken = names.union(_made(left, values, options), _made(right, values, options))
    label = options.diff_column if options.diff_column.lower() not in taken else f"{S.PREFIX}{options.diff_column}"
    return replace(options, diff_column=label, left_column_prefix=left, right_column_prefix=right)


def _made(prefix: str, values: Sequence[str], options: DiffOptions) -> list[str]:
    """Name the columns of a side."""
    if options.diff_mode is DiffMode.STRUCTS:
        return [prefix]
    if options.diff_mode in (DiffMode.LEFT_SIDE, DiffMode.RIGHT_SIDE):
        return list(values)
    return [f"{prefix}_{name}" for name in values]
