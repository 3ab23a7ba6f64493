"""Options of a diff: names, labels, layout and comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from lakeward.arguments import FLAG, NONE, OPTIONAL_TEXT, TEXT, TEXTS, Kind, check_fields, instance, mapping
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.diffing.frames.comparators import Comparator


Choice = TypeVar("Choice", bound=StrEnum)


class DiffMode(StrEnum):
    """How the two sides of a row are laid out."""

    COLUMN_BY_COLUMN = "column-by-column"
    SIDE_BY_SIDE = "side-by-side"
    LEFT_SIDE = "left-side"
    RIGHT_SIDE = "right-side"
    STRUCTS = "structs"


class DuplicateKeys(StrEnum):
    """What happens where a key comes more than once on a side."""

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
    duplicate_keys: whether a key that comes twice on a side ends the comparison, or its rows are paired in the order of
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
