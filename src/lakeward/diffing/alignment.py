"""Two schemas brought to one: columns that only one side has, types that one side has wider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.diffing.comparators import PLAIN, Comparator
from lakeward.diffing.comparing import check_types_named, comparator_for
from lakeward.diffing.preconditions import check_columns, check_options, check_output, folding
from lakeward.diffing.widening import common_type, is_same
from lakeward.errors import RefusedInputError
from lakeward.transforms.normalising import uncomparable_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.types import DataType, StructField, StructType

    from lakeward.diffing.options import DiffOptions


@dataclass(frozen=True)
class AlignedColumn:
    """A column of either side; ``type`` is the one in which values are compared, None where a side lacks it.

    ``name`` is a key's as it was asked for, else the past's; the sides may spell it with other capitals.
    """

    name: str
    type: DataType
    left_type: DataType | None
    right_type: DataType | None
    is_key: bool = False
    is_ignored: bool = False
    left_name: str | None = None
    right_name: str | None = None
    comparator: Comparator = PLAIN

    @property
    def in_left(self) -> str | None:
        """The column's name in the past; None: it is not there."""
        return None if self.left_type is None else self.left_name or self.name

    @property
    def in_right(self) -> str | None:
        """The column's name in the current rows; None: it is not there."""
        return None if self.right_type is None else self.right_name or self.name

    @property
    def has_one_type(self) -> bool:
        """Whether both sides are shown in ``type``; only an ignored column may keep two types that do not fit."""
        sides = [one for one in (self.left_type, self.right_type) if one is not None]
        return not self.is_ignored or all(is_same(one, self.type) for one in sides)

    def shown_type(self, *, is_left: bool) -> DataType:
        """Give the type in which a side's values are shown: ``type``, or the side's own where there are two."""
        own = self.left_type if is_left else self.right_type
        return self.type if self.has_one_type or own is None else own


@dataclass(frozen=True)
class Alignment:
    """All columns in the order of the output: keys first as they were named, then the others as the past has them."""

    columns: tuple[AlignedColumn, ...]
    left: StructType
    right: StructType
    differences: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[AlignedColumn, ...]:
        """The columns that identify a row."""
        return tuple(one for one in self.columns if one.is_key)

    @property
    def values(self) -> tuple[AlignedColumn, ...]:
        """The columns that are shown and, unless ignored, compared."""
        return tuple(one for one in self.columns if not one.is_key)

    @property
    def compared(self) -> tuple[AlignedColumn, ...]:
        """The columns whose difference makes a row a changed one."""
        return tuple(one for one in self.values if not one.is_ignored)


def align(
    left: StructType,
    right: StructType,
    keys: Sequence[str],
    options: DiffOptions,
    *,
    evolve: bool,
    case_sensitive: bool = False,
) -> Alignment:
    """Bring two schemas together; no keys: all columns that are not ignored identify a row.

    Without ``evolve`` both sides must have the same columns in the same types, ignored ones left aside. With it a
    column may be on one side only (its values are null on the other) and of a narrower type on one side.
    """
    fold = folding(case_sensitive=case_sensitive)
    check_options(options, fold)
    check_types_named(options.type_comparators)
    check_columns(left, right, keys, options, fold, evolve=evolve)
    sides = _Sides(left, right, options, fold)
    names = tuple(keys) or tuple(name for name in sides.names() if not sides.is_ignored(name))
    key_folds = {fold(name) for name in names}
    others = [name for name in sides.names() if fold(name) not in key_folds]
    columns = (*(sides.aligned(name, is_key=True) for name in names), *(sides.aligned(name) for name in others))
    alignment = Alignment(columns, left, right, tuple(_differences(columns)))
    check_output(alignment, options, fold)
    return alignment


class _Sides:
    """The columns of both sides, found by name."""

    def __init__(self, left: StructType, right: StructType, options: DiffOptions, fold: Callable[[str], str]) -> None:
        self._left = {fold(field.name): field for field in left.fields}
        self._right = {fold(field.name): field for field in right.fields}
        self._options = options
        self._fold = fold
        self._ignored = {fold(name) for name in options.ignore_columns}

    def names(self) -> list[str]:
        """All columns: those of the past, then those that are new."""
        new = [field.name for name, field in self._right.items() if name not in self._left]
        return [field.name for field in self._left.values()] + new

    def is_ignored(self, name: str) -> bool:
        return self._fold(name) in self._ignored

    def aligned(self, name: str, *, is_key: bool = False) -> AlignedColumn:
        left, right = self._left.get(self._fold(name)), self._right.get(self._fold(name))
        is_ignored = not is_key and self.is_ignored(name)
        data_type = _type_of(name, left, right, is_key=is_key, is_ignored=is_ignored)
        if not is_ignored:
            _require_comparable(name, data_type)
        return AlignedColumn(
            name=name,
            type=data_type,
            left_type=left.dataType if left is not None else None,
            right_type=right.dataType if right is not None else None,
            is_key=is_key,
            is_ignored=is_ignored,
            left_name=left.name if left is not None else None,
            right_name=right.name if right is not None else None,
            comparator=PLAIN if is_key or is_ignored else comparator_for(name, data_type, self._options, self._fold),
        )


def _type_of(
    name: str, left: StructField | None, right: StructField | None, *, is_key: bool, is_ignored: bool
) -> DataType:
    present = [field.dataType for field in (left, right) if field is not None]
    if len(present) == 1:
        return present[0]
    common = common_type(present[0], present[1], fields_differ=not is_key)
    if common is not None:
        return common
    if is_ignored:
        return present[0]
    msg = (
        f"Column {name!r} is {present[0].simpleString()} on the past side and {present[1].simpleString()} on the "
        "current one: no type holds the values of both"
    )
    raise RefusedInputError(
        msg,
        hint="bring one side to the other's type, or leave the column out of the comparison with --ignore; the values "
        f"of folders ({name}=…) are texts unless --past-schema or --current-schema says their type",
    )


def _require_comparable(name: str, data_type: DataType) -> None:
    part = uncomparable_part(data_type)
    if part is not None:
        msg = f"Column {name!r} holds values of type {part}, which cannot be compared"
        raise RefusedInputError(
            msg,
            hint="leave the column out of the comparison with --ignore, or turn it into text first",
        )


def _differences(columns: Sequence[AlignedColumn]) -> list[str]:
    """Say in sentences what differs between the two schemas."""
    found = []
    for one in columns:
        if one.left_type is None:
            found.append(f"column {one.name!r} is new ({one.type.simpleString()})")
        elif one.right_type is None:
            found.append(f"column {one.name!r} is gone ({one.type.simpleString()})")
        elif not is_same(one.left_type, one.right_type):
            shown = "is not compared" if one.is_ignored else f"is compared as {one.type.simpleString()}"
            change = f"from {one.left_type.simpleString()} to {one.right_type.simpleString()}"
            found.append(f"column {one.name!r} changed {change} and {shown}")
    return found
