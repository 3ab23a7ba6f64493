"""The columns of a diff in each mode: their order and names.

Every side shows its own columns. A new column therefore appears as a current value only, and the schema of each side
can be derived from the output.
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
    """Return the output's columns after the keys; none in structs mode, which has one struct per side."""
    compared = alignment.compared
    if options.diff_mode is DiffMode.COLUMN_BY_COLUMN:
        ordered = (*compared, *_as_ignored(alignment, options))
        return [column for value in ordered for column in _prefixed([value], options, left=True, right=True)]
    if options.diff_mode is DiffMode.SIDE_BY_SIDE:
        lefts = [*_in_order(compared, alignment, is_left=True), *_ignored_of(alignment, is_left=True)]
        rights = [*_in_order(compared, alignment, is_left=False), *_ignored_of(alignment, is_left=False)]
        return _prefixed(lefts, options, left=True) + _prefixed(rights, options, right=True)
    if options.diff_mode is DiffMode.STRUCTS:
        return []
    is_left = options.diff_mode is DiffMode.LEFT_SIDE
    shown = (*compared, *_ignored_of(alignment, is_left=is_left))
    return [
        ValueColumn(name, aligned, is_left)
        for aligned in shown
        if (name := _name(aligned, is_left=is_left)) is not None
    ]


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
        ignored,
        key=lambda value: exact.index(value.name) if value.name in exact else names.index(value.name.lower()),
    )


def _ignored_of(alignment: Alignment, *, is_left: bool) -> list[AlignedColumn]:
    return _in_order([value for value in alignment.values if value.is_ignored], alignment, is_left=is_left)


def _in_order(columns: Iterable[AlignedColumn], alignment: Alignment, *, is_left: bool) -> list[AlignedColumn]:
    """Return the columns that a side has, in its order."""
    names = (alignment.left if is_left else alignment.right).names
    placed = [(names.index(name), column) for column in columns if (name := _name(column, is_left=is_left)) is not None]
    return [column for _, column in sorted(placed, key=lambda pair: pair[0])]


def _name(aligned: AlignedColumn, *, is_left: bool) -> str | None:
    return aligned.in_left if is_left else aligned.in_right


def with_free_names(options: DiffOptions, keys: Sequence[str], columns: Sequence[str]) -> DiffOptions:
    """Return options whose column names collide with no key or value column of the output.

    Without keys all columns that are not ignored are keys. A name or prefix that is taken gets the prefix ``_lw_``. The
    list of changes keeps its name, which the user chooses.
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
    """Return the names of a side's value columns."""
    if options.diff_mode is DiffMode.STRUCTS:
        return [prefix]
    if options.diff_mode in (DiffMode.LEFT_SIDE, DiffMode.RIGHT_SIDE):
        return list(values)
    return [f"{prefix}_{name}" for name in values]
