"""The comparators of spark-extension, each of which is one of Lakeward's, and those that users write."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, MapType, NullType, StringType, TimestampType

import lakeward
from lakeward.arguments import FLAG, NUMBER, TEXT, check_fields, instance
from lakeward.diffing.frames.alignment import is_same
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column

DATA_TYPE = instance("a DataType", DataType)


class DiffComparator(ABC):
    """The rule by which two values of a column count as equal; users may derive their own."""

    @abstractmethod
    def equiv(self, left: Column, right: Column) -> Column:
        """Return the condition that two values are equal; null counts as false."""


class _Known(DiffComparator):
    """A comparator that Lakeward has too."""

    # The type that ``equiv`` takes for that of its values, which it cannot know.
    _type: DataType = NullType()

    @abstractmethod
    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""

    def equiv(self, left: Column, right: Column) -> Column:
        """Return the condition that two values are equal; never null."""
        own = self.as_lakeward()
        return own.equal(own.prepared(left, self._type), own.prepared(right, self._type))


@dataclass(frozen=True)
class NullSafeEqualDiffComparator(_Known):
    """Plain equality, by which null equals null."""

    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""
        return lakeward.Equality()


@dataclass(frozen=True)
class DefaultDiffComparator(NullSafeEqualDiffComparator):
    """The default comparator: plain equality."""


@dataclass(frozen=True)
class EpsilonDiffComparator(_Known):
    """Numbers at most ``epsilon`` apart, as a share of the larger one unless ``relative`` is false."""

    epsilon: float
    relative: bool = True
    inclusive: bool = True
    _type = DoubleType()

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type."""
        check_fields(self, epsilon=NUMBER, relative=FLAG, inclusive=FLAG)

    def as_relative(self) -> Self:
        """Return the comparator whose epsilon is a share of the larger number."""
        return replace(self, relative=True)

    def as_absolute(self) -> Self:
        """Return the comparator whose epsilon is a distance."""
        return replace(self, relative=False)

    def as_inclusive(self) -> Self:
        """Return the comparator for which numbers exactly epsilon apart are equal."""
        return replace(self, inclusive=True)

    def as_exclusive(self) -> Self:
        """Return the comparator for which numbers exactly epsilon apart are not equal."""
        return replace(self, inclusive=False)

    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""
        return lakeward.Epsilon(self.epsilon, relative=self.relative, inclusive=self.inclusive)


@dataclass(frozen=True)
class StringDiffComparator(_Known):
    """Texts, which may differ in white space if ``whitespace_agnostic``."""

    whitespace_agnostic: bool
    _type = StringType()

    def __post_init__(self) -> None:
        """Refuse an argument of the wrong type."""
        check_fields(self, whitespace_agnostic=FLAG)

    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""
        return lakeward.Whitespace() if self.whitespace_agnostic else lakeward.Equality()


@dataclass(frozen=True)
class DurationDiffComparator(_Known):
    """Dates or times at most ``duration`` apart, an ISO 8601 duration in days to seconds such as ``PT24H``."""

    duration: str
    inclusive: bool = True
    _type = TimestampType()

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type, and texts that are no duration."""
        check_fields(self, duration=TEXT, inclusive=FLAG)
        _length(self.duration)

    def as_inclusive(self) -> Self:
        """Return the comparator for which times exactly so far apart are equal."""
        return replace(self, inclusive=True)

    def as_exclusive(self) -> Self:
        """Return the comparator for which times exactly so far apart are not equal."""
        return replace(self, inclusive=False)

    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""
        return lakeward.Duration(_length(self.duration), inclusive=self.inclusive)


_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,6})?)S)?)?",
    re.IGNORECASE,
)


def _length(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        msg = f"The duration {text!r} cannot be read; expected is an ISO 8601 one such as PT5M, PT1H30M or P1DT0.5S"
        raise ConfigurationError(msg)
    parts = {unit: float(number.replace(",", ".")) for unit, number in found.groupdict(default="0").items()}
    return timedelta(**parts)


@dataclass(frozen=True)
class MapDiffComparator(_Known):
    """Maps of these types by their entries; with ``key_order_sensitive`` the order of the entries counts too."""

    key_type: DataType
    value_type: DataType
    key_order_sensitive: bool

    def __post_init__(self) -> None:
        """Refuse arguments of the wrong type."""
        check_fields(self, key_type=DATA_TYPE, value_type=DATA_TYPE, key_order_sensitive=FLAG)

    @property
    def _type(self) -> DataType:  # type: ignore[override]
        return MapType(self.key_type, self.value_type)

    def as_lakeward(self) -> lakeward.Comparator:
        """Return Lakeward's comparator."""
        return _MapsOf(self.key_order_sensitive, self._type)


@dataclass(frozen=True)
class _MapsOf(lakeward.MapEntries):
    """Maps of one type."""

    data_type: DataType = field(default_factory=NullType)

    def accepts(self, data_type: DataType) -> bool:
        """Whether the type is the map type handled here."""
        return is_same(data_type, self.data_type)

    def __str__(self) -> str:
        return f"{super().__str__()} of {self.data_type.simpleString()}"


class DiffComparators:
    """The available comparators."""

    @staticmethod
    def default() -> DefaultDiffComparator:
        """Return plain equality."""
        return DefaultDiffComparator()

    @staticmethod
    def nullSafeEqual() -> NullSafeEqualDiffComparator:  # noqa: N802 (the name that users know)
        """Return plain equality."""
        return NullSafeEqualDiffComparator()

    @staticmethod
    def epsilon(epsilon: float) -> EpsilonDiffComparator:
        """Return the comparator of numbers that may be a share of ``epsilon`` apart."""
        return EpsilonDiffComparator(epsilon)

    @staticmethod
    def string(whitespace_agnostic: bool = True) -> StringDiffComparator:
        """Return the comparator of texts that may differ in white space."""
        return StringDiffComparator(whitespace_agnostic)

    @staticmethod
    def duration(duration: str) -> DurationDiffComparator:
        """Return the comparator of dates and times that may be so far apart."""
        return DurationDiffComparator(duration)

    @staticmethod
    def map(
        key_type: DataType,
        value_type: DataType,
        key_order_sensitive: bool = False,
    ) -> MapDiffComparator:
        """Return the comparator of maps by their entries."""
        return MapDiffComparator(key_type, value_type, key_order_sensitive)


@dataclass(frozen=True)
class _ByEquiv(lakeward.Comparator):
    """A comparator of the user's, which may be finer than plain equality, or coarser."""

    is_finer = True
    is_tolerant = True

    chosen: DiffComparator

    def prepared(self, value: Column, data_type: DataType) -> Column:
        """Return the value as it is."""
        return value

    def equal(self, left: Column, right: Column) -> Column:
        """Return whether two values are equal; never null."""
        return F.coalesce(self.chosen.equiv(left, right), F.lit(False))

    def __str__(self) -> str:
        return repr(self.chosen)


def translated(comparator: DiffComparator) -> lakeward.Comparator:
    """Return a comparator as Lakeward's; one whose ``equiv`` a user defined is compared by that."""
    if isinstance(comparator, _Known) and type(comparator).equiv is _Known.equiv:
        return comparator.as_lakeward()
    return _ByEquiv(comparator)
