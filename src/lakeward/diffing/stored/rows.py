"""Rows in files of change sets and snapshots, which read back equal.

Parquet holds the rows of a change set as they are. In JSON, the fields of a side that has no row are left out, while a
null of a side that has one is written as ``null``: an inserted row has no ``left_…`` at all, a deleted one no
``right_…``. In CSV both are an empty cell, and the action shows which it is; an empty text is ``""``. Times are UTC
with microseconds. CSV has no nested values, except for the list of changed columns, which it holds as a text in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.columns import quote_name
from lakeward.diffing.frames.parsed_diff import parse_diff
from lakeward.diffing.frames.refusals import unfit_value
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.workspace import session_settings
from lakeward.storage.claims import written_files
from lakeward.storage.filesystem import for_reading
from lakeward.storage.sets import SESSION
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import change_inside
from lakeward.views.versions.layouts import EMPTY_TEXT, FileShape, from_text, reader_options, text_struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.storage.filesystem import FileSystem


FORMATS = ("parquet", "json", "csv")
# Types whose values read back equal from a text.
_SCALARS = (
    T.BooleanType, T.NumericType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_NAMES = T.ArrayType(T.StringType())
# The mark of the job means that Spark is done, not that the change set or snapshot is complete.
_NO_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def require_writable(schema: T.StructType, options: DiffOptions, kind: str) -> None:
    """Refuse columns that would not read back equal from a format.

    Raises:
        RefusedInputError: naming the columns and a format that holds them.
    """
    if kind == "parquet":
        return
    holds = _fits_csv if kind == "csv" else _fits_json
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema.fields
        if field.name != options.change_column and not holds(field.dataType)
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
        prepared = rows.select(*[_csv_cell(field, options) for field in rows.schema.fields])
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
    shape = FileShape(kind)
    flat = T.StructType([_flat_field(field) if kind == "csv" else field for field in schema.fields])
    reader = spark.read.format(kind).schema(text_struct(flat, shape))
    empty = {"emptyValue": EMPTY_TEXT} if kind == "csv" else {}
    for name, value in {**reader_options(shape), **empty, **store.options}.items():
        reader = reader.option(name, value)
    found = reader.load(wanted)
    values = [from_text(field, shape) for field in flat.fields]
    return found.select(*[_as_written(field, value, kind) for field, value in zip(schema.fields, values, strict=True)])


def _fits_csv(data_type: T.DataType) -> bool:
    return isinstance(data_type, _SCALARS)


def _fits_json(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return all(_fits_json(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _fits_json(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return isinstance(data_type.keyType, T.StringType) and _fits_json(data_type.valueType)
    return isinstance(data_type, _SCALARS)


def _writer_options(kind: str) -> Mapping[str, str]:
    # Lines of JSON are made by an expression, with the same options.
    return {} if kind == "json" else reader_options(FileShape(kind))


def _csv_cell(field: T.StructField, options: DiffOptions) -> Column:
    value = column(field.name)
    if isinstance(field.dataType, T.BinaryType):
        return F.base64(value).alias(field.name)
    return F.to_json(value).alias(field.name) if field.name == options.change_column else value


def _flat_field(field: T.StructField) -> T.StructField:
    """Return the column of a CSV file that holds a column; only the list of changed columns is nested."""
    return T.StructField(field.name, T.StringType()) if isinstance(field.dataType, T.ArrayType) else field


def _as_written(field: T.StructField, value: Column, kind: str) -> Column:
    if kind == "csv" and isinstance(field.dataType, T.ArrayType):
        return F.from_json(value, _NAMES).alias(field.name)
    return value.alias(field.name)


def _json_line(rows: DataFrame, keys: Sequence[str], options: DiffOptions) -> Column:
    """Return a row as a line of JSON without the fields of a side that has no row."""
    found = parse_diff(rows, keys, options)
    settings = {**reader_options(FileShape("json")), "ignoreNullFields": "false"}

    def line(absent: Iterable[str]) -> Column:
        kept = [name for name in rows.columns if name not in set(absent)]
        return F.to_json(F.struct(*columns(kept)), settings)

    return (
        F.when(~found.has_left, line(found.left_names))
        .when(~found.has_right, line(found.right_names))
        .otherwise(line(()))
    )


def _named_as_json(store: FileSystem, folder: str, written: Mapping[str, int]) -> dict[str, int]:
    """Rename text files to ``.json``, so that readers recognise them; return them with their sizes."""
    names = {path: f"{path.removesuffix('.txt')}.json" for path in written}
    store.link({f"{folder}/{old}": f"{folder}/{new}" for old, new in names.items()})
    store.remove(folder, names)
    return {names[path]: size for path, size in written.items()}


# CSV files as rows: names in the first line, quotes doubled inside quotes, an empty field for null. Fields are read as
# texts and cast afterwards. Many exports quote every field, so that ``""`` is an empty text where the column holds
# texts or bytes, and null elsewhere, where Spark itself would refuse it.


OPTIONS = {
    "mode": "FAILFAST",
    "header": "true",
    # The first line of each file is compared with that of the first file: a column in another place is an error, and
    # not mistaken for its neighbour.
    "enforceSchema": "false",
    "escape": '"',
    # Quotes that are escaped by a backslash, as Spark does by default, would be read wrongly.
    "unescapedQuoteHandling": "RAISE_ERROR",
    "multiLine": "true",
    "emptyValue": EMPTY_TEXT,
}
_SHOWN_LENGTH = 100
_NAMES_HINT = (
    "the first line must name the columns of --schema, in any order; if Spark wrote the files, without such a line: "
    "--past-format spark-csv, --current-format spark-csv"
)
# CSV as Spark writes it unless it is told otherwise: no line of names, quotes and backslashes inside quotes escaped by
# a backslash, an empty field for null and ``""`` for an empty text.
SPARK_OPTIONS = {
    "mode": "FAILFAST",
    "header": "false",
    "escape": "\\",
    "unescapedQuoteHandling": "RAISE_ERROR",
    "multiLine": "true",
    "emptyValue": EMPTY_TEXT,
    # Rows with too few or too many fields are found only if all of them are read.
    "columnPruning": "false",
}


def read_spark_csv(reader: DataFrameReader, path: str, struct: T.StructType, folders: Sequence[str]) -> DataFrame:
    """Read files without names: the columns are those of a schema, in its order, then the partition columns.

    ``reader`` has :data:`SPARK_OPTIONS`, ``folders`` are the partition columns.

    Raises:
        ConfigurationError: the schema has nested columns.
    """
    _require_flat(struct)
    names = [field.name for field in struct if field.name not in folders]
    texts = [T.StructField(name, T.StringType()) for name in (*names, *_declared(folders, struct))]
    rows = reader.schema(T.StructType(texts)).load(path)
    return rows.select(*[_typed(field) for field in struct], *_others(rows, struct))


def read_csv(
    reader: DataFrameReader, path: str, first: str, struct: T.StructType, folders: Sequence[str], label: str
) -> DataFrame:
    """Read files with the columns of a schema, found by the names in the first line, then the partition columns.

    ``reader`` has :data:`OPTIONS`, ``first`` is one of the files, ``folders`` are the partition columns.

    Raises:
        ConfigurationError: the schema has nested columns.
        RefusedInputError: the first line has other names than the schema.
    """
    _require_flat(struct)
    names = reader.load(first).columns
    _require_names(names, [field.name for field in struct if field.name not in folders], label)
    texts = [T.StructField(name, T.StringType()) for name in (*names, *_declared(folders, struct))]
    rows = reader.schema(T.StructType(texts)).load(path)
    return rows.select(*[_typed(field) for field in struct], *_others(rows, struct))


def _declared(folders: Sequence[str], struct: T.StructType) -> list[str]:
    """Return the partition columns that the schema has."""
    return [folder for folder in folders if folder in struct.names]


def _others(rows: DataFrame, struct: T.StructType) -> list[Column]:
    """Return the partition columns that the schema does not have."""
    return [column(name) for name in rows.columns if name not in struct.names]


def _require_flat(struct: T.StructType) -> None:
    if nested := [f"{field.name} {field.dataType.simpleString()}" for field in struct if not _is_flat(field.dataType)]:
        msg = f"CSV cannot hold nested values: {', '.join(nested)}"
        raise ConfigurationError(msg, hint="declare such a column as string: it is then compared as text")


def _is_flat(data_type: T.DataType) -> bool:
    return isinstance(data_type, T.AtomicType)


def _require_names(found: Sequence[str], expected: Sequence[str], label: str) -> None:
    if sorted(found) != sorted(expected):
        msg = f"{label}: the first line has {', '.join(found) or 'nothing'}, the schema has {', '.join(expected)}"
        raise RefusedInputError(msg, hint=_NAMES_HINT)


def _typed(field: T.StructField) -> Column:
    text, kind = column(field.name), field.dataType
    is_empty = text == F.lit(EMPTY_TEXT)
    if isinstance(kind, T.StringType | T.BinaryType):
        return F.when(is_empty, F.lit("")).otherwise(text).cast(kind).alias(field.name)
    # An SQL expression, because older versions of Spark have no method for it.
    value = F.expr(f"try_cast({quote_name(field.name)} AS {kind.simpleString()})")
    shown = F.substring(text, 1, _SHOWN_LENGTH)
    unfit = unfit_value(F.input_file_name(), F.lit(f": column {field.name} holds '"), shown, F.lit("', which is no "
                        f"{kind.simpleString()}"))  # fmt: skip
    return F.when(text.isNull() | is_empty | value.isNotNull(), value).when(unfit, value).alias(field.name)


# Rows of snapshots as JSON and CSV, read back by the types of the manifest. JSON has objects for structs and for maps
# with texts as keys. A map with other keys is an array of objects with ``key`` and ``value``. Bytes are in base64. CSV
# holds no nested values.


TEXT_FORMATS = ("json", "csv")
_KEY, _VALUE = "key", "value"


def require_text(struct: T.StructType, kind: str) -> None:
    """Refuse columns that a format cannot hold.

    Raises:
        RefusedInputError: naming them, and formats that can.
    """
    nested = (T.StructType, T.ArrayType, T.MapType)
    wrong = [
        f"{field.name} {field.dataType.simpleString()}" for field in struct.fields if isinstance(field.dataType, nested)
    ]
    if kind == "csv" and wrong:
        msg = f"CSV cannot hold nested values: {', '.join(wrong)}"
        raise RefusedInputError(msg, hint="--format parquet, or --format json; or leave those out by --columns")


def text_schema(struct: T.StructType, kind: str) -> T.StructType:
    """Return the columns as files of a format have them."""
    if kind != "json":
        return struct
    return T.StructType([T.StructField(field.name, _packed_type(field.dataType)) for field in struct.fields])


def write_text(rows: DataFrame, store: FileSystem, folder: str, kind: str) -> None:
    """Write rows into a folder, in addition to what is there."""
    cells = [_written(field, kind).alias(field.name) for field in rows.schema.fields]
    writer = rows.select(*cells).write.format(kind).mode("append")
    for name, value in {**reader_options(FileShape(kind)), **store.options, **_NO_MARK}.items():
        writer = writer.option(name, value)
    writer.save(store.for_spark(folder))


def read_text_rows(
    spark: SparkSession, store: FileSystem, folder: str, paths: Iterable[str], struct: T.StructType, kind: str
) -> DataFrame:
    """Read the rows that :func:`write_text` wrote; ``struct`` has the columns that were written."""
    found = read_rows(spark, store, folder, paths, text_schema(struct, kind), kind)
    if kind != "json":
        return found
    return found.select(*[_unpacked(column(field.name), field.dataType).alias(field.name) for field in struct.fields])


def _written(field: T.StructField, kind: str) -> Column:
    value = column(field.name)
    if kind == "json":
        return _packed(value, field.dataType)
    return F.base64(value) if isinstance(field.dataType, T.BinaryType) else value


def _packed_type(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_packed_type(data_type.elementType))
    if isinstance(data_type, T.StructType):
        return T.StructType([T.StructField(field.name, _packed_type(field.dataType)) for field in data_type.fields])
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
            return F.transform_values(value, lambda _, element: _packed(element, data_type.valueType))
        return F.transform(F.map_entries(value), _pair(_packed, data_type))
    return change_inside(value, data_type, _packed)


def _unpacked(value: Column, data_type: T.DataType) -> Column:
    if _packed_type(data_type) == data_type:
        return value
    if isinstance(data_type, T.MapType):
        if isinstance(data_type.keyType, T.StringType):
            return F.transform_values(value, lambda _, element: _unpacked(element, data_type.valueType))
        return F.map_from_entries(F.transform(value, _pair(_unpacked, data_type)))
    return change_inside(value, data_type, _unpacked)


def _pair(change: Callable[[Column, T.DataType], Column], data_type: T.MapType) -> Callable[[Column], Column]:
    return lambda entry: F.struct(
        change(entry[_KEY], data_type.keyType).alias(_KEY), change(entry[_VALUE], data_type.valueType).alias(_VALUE)
    )
