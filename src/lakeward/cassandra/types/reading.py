"""From what the driver gives to Arrow, a column of a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.cassandra.types.arrow import arrow_type
from lakeward.cassandra.types.cql import UDT
from lakeward.cassandra.types.keytext import is_key_text, key_text
from lakeward.cassandra.types.texts import decimal_text, duration_text, uuid_text, varint_text
from lakeward.cassandra.types.uuids import uuid_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakeward.cassandra.types.cql import CqlType

    # A value of the driver's to what Arrow takes for it. None: it is taken as it is, without a call for each value.
    _Change = Callable[[Any], Any] | None

_SINGLE: dict[str, Callable[[Any], Any]] = {
    "uuid": uuid_text,
    "timeuuid": uuid_text,
    "decimal": decimal_text,
    "varint": varint_text,
    "duration": duration_text,
    "date": lambda value: value.days_from_epoch,
    "time": lambda value: getattr(value, "nanosecond_time", value),
}


def to_arrow(cql: CqlType, *, key: bool = False) -> Callable[[Sequence[Any]], pa.Array]:
    """Give the function that makes an Arrow array of the values that the driver returned for a column.

    Values that Cassandra holds with no bytes at all in a type that cannot be empty, such as an int of length zero,
    come from the driver as null, and are null here.
    """
    import pyarrow as pa

    target = arrow_type(cql, key=key)
    change = _key_change(cql) if key else _change(cql)
    if change is None:
        return lambda values: pa.array(values, target)

    def one_by_one(values: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else change(value) for value in values], target)

    if cql.name not in ("uuid", "timeuuid"):
        return one_by_one
    return lambda values: one_by_one(values) if (found := _uuids(values)) is None else found


def _uuids(values: Sequence[Any]) -> pa.Array | None:
    """Give the texts of UUIDs in bytes; None where they come otherwise."""
    return uuid_texts(values) if values and type(values[0]) is bytes else None


def _change(cql: CqlType) -> _Change:
    if cql.name == "map":
        names, values = cql.parameters
        return _map(_key_change(names), _change(values))
    if cql.name in ("tuple", UDT):
        return _struct([_change(one) for one in cql.parameters])
    if cql.parameters:
        return _sequence(_change(cql.parameters[0]))
    return _SINGLE.get(cql.name)


def _sequence(inner: _Change) -> Callable[[Any], Any]:
    if inner is None:
        return list
    return lambda value: [None if one is None else inner(one) for one in value]


def _map(key: _Change, inner: _Change) -> Callable[[Any], Any]:
    names, values = _nullable(key), _nullable(inner)
    return lambda value: [(names(name), values(one)) for name, one in _pairs(value)]


def _struct(parts: list[_Change]) -> Callable[[Any], Any]:
    if not any(parts):
        return tuple
    inner = [_nullable(one) for one in parts]
    return lambda value: tuple([change(one) for change, one in zip(inner, value, strict=True)])


def _key_change(cql: CqlType) -> _Change:
    change = _change(cql)
    if not is_key_text(cql):
        return change
    if change is None:
        return lambda value: key_text(cql, value)
    return lambda value: key_text(cql, change(value))


def _nullable(change: _Change) -> Callable[[Any], Any]:
    if change is None:
        return lambda value: value
    return lambda value: None if value is None else change(value)


def _pairs(value: Any) -> Any:
    """Give the entries of a map of the driver's; its own ``items`` serialises every key once more to look it up."""
    return getattr(value, "_items", None) or value.items()
