"""The alignment of two schemas: columns that only one side has, and types that are wider on one side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

from lakeward.diffing.frames.comparators import PLAIN, Comparator, check_types_named, comparator_for
from lakeward.diffing.frames.options import DiffMode, value_columns
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.transforms.compare import uncomparable_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from lakeward.diffing.frames.options import DiffOptions


# Whole numbers, with the digits of their largest values.
_WHOLE: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_WHOLE_ORDER = tuple(_WHOLE)
# A float holds every whole number of 24 bits, a double every one of 53 bits.
_IN_FLOAT, _IN_DOUBLE = (ByteType, ShortType), (ByteType, ShortType, IntegerType, FloatType)
_MAX_PRECISION = 38


def is_same(left: DataType, right: DataType) -> bool:
    """Whether two types are the same, apart from where nulls are allowed."""
    return _with_nulls(left) == _with_nulls(right)


def common_type(left: DataType, right: DataType, *, fields_differ: bool = False) -> DataType | None:
    """Return the narrowest type that holds all values of both, None where there is none.

    Whole numbers widen to longer ones, to decimals and (up to int) to double, float to double, decimals to more digits;
    so do elements of arrays, values of maps and fields of structs. With ``fields_differ`` structs may have different
    fields, as long as they share one: the common struct then has all of them, see :func:`as_type`.
    """
    left, right = _with_nulls(left), _with_nulls(right)
    if left == right or isinstance(right, NullType):
        return left
    if isinstance(left, NullType):
        return right
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        element = common_type(left.elementType, right.elementType, fields_differ=fields_differ)
        return ArrayType(element) if element is not None else None
    if isinstance(left, MapType) and isinstance(right, MapType):
        key = common_type(left.keyType, right.keyType)
        value = common_type(left.valueType, right.valueType, fields_differ=fields_differ)
        return MapType(key, value) if key is not None and value is not None else None
    if isinstance(left, StructType) and isinstance(right, StructType):
        return _common_struct(left, right, fields_differ=fields_differ)
    return _common_number(left, right)


def _common_struct(left: StructType, right: StructType, *, fields_differ: bool) -> DataType | None:
    if not set(left.names) & set(right.names) or (left.names != right.names and not fields_differ):
        return None
    fields = []
    for name in dict.fromkeys((*left.names, *right.names)):
        present = [side[name].dataType for side in (left, right) if name in side.names]
        found = common_type(present[0], present[-1], fields_differ=fields_differ)
        if found is None:
            return None
        fields.append(StructField(name, found))
    return StructType(fields)


def as_type(value: Column, own: DataType, wanted: DataType) -> Column:
    """Return a value in another type; fields of structs are found by name, and missing ones are null."""
    if is_same(own, wanted):
        return value
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        fields = [_field(value, own, field).alias(field.name) for field in wanted.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        elements = own.elementType, wanted.elementType
        return F.transform(value, lambda element: as_type(element, *elements))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        values, key_type = (own.valueType, wanted.valueType), wanted.keyType
        entries = F.transform(
            F.map_entries(value), lambda entry: F.struct(entry["key"].cast(key_type), as_type(entry["value"], *values))
        )
        return F.map_from_entries(entries)
    return value.cast(wanted)


def _field(value: Column, own: StructType, wanted: StructField) -> Column:
    if wanted.name not in own.names:
        return F.lit(None).cast(wanted.dataType)
    return as_type(value.getField(wanted.name), own[wanted.name].dataType, wanted.dataType)


def _common_number(left: DataType, right: DataType) -> DataType | None:
    if type(left) in _WHOLE and type(right) in _WHOLE:
        return max(left, right, key=lambda data_type: _WHOLE_ORDER.index(type(data_type)))
    for number, other in ((left, right), (right, left)):
        if isinstance(number, DoubleType) and isinstance(other, _IN_DOUBLE):
            return DoubleType()
        if isinstance(number, FloatType) and isinstance(other, _IN_FLOAT):
            return FloatType()
        if isinstance(number, FloatType) and isinstance(other, IntegerType):
            return DoubleType()
    return _common_decimal(left, right)


def _common_decimal(left: DataType, right: DataType) -> DataType | None:
    digits = [_digits(data_type) for data_type in (left, right)]
    if None in digits:
        return None
    whole = max(digit[0] for digit in digits if digit is not None)
    scale = max(digit[1] for digit in digits if digit is not None)
    return DecimalType(whole + scale, scale) if whole + scale <= _MAX_PRECISION else None


def _digits(data_type: DataType) -> tuple[int, int] | None:
    """Return the number of digits before and after the decimal point; None for other types."""
    if isinstance(data_type, DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    whole = _WHOLE.get(type(data_type))
    return (whole, 0) if whole is not None else None


def _with_nulls(data_type: DataType) -> DataType:
    if isinstance(data_type, ArrayType):
        return ArrayType(_with_nulls(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(_with_nulls(data_type.keyType), _with_nulls(data_type.valueType))
    if isinstance(data_type, StructType):
        return StructType([StructField(field.name, _with_nulls(field.dataType)) for field in data_type.fields])
    return data_type


# Checks before two sides are compared: options that fit together, columns that exist, distinct names.


Fold = Callable[[str], str]


def folding(*, case_sensitive: bool) -> Fold:
    """Return the function that maps all spellings of a column name to the same text."""
    return str if case_sensitive else str.lower


def check_options(options: DiffOptions, fold: Fold) -> None:
    """Refuse labels and prefixes that are empty or not distinct."""
    for side, prefix in (("left", options.left_column_prefix), ("right", options.right_column_prefix)):
        if not prefix:
            msg = f"the {side} column prefix is empty: it needs at least one character"
            raise ConfigurationError(msg)
    if fold(options.left_column_prefix) == fold(options.right_column_prefix):
        msg = f"both sides have the column prefix {options.left_column_prefix!r}: they must differ"
        raise ConfigurationError(msg)
    labels = (options.insert_value, options.change_value, options.delete_value, options.nochange_value)
    if len(set(labels)) < len(labels):
        msg = f"the labels of rows must all differ, but they are {_listed(labels)}"
        raise ConfigurationError(msg)
    if not options.diff_column or options.change_column == "":
        msg = "the diff column and the change column need a name"
        raise ConfigurationError(msg)
    if options.change_column is not None and fold(options.change_column) == fold(options.diff_column):
        msg = f"the diff column and the change column are both called {options.diff_column!r}"
        raise ConfigurationError(msg)


def check_columns(
    left: StructType, right: StructType, keys: Sequence[str], options: DiffOptions, fold: Fold, *, evolve: bool
) -> None:
    """Refuse missing keys and ignored columns, and (without ``evolve``) schemas that differ."""
    for side, schema in (("past", left), ("current", right)):
        repeated = _repeated(schema.names, fold)
        if repeated:
            msg = f"the {side} side has more than one column called {_listed(repeated)}"
            raise RefusedInputError(msg)
    _check_ignored(left, right, options, fold)
    ignored = {fold(name) for name in options.ignore_columns}
    sides = [[name for name in schema.names if fold(name) not in ignored] for schema in (left, right)]
    if not sides[0] and not sides[1]:
        raise RefusedInputError("there is no column to compare" + (" but ignored ones" if ignored else ""))
    _check_keys(keys, sides, options, fold)
    if not evolve:
        _check_same(left, right, ignored, fold)
    _check_compared_names(left, right, options, fold)


def check_output(alignment: Alignment, options: DiffOptions, fold: Fold) -> None:
    """Refuse options that would make two columns of the output share a name."""
    keys = [key.name for key in alignment.keys]
    own = [("diff", options.diff_column), ("change", options.change_column)]
    for purpose, name in own:
        if name is not None and fold(name) in {fold(key) for key in keys}:
            msg = f"the {purpose} column is called {name!r}, and so is a key column"
            raise ConfigurationError(msg, hint=_other_name(purpose))
    made = [column.name for column in value_columns(alignment, options)]
    if options.diff_mode is DiffMode.STRUCTS:
        made = [options.left_column_prefix, options.right_column_prefix]
    for purpose, name in own:
        if name is not None and fold(name) in {fold(name) for name in made}:
            msg = f"the {purpose} column is called {name!r}, and so is a value column in mode {options.diff_mode}"
            raise ConfigurationError(msg, hint=_other_name(purpose))
    repeated = _repeated([*keys, *made], fold)
    if repeated:
        msg = (
            f"with the prefixes {options.left_column_prefix!r} and {options.right_column_prefix!r} more than one "
            f"column is called {_listed(repeated)}"
        )
        raise ConfigurationError(msg, hint="choose other prefixes: left_column_prefix, right_column_prefix")


def _other_name(purpose: str) -> str:
    option = " (--change-column)" if purpose == "change" else ""
    return f"choose another name for the {purpose} column: {purpose}_column{option}"


def _check_ignored(left: StructType, right: StructType, options: DiffOptions, fold: Fold) -> None:
    present = {fold(name) for name in (*left.names, *right.names)}
    missing = [name for name in options.ignore_columns if fold(name) not in present]
    if missing:
        msg = f"neither side has the ignored column {_listed(missing)}; there are {_listed(left.names)}"
        raise ConfigurationError(msg)
    repeated = _repeated(options.ignore_columns, fold)
    if repeated:
        msg = f"the column {_listed(repeated)} is named more than once among the ignored ones"
        raise ConfigurationError(msg)


def _check_keys(keys: Sequence[str], sides: Sequence[Sequence[str]], options: DiffOptions, fold: Fold) -> None:
    repeated = _repeated(keys, fold)
    if repeated:
        msg = f"the key column {_listed(repeated)} is named more than once"
        raise ConfigurationError(msg)
    ignored = [key for key in keys if fold(key) in {fold(name) for name in options.ignore_columns}]
    if ignored:
        msg = f"the column {_listed(ignored)} is both a key column and ignored"
        raise ConfigurationError(msg)
    for side, names in zip(("past", "current"), sides, strict=True):
        missing = [key for key in keys if fold(key) not in {fold(name) for name in names}]
        if missing:
            msg = f"the {side} side has no key column {_listed(missing)}; it has {_listed(names)}"
            raise ConfigurationError(msg)


def _check_same(left: StructType, right: StructType, ignored: set[str], fold: Fold) -> None:
    types = [
        {fold(field.name): field.dataType for field in schema.fields if fold(field.name) not in ignored}
        for schema in (left, right)
    ]
    found = []
    for side, own, other in (("past", types[0], types[1]), ("current", types[1], types[0])):
        for name, data_type in own.items():
            if name not in other or not is_same(data_type, other[name]):
                found.append(f"{name} {data_type.simpleString()} ({side})")
    if found:
        msg = f"the two sides do not have the same columns; only one side has: {', '.join(found)}"
        raise RefusedInputError(
            msg,
            hint="DiffOptions(evolve=True) aligns added, dropped and widened columns",
        )


def _check_compared_names(left: StructType, right: StructType, options: DiffOptions, fold: Fold) -> None:
    present = {fold(name) for name in (*left.names, *right.names)}
    missing = [name for name in options.column_comparators if fold(name) not in present]
    if missing:
        msg = f"A comparator is given for column {_listed(missing)}, which neither side has"
        raise ConfigurationError(msg)


def _repeated(names: Iterable[str], fold: Fold) -> list[str]:
    return [name for name, times in Counter(fold(name) for name in names).items() if times > 1]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


@dataclass(frozen=True)
class AlignedColumn:
    """A column of either side; values are compared in ``type``, and a side that lacks the column has None as its type.

    ``name`` is the requested name of a key, else the name in the past; the sides may differ in upper and lower case.
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
        """The column's name in the past; None where the past lacks it."""
        return None if self.left_type is None else self.left_name or self.name

    @property
    def in_right(self) -> str | None:
        """The column's name on the current side; None where that side lacks it."""
        return None if self.right_type is None else self.right_name or self.name

    @property
    def has_one_type(self) -> bool:
        """Whether both sides are shown in ``type``; only an ignored column may have two incompatible types."""
        sides = [data_type for data_type in (self.left_type, self.right_type) if data_type is not None]
        return not self.is_ignored or all(is_same(side, self.type) for side in sides)

    def shown_type(self, *, is_left: bool) -> DataType:
        """Return the type in which a side's values are shown: ``type``, or the side's own where there are two."""
        own = self.left_type if is_left else self.right_type
        return self.type if self.has_one_type or own is None else own


@dataclass(frozen=True)
class Alignment:
    """All columns in the order of the output: keys as they were named, then the others in the order of the past."""

    columns: tuple[AlignedColumn, ...]
    left: StructType
    right: StructType
    differences: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[AlignedColumn, ...]:
        """The columns that identify a row."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def values(self) -> tuple[AlignedColumn, ...]:
        """The columns that are shown and, unless ignored, compared."""
        return tuple(column for column in self.columns if not column.is_key)

    @property
    def compared(self) -> tuple[AlignedColumn, ...]:
        """The columns that make a row a changed one when they differ."""
        return tuple(value for value in self.values if not value.is_ignored)


def align(
    left: StructType,
    right: StructType,
    keys: Sequence[str],
    options: DiffOptions,
    *,
    evolve: bool,
    case_sensitive: bool = False,
) -> Alignment:
    """Return the alignment of two schemas; without keys all columns that are not ignored identify a row.

    Without ``evolve`` both sides must have the same columns in the same types, except for ignored ones. With it a
    column may be on one side only (its values are null on the other) or have a narrower type on one side.
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
        """Return all columns: those of the past, then the new ones."""
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
        f"column {name!r} is {present[0].simpleString()} on the past side and {present[1].simpleString()} on the "
        "current one: no type holds the values of both"
    )
    raise RefusedInputError(
        msg,
        hint="bring one side to the other's type, or leave the column out of the comparison with --ignore; the values "
        f"of folders ({name}=…) are texts unless --past-schema or --current-schema sets their type",
    )


def _require_comparable(name: str, data_type: DataType) -> None:
    part = uncomparable_part(data_type)
    if part is not None:
        msg = f"column {name!r} holds values of type {part}, which cannot be compared"
        raise RefusedInputError(
            msg,
            hint="leave the column out of the comparison with --ignore, or turn it into text first",
        )


def _differences(columns: Sequence[AlignedColumn]) -> list[str]:
    """Return the differences of the two schemas as sentences."""
    found = []
    for column in columns:
        if column.left_type is None:
            found.append(f"column {column.name!r} is new ({column.type.simpleString()})")
        elif column.right_type is None:
            found.append(f"column {column.name!r} is gone ({column.type.simpleString()})")
        elif not is_same(column.left_type, column.right_type):
            shown = "is not compared" if column.is_ignored else f"is compared as {column.type.simpleString()}"
            change = f"from {column.left_type.simpleString()} to {column.right_type.simpleString()}"
            found.append(f"column {column.name!r} changed {change} and {shown}")
    return found
