"""The columns of a snapshot of a table: those of the table, and when their values were written and expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cassandra.types import arrow_type, spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakeward.cassandra.schema import CqlColumn, TableSchema

# What the columns begin with that a snapshot has besides those of its table.
OWN_COLUMNS = "_lw_"
WRITETIME = f"{OWN_COLUMNS}writetime_"
EXPIRES = f"{OWN_COLUMNS}expires_"


def snapshot_struct(
    schema: TableSchema, columns: Sequence[str] | None = None, *, writetime: bool = False, ttl: bool = False
) -> StructType:
    """Give the columns of a snapshot, as Spark has them.

    Args:
        schema: the table.
        columns: those that are read besides the key; default all.
        writetime: whether there is a column for each value's time of writing, in microseconds since 1970.
        ttl: whether there is also one for the time it expires, in seconds since 1970.
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
    """Give the columns of a snapshot, as Arrow has them; see :func:`snapshot_struct`."""
    import pyarrow as pa

    fields = [
        pa.field(column.name, arrow_type(column.type, key=column.kind.is_key))
        for column in snapshot_columns(schema, columns)
    ]
    return pa.schema(fields + [pa.field(name, pa.int64()) for name in _times(schema, columns, writetime, ttl)])


def snapshot_columns(schema: TableSchema, columns: Sequence[str] | None = None) -> tuple[CqlColumn, ...]:
    """Give the key of a table and those of its other columns that are read, in the order of the table."""
    if columns is None:
        return schema.columns
    return tuple(column for column in schema.columns if column.kind.is_key or column.name in columns)


def _times(schema: TableSchema, columns: Sequence[str] | None, writetime: bool, ttl: bool) -> list[str]:
    names = [column.name for column in snapshot_columns(schema, columns) if not column.kind.is_key]
    marks = ([WRITETIME] if writetime or ttl else []) + ([EXPIRES] if ttl else [])
    return [mark + name for mark in marks for name in names]
