"""From a snapshot's values back to what a prepared statement of the driver's takes."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from lakeward.cassandra.types.arrow import field_names
from lakeward.cassandra.types.cql import UDT
from lakeward.cassandra.types.keytext import is_key_text, key_value
from lakeward.cassandra.types.texts import duration_value, varint_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cassandra.types.cql import CqlType

    # What is None is taken as it is.
    _Change = Callable[[Any], Any] | None


class Pairs(list[tuple[Any, Any]]):
    """A map as the driver takes one, whose keys need not be hashable: 0.0 and -0.0 stay apart, lists may be keys."""

    def items(self) -> Pairs:
        """Give the entries."""
        return self


def to_cql(cql: CqlType, *, key: bool = False) -> Callable[[Any], Any]:
    """Give the function that makes what a statement takes of a value, as ``to_pylist`` of Arrow gives it.

    Timestamps and times are numbers, also within other types; null stays null. The type is that of the column written
    to, which may be wider than that of the column which was read.
    """
    return _nullable(_key_change(cql) if key else _change(cql))


def _change(cql: CqlType) -> _Change:
    if cql.name == "map":
        names, values = _nullable(_key_change(cql.parameters[0])), _nullable(_change(cql.parameters[1]))
        return lambda value: Pairs([(names(name), values(one)) for name, one in value])
    if cql.name in ("tuple", UDT):
        return _struct(cql)
    if cql.parameters:
        inner = _change(cql.parameters[0])
        if inner is None:
            return None
        return lambda value: [None if one is None else inner(one) for one in value]
    return _date() if cql.name == "date" else _SINGLE.get(cql.name)


def _key_change(cql: CqlType) -> _Change:
    change = _change(cql)
    if not is_key_text(cql):
        return change
    inner = _nullable(change)
    return lambda text: inner(key_value(cql, text))


def _struct(cql: CqlType) -> Callable[[Any], Any]:
    names = field_names(cql)
    inner = [_nullable(_change(one)) for one in cql.parameters]

    def change(value: Any) -> tuple[Any, ...]:
        parts = [value[name] for name in names] if isinstance(value, dict) else value
        return tuple([one(part) for one, part in zip(inner, parts, strict=True)])

    return change


def _nullable(change: _Change) -> Callable[[Any], Any]:
    if change is None:
        return lambda value: value
    return lambda value: None if value is None else change(value)


def _date() -> Callable[[Any], Any]:
    # A bare number would be taken for days since 5,877,641 years before Christ.
    from cassandra.util import Date

    found: Callable[[Any], Any] = Date
    return found


_SINGLE: dict[str, Callable[[Any], Any]] = {
    "uuid": UUID,
    "timeuuid": UUID,
    "decimal": Decimal,
    "varint": varint_value,
    "duration": duration_value,
}
