"""Conversion of values: from the driver to Arrow, from a snapshot to a prepared statement, and to CQL literals."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from lakeward.cassandra.cql import UDT, quoted
from lakeward.cassandra.values import (
    arrow_type,
    decimal_text,
    duration_text,
    duration_value,
    field_names,
    is_key_text,
    key_text,
    key_value,
    uuid_text,
    uuid_texts,
    varint_text,
    varint_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakeward.cassandra.cql import CqlType

    # Converts a value of the driver for Arrow. None: values are used as they are, without a call for each.
    _Change = Callable[[Any], Any] | None

_SINGLE_TO_ARROW: dict[str, Callable[[Any], Any]] = {
    "uuid": uuid_text,
    "timeuuid": uuid_text,
    "decimal": decimal_text,
    "varint": varint_text,
    "duration": duration_text,
    "date": lambda value: value.days_from_epoch,
    "time": lambda value: getattr(value, "nanosecond_time", value),
}


def to_arrow(cql: CqlType, *, key: bool = False) -> Callable[[Sequence[Any]], pa.Array]:
    """Return the function that converts the values that the driver returned for a column to an Arrow array.

    Values without any bytes in a type that cannot be empty, such as an int of length zero, come from the driver as
    null, and are null here.
    """
    import pyarrow as pa

    target = arrow_type(cql, key=key)
    change = _key_to_arrow(cql) if key else _to_arrow(cql)
    if change is None:
        return lambda values: pa.array(values, target)

    def one_by_one(values: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else change(value) for value in values], target)

    if cql.name not in ("uuid", "timeuuid"):
        return one_by_one
    return lambda values: one_by_one(values) if (found := _uuids(values)) is None else found


def _uuids(values: Sequence[Any]) -> pa.Array | None:
    """Return the texts of UUIDs in bytes; None where they are not in bytes."""
    return uuid_texts(values) if values and type(values[0]) is bytes else None


def _to_arrow(cql: CqlType) -> _Change:
    if cql.name == "map":
        names, values = cql.parameters
        return _map_to_arrow(_key_to_arrow(names), _to_arrow(values))
    if cql.name in ("tuple", UDT):
        return _struct_to_arrow([_to_arrow(parameter) for parameter in cql.parameters])
    if cql.parameters:
        return _sequence_to_arrow(_to_arrow(cql.parameters[0]))
    return _SINGLE_TO_ARROW.get(cql.name)


def _sequence_to_arrow(inner: _Change) -> Callable[[Any], Any]:
    if inner is None:
        return list
    return lambda value: [None if element is None else inner(element) for element in value]


def _map_to_arrow(key: _Change, inner: _Change) -> Callable[[Any], Any]:
    names, values = _nullable(key), _nullable(inner)
    return lambda value: [(names(name), values(element)) for name, element in _pairs(value)]


def _struct_to_arrow(parts: list[_Change]) -> Callable[[Any], Any]:
    if not any(parts):
        return tuple
    inner = [_nullable(part) for part in parts]
    return lambda value: tuple([change(element) for change, element in zip(inner, value, strict=True)])


def _key_to_arrow(cql: CqlType) -> _Change:
    change = _to_arrow(cql)
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
    """Return the entries of a map of the driver; its own ``items`` serialises every key again to look it up."""
    return getattr(value, "_items", None) or value.items()


class CqlMapEntries(list[tuple[Any, Any]]):
    """A map for the driver whose keys need not be hashable: 0.0 and -0.0 stay distinct, lists may be keys."""

    def items(self) -> CqlMapEntries:
        """Return the entries."""
        return self


def to_cql(cql: CqlType, *, key: bool = False) -> Callable[[Any], Any]:
    """Return the function that converts a value from Arrow's ``to_pylist`` to what a statement accepts.

    Timestamps and times are numbers, also within other types; null stays null. The type is that of the column to
    write, which may be wider than that of the column that was read.
    """
    return _nullable(_key_to_cql(cql) if key else _to_cql(cql))


def _to_cql(cql: CqlType) -> _Change:
    if cql.name == "map":
        names, values = _nullable(_key_to_cql(cql.parameters[0])), _nullable(_to_cql(cql.parameters[1]))
        return lambda value: CqlMapEntries([(names(name), values(element)) for name, element in value])
    if cql.name in ("tuple", UDT):
        return _struct_to_cql(cql)
    if cql.parameters:
        inner = _to_cql(cql.parameters[0])
        if inner is None:
            return None
        return lambda value: [None if element is None else inner(element) for element in value]
    return _date() if cql.name == "date" else _SINGLE_TO_CQL.get(cql.name)


def _key_to_cql(cql: CqlType) -> _Change:
    change = _to_cql(cql)
    if not is_key_text(cql):
        return change
    inner = _nullable(change)
    return lambda text: inner(key_value(cql, text))


def _struct_to_cql(cql: CqlType) -> Callable[[Any], Any]:
    names = field_names(cql)
    inner = [_nullable(_to_cql(parameter)) for parameter in cql.parameters]

    def change(value: Any) -> tuple[Any, ...]:
        parts = [value[name] for name in names] if isinstance(value, dict) else value
        return tuple([convert(part) for convert, part in zip(inner, parts, strict=True)])

    return change


def _date() -> Callable[[Any], Any]:
    # The driver takes a bare number as days since the year -5877641.
    from cassandra.util import Date

    found: Callable[[Any], Any] = Date
    return found


_SINGLE_TO_CQL: dict[str, Callable[[Any], Any]] = {
    "uuid": UUID,
    "timeuuid": UUID,
    "decimal": Decimal,
    "varint": varint_value,
    "duration": duration_value,
}


_FLOATS = ("float", "double")
_IN_QUOTES = ("text", "ascii", "inet")
_DAYS_BEFORE_1970 = 2**31
TIMES = ("date", "time", "timestamp")
# For earlier years not every server reads a text as the same day: calendars differ.
_FIRST_YEAR = 1_583
_EPOCH, _DAY_NANOSECONDS = datetime(1970, 1, 1, tzinfo=UTC), 86_400_000_000_000


def cql_literal(cql: CqlType, value: Any) -> str:
    """Return the CQL literal of exactly the same value as one of a snapshot outside of its key.

    Only decimals beyond the range of a double, and IPv4 addresses in the form of IPv6, have no exact literal: theirs
    are for people to read.
    """
    if value is None:
        return "null"
    if cql.name == "map":
        key, inner = cql.parameters
        return _within("{}", (f"{_key_literal(key, name)}: {cql_literal(inner, element)}" for name, element in value))
    if cql.name in ("tuple", UDT):
        return _struct_literal(cql, value)
    if cql.parameters:
        inner = cql.parameters[0]
        return _within("{}" if cql.name == "set" else "[]", (cql_literal(inner, element) for element in value))
    return _single(cql.name, value)


def time_text(name: str, value: int, since: int = 1) -> str | None:
    """Return a date, time or timestamp, which a snapshot holds as a number, as CQL writes it.

    None where it has no such text: outside the years from ``since`` to 9999, or not a time of day.
    """
    if name == "time":
        seconds, nanoseconds = divmod(value, 1_000_000_000)
        whole = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{nanoseconds:09}"
        return whole if 0 <= value < _DAY_NANOSECONDS else None
    try:
        moment = _EPOCH + (timedelta(days=value) if name == "date" else timedelta(milliseconds=value))
    except OverflowError:
        return None
    if moment.year < since:
        return None
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text.partition("T")[0] if name == "date" else f"{text}Z"


def _key_literal(cql: CqlType, name: Any) -> str:
    return cql_literal(cql, key_value(cql, name) if is_key_text(cql) else name)


def _struct_literal(cql: CqlType, value: Any) -> str:
    names = field_names(cql)
    parts = [value[name] for name in names] if isinstance(value, dict) else value
    texts = [cql_literal(parameter, part) for parameter, part in zip(cql.parameters, parts, strict=True)]
    if cql.name == "tuple":
        return _within("()", texts)
    return _within("{}", (f"{quoted(name)}: {text}" for name, text in zip(names, texts, strict=True)))


def _within(brackets: str, parts: Any) -> str:
    return brackets[0] + ", ".join(parts) + brackets[1]


def _single(name: str, value: Any) -> str:
    if name in _IN_QUOTES:
        return "'" + str(value).replace("'", "''") + "'"
    if name == "blob":
        return f"0x{value.hex()}"
    if name in _FLOATS and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if name in TIMES and (text := time_text(name, value, since=_FIRST_YEAR)) is not None:
        return f"'{text}'"
    if name == "date":
        # As a number, since the type holds dates beyond the years that CQL can write as text.
        return str(value + _DAYS_BEFORE_1970)
    return str(value).lower() if name == "boolean" else str(value)
