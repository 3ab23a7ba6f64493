"""Keys as text, where no type of a snapshot would keep them apart.

Cassandra holds 0.0 and -0.0 to be different keys, Spark does not; and Spark neither hashes nor compares maps. That goes
for keys of tables and for those of maps.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.types.cql import UDT

if TYPE_CHECKING:
    from lakeward.cassandra.types.cql import CqlType

_FLOATS = frozenset({"float", "double"})
_KEPT_AS_TEXT = _FLOATS | {"map"}


def is_key_text(cql: CqlType) -> bool:
    """Tell whether a key of this type, of a table or of a map, is held as text."""
    return cql.holds(_KEPT_AS_TEXT)


def key_text(cql: CqlType, value: Any) -> str:
    """Write a value, in the form it has in an Arrow array that is no key, as text: equal texts are equal keys."""
    return json.dumps(_plain(cql, value), ensure_ascii=False, separators=(",", ":"))


def key_value(cql: CqlType, text: str) -> Any:
    """Read what :func:`key_text` wrote."""
    return _value(cql, json.loads(text))


def _plain(cql: CqlType, value: Any) -> Any:
    if value is None:
        return None
    if not cql.parameters:
        return _plain_single(cql.name, value)
    if cql.name == "map":
        key, inner = cql.parameters
        return [[name if is_key_text(key) else _plain(key, name), _plain(inner, one)] for name, one in value]
    if cql.name in ("tuple", UDT):
        parts = value.values() if isinstance(value, dict) else value
        return [_plain(inner, one) for inner, one in zip(cql.parameters, parts, strict=True)]
    return [_plain(cql.parameters[0], one) for one in value]


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
        return [(name if is_key_text(key) else _value(key, name), _value(inner, one)) for name, one in plain]
    if cql.name in ("tuple", UDT):
        return tuple(_value(inner, one) for inner, one in zip(cql.parameters, plain, strict=True))
    return [_value(cql.parameters[0], one) for one in plain]


def _single_value(name: str, plain: Any) -> Any:
    if name in _FLOATS:
        return float(plain)
    return bytes.fromhex(plain) if name == "blob" else plain
