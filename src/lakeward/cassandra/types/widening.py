"""Which types can take every value of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.cassandra.types.cql import CqlType

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
    """Tell whether ``target`` holds every value of ``source`` exactly; types that are the same do.

    A frozen collection does not fit one that is not: Cassandra has no empty ones of those.
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
