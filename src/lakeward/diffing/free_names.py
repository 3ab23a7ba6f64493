"""Names of a diff's own columns that no column of the two sides has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.diffing.options import DiffMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.diffing.options import DiffOptions


def with_free_names(options: DiffOptions, keys: Sequence[str], columns: Sequence[str]) -> DiffOptions:
    """Give options whose names are not those of keys, or of values where these keep theirs.

    Without keys all columns that are not ignored are keys. A name or prefix that is taken gets ``_lw_`` before it. The
    list of changes keeps its name, which can be chosen.
    """
    ignored = {name.lower() for name in options.ignore_columns}
    names = {name.lower() for name in keys or columns} - ignored
    values = [name.lower() for name in columns if name.lower() not in names]
    prefixes = options.left_column_prefix, options.right_column_prefix
    left, right = (one if names.isdisjoint(_made(one, values, options)) else f"{S.PREFIX}{one}" for one in prefixes)
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
