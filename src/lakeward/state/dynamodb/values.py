"""Python values as DynamoDB writes them, and back; keys; texts packed small."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any

from lakeward.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model import TableId

Item = dict[str, Any]
Wire = dict[str, dict[str, Any]]


def to_wire(item: Mapping[str, Any]) -> Wire:
    """An item as the client takes it."""
    return {name: _to_wire(value) for name, value in item.items()}


def from_wire(wire: Wire) -> Item:
    """An item as the client gave it."""
    return {name: _from_wire(value) for name, value in wire.items()}


def table_text(table: TableId) -> str:
    """A table in a key; a slash can be in neither of its names."""
    return f"{table.schema}/{table.name}"


def path_digest(path: str) -> str:
    """A path in a key, which may be shorter than a path."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def pack(text: str) -> bytes:
    """A text of which much may repeat, made small."""
    return zlib.compress(text.encode("utf-8"))


def unpack(packed: bytes) -> str:
    """Read what :func:`pack` wrote.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return zlib.decompress(packed).decode("utf-8")
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _to_wire(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case str():
            return {"S": str(value)}
        case bytes():
            return {"B": value}
    msg = f"a {type(value).__name__} cannot be written to DynamoDB"
    raise BugError(msg)


def _from_wire(wire: dict[str, Any]) -> Any:
    [(kind, value)] = wire.items()
    match kind:
        case "NULL":
            return None
        case "N":
            return float(value) if set(value) & set(".eE") else int(value)
        case _:
            return value
