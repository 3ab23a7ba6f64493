"""Values of a comparison as people write them: a snapshot holds dates and times as numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.origins import origin_of
from lakeward.cassandra.types.arrow import field_names
from lakeward.cassandra.types.cql import UDT
from lakeward.cassandra.types.literals import TIMES, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.cassandra.types import CqlType
    from lakeward.diffing.inputs.sides import Side
    from lakeward.diffing.report.examples import Example


def shown_like_cql(*sides: Side) -> Callable[[Example], Example] | None:
    """Return what makes the texts of an example those of CQL values; None where no side is an export of a table."""
    types: dict[str, CqlType] = {}
    for origin in filter(None, (origin_of(one.identity) for one in sides)):
        types.update({one.name: one.type for one in origin.schema.columns})
    if not any(map(_has_times, types.values())):
        return None

    def shown(one: Example) -> Example:
        key, left, right = (_shown(values, types) for values in (one.key, one.left, one.right))
        return replace(one, key=key or {}, left=left, right=right)

    return shown


def shown_value(cql: CqlType, text: str) -> str:
    """Return the text of a value, which is a number or JSON, with its dates and times as CQL writes them."""
    if cql.name in TIMES:
        return _time(cql, text)
    if not _has_times(cql):
        return text
    try:
        return json.dumps(_within(cql, json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        # One that was too long to be shown whole.
        return text


def _shown(values: Mapping[str, str | None] | None, types: Mapping[str, CqlType]) -> dict[str, str | None] | None:
    if values is None:
        return None
    return {
        name: shown_value(types[name], value) if value is not None and name in types else value
        for name, value in values.items()
    }


def _within(cql: CqlType, value: Any) -> Any:
    """Return what JSON holds of a value, with texts for the numbers of dates and times."""
    if value is None or not _has_times(cql):
        return value
    if cql.name in TIMES:
        return _time(cql, str(value))
    if cql.name == "map":
        key, inner = cql.parameters
        return {_within(key, name): _within(inner, one) for name, one in value.items()}
    if cql.name in ("tuple", UDT):
        pairs = zip(field_names(cql), cql.parameters, strict=True)
        return {name: _within(inner, value.get(name)) for name, inner in pairs}
    return [_within(cql.parameters[0], one) for one in value]


def _has_times(cql: CqlType) -> bool:
    return cql.name in TIMES or any(map(_has_times, cql.parameters))


def _time(cql: CqlType, text: str) -> str:
    try:
        number = int(text)
    except ValueError:
        return text
    return time_text(cql.name, number) or text
