"""Which type of one side holds every value of the other's: values are compared only where neither side loses any."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_INSTANTS = (T.TimestampType, T.TimestampNTZType)
_TEXTS = (T.StringType, T.VarcharType)
_WIDENINGS: tuple[tuple[Any, Any], ...] = (
    (T.FloatType, T.DoubleType),
    (T.BooleanType, tuple(_DIGITS)),
    (T.DateType, T.TimestampNTZType),
    (_INSTANTS, _INSTANTS),
    (_TEXTS, _TEXTS),
)


def comparable_type(mirror: T.DataType, other: T.DataType) -> T.DataType | None:
    """Give the type to compare two columns in: the mirror's if it can hold the other's values, or the other way."""
    if is_lossless(other, mirror):
        return mirror
    return other if is_lossless(mirror, other) else None


def is_lossless(source: T.DataType, target: T.DataType) -> bool:
    """Tell whether a cast keeps every value and tells them all apart. Sessions are in UTC: instants have one text."""
    if source == target or isinstance(source, T.NullType):
        return True
    if type(source) in _DIGITS:
        return _holds_integers(_DIGITS[type(source)], target)
    if isinstance(source, T.DecimalType) and isinstance(target, T.DecimalType):
        whole, wanted = source.precision - source.scale, target.precision - target.scale
        return whole <= wanted and source.scale <= target.scale
    return any(isinstance(source, narrow) and isinstance(target, wide) for narrow, wide in _WIDENINGS)


def _holds_integers(digits: int, target: T.DataType) -> bool:
    if isinstance(target, T.DecimalType):
        return target.precision - target.scale >= digits
    return _DIGITS.get(type(target), 0) >= digits
