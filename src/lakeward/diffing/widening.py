"""Types of the two sides brought to one that holds every value of both without loss."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

# Each with the digits its largest value has.
_WHOLE: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_WHOLE_ORDER = tuple(_WHOLE)
# A float holds every whole number of 24 bits, a double of 53.
_IN_FLOAT, _IN_DOUBLE = (ByteType, ShortType), (ByteType, ShortType, IntegerType, FloatType)
_MAX_PRECISION = 38


def is_same(left: DataType, right: DataType) -> bool:
    """Tell whether two types are the same but for where nulls may be."""
    return _with_nulls(left) == _with_nulls(right)


def common_type(left: DataType, right: DataType, *, fields_differ: bool = False) -> DataType | None:
    """Give the narrowest type that holds all values of both, None where there is none.

    Whole numbers widen to longer ones, to decimals and (up to int) to double, float to double, decimals to more digits;
    so do elements of arrays, values of maps and fields of structs. With ``fields_differ`` structs may have fields that
    the other has not, as long as they share one: the common struct then has all of them, see :func:`as_type`.
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
    """Give a value in another type; fields of structs are found by name, and those that it has not are null."""
    if is_same(own, wanted):
        return value
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        fields = [_field(value, own, one).alias(one.name) for one in wanted.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        elements = own.elementType, wanted.elementType
        return F.transform(value, lambda one: as_type(one, *elements))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        values, key_type = (own.valueType, wanted.valueType), wanted.keyType
        entries = F.transform(
            F.map_entries(value), lambda one: F.struct(one["key"].cast(key_type), as_type(one["value"], *values))
        )
        return F.map_from_entries(entries)
    return value.cast(wanted)


def _field(value: Column, own: StructType, wanted: StructField) -> Column:
    if wanted.name not in own.names:
        return F.lit(None).cast(wanted.dataType)
    return as_type(value.getField(wanted.name), own[wanted.name].dataType, wanted.dataType)


def _common_number(left: DataType, right: DataType) -> DataType | None:
    if type(left) in _WHOLE and type(right) in _WHOLE:
        return max(left, right, key=lambda one: _WHOLE_ORDER.index(type(one)))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, DoubleType) and isinstance(other, _IN_DOUBLE):
            return DoubleType()
        if isinstance(one, FloatType) and isinstance(other, _IN_FLOAT):
            return FloatType()
        if isinstance(one, FloatType) and isinstance(other, IntegerType):
            return DoubleType()
    return _common_decimal(left, right)


def _common_decimal(left: DataType, right: DataType) -> DataType | None:
    digits = [_digits(one) for one in (left, right)]
    if None in digits:
        return None
    whole = max(one[0] for one in digits if one is not None)
    scale = max(one[1] for one in digits if one is not None)
    return DecimalType(whole + scale, scale) if whole + scale <= _MAX_PRECISION else None


def _digits(data_type: DataType) -> tuple[int, int] | None:
    """Give the digits before and behind the point."""
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
        return StructType([StructField(one.name, _with_nulls(one.dataType)) for one in data_type.fields])
    return data_type
