"""Whole columns of a batch as the bytes that statements are bound to, without a call per value where possible."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lakeward.cassandra.types import to_cql
from lakeward.cassandra.types.uuids import NO_UUID, uuid_bytes
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy
    import pyarrow as pa

    from lakeward.cassandra.writing.plan import WriteColumn

# Numbers that Cassandra holds as they are, highest byte first.
_NUMBERS = {
    "tinyint": ">i1", "smallint": ">i2", "int": ">i4", "bigint": ">i8", "timestamp": ">i8", "float": ">f4",
    "double": ">f8", "boolean": ">i1",
}  # fmt: skip
# Up to so many digits Python reads a number in any mood; longer ones are left to what knows them.
_DECIMAL = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?", re.ASCII)
# What comes of making a value of one that is none of its type.
FAULTS = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, struct.error, DataError)


@dataclass(frozen=True)
class Unfit:
    """Stands for a value that the column cannot hold, and says why."""

    reason: str


# The bytes of a column's values, null where there is none; a list where there is an `Unfit` among them.
Serialized: TypeAlias = "pa.LargeBinaryArray | list[Any]"


def serializer(column: WriteColumn, bound_type: Any, protocol: int) -> Callable[[pa.Array], Serialized]:
    """Give the function that makes bytes of a column's values.

    ``bound_type`` is the driver's type of the column, as a prepared statement tells it.
    """
    name = column.target.name
    one_by_one = _one_by_one(column, bound_type, protocol)
    if column.source != column.target:
        return one_by_one
    if name in _NUMBERS and not (column.is_key and name in ("float", "double")):
        return lambda array: _numbers(array, _NUMBERS[name])
    if name in ("text", "blob"):
        return lambda array: array.cast(bytes_type())
    if name in ("uuid", "timeuuid"):
        return lambda array: one_by_one(array) if (found := _uuids(array)) is None else found
    return one_by_one


def listed(column: Serialized) -> list[Any]:
    """Give a column's values one by one."""
    return column if isinstance(column, list) else column.to_pylist()


def bytes_type() -> pa.DataType:
    """Give the type of columns of bytes: rows may be large, and so many that four bytes do not tell where one is."""
    import pyarrow as pa

    return pa.large_binary()


def fixed_width(raw: numpy.ndarray[Any, Any], width: int) -> pa.LargeBinaryArray:
    """Give values that all have so many bytes, laid one after the other."""
    import numpy
    import pyarrow as pa

    count = raw.nbytes // width
    ends = numpy.arange(0, (count + 1) * width, width, dtype=numpy.int64)
    return pa.Array.from_buffers(bytes_type(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw)])


def _numbers(array: pa.Array, kind: str) -> pa.LargeBinaryArray:
    import numpy
    import pyarrow as pa

    filled = array.fill_null(pa.scalar(0).cast(array.type)) if array.null_count else array
    numbers = filled.to_numpy(zero_copy_only=False).astype(numpy.dtype(kind))
    return _where_valid(fixed_width(numbers, numbers.itemsize), array)


def _where_valid(values: pa.LargeBinaryArray, array: pa.Array) -> pa.LargeBinaryArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(array.is_valid(), values, pa.scalar(None, bytes_type())) if array.null_count else values


def _uuids(array: pa.Array) -> pa.LargeBinaryArray | None:
    """Give the bytes of texts in the usual form; None where one is in any other, which may still be one."""
    filled = array.fill_null(NO_UUID) if array.null_count else array
    found = uuid_bytes(filled.cast(bytes_type()))
    return None if found is None else _where_valid(fixed_width(found, found.shape[1]), array)


def _decimal(text: str) -> bytes | None:
    """Give the bytes of a decimal: its scale, and its digits in as few bytes as hold them. None for one with E."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    whole, _, rest = text.partition(".")
    digits = int(whole + rest)
    size = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return len(rest).to_bytes(4, "big") + digits.to_bytes(size, "big", signed=True)


_QUICK: dict[str, Callable[[str], bytes | None]] = {"decimal": _decimal}


def _one_by_one(column: WriteColumn, bound_type: Any, protocol: int) -> Callable[[pa.Array], Serialized]:
    convert, serialize = to_cql(column.target, key=column.is_key), bound_type.serialize
    quick = _QUICK.get(column.target.name) if column.source == column.target else None

    def one(value: Any) -> Any:
        if value is None or (quick is not None and (found := quick(value)) is not None):
            return None if value is None else found
        try:
            return serialize(convert(value), protocol)
        except FAULTS as error:
            return Unfit(f"{column.name}: {value!r:.200} is no {column.target.cql}: {error}")

    def whole(array: pa.Array) -> Serialized:
        import pyarrow as pa

        found = [one(value) for value in array.to_pylist()]
        return found if any(type(value) is Unfit for value in found) else pa.array(found, bytes_type())

    return whole
