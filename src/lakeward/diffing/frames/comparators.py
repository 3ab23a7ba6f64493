"""Comparators: when two values of a column count as equal.

A comparator first prepares each value (:meth:`Comparator.prepared`) and then compares two prepared values
(:meth:`Comparator.equal`); both are plain column expressions. Three rules hold for all of them:

- null equals null and nothing else; the answer is never null;
- a value equals itself. So NaN equals NaN and an infinity itself, also within an epsilon;
- maps are equal if they have the same entries, in whatever order (but see :class:`MapEntries`), also inside a value.

By plain equality -0.0 equals 0.0 and all NaNs are equal, also inside arrays, structs and maps. The order of an
array's elements counts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakeward.arguments import FLAG, LENGTH, NUMBER, check_fields
from lakeward.errors import ConfigurationError
from lakeward.transforms.compare import change_inside, entries, normalised, normalised_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from lakeward.diffing.frames.alignment import AlignedColumn
    from lakeward.diffing.frames.options import DiffOptions


class Comparator(ABC):
    """The base of all comparators; ``str()`` returns the text that ``parse_comparator`` reads."""

    # Whether values that are plainly equal may differ: then neither equality nor a hash may be checked first.
    is_finer = False
    # Whether values that are not plainly equal may be equal.
    is_tolerant = False

    def accepts(self, data_type: DataType) -> bool:
        """Whether values of a type can be compared this way."""
        return True

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return a value in the form that :meth:`equal` compares."""
        return normalised(value, data_type)

    def equal(self, left: Column, right: Column) -> Column:
        """Return whether two prepared values are equal; never null."""
        return left.eqNullSafe(right)

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Equality(Comparator):
    """Plain equality, the default."""

    def __str__(self) -> str:
        return "equal"


PLAIN = Equality()


@dataclass(frozen=True)
class Epsilon(Comparator):
    """Numbers at most ``epsilon`` apart: absolutely, or relative to the larger of the two absolute values.

    An infinity or NaN equals only itself, however large epsilon is.
    """

    is_tolerant = True

    epsilon: float
    relative: bool = True
    inclusive: bool = True

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type."""
        check_fields(self, epsilon=NUMBER, relative=FLAG, inclusive=FLAG)

    def accepts(self, data_type: DataType) -> bool:
        """Whether the type is a number."""
        return isinstance(data_type, NumericType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return whole numbers in a wider type, so that differences cannot overflow."""
        if isinstance(data_type, (ByteType, ShortType, IntegerType)):
            return value.cast("bigint")
        return value.cast("decimal(20,0)") if isinstance(data_type, LongType) else value

    def equal(self, left: Column, right: Column) -> Column:
        """Return whether the distance is within the limit."""
        distance = F.abs(F.try_subtract(left, right)).cast("double")
        larger = F.greatest(F.abs(left.cast("double")), F.abs(right.cast("double")))
        limit = larger * F.lit(self.epsilon) if self.relative else F.lit(self.epsilon)
        near = (distance <= limit) if self.inclusive else (distance < limit)
        # NaN sorts after infinity: neither is a distance. A null distance is that of a null, or exceeds the type.
        finite = distance < F.lit(float("inf"))
        return left.eqNullSafe(right) | F.coalesce(finite & near, F.lit(False))

    def __str__(self) -> str:
        end = "" if self.inclusive else ":exclusive"
        return f"epsilon:{self.epsilon!r}{':relative' if self.relative else ''}{end}"


# The white space that Spark's trim removes at both ends, and what a regular expression treats as white space.
_ENDS = r"^[\x00-\x20\x7F]+|[\x00-\x20\x7F]+\z"
_BLANKS = r"[ \t\n\x0B\f\r]+"


@dataclass(frozen=True)
class Whitespace(Comparator):
    """Texts that may differ in white space: it is removed at both ends, and any run of it counts as one blank."""

    is_tolerant = True

    def accepts(self, data_type: DataType) -> bool:
        """Whether the type is a text."""
        return isinstance(data_type, StringType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return the text with normalised white space."""
        return F.regexp_replace(F.regexp_replace(value, _ENDS, ""), _BLANKS, " ")

    def __str__(self) -> str:
        return "whitespace"


@dataclass(frozen=True)
class Duration(Comparator):
    """Dates or times at most ``limit`` apart."""

    is_tolerant = True

    limit: timedelta
    inclusive: bool = True

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type."""
        check_fields(self, limit=LENGTH, inclusive=FLAG)

    def accepts(self, data_type: DataType) -> bool:
        """Whether the type is a date or a time, with or without zone."""
        return isinstance(data_type, (DateType, TimestampType, TimestampNTZType))

    def equal(self, left: Column, right: Column) -> Column:
        """Return whether the time between the two is within the limit."""
        between = F.abs(left - right)
        near = (between <= F.lit(self.limit)) if self.inclusive else (between < F.lit(self.limit))
        return left.eqNullSafe(right) | F.coalesce(near, F.lit(False))

    def __str__(self) -> str:
        seconds, micros = divmod(self.limit // timedelta(microseconds=1), 1_000_000)
        length = f"{seconds}s" if not micros else f"{seconds * 1_000_000 + micros}us"
        return f"duration:{length}{'' if self.inclusive else ':exclusive'}"


@dataclass(frozen=True)
class MapEntries(Comparator):
    """Maps by their entries; with ``ordered`` also the order of the entries of the map itself counts."""

    ordered: bool = False

    def __post_init__(self) -> None:
        """Refuse an argument of the wrong type."""
        check_fields(self, ordered=FLAG)

    @property
    def is_finer(self) -> bool:  # type: ignore[override]
        """Whether the order counts, which plain equality ignores."""
        return self.ordered

    def accepts(self, data_type: DataType) -> bool:
        """Whether the type is a map."""
        return isinstance(data_type, MapType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return the entries, sorted unless their order counts."""
        if self.ordered and isinstance(data_type, MapType):
            return entries(value, data_type)
        return normalised(value, data_type)

    def __str__(self) -> str:
        return "map:ordered" if self.ordered else "map"


@dataclass(frozen=True)
class Bitwise(Comparator):
    """Plain equality in which -0.0 differs from 0.0, also inside arrays, structs and maps; any NaN equals any other."""

    is_finer = True

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return the value with the sign of each zero added."""
        return _with_zero_signs(normalised(value, data_type), normalised_type(data_type))

    def __str__(self) -> str:
        return "bitwise"


def _with_zero_signs(value: Column, data_type: DataType) -> Column:
    if not _holds_float(data_type):
        return value
    if isinstance(data_type, StructType | ArrayType):
        return change_inside(value, data_type, _with_zero_signs)
    # Zero to the power of -1 is an infinity with the sign of the zero.
    is_negative = F.pow(value.cast("double"), F.lit(-1.0)) < 0
    return F.struct(value.alias("value"), F.when(value == 0, is_negative).alias("is_negative"))


def _holds_float(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_float(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _holds_float(data_type.elementType)
    return isinstance(data_type, (FloatType, DoubleType))


# Comparators as texts on the command line and in manifests: ``epsilon:1%``, ``duration:5m``, ``map``.


FORMS = (
    "equal, bitwise, epsilon:0.01, epsilon:1%, epsilon:0.01:exclusive, epsilon:0.01:relative, whitespace, "
    "duration:5m, duration:1d12h:exclusive, map, map:ordered"
)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PIECE = re.compile(r"(\d+)(us|ms|s|m|h|d)")
_LENGTH = re.compile(rf"(?:{_PIECE.pattern})+")


def parse_comparator(text: str) -> Comparator:
    """Return the comparator that a text describes, such as the ``str()`` of a comparator."""
    name, *arguments = text.strip().split(":")
    build = _BUILDERS.get(name.lower())
    if build is None:
        msg = f"there is no comparator {text!r}; there are: {FORMS}"
        raise ConfigurationError(msg)
    try:
        return build([argument.strip().lower() for argument in arguments])
    except ValueError as wrong:
        msg = f"the comparator {text!r} cannot be read: {wrong}; possible are: {FORMS}"
        raise ConfigurationError(msg) from None


def _without_arguments(comparator: Comparator) -> Callable[[list[str]], Comparator]:
    def build(arguments: list[str]) -> Comparator:
        _take(arguments, ())
        return comparator

    return build


def _epsilon(arguments: list[str]) -> Comparator:
    if not arguments:
        msg = "epsilon needs a number"
        raise ValueError(msg)
    number, words = arguments[0], _take(arguments[1:], ("relative", "absolute", "inclusive", "exclusive"))
    is_share = number.endswith("%")
    epsilon = float(number.removesuffix("%")) / (100 if is_share else 1)
    if not 0 <= epsilon < float("inf"):
        msg = f"epsilon must be a number from 0 upwards, not {number}"
        raise ValueError(msg)
    if is_share and "absolute" in words:
        msg = "a percentage is relative"
        raise ValueError(msg)
    return Epsilon(epsilon, relative=is_share or "relative" in words, inclusive="exclusive" not in words)


def _duration(arguments: list[str]) -> Comparator:
    if not arguments or not _LENGTH.fullmatch(arguments[0]):
        msg = "duration needs a length such as 90s, 5m, 1h30m or 2d"
        raise ValueError(msg)
    length = sum((int(number) * _UNITS[unit] for number, unit in _PIECE.findall(arguments[0])), timedelta())
    return Duration(length, inclusive="exclusive" not in _take(arguments[1:], ("inclusive", "exclusive")))


def _map(arguments: list[str]) -> Comparator:
    return MapEntries(ordered=bool(_take(arguments, ("ordered",))))


def _take(words: list[str], allowed: tuple[str, ...]) -> list[str]:
    """Return the words after the colons; raise ValueError for a word that is not allowed, or for opposites."""
    unknown = [word for word in words if word not in allowed]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}" + (f" (one of {', '.join(allowed)})" if allowed else ""))
    for option, other in (("relative", "absolute"), ("inclusive", "exclusive")):
        if option in words and other in words:
            msg = f"it cannot be both {option} and {other}"
            raise ValueError(msg)
    return words


_BUILDERS: dict[str, Callable[[list[str]], Comparator]] = {
    "equal": _without_arguments(Equality()),
    "bitwise": _without_arguments(Bitwise()),
    "whitespace": _without_arguments(Whitespace()),
    "epsilon": _epsilon,
    "duration": _duration,
    "map": _map,
}

_SIMPLE_TYPES = frozenset(
    {
        "boolean", "byte", "tinyint", "short", "smallint", "integer", "int", "long", "bigint", "float", "double",
        "decimal", "string", "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz", "time", "array",
        "struct", "map", "void",
    }
)  # fmt: skip


def comparator_for(
    name: str, data_type: DataType, options: DiffOptions, fold: Callable[[str], str] = str.lower
) -> Comparator:
    """Return a column's comparator: the one for its name, else the one for its type, else the default.

    The default applies to the columns whose type it accepts; others are compared by plain equality.
    """
    by_name = {fold(key): comparator for key, comparator in options.column_comparators.items()}
    found = by_name.get(fold(name)) or _for_type(data_type, options.type_comparators)
    if found is None:
        default = options.default_comparator or PLAIN
        return default if default.accepts(data_type) else PLAIN
    if not found.accepts(data_type):
        msg = f"the comparator {found} cannot compare column {name!r}, which is {data_type.simpleString()}"
        raise ConfigurationError(msg)
    return found


def check_types_named(comparators: Mapping[str, Comparator]) -> None:
    """Refuse a comparator for a type that no column can have."""
    for text in comparators:
        plain = _plain(text)
        if not any(mark in plain for mark in "(<") and plain not in _SIMPLE_TYPES:
            msg = (
                f"A comparator is given for type {text!r}, which does not exist; known: "
                f"{', '.join(sorted(_SIMPLE_TYPES))} and types such as decimal(10,2) or map<string,int>"
            )
            raise ConfigurationError(msg)


def equal_values(left: Column, right: Column, aligned: AlignedColumn) -> Column:
    """Return whether two values of an aligned column are equal by its comparator; never null."""
    return _compared(left, right, aligned, aligned.comparator)


def plainly_equal(left: Column, right: Column, aligned: AlignedColumn) -> Column:
    """Return whether two values of an aligned column are equal by plain equality; never null."""
    return _compared(left, right, aligned, PLAIN)


def surely_equal(left: Column, right: Column, aligned: AlignedColumn) -> Column:
    """Return whether two values are equal both plainly and by the comparator, as cheaply as possible."""
    return equal_values(left, right, aligned) if aligned.comparator.is_finer else plainly_equal(left, right, aligned)


def _compared(left: Column, right: Column, aligned: AlignedColumn, comparator: Comparator) -> Column:
    return comparator.equal(comparator.prepared(left, aligned.type), comparator.prepared(right, aligned.type))


def _for_type(data_type: DataType, comparators: Mapping[str, Comparator]) -> Comparator | None:
    by_type = {_plain(text): comparator for text, comparator in comparators.items()}
    exact = by_type.get(_plain(data_type.simpleString()))
    return exact or by_type.get(data_type.typeName())


def _plain(text: str) -> str:
    return "".join(text.lower().split())
