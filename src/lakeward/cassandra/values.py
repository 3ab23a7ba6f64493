"""The representation of CQL values in a snapshot.

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

In a key, and as the key of a map, whatever holds a float, a double or a map is a string: Cassandra distinguishes 0.0
and -0.0 as keys, Spark does not; and Spark neither hashes nor compares maps.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import UDT
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import numpy
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from lakeward.cassandra.cql import CqlType

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
    """Return the Arrow type of a column of a snapshot."""
    import pyarrow as pa

    if key and is_key_text(cql):
        return pa.string()
    if cql.name == "map":
        names, values = cql.parameters
        return pa.map_(arrow_type(names, key=True), arrow_type(values))
    inner = [arrow_type(parameter) for parameter in cql.parameters]
    if cql.name in ("tuple", UDT):
        return pa.struct([pa.field(name, inner_type) for name, inner_type in zip(field_names(cql), inner, strict=True)])
    if inner:
        return pa.list_(inner[0])
    return getattr(pa, _plain(cql))()


def spark_type(cql: CqlType, *, key: bool = False) -> DataType:
    """Return the Spark type of a column of a snapshot."""
    from pyspark.sql import types

    if key and is_key_text(cql):
        return types.StringType()
    if cql.name == "map":
        names, values = cql.parameters
        return types.MapType(spark_type(names, key=True), spark_type(values))
    inner = [spark_type(parameter) for parameter in cql.parameters]
    if cql.name in ("tuple", UDT):
        return types.StructType(
            [types.StructField(name, inner_type) for name, inner_type in zip(field_names(cql), inner, strict=True)]
        )
    if inner:
        return types.ArrayType(inner[0])
    found: DataType = getattr(types, _SPARK[_plain(cql)])()
    return found


def field_names(cql: CqlType) -> tuple[str, ...]:
    """Return the names of the fields that a tuple or a user-defined type has as a struct."""
    return cql.fields or tuple(f"f{number}" for number in range(1, len(cql.parameters) + 1))


def _plain(cql: CqlType) -> str:
    return _PLAIN.get(cql.name, "string")


_FLOATS = frozenset({"float", "double"})
_KEPT_AS_TEXT = _FLOATS | {"map"}


def is_key_text(cql: CqlType) -> bool:
    """Whether a key of this type, of a table or of a map, is held as text."""
    return cql.holds(_KEPT_AS_TEXT)


def key_text(cql: CqlType, value: Any) -> str:
    """Return the text of a key from its value in an Arrow array that is not a key; equal keys have equal texts."""
    return json.dumps(_plain_key(cql, value), ensure_ascii=False, separators=(",", ":"))


def key_value(cql: CqlType, text: str) -> Any:
    """Return the value of a text that :func:`key_text` wrote."""
    return _value(cql, json.loads(text))


def _plain_key(cql: CqlType, value: Any) -> Any:
    if value is None:
        return None
    if not cql.parameters:
        return _plain_single(cql.name, value)
    if cql.name == "map":
        key, inner = cql.parameters
        return [
            [name if is_key_text(key) else _plain_key(key, name), _plain_key(inner, element)] for name, element in value
        ]
    if cql.name in ("tuple", UDT):
        parts = value.values() if isinstance(value, dict) else value
        return [_plain_key(inner, element) for inner, element in zip(cql.parameters, parts, strict=True)]
    return [_plain_key(cql.parameters[0], element) for element in value]


def _plain_single(name: str, value: Any) -> Any:
    if name in _FLOATS:
        # Python's shortest text of a float reads back to the same bits; JSON has no word for what is not finite.
        return value if math.isfinite(value) else repr(value)
    return value.hex() if name == "blob" else value


def _value(cql: CqlType, plain: Any) -> Any:
    if plain is None:
        return None
    if not cql.parameters:
        return _single_value(cql.name, plain)
    if cql.name == "map":
        key, inner = cql.parameters
        return [(name if is_key_text(key) else _value(key, name), _value(inner, element)) for name, element in plain]
    if cql.name in ("tuple", UDT):
        return tuple(_value(inner, element) for inner, element in zip(cql.parameters, plain, strict=True))
    return [_value(cql.parameters[0], element) for element in plain]


def _single_value(name: str, plain: Any) -> Any:
    if name in _FLOATS:
        return float(plain)
    return bytes.fromhex(plain) if name == "blob" else plain


# Python writes a decimal with E where its first digit is further behind the point.
_SMALLEST_PLAIN = -5
_DURATION = re.compile(r"(-?)(\d+)mo(\d+)d(\d+)ns\Z")


def varint_text(value: int) -> str:
    """Return the text of a whole number of any size."""
    try:
        return str(value)
    except ValueError:
        # Python's own conversion stops at 4,300 digits; that of decimals does not.
        return str(Decimal(value))


def varint_value(text: str | int) -> int:
    """Return a whole number of any size from its text, or a number as it is."""
    try:
        return int(text)
    except ValueError:
        return int(Decimal(text))


def uuid_text(value: UUID | bytes) -> str | None:
    """Return the text of a UUID; None for empty bytes."""
    if type(value) is not bytes:
        return str(value)
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}" if digits else None


def decimal_text(value: Decimal | bytes) -> str | None:
    """Return the text of a decimal as Python writes it, with all digits and its scale; None for empty bytes."""
    if type(value) is not bytes:
        return str(value)
    if not value:
        return None
    scale, number = int.from_bytes(value[:4], "big", signed=True), int.from_bytes(value[4:], "big", signed=True)
    digits = str(abs(number))
    if scale < 0 or len(digits) - scale < _SMALLEST_PLAIN:
        return str(Decimal(f"{number}e{-scale}"))
    if scale:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if number < 0 else digits


def duration_text(value: Any) -> str:
    """Return the text of a duration of the driver."""
    months, days, nanoseconds = value.months, value.days, value.nanoseconds
    sign = "-" if min(months, days, nanoseconds) < 0 else ""
    return f"{sign}{abs(months)}mo{abs(days)}d{abs(nanoseconds)}ns"


def duration_value(text: str) -> Any:
    """Return the duration of the driver for a text.

    Raises:
        DataError: the text is not one that :func:`duration_text` wrote.
    """
    from cassandra.util import Duration

    found = _DURATION.match(text)
    if found is None:
        msg = f"{text!r} is not a duration; expected one such as 1mo2d3ns"
        raise DataError(msg)
    sign = -1 if found.group(1) else 1
    return Duration(*(sign * int(part) for part in found.group(2, 3, 4)))


NO_UUID = "00000000-0000-0000-0000-000000000000"
_BYTES, _LETTERS = 16, len(NO_UUID)
_DASHES = [at for at, letter in enumerate(NO_UUID) if letter == "-"]
_DIGITS = [at for at, letter in enumerate(NO_UUID) if letter != "-"]
_HEXADECIMAL = b"0123456789abcdef"
_NO_DIGIT = 255


def uuid_texts(values: Sequence[Any]) -> pa.StringArray | None:
    """Return the texts of UUIDs in bytes; None where one of them is null or empty."""
    import numpy
    import pyarrow as pa

    if None in values:
        return None
    joined = b"".join(values)
    # UUIDs have 16 bytes or none: with the full total length, none is empty.
    if not values or len(joined) != _BYTES * len(values):
        return None
    raw = numpy.frombuffer(joined, numpy.uint8)
    digits = numpy.stack([raw >> 4, raw & 15], axis=1).reshape(-1, 2 * _BYTES)
    letters = numpy.full((len(values), _LETTERS), ord("-"), dtype=numpy.uint8)
    letters[:, _DIGITS] = numpy.frombuffer(_HEXADECIMAL, numpy.uint8)[digits]
    ends = numpy.arange(0, letters.size + 1, _LETTERS, dtype=numpy.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(letters))


def uuid_bytes(texts: pa.LargeBinaryArray) -> numpy.ndarray[Any, Any] | None:
    """Return the 16 bytes of each UUID; None where a text is not in the usual form, though it may still be valid.

    ``texts`` has no nulls.
    """
    import numpy

    ends = numpy.frombuffer(texts.buffers()[1], numpy.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or not (numpy.diff(ends) == _LETTERS).all():
        return None
    letters = numpy.frombuffer(texts.buffers()[2], numpy.uint8)[ends[0] : ends[-1]].reshape(-1, _LETTERS)
    digits = _digits()[letters[:, _DIGITS]]
    if (letters[:, _DASHES] != ord("-")).any() or (digits == _NO_DIGIT).any():
        return None
    # The result of fancy indexing may be in column order.
    return numpy.ascontiguousarray((digits[:, ::2] << 4) | digits[:, 1::2])


@cache
def _digits() -> numpy.ndarray[Any, Any]:
    """Return the value of each letter as a hexadecimal digit."""
    import numpy

    found = numpy.full(256, _NO_DIGIT, dtype=numpy.uint8)
    for number, letter in enumerate(_HEXADECIMAL):
        found[letter] = number
    return found


_WIDER = {
    "tinyint": frozenset({"smallint", "int", "bigint", "varint", "decimal"}),
    "smallint": frozenset({"int", "bigint", "varint", "decimal"}),
    "int": frozenset({"bigint", "varint", "decimal"}),
    "bigint": frozenset({"varint", "decimal"}),
    "varint": frozenset({"decimal"}),
    "float": frozenset({"double"}),
    "ascii": frozenset({"text"}),
    "timeuuid": frozenset({"uuid"}),
}


def widens(source: CqlType, target: CqlType) -> bool:
    """Whether ``target`` holds every value of ``source`` exactly; types that are the same do.

    A frozen collection does not fit one that is not frozen: Cassandra does not distinguish empty ones from null.
    """
    if source.parameters or target.parameters:
        return (
            source.name == target.name
            and source.dimension == target.dimension
            and source.fields == target.fields
            and len(source.parameters) == len(target.parameters)
            and (target.frozen or not source.frozen)
            and all(map(widens, source.parameters, target.parameters))
        )
    return target.name == source.name or target.name in _WIDER.get(source.name, ())
