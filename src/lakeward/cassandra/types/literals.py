"""Values as CQL writes them: for messages, and for statements typed by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.names import quoted
from lakeward.cassandra.types.arrow import field_names
from lakeward.cassandra.types.cql import UDT
from lakeward.cassandra.types.keytext import is_key_text, key_value

if TYPE_CHECKING:
    from lakeward.cassandra.types.cql import CqlType

_FLOATS = ("float", "double")
_IN_QUOTES = ("text", "ascii", "inet")
_DAYS_BEFORE_1970 = 2**31
TIMES = ("date", "time", "timestamp")
# Of earlier years not every server takes a text for the same day: calendars differ.
_FIRST_YEAR = 1_583
_EPOCH, _DAY_NANOSECONDS = datetime(1970, 1, 1, tzinfo=UTC), 86_400_000_000_000


def cql_literal(cql: CqlType, value: Any) -> str:
    """Write a value, in the form it has in a snapshot that is no key, as CQL takes it; exactly the same value.

    Only decimals beyond the range of a double, and IPv4 addresses in the form of IPv6, have no text that CQL takes for
    them: theirs is for people to read.
    """
    if value is None:
        return "null"
    if cql.name == "map":
        key, inner = cql.parameters
        return _within("{}", (f"{_key_literal(key, name)}: {cql_literal(inner, one)}" for name, one in value))
    if cql.name in ("tuple", UDT):
        return _struct(cql, value)
    if cql.parameters:
        inner = cql.parameters[0]
        return _within("{}" if cql.name == "set" else "[]", (cql_literal(inner, one) for one in value))
    return _single(cql.name, value)


def time_text(name: str, value: int, since: int = 1) -> str | None:
    """Return a date, time or timestamp, which a snapshot holds as a number, as CQL writes it.

    None where it has no such text: outside of the years from ``since`` to 9999, and what is no time of a day.
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


def _struct(cql: CqlType, value: Any) -> str:
    names = field_names(cql)
    parts = [value[name] for name in names] if isinstance(value, dict) else value
    texts = [cql_literal(one, part) for one, part in zip(cql.parameters, parts, strict=True)]
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
        # As a number, since CQL's text of a date ends at a year that the type does not end at.
        return str(value + _DAYS_BEFORE_1970)
    return str(value).lower() if name == "boolean" else str(value)
