"""When two values of a column count as equal.

A comparator first brings each value into a form (:meth:`Comparator.prepared`) and then compares two forms
(:meth:`Comparator.equal`); both are plain column expressions. Three rules hold for all of them:

- null equals null and nothing else; the answer is never null;
- a value equals itself. So NaN equals NaN and an infinity itself, also within an epsilon;
- maps are equal if they have the same entries, in whatever order (but see :class:`MapEntries`), also inside a value.

By plain equality -0.0 equals 0.0 and every NaN every other one, also inside arrays, structs and maps. The order of an
array's elements counts.
"""

from __future__ import annotations

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
from lakeward.transforms.normalising import entries, normalised, normalised_type

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


class Comparator(ABC):
    """The base of all; ``str()`` gives the text that ``parse_comparator`` reads."""

    # Whether it may tell values apart that plain equality holds equal: then neither equality nor a hash may come first.
    is_finer = False
    # Whether it may hold values equal that plain equality tells apart.
    is_tolerant = False

    def accepts(self, data_type: DataType) -> bool:
        """Tell whether values of a type can be compared this way."""
        return True

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Give a value in the form that :meth:`equal` compares."""
        return normalised(value, data_type)

    def equal(self, left: Column, right: Column) -> Column:
        """Tell whether two prepared values are equal; never null."""
        return left.eqNullSafe(right)

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Equality(Comparator):
    """Plain equality: what holds where nothing else is said."""

    def __str__(self) -> str:
        return "equal"


PLAIN = Equality()


@dataclass(frozen=True)
class Epsilon(Comparator):
    """Numbers at most ``epsilon`` apart: as it is, or (relative) times the larger of the two without their signs.

    An infinity or NaN equals only itself, however large epsilon is.
    """

    is_tolerant = True

    epsilon: float
    relative: bool = True
    inclusive: bool = True

    def __post_init__(self) -> None:
        """Refuse what no number can be compared with."""
        check_fields(self, epsilon=NUMBER, relative=FLAG, inclusive=FLAG)

    def accepts(self, data_type: DataType) -> bool:
        """Take numbers only."""
        return isinstance(data_type, NumericType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Widen whole numbers, so that none is too large for its difference to another."""
        if isinstance(data_type, (ByteType, ShortType, IntegerType)):
            return value.cast("bigint")
        return value.cast("decimal(20,0)") if isinstance(data_type, LongType) else value

    def equal(self, left: Column, right: Column) -> Column:
        """Tell whether the distance is within the limit."""
        distance = F.abs(F.try_subtract(left, right)).cast("double")
        larger = F.greatest(F.abs(left.cast("double")), F.abs(right.cast("double")))
        limit = larger * F.lit(self.epsilon) if self.relative else F.lit(self.epsilon)
        near = (distance <= limit) if self.inclusive else (distance < limit)
        # NaN sorts behind infinity: neither is a distance. A null one is that of a null, or too large for the type.
        finite = distance < F.lit(float("inf"))
        return left.eqNullSafe(right) | F.coalesce(finite & near, F.lit(False))

    def __str__(self) -> str:
        end = "" if self.inclusive else ":exclusive"
        return f"epsilon:{self.epsilon!r}{':relative' if self.relative else ''}{end}"


# What Spark's trim of all white space takes away at both ends, and what a regular expression calls white space.
_ENDS = r"^[\x00-\x20\x7F]+|[\x00-\x20\x7F]+\z"
_BLANKS = r"[ \t\n\x0B\f\r]+"


@dataclass(frozen=True)
class Whitespace(Comparator):
    """Texts that differ in white space only: none counts at the ends, and any run of it is one blank."""

    is_tolerant = True

    def accepts(self, data_type: DataType) -> bool:
        """Take texts only."""
        return isinstance(data_type, StringType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Give the text with its white space brought to one form."""
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
        """Refuse what no time can be compared with."""
        check_fields(self, limit=LENGTH, inclusive=FLAG)

    def accepts(self, data_type: DataType) -> bool:
        """Take dates and times, with and without zone."""
        return isinstance(data_type, (DateType, TimestampType, TimestampNTZType))

    def equal(self, left: Column, right: Column) -> Column:
        """Tell whether the time between the two is within the limit."""
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
        """Refuse what is no choice."""
        check_fields(self, ordered=FLAG)

    @property
    def is_finer(self) -> bool:  # type: ignore[override]
        """Tell that plain equality does not see the order."""
        return self.ordered

    def accepts(self, data_type: DataType) -> bool:
        """Take maps only."""
        return isinstance(data_type, MapType)

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Give the entries: as they are, or sorted."""
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
        """Give the value with the sign of each zero beside it."""
        return _with_zero_signs(normalised(value, data_type), normalised_type(data_type))

    def __str__(self) -> str:
        return "bitwise"


def _with_zero_signs(value: Column, data_type: DataType) -> Column:
    if not _holds_float(data_type):
        return value
    if isinstance(data_type, StructType):
        fields = [_with_zero_signs(value.getField(one.name), one.dataType).alias(one.name) for one in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        element_type = data_type.elementType
        return F.transform(value, lambda element: _with_zero_signs(element, element_type))
    # A zero to the power of -1 is an infinity with the zero's sign.
    is_negative = F.pow(value.cast("double"), F.lit(-1.0)) < 0
    return F.struct(value.alias("value"), F.when(value == 0, is_negative).alias("is_negative"))


def _holds_float(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_float(one.dataType) for one in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _holds_float(data_type.elementType)
    return isinstance(data_type, (FloatType, DoubleType))
