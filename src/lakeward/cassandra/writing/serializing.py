"""Whole columns of a batch as the bytes that statements are bound to, without a call per value where possible."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.types import to_cql
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakeward.cassandra.writing.plan import WriteColumn

# Numbers that Cassandra holds as they are, highest byte first.
_NUMBERS = {
    "tinyint": ">i1", "smallint": ">i2", "int": ">i4", "bigint": ">i8", "timestamp": ">i8", "float": ">f4",
    "double": ">f8",
}  # fmt: skip
_BOOLEANS = {None: None, True: b"\x01", False: b"\x00"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
# Up to so many digits Python reads a number in any mood; longer ones are left to what knows them.
_DECIMAL = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?", re.ASCII)
# What comes of making a value of one that is none of its type.
FAULTS = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, struct.error, DataError)


@dataclass(frozen=True)
class Unfit:
    """Stands for a value that the column cannot hold, and says why."""

    reason: str


def serializer(column: WriteColumn, bound_type: Any, protocol: int) -> Callable[[pa.Array], list[Any]]:
    """Give the function that makes bytes of a column's values; null stays None, what does not fit becomes `Unfit`.

    ``bound_type`` is the driver's type of the column, as a prepared statement tells it.
    """
    name = column.target.name
    if column.source == column.target:
        is_text_key = column.is_key and name in ("float", "double")
        if name in _NUMBERS and not is_text_key:
            return lambda array: _numbers(array, _NUMBERS[name])
        if name == "text":
            return _texts
        if name == "blob":
            return lambda array: list(array.to_pylist())
        if name == "boolean":
            return lambda array: [_BOOLEANS[one] for one in array.to_pylist()]
    quick = _QUICK.get(name) if column.source == column.target else None
    return _one_by_one(column, bound_type, protocol, quick)


def _numbers(array: pa.Array, kind: str) -> list[Any]:
    import numpy

    width = int(kind[2:])
    filled = array.fill_null(0) if array.null_count else array
    raw = filled.to_numpy(zero_copy_only=False).astype(numpy.dtype(kind)).tobytes()
    found: list[Any] = [raw[at : at + width] for at in range(0, len(raw), width)]
    if array.null_count:
        return [one if is_there else None for one, is_there in zip(found, array.is_valid().to_pylist(), strict=True)]
    return found


def _texts(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    return list(array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()).to_pylist())


def _uuid(text: str) -> bytes | None:
    """Give the bytes of a text in the usual form; None for any other, which may still be one."""
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else None


def _decimal(text: str) -> bytes | None:
    """Give the bytes of a decimal: its scale, and its digits in as few bytes as hold them. None for one with E."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    whole, _, rest = text.partition(".")
    digits = int(whole + rest)
    size = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    return len(rest).to_bytes(4, "big") + digits.to_bytes(size, "big", signed=True)


_QUICK: dict[str, Callable[[str], bytes | None]] = {"uuid": _uuid, "timeuuid": _uuid, "decimal": _decimal}


def _one_by_one(
    column: WriteColumn, bound_type: Any, protocol: int, quick: Callable[[str], bytes | None] | None
) -> Callable[[pa.Array], list[Any]]:
    convert = to_cql(column.target, key=column.is_key)
    serialize = bound_type.serialize

    def one(value: Any) -> Any:
        if value is None or (quick is not None and (found := quick(value)) is not None):
            return None if value is None else found
        try:
            return serialize(convert(value), protocol)
        except FAULTS as error:
            return Unfit(f"{column.name}: {value!r:.200} is no {column.target.cql}: {error}")

    return lambda array: [one(value) for value in array.to_pylist()]
