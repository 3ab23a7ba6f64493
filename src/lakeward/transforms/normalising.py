"""Maps made comparable: Spark can neither compare, hash, sort nor join them, wherever they sit in a value.

Some types cannot be made so: :func:`uncomparable_part` tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

KEY, VALUE = "key", "value"
# Spark can compare no two values of these.
_NOT_COMPARABLE = frozenset({"variant", "interval", "geometry", "geography"})


def uncomparable_part(data_type: DataType) -> str | None:
    """Give the name of a type within a type of whose values no two can be compared; None: there is none."""
    if isinstance(data_type, StructType):
        found = (uncomparable_part(one.dataType) for one in data_type.fields)
        return next((one for one in found if one is not None), None)
    if isinstance(data_type, ArrayType):
        return uncomparable_part(data_type.elementType)
    if isinstance(data_type, MapType):
        return uncomparable_part(data_type.keyType) or uncomparable_part(data_type.valueType)
    name = data_type.simpleString().partition("(")[0]
    return name if name in _NOT_COMPARABLE else None


def holds_map(data_type: DataType) -> bool:
    """Tell whether there is a map anywhere in a type."""
    if isinstance(data_type, StructType):
        return any(holds_map(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return holds_map(data_type.elementType)
    return isinstance(data_type, MapType)


def normalised_type(data_type: DataType) -> DataType:
    """Give the type of :func:`normalised`: an array of (key, value) structs in the place of each map."""
    if not holds_map(data_type):
        return data_type
    if isinstance(data_type, StructType):
        return StructType(
            [StructField(one.name, normalised_type(one.dataType), one.nullable) for one in data_type.fields]
        )
    if isinstance(data_type, ArrayType):
        return ArrayType(normalised_type(data_type.elementType), data_type.containsNull)
    assert isinstance(data_type, MapType)
    # Spark's map keys hold no maps.
    entry = StructType(
        [
            StructField(KEY, data_type.keyType, nullable=False),
            StructField(VALUE, normalised_type(data_type.valueType), data_type.valueContainsNull),
        ]
    )
    return ArrayType(entry, containsNull=False)


def normalised(value: Column, data_type: DataType) -> Column:
    """Give a value with every map in it as the array of its entries, sorted by key: the order of entries is no content.

    A value without maps is given as it is; nulls stay nulls, on every level.
    """
    if not holds_map(data_type):
        return value
    if isinstance(data_type, StructType):
        fields = [normalised(value.getField(one.name), one.dataType).alias(one.name) for one in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, ArrayType):
        element_type = data_type.elementType
        return F.transform(value, lambda element: normalised(element, element_type))
    assert isinstance(data_type, MapType)
    return F.sort_array(entries(value, data_type))


def entries(value: Column, data_type: MapType) -> Column:
    """Give a map's entries in the order in which it holds them, values normalised."""
    found = F.map_entries(value)
    value_type = data_type.valueType
    if not holds_map(value_type):
        return found
    return F.transform(
        found,
        lambda entry: F.struct(
            entry.getField(KEY).alias(KEY), normalised(entry.getField(VALUE), value_type).alias(VALUE)
        ),
    )
