"""Names of Lakeward's own columns and the Spark types of the frames that contain them.

Every name starts with ``_lw_``; names of source columns may not. A parsed frame, and the changelog with two more
columns, hold four kinds of rows: changes, bad rows, one row per file, and control rows of an op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lakeward.columns import OWN_PREFIX, decimal_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.columns import Column

PREFIX = OWN_PREFIX

KIND = "_lw_kind"
OP = "_lw_op"
GENERATION = "_lw_generation"
OPERATION = "_lw_operation"
SEQUENCE = "_lw_sequence"
COMMIT_TIME = "_lw_commit_time"
FILE = "_lw_file"
FILE_TIME = "_lw_file_time"
ROW = "_lw_row"
STEP = "_lw_step"
UNCHANGED = "_lw_unchanged"
DETAIL = "_lw_detail"
RAW = "_lw_raw"

KIND_CHANGE = "change"
KIND_BAD = "bad"
KIND_FILE = "file"
KIND_CONTROL = "control"

STEP_ONLY = 0
STEP_MOVED_AWAY = 0
STEP_MOVED_HERE = 1

_SIMPLE: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}

# The reader's fields of every row, before the table's own columns.
RECORD_FIELDS = (
    T.StructField(KIND, T.StringType(), False),
    T.StructField(OPERATION, T.StringType()),
    T.StructField(SEQUENCE, T.StringType()),
    T.StructField(COMMIT_TIME, T.TimestampType()),
    T.StructField(FILE, T.StringType()),
    T.StructField(FILE_TIME, T.StringType()),
    T.StructField(ROW, T.LongType()),
    T.StructField(STEP, T.IntegerType()),
    T.StructField(UNCHANGED, T.ArrayType(T.StringType())),
    T.StructField(DETAIL, T.StringType()),
    T.StructField(RAW, T.StringType()),
)
# The fields that the changelog adds in front.
OP_FIELDS = (
    T.StructField(OP, T.LongType(), False),
    T.StructField(GENERATION, T.IntegerType(), False),
)


def spark_type(lake_type: str) -> T.DataType:
    """Return the Spark type of a lake type."""
    if parts := decimal_parts(lake_type):
        return T.DecimalType(*parts)
    return _SIMPLE[lake_type]


def table_struct(columns: Iterable[Column]) -> T.StructType:
    """Return the mirror's struct: only the source's columns."""
    return T.StructType([T.StructField(column.name, spark_type(column.lake_type)) for column in columns])


def record_struct(columns: Iterable[Column]) -> T.StructType:
    """Return the struct of a parsed frame: record fields, then the table's columns."""
    return T.StructType([*RECORD_FIELDS, *table_struct(columns).fields])
