"""Rows of a change set into files and back, without a value changing on the way.

Parquet holds them as they are. In JSON, the fields of a side that has no row are left out, while a null of a side that
has one is written as ``null``: an inserted row has no ``left_…`` at all, a deleted one no ``right_…``. In CSV both are
an empty cell, and the action tells which it is; an empty text is ``""``. Times are UTC with microseconds. CSV has no
nested values, except for the list of changed columns, which it holds as a text in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.diffing.reading_diffs import read_diff
from lakeward.errors import RefusedInputError
from lakeward.snapshots.versions.layouts import EMPTY_TEXT, from_text, reader_options, text_struct
from lakeward.snapshots.versions.shapes import Shape
from lakeward.spark.settings import session_settings
from lakeward.storage.claims import written_files
from lakeward.storage.filesystem import for_reading
from lakeward.storage.sets import SESSION
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.diffing.options import DiffOptions
    from lakeward.storage.filesystem import FileSystem

FORMATS = ("parquet", "json", "csv")
# What reads back from a text as it was.
_SCALARS = (
    T.BooleanType, T.NumericType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_NAMES = T.ArrayType(T.StringType())
# The job's own mark says that Spark is done, not that the change set is.
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def require_writable(schema: T.StructType, options: DiffOptions, kind: str) -> None:
    """Refuse columns that a format cannot hold so that they read back equal.

    Raises:
        RefusedInputError: naming the columns and a format that holds them.
    """
    if kind == "parquet":
        return
    holds = _fits_csv if kind == "csv" else _fits_json
    wrong = [
        f"{one.name} {one.dataType.simpleString()}"
        for one in schema.fields
        if one.name != options.change_column and not holds(one.dataType)
    ]
    if wrong:
        what = "nested values" if kind == "csv" else "maps with other keys than texts, and intervals"
        msg = f"{kind.upper()} cannot hold {what}: {', '.join(wrong)}"
        raise RefusedInputError(msg, hint="--format parquet")


def write_rows(
    rows: DataFrame, store: FileSystem, folder: str, kind: str, keys: Sequence[str], options: DiffOptions
) -> dict[str, int]:
    """Write the rows of a diff into a folder in a format (``kind``); return the files with their sizes."""
    before = store.files(folder)
    prepared, name = rows, kind
    if kind == "csv":
        prepared = rows.select(*[_csv_cell(one, options) for one in rows.schema.fields])
    elif kind == "json":
        prepared, name = rows.select(_json_line(rows, keys, options).alias("value")), "text"
    writer = prepared.write.format(name).mode("append")
    for option, value in {**_writer_options(kind), **store.options, **_NO_MARK}.items():
        writer = writer.option(option, value)
    with session_settings(rows.sparkSession, SESSION):
        writer.save(store.for_spark(folder))
    written = written_files(store, folder, before)
    return _named_as_json(store, folder, written) if kind == "json" else written


def read_rows(
    spark: SparkSession, store: FileSystem, folder: str, paths: Iterable[str], schema: T.StructType, kind: str
) -> DataFrame:
    """Read files exactly as they were written: nothing is inferred."""
    wanted = [for_reading(store.for_spark(f"{folder}/{path}")) for path in sorted(paths)]
    if not wanted:
        return spark.createDataFrame([], schema)
    shape = Shape(kind)
    flat = T.StructType([_flat_field(one) if kind == "csv" else one for one in schema.fields])
    reader = spark.read.format(kind).schema(text_struct(flat, shape))
    empty = {"emptyValue": EMPTY_TEXT} if kind == "csv" else {}
    for name, value in {**reader_options(shape), **empty, **store.options}.items():
        reader = reader.option(name, value)
    found = reader.load(wanted)
    values = [from_text(one, shape) for one in flat.fields]
    return found.select(*[_as_written(one, value, kind) for one, value in zip(schema.fields, values, strict=True)])


def _fits_csv(data_type: T.DataType) -> bool:
    return isinstance(data_type, _SCALARS)


def _fits_json(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return all(_fits_json(one.dataType) for one in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _fits_json(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return isinstance(data_type.keyType, T.StringType) and _fits_json(data_type.valueType)
    return isinstance(data_type, _SCALARS)


def _writer_options(kind: str) -> Mapping[str, str]:
    # Lines of JSON are made by an expression, with the same options.
    return {} if kind == "json" else reader_options(Shape(kind))


def _csv_cell(one: T.StructField, options: DiffOptions) -> Column:
    value = column(one.name)
    if isinstance(one.dataType, T.BinaryType):
        return F.base64(value).alias(one.name)
    return F.to_json(value).alias(one.name) if one.name == options.change_column else value


def _flat_field(one: T.StructField) -> T.StructField:
    """Give the column of a CSV file that holds a column; only the list of changed columns is nested."""
    return T.StructField(one.name, T.StringType()) if isinstance(one.dataType, T.ArrayType) else one


def _as_written(one: T.StructField, value: Column, kind: str) -> Column:
    if kind == "csv" and isinstance(one.dataType, T.ArrayType):
        return F.from_json(value, _NAMES).alias(one.name)
    return value.alias(one.name)


def _json_line(rows: DataFrame, keys: Sequence[str], options: DiffOptions) -> Column:
    """Give a row as a line of JSON that leaves out the side that has no row."""
    found = read_diff(rows, keys, options)
    settings = {**reader_options(Shape("json")), "ignoreNullFields": "false"}

    def line(absent: Iterable[str]) -> Column:
        kept = [name for name in rows.columns if name not in set(absent)]
        return F.to_json(F.struct(*columns(kept)), settings)

    return (
        F.when(~found.has_left, line(found.left_names))
        .when(~found.has_right, line(found.right_names))
        .otherwise(line(()))
    )


def _named_as_json(store: FileSystem, folder: str, written: Mapping[str, int]) -> dict[str, int]:
    """Rename files of lines, which Spark calls texts, so that readers know them; return them with their sizes."""
    names = {path: f"{path.removesuffix('.txt')}.json" for path in written}
    store.link({f"{folder}/{old}": f"{folder}/{new}" for old, new in names.items()})
    store.remove(folder, names)
    return {names[path]: size for path, size in written.items()}
