"""Canonical record batches: the Arrow twin of ``schemas.record_struct``, and how to fill it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward import schemas
from lakeward.datatypes import decimal_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.datatypes import Column
    from lakeward.sources.base import FileSummary

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_RECORD_FIELDS = (
    pa.field(schemas.KIND, pa.string(), nullable=False),
    pa.field(schemas.OPERATION, pa.string()),
    pa.field(schemas.SEQUENCE, pa.string()),
    pa.field(schemas.COMMIT_TIME, pa.timestamp("us", "UTC")),
    pa.field(schemas.FILE, pa.string()),
    pa.field(schemas.FILE_TIME, pa.string()),
    pa.field(schemas.ROW, pa.int64()),
    pa.field(schemas.STEP, pa.int32()),
    pa.field(schemas.UNCHANGED, pa.list_(pa.string())),
    pa.field(schemas.DETAIL, pa.string()),
    pa.field(schemas.RAW, pa.string()),
)


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit: where it is, what is wrong with it, and its text."""

    row: int
    reason: str
    column: str | None
    value: str | None
    raw: str

    @property
    def detail(self) -> str:
        """The record's detail: why the row was refused."""
        return json.dumps({"reason": self.reason, "column": self.column, "value": self.value}, ensure_ascii=False)


def arrow_type(lake_type: str) -> pa.DataType:
    """Give the Arrow type of a lake type."""
    if parts := decimal_parts(lake_type):
        return pa.decimal128(*parts)
    return _SIMPLE[lake_type]


def record_schema(columns: Iterable[Column]) -> pa.Schema:
    """Give the Arrow schema of ``schemas.record_struct(columns)``."""
    return pa.schema([*_RECORD_FIELDS, *(pa.field(column.name, arrow_type(column.lake_type)) for column in columns)])


def build_batch(schema: pa.Schema, size: int, fields: Mapping[str, object]) -> pa.RecordBatch:
    """Make a record batch of the given fields: arrays, or one value for all rows; every other field is null."""
    arrays = []
    for field in schema:
        value = fields.get(field.name)
        if value is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), size))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def bad_batch(schema: pa.Schema, path: str, time: str, bad: list[BadRow]) -> pa.RecordBatch:
    """Make the records of bad rows."""
    fields = {
        schemas.KIND: schemas.KIND_BAD,
        schemas.FILE: path,
        schemas.FILE_TIME: time,
        schemas.ROW: pa.array([row.row for row in bad], pa.int64()),
        schemas.STEP: schemas.STEP_ONLY,
        schemas.DETAIL: pa.array([row.detail for row in bad], pa.string()),
        schemas.RAW: pa.array([row.raw for row in bad], pa.string()),
    }
    return build_batch(schema, len(bad), fields)


def file_batch(schema: pa.Schema, summary: FileSummary) -> pa.RecordBatch:
    """Make the record of the file itself."""
    fields = {
        schemas.KIND: schemas.KIND_FILE,
        schemas.FILE: summary.path,
        schemas.FILE_TIME: summary.time,
        schemas.DETAIL: summary.to_json(),
    }
    return build_batch(schema, 1, fields)
