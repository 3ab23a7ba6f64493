"""Two tables by the columns that both have, each in the wider of its two types, so that equal values look equal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.cassandra.snapshot_columns import snapshot_struct
from lakeward.cassandra.types.widening import widens
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.types.cql import CqlType


def shared(schema: TableSchema, other: TableSchema) -> TableSchema:
    """Give a table by the columns that the other one has too."""
    return replace(schema, columns=tuple(one for one in schema.columns if one.name in other.names))


def widened(schema: TableSchema, other: TableSchema) -> TableSchema:
    """Give a table with the types of another one that has the same columns, where those hold all its values."""
    columns = tuple(replace(one, type=_wider(one.type, other.column(one.name).type)) for one in schema.columns)
    return replace(schema, columns=columns)


def _wider(own: CqlType, other: CqlType) -> CqlType:
    # Types that a keyspace defines are known by their names, which are the other one's.
    return other if widens(own, other) and not (_is_defined(own) or _is_defined(other)) else own


def _is_defined(one: CqlType) -> bool:
    return one.udt is not None or any(map(_is_defined, one.parameters))


def fitted_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give rows in wider types."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([batch.column(one.name).cast(one.type) for one in schema], schema=schema)


def fitted_frame(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """Give rows in wider types."""
    struct = snapshot_struct(schema)
    if frame.schema == struct:
        return frame
    return frame.select(*[column(one.name).cast(one.dataType).alias(one.name) for one in struct.fields])
