"""The types that a snapshot holds CQL values in.

=========================================  ==============================================================
text, ascii                                string
tinyint … bigint, boolean, float, double   as they are; a counter is a bigint
blob                                       binary
decimal, varint                            string: any size, and the scale is kept
uuid, timeuuid, inet                       string, in the usual lower-case form
timestamp, date, time                      bigint milliseconds, int days since 1970-01-01, bigint nanoseconds
duration                                   string such as ``1mo2d3ns``
list, set, vector                          array
map                                        map
tuple, user-defined type                   struct, the fields of a tuple being ``f1``, ``f2`` …
=========================================  ==============================================================

In a key, and as the key of a map, whatever holds a float, a double or a map is a string (see
:mod:`~lakeward.cassandra.types.keytext`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cassandra.types.cql import UDT
from lakeward.cassandra.types.keytext import is_key_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from lakeward.cassandra.types.cql import CqlType

_PLAIN = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "date": "int32",
    "bigint": "int64",
    "counter": "int64",
    "timestamp": "int64",
    "time": "int64",
    "boolean": "bool_",
    "float": "float32",
    "double": "float64",
    "blob": "binary",
}
_SPARK = {
    "int8": "ByteType",
    "int16": "ShortType",
    "int32": "IntegerType",
    "int64": "LongType",
    "bool_": "BooleanType",
    "float32": "FloatType",
    "float64": "DoubleType",
    "binary": "BinaryType",
    "string": "StringType",
}


def arrow_type(cql: CqlType, *, key: bool = False) -> pa.DataType:
    """Give the Arrow type of a column of a snapshot."""
    import pyarrow as pa

    if key and is_key_text(cql):
        return pa.string()
    if cql.name == "map":
        names, values = cql.parameters
        return pa.map_(arrow_type(names, key=True), arrow_type(values))
    inner = [arrow_type(one) for one in cql.parameters]
    if cql.name in ("tuple", UDT):
        return pa.struct([pa.field(name, one) for name, one in zip(field_names(cql), inner, strict=True)])
    if inner:
        return pa.list_(inner[0])
    return getattr(pa, _plain(cql))()


def spark_type(cql: CqlType, *, key: bool = False) -> DataType:
    """Give the Spark type of a column of a snapshot."""
    from pyspark.sql import types

    if key and is_key_text(cql):
        return types.StringType()
    if cql.name == "map":
        names, values = cql.parameters
        return types.MapType(spark_type(names, key=True), spark_type(values))
    inner = [spark_type(one) for one in cql.parameters]
    if cql.name in ("tuple", UDT):
        return types.StructType(
            [types.StructField(name, one) for name, one in zip(field_names(cql), inner, strict=True)]
        )
    if inner:
        return types.ArrayType(inner[0])
    found: DataType = getattr(types, _SPARK[_plain(cql)])()
    return found


def field_names(cql: CqlType) -> tuple[str, ...]:
    """Give the names of the fields that a tuple or a user-defined type has as a struct."""
    return cql.fields or tuple(f"f{number}" for number in range(1, len(cql.parameters) + 1))


def _plain(cql: CqlType) -> str:
    return _PLAIN.get(cql.name, "string")
