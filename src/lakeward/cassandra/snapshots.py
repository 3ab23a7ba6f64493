"""The columns of a snapshot, the table that it is an export of, and its values as text.

A snapshot holds dates and times as numbers; examples of a comparison show them as CQL does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.conversion import TIMES, time_text
from lakeward.cassandra.cql import UDT
from lakeward.cassandra.schema import TableSchema
from lakeward.cassandra.values import arrow_type, field_names, spark_type
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakeward.cassandra.cql import CqlType
    from lakeward.cassandra.schema import CqlColumn
    from lakeward.diffing.examples import Example
    from lakeward.diffing.stored.addresses import Side

# The prefix of the columns that a snapshot has besides those of its table.
OWN_COLUMNS = "_lw_"
WRITETIME = f"{OWN_COLUMNS}writetime_"
EXPIRES = f"{OWN_COLUMNS}expires_"


def snapshot_struct(
    schema: TableSchema, columns: Sequence[str] | None = None, *, writetime: bool = False, ttl: bool = False
) -> StructType:
    """Return the columns of a snapshot, as Spark has them.

    Args:
        schema: the table.
        columns: those that are read besides the key; default all.
        writetime: whether there is a column for the write time of each value, in microseconds since 1970.
        ttl: whether there is also one for the time at which it expires, in seconds since 1970.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    fields = [
        StructField(column.name, spark_type(column.type, key=column.kind.is_key))
        for column in snapshot_columns(schema, columns)
    ]
    return StructType(fields + [StructField(name, LongType()) for name in _times(schema, columns, writetime, ttl)])


def snapshot_arrow_schema(
    schema: TableSchema, columns: Sequence[str] | None = None, *, writetime: bool = False, ttl: bool = False
) -> pa.Schema:
    """Return the columns of a snapshot, as Arrow has them; see :func:`snapshot_struct`."""
    import pyarrow as pa

    fields = [
        pa.field(column.name, arrow_type(column.type, key=column.kind.is_key))
        for column in snapshot_columns(schema, columns)
    ]
    return pa.schema(fields + [pa.field(name, pa.int64()) for name in _times(schema, columns, writetime, ttl)])


def snapshot_columns(schema: TableSchema, columns: Sequence[str] | None = None) -> tuple[CqlColumn, ...]:
    """Return the key of a table and those of its other columns that are read, in the order of the table."""
    if columns is None:
        return schema.columns
    return tuple(column for column in schema.columns if column.kind.is_key or column.name in columns)


def _times(schema: TableSchema, columns: Sequence[str] | None, writetime: bool, ttl: bool) -> list[str]:
    names = [column.name for column in snapshot_columns(schema, columns) if not column.kind.is_key]
    marks = ([WRITETIME] if writetime or ttl else []) + ([EXPIRES] if ttl else [])
    return [mark + name for mark in marks for name in names]


# What a snapshot or a side of a comparison is: an export, or a table as it was read from a cluster.
EXPORT, LIVE = "export", "live"
BLOCK = "cassandra"


@dataclass(frozen=True)
class ExportOrigin:
    """The origin of an export: its cluster and table, when it was read, and which part of the table it holds.

    ``where`` and ``columns`` are the options of the export; with either, rows or columns that it does not have may
    still be in the table.
    """

    cluster: str
    schema: TableSchema
    started: datetime
    ended: datetime
    writetime: bool
    ttl: bool
    where: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def part(self) -> str | None:
        """The part of the table that it holds; None: all of it."""
        return part_of(self.where, self.columns)

    @property
    def is_whole(self) -> bool:
        """Whether all rows and columns of the table are in it."""
        return self.part is None


def part_of(where: str | None, columns: Collection[str]) -> str | None:
    """Return the part of the table that an export with these options holds; None: all of it."""
    parts = [f"the rows where {where}"] if where else []
    parts += [f"the columns {', '.join(sorted(columns))}"] if columns else []
    return " and ".join(parts) or None


def origin_of(identity: Mapping[str, Any]) -> ExportOrigin | None:
    """Return the origin of a side, or of a parent of a change set; None where it is not an export of a table.

    Raises:
        RefusedInputError: it is an export, but its description is damaged.
    """
    document = identity.get(BLOCK)
    if not isinstance(document, dict):
        return None
    try:
        return ExportOrigin(
            cluster=str(document["cluster"]),
            schema=TableSchema.from_dict(document["schema"]),
            started=datetime.fromisoformat(document["started"]),
            ended=datetime.fromisoformat(document["ended"]),
            writetime=bool(document["writetime"]),
            ttl=bool(document["ttl"]),
            where=document.get("where"),
            columns=tuple(document.get("columns") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{identity.get('location')}: the description of the exported table in its manifest is damaged: {error!r}"
        raise RefusedInputError(msg, hint="export the table again") from error


def shown_like_cql(*sides: Side) -> Callable[[Example], Example] | None:
    """Return a function that shows the values of an example as CQL does; None where no side is an export."""
    types: dict[str, CqlType] = {}
    for origin in filter(None, (origin_of(side.identity) for side in sides)):
        types.update({column.name: column.type for column in origin.schema.columns})
    if not any(map(_has_times, types.values())):
        return None

    def shown(example: Example) -> Example:
        key, left, right = (_shown(values, types) for values in (example.key, example.left, example.right))
        return replace(example, key=key or {}, left=left, right=right)

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
        # The text was too long and is cut off.
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
        return {_within(key, name): _within(inner, element) for name, element in value.items()}
    if cql.name in ("tuple", UDT):
        pairs = zip(field_names(cql), cql.parameters, strict=True)
        return {name: _within(inner, value.get(name)) for name, inner in pairs}
    return [_within(cql.parameters[0], element) for element in value]


def _has_times(cql: CqlType) -> bool:
    return cql.name in TIMES or any(map(_has_times, cql.parameters))


def _time(cql: CqlType, text: str) -> str:
    try:
        number = int(text)
    except ValueError:
        return text
    return time_text(cql.name, number) or text
