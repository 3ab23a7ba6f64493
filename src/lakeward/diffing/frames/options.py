"""Options of a diff, and the columns that result from them: their order and names in each mode.

Every side shows its own columns. A new column therefore appears as a current value only, and the schema of each side
can be derived from the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from lakeward import schemas as S
from lakeward.arguments import FLAG, NONE, OPTIONAL_TEXT, TEXT, TEXTS, Kind, check_fields, instance, mapping
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.comparators import Comparator


Choice = TypeVar("Choice", bound=StrEnum)


class DiffMode(StrEnum):
    """The layout of the two sides of a row."""

    COLUMN_BY_COLUMN = "column-by-column"
    SIDE_BY_SIDE = "side-by-side"
    LEFT_SIDE = "left-side"
    RIGHT_SIDE = "right-side"
    STRUCTS = "structs"


class DuplicateKeys(StrEnum):
    """The treatment of a key that occurs more than once on a side."""

    FAIL = "fail"
    REPORT = "report"


@dataclass(frozen=True)
class DiffOptions:
    """Names, labels, layout and comparison of a diff; the defaults are those of spark-extension.

    diff_column: the column with the label of each row: inserted, changed, deleted, unchanged.
    left_column_prefix, right_column_prefix: what comes, with an underscore, before the name of a past or current value;
        in the mode of structs these are the names of the two structs.
    change_column: a column with the names of the columns that changed, in the order of the past: an empty array for an
        unchanged row, null for an inserted or deleted one. None: there is no such column.
    sparse_mode: a value that is the same on both sides (by plain equality, whatever the comparator) is shown as null.
        A value that changed to null looks the same: only the change column distinguishes the two, so it needs a name
        where the output is to be applied.
    include_unchanged: unchanged rows are shown too.
    ignore_columns: shown, but never compared; they may be on one side only or have two types.
    duplicate_keys: whether a key that occurs twice ends the comparison, or its rows are paired in the order of
        their values and those left over are inserted or deleted ones.
    default_comparator: for every column whose type it takes. None: plain equality.
    column_comparators, type_comparators: by column name, and by type (``double``, ``decimal(10,2)``, or ``decimal``
        and ``map`` for all of them); a column's own comes before its type's.
    evolve: columns that only one side has, or has in a narrower type, are aligned instead of refused.
    """

    diff_column: str = "diff"
    left_column_prefix: str = "left"
    right_column_prefix: str = "right"
    insert_value: str = "I"
    change_value: str = "C"
    delete_value: str = "D"
    nochange_value: str = "N"
    change_column: str | None = None
    diff_mode: DiffMode = DiffMode.COLUMN_BY_COLUMN
    sparse_mode: bool = False
    include_unchanged: bool = False
    ignore_columns: tuple[str, ...] = ()
    duplicate_keys: DuplicateKeys = DuplicateKeys.FAIL
    default_comparator: Comparator | None = None
    column_comparators: Mapping[str, Comparator] = field(default_factory=dict)
    type_comparators: Mapping[str, Comparator] = field(default_factory=dict)
    evolve: bool = False

    def __post_init__(self) -> None:
        """Accept choices as texts too, and refuse unknown ones."""
        _require_kinds(self)
        object.__setattr__(self, "diff_mode", _choice(DiffMode, self.diff_mode, "diff_mode"))
        object.__setattr__(self, "duplicate_keys", _choice(DuplicateKeys, self.duplicate_keys, "duplicate_keys"))
        object.__setattr__(self, "ignore_columns", column_names(self.ignore_columns))


COLUMN_NAMES = instance("a column's name", str) | TEXTS
OPTIONS = instance("DiffOptions", DiffOptions) | NONE
# Recognised by its methods: importing the class itself would load Spark, which choosing a mode does not need.
_COMPARATOR = Kind("a comparator", lambda value: all(hasattr(value, name) for name in ("accepts", "prepared", "equal")))
_TEXTS = (
    "diff_column", "left_column_prefix", "right_column_prefix",
    "insert_value", "change_value", "delete_value", "nochange_value",
)  # fmt: skip


def _require_kinds(options: DiffOptions) -> None:
    """Refuse values that would fail inside a query, or be mistaken for another choice."""
    check_fields(options, **dict.fromkeys(_TEXTS, TEXT), change_column=OPTIONAL_TEXT, ignore_columns=COLUMN_NAMES)
    check_fields(options, **dict.fromkeys(("sparse_mode", "include_unchanged", "evolve"), FLAG))
    by_name = mapping("names to comparators", _COMPARATOR)
    check_fields(options, default_comparator=_COMPARATOR | NONE, column_comparators=by_name, type_comparators=by_name)


def column_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of columns; a single text is one name."""
    return (names,) if isinstance(names, str) else tuple(names)


def _choice(kind: type[Choice], value: str, option: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        msg = f"{option} cannot be {value!r}; it is one of {', '.join(kind)}"
        raise ConfigurationError(msg) from None


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
