"""Rows as JSON and CSV that read back equal: by the types of a manifest, never by guessing.

JSON has objects for structs and for maps with texts as keys. A map with other keys is an array of objects with ``key``
and ``value``. Bytes are in base64. CSV holds no nested values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.diffing.changesets.files import read_rows
from lakeward.errors import RefusedInputError
from lakeward.snapshots.versions.layouts import reader_options
from lakeward.snapshots.versions.shapes import Shape
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.storage.filesystem import FileSystem

TEXT_FORMATS = ("json", "csv")
_KEY, _VALUE = "key", "value"
# The job's own mark says that Spark is done, not that the snapshot is.
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def require_text(struct: T.StructType, kind: str) -> None:
    """Refuse columns that a format cannot hold.

    Raises:
        RefusedInputError: naming them, and formats that can.
    """
    nested = (T.StructType, T.ArrayType, T.MapType)
    wrong = [f"{one.name} {one.dataType.simpleString()}" for one in struct.fields if isinstance(one.dataType, nested)]
    if kind == "csv" and wrong:
        msg = f"CSV cannot hold nested values: {', '.join(wrong)}"
        raise RefusedInputError(msg, hint="--format parquet, or --format json; or leave those out by --columns")


def text_schema(struct: T.StructType, kind: str) -> T.StructType:
    """Give the columns as files of a format have them."""
    if kind != "json":
        return struct
    return T.StructType([T.StructField(one.name, _packed_type(one.dataType)) for one in struct.fields])


def write_text(rows: DataFrame, store: FileSystem, folder: str, kind: str) -> None:
    """Write rows into a folder, in addition to what is there."""
    cells = [_written(one, kind).alias(one.name) for one in rows.schema.fields]
    writer = rows.select(*cells).write.format(kind).mode("append")
    for name, value in {**reader_options(Shape(kind)), **store.options, **_NO_MARK}.items():
        writer = writer.option(name, value)
    writer.save(store.for_spark(folder))


def read_text_rows(
    spark: SparkSession, store: FileSystem, folder: str, paths: Iterable[str], struct: T.StructType, kind: str
) -> DataFrame:
    """Read what :func:`write_text` wrote; ``struct`` has the columns that were written."""
    found = read_rows(spark, store, folder, paths, text_schema(struct, kind), kind)
    if kind != "json":
        return found
    return found.select(*[_unpacked(column(one.name), one.dataType).alias(one.name) for one in struct.fields])


def _written(one: T.StructField, kind: str) -> Column:
    value = column(one.name)
    if kind == "json":
        return _packed(value, one.dataType)
    return F.base64(value) if isinstance(one.dataType, T.BinaryType) else value


def _packed_type(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_packed_type(data_type.elementType))
    if isinstance(data_type, T.StructType):
        return T.StructType([T.StructField(one.name, _packed_type(one.dataType)) for one in data_type.fields])
    if not isinstance(data_type, T.MapType):
        return data_type
    value = _packed_type(data_type.valueType)
    if isinstance(data_type.keyType, T.StringType):
        return T.MapType(data_type.keyType, value)
    pair = [T.StructField(_KEY, _packed_type(data_type.keyType)), T.StructField(_VALUE, value)]
    return T.ArrayType(T.StructType(pair))


def _packed(value: Column, data_type: T.DataType) -> Column:
    if _packed_type(data_type) == data_type:
        return value
    if isinstance(data_type, T.MapType):
        if isinstance(data_type.keyType, T.StringType):
            return F.transform_values(value, lambda _, one: _packed(one, data_type.valueType))
        return F.transform(F.map_entries(value), _pair(_packed, data_type))
    return _inside(value, data_type, _packed)


def _unpacked(value: Column, data_type: T.DataType) -> Column:
    if _packed_type(data_type) == data_type:
        return value
    if isinstance(data_type, T.MapType):
        if isinstance(data_type.keyType, T.StringType):
            return F.transform_values(value, lambda _, one: _unpacked(one, data_type.valueType))
        return F.map_from_entries(F.transform(value, _pair(_unpacked, data_type)))
    return _inside(value, data_type, _unpacked)


def _pair(change: Callable[[Column, T.DataType], Column], data_type: T.MapType) -> Callable[[Column], Column]:
    return lambda one: F.struct(
        change(one[_KEY], data_type.keyType).alias(_KEY), change(one[_VALUE], data_type.valueType).alias(_VALUE)
    )


def _inside(value: Column, data_type: T.DataType, change: Callable[[Column, T.DataType], Column]) -> Column:
    """Change what an array or a struct holds; null stays null."""
    if isinstance(data_type, T.ArrayType):
        return F.transform(value, lambda one: change(one, data_type.elementType))
    assert isinstance(data_type, T.StructType)
    parts = [change(value.getField(one.name), one.dataType).alias(one.name) for one in data_type.fields]
    return F.when(value.isNotNull(), F.struct(*parts))
