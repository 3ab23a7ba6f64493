"""Writing rows to files and reading them back, in every format and layout, without changing a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.spark.versions import gathered
from lakeward.storage.checksum import checksum_columns, checksum_of, read_checksum
from lakeward.storage.filesystem import for_reading
from lakeward.storage.sets import SESSION, bucket_count, why_no_set, write_set
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.columns import Column
    from lakeward.mirror.op.context import TableContext
    from lakeward.storage.checksum import Checksum
    from lakeward.storage.filesystem import FileSystem
    from lakeward.storage.sets import SetLayout


_INSTANT, _LOCAL_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
# Times keep their microseconds; nulls differ from empty texts; quotes are doubled, which is not Spark's default.
_TIMES = {"timestampFormat": _INSTANT, "timestampNTZFormat": _LOCAL_TIME, "dateFormat": "yyyy-MM-dd"}
_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "orc": {},
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "json": {**_TIMES, "ignoreNullFields": "false"},
}
# Spark reads an empty text in quotes as null, unless another value is set for it.
EMPTY_TEXT = "\x01empty\x01"
_READ_ONLY = {"csv": {"multiLine": "true", "mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
# Without Spark's own success file, which marks the end of the job and not that of the version.
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True)
class VersionTarget:
    """Where and how to write files, and the table's columns in order. ``folder_column`` is empty for flat ones."""

    store: FileSystem
    folder: str
    shape: FileShape
    columns: tuple[Column, ...]
    folder_column: str

    @property
    def folder_columns(self) -> tuple[str, ...]:
        """The columns whose values are in the names of folders."""
        return (self.folder_column,) if self.folder_column else self.shape.partition_by

    @property
    def names(self) -> tuple[str, ...]:
        """The table's column names."""
        return tuple(lake_column.name for lake_column in self.columns)


def write_rows(context: TableContext, rows: DataFrame, target: VersionTarget) -> Checksum:
    """Write rows into a folder and return their checksum, which is computed while they are written."""
    shape = target.shape
    dated = with_dates(rows.select(*columns(target.names)), shape, target.folder_column)
    observation = Observation()
    observed = _placed(context, dated, target).observe(observation, *checksum_columns(rows.schema))
    writer = _as_text(observed, target).write.format(shape.format).mode("append")
    for name, value in {**_writer_options(shape), **target.store.options, **_NO_SUCCESS_FILE}.items():
        writer = writer.option(name, value)
    if target.folder_columns:
        writer = writer.partitionBy(*target.folder_columns)
    with context.spark_settings(SESSION):
        writer.save(target.store.for_spark(target.folder))
    return read_checksum(observation.get)


def _placed(context: TableContext, rows: DataFrame, target: VersionTarget) -> DataFrame:
    """Return the rows in the partitions that become files."""
    if target.shape.single_file:
        # One task writes, in the order of the key, or of all columns where rows can be equal in what is published of
        # it: equal rows make equal files. A sort spills to disk.
        keys = [name for name in context.settings.primary_key if name in target.names]
        is_unique = bool(keys) and len(keys) == len(context.settings.primary_key)
        order = keys if is_unique else [*keys, *(name for name in target.names if name not in keys)]
        return rows.coalesce(1).sortWithinPartitions(*(column(name).asc_nulls_first() for name in order))
    # Bring the rows of a folder together: otherwise each task would write a file for every folder it has.
    return gathered(rows, *columns(target.folder_columns)) if target.folder_columns else rows


def _writer_options(shape: FileShape) -> dict[str, str]:
    if not shape.single_file:
        return _format_options(shape)
    # Whatever the session has set: one file, as its name promises.
    packing = {"compression": "gzip" if shape.single_file.endswith(".gz") else "none"}
    return {**_format_options(shape), "maxRecordsPerFile": "0", **(packing if shape.format in TEXT_FORMATS else {})}


def _format_options(shape: FileShape) -> dict[str, str]:
    own = {"header": "false"} if shape.format == "csv" and not shape.header else {}
    return {**_OPTIONS[shape.format], **own}


def set_keys(context: TableContext, target: VersionTarget) -> tuple[str, ...]:
    """Return the key by which a version's rows are bucketed, empty where they are not."""
    keys = context.settings.primary_key
    if target.folder_columns or target.shape.single_file or target.shape.format != "parquet":
        return ()
    return () if why_no_set(S.table_struct(target.columns), keys) else keys


def write_rows_as_set(
    context: TableContext, rows: DataFrame, target: VersionTarget, keys: Sequence[str]
) -> tuple[Checksum, SetLayout]:
    """Write rows into a folder, bucketed by key; return the checksum as :func:`write_rows` does, and the layout.

    Raises:
        DataError: a reader finds another number of rows in the files than were written.
    """
    observation = Observation()
    observed = rows.select(*columns(target.names)).observe(observation, *checksum_columns(rows.schema))
    # The mirror's row count is a good estimate. Sets with different numbers of buckets can be compared, too.
    count = bucket_count(context.mirror.require_head().rows)
    layout = write_set(observed, target.store, target.folder, keys, count=count)
    content = read_checksum(observation.get)
    _require_same(context, target, layout.rows, content.rows)
    return content, layout


def with_dates(rows: DataFrame, shape: FileShape, folder_column: str) -> DataFrame:
    """Return rows with the column of their date folder."""
    if not folder_column or folder_column == shape.date_column:
        return rows
    return rows.withColumn(folder_column, _date_of(rows, shape))


def read_files(
    spark: SparkSession,
    store: FileSystem,
    folder: str,
    paths: Iterable[str],
    target_columns: Sequence[Column],
    shape: FileShape,
) -> DataFrame:
    """Read files of a version exactly as they were written: nothing is inferred."""
    wanted = [store.for_spark(f"{folder}/{path}") for path in paths]
    struct = S.table_struct(target_columns)
    if not wanted:
        return spark.createDataFrame([], struct)
    reader = spark.read.format(shape.format).schema(text_struct(struct, shape))
    empty = {"emptyValue": EMPTY_TEXT} if shape.format == "csv" else {}
    for name, value in {**reader_options(shape), **empty, **store.options}.items():
        reader = reader.option(name, value)
    found = reader.option("basePath", store.for_spark(folder)).load([for_reading(path) for path in wanted])
    return found.select(*[from_text(field, shape) for field in struct.fields])


def reader_options(shape: FileShape) -> dict[str, str]:
    """Return the options with which Spark reads the files of a format as they were written."""
    return {**_format_options(shape), **_READ_ONLY.get(shape.format, {})}


def require_rows(
    context: TableContext, target: VersionTarget, paths: Iterable[str], rows: DataFrame, content: Checksum
) -> None:
    """Require that readers of the files find ``rows``, whose checksum was computed while they were written.

    Parquet holds every value of the lake, so that the number of rows in its footers is enough. ORC cannot store some
    times exactly, and text depends on its writer: for these the values are read back, too.

    Raises:
        DataError: the files have another number of rows, or other values.
    """
    paths = [*paths]
    require_visible(str(context.table), paths)
    found = read_files(context.spark, target.store, target.folder, paths, target.columns, target.shape)
    if target.shape.format == "parquet":
        _require_same(context, target, found.count(), content.rows)
        _require_folder_values(context, target, found, rows)
        return
    read_back = checksum_of(found)
    _require_same(context, target, read_back.rows, content.rows)
    if read_back != content:
        _require_folder_values(context, target, found, rows)
        names = ", ".join(_changed_columns(found, rows, target.names))
        msg = f"{context.table}: {target.shape.format} files do not return every value of {names} as it was written"
        raise DataError(msg, hint="nothing was published: choose --format parquet (or format: parquet under publish:)")


def require_visible(table: str, paths: Iterable[str]) -> None:
    """Require that readers see every folder; what is read here by its path, Spark passes over in a listing.

    Raises:
        DataError: a folder's name ends as those of files do that are being copied.
    """
    folders = (name for path in paths for name in path.split("/")[:-1])
    if hidden := next((name for name in folders if name.endswith(_BEING_COPIED)), None):
        msg = f"{table}: the folder {hidden} would not be read by Spark, as its name ends in {_BEING_COPIED}"
        raise DataError(msg, hint="choose other columns under publish: partition_by:, or leave it out")


def _require_folder_values(context: TableContext, target: VersionTarget, found: DataFrame, rows: DataFrame) -> None:
    """Require that the names of folders return the values of their columns: an empty text becomes NULL there."""
    names = target.shape.partition_by
    if not names or checksum_of(found, names) == checksum_of(rows, names):
        return
    texts = [name for name in names if isinstance(rows.schema[name].dataType, T.StringType)]
    is_lost = reduce(or_, [column(name).isin("", NO_DATE) for name in texts], F.lit(False))
    lost, by = rows.filter(is_lost).count(), ", ".join(names)
    msg = f"{context.table}: folders by {by} do not return every value of {by}; nothing was published"
    if lost:
        msg = f"{msg}. In {lost:,} rows it is an empty text or {NO_DATE}, which the name of a folder shows as NULL"
    raise DataError(msg, hint="choose other columns under publish: partition_by:, or leave it out")


def _changed_columns(found: DataFrame, rows: DataFrame, names: Sequence[str]) -> list[str]:
    each, other = (
        frame.agg(*[F.struct(*checksum_columns(frame.schema, [name])) for name in names]).collect()[0]
        for frame in (found, rows)
    )
    return [name for name, found_sums, sums in zip(names, each, other, strict=True) if found_sums != sums]


def _require_same(context: TableContext, target: VersionTarget, found: int, expected: int) -> None:
    if found != expected:
        msg = f"{context.table}: the files in {target.folder} hold {found:,} rows, expected {expected:,}"
        raise DataError(msg, hint="nothing was published: try again, with another --format if it stays so")


def _date_of(rows: DataFrame, shape: FileShape) -> SparkColumn:
    value = column(shape.date_column)
    if isinstance(rows.schema[shape.date_column].dataType, T.TimestampType):
        # The session is in UTC.
        value = F.from_utc_timestamp(value, shape.timezone)
    return F.to_date(value)


def _as_text(rows: DataFrame, target: VersionTarget) -> DataFrame:
    """Return rows with binary values as Base64 for CSV, which has no form for bytes."""
    if target.shape.format != "csv":
        return rows
    binary = {lake_column.name for lake_column in target.columns if lake_column.lake_type == "binary"}
    return rows.select(
        *[F.base64(column(name)).alias(name) if name in binary else column(name) for name in rows.columns]
    )


def text_struct(struct: T.StructType, shape: FileShape) -> T.StructType:
    """Return the schema for reading files of a format: CSV holds bytes as text."""
    if shape.format != "csv":
        return struct
    return T.StructType([T.StructField(field.name, _csv_type(field.dataType)) for field in struct.fields])


def _csv_type(data_type: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(data_type, T.BinaryType) else data_type


def from_text(field: T.StructField, shape: FileShape) -> SparkColumn:
    """Return a column's original value from the value read."""
    value = column(field.name)
    if shape.format != "csv" or not isinstance(field.dataType, T.StringType | T.BinaryType):
        return value
    text = F.when(value == F.lit(EMPTY_TEXT), F.lit("")).otherwise(value)
    return (F.unbase64(text) if isinstance(field.dataType, T.BinaryType) else text).alias(field.name)


# The shape of a version's files: their format, and whether there is one folder per date.


FLAT, DATED = "flat", "dated"
# The layouts of snapshots of a moment. Copies of the current state have two more, which their settings imply.
LAYOUTS = (FLAT, DATED)
PARTITIONED, SINGLE = "partitioned", "single"
TEXT_FORMATS = ("csv", "json")
FORMATS = ("parquet", "csv", "json", "orc")
# The folder of rows without a date, named as Hive and Spark name it.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_TIMESTAMPS = ("timestamp", "timestamp_ntz")
# Types whose text in the name of a folder is read back as the same value by every reader.
_BEING_COPIED = "._COPYING_"
_FOLDER_TYPES = re.compile(r"string|boolean|int|bigint|date|decimal\(\d+,\d+\)")


@dataclass(frozen=True)
class FileShape:
    """Format and layout of files; the dates of a timestamp column begin in ``timezone``.

    ``partition_by`` names the columns of the folders, ``chosen`` those that are published (empty: all),
    ``single_file`` the one file that readers open; ``header`` is whether CSV has one.
    """

    format: str = "parquet"
    layout: str = FLAT
    date_column: str = ""
    timezone: str = "UTC"
    partition_by: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    single_file: str = ""
    header: bool = True

    @property
    def is_dated(self) -> bool:
        """Whether there is one folder per date."""
        return self.layout == DATED

    def require_usable(self) -> None:
        """Refuse a format and layout that do not fit together.

        Raises:
            ConfigurationError: the layout and the date column do not go together, or a name is not known.
        """
        if self.format not in FORMATS or self.layout not in LAYOUTS:
            msg = f"format {self.format!r}, layout {self.layout!r}: known are {', '.join(FORMATS)} and flat, dated"
            raise ConfigurationError(msg)
        if self.is_dated and not self.date_column:
            msg = "the dated layout needs a date column"
            raise ConfigurationError(msg, hint="--layout dated --date-column COLUMN")
        if self.date_column and not self.is_dated:
            msg = f"a date column ({self.date_column}) is given, but the layout is flat"
            raise ConfigurationError(msg, hint=f"--layout dated --date-column {self.date_column}")

    def folder_column(self, table: str, columns: Sequence[Column]) -> str:
        """Return the name of the date folders for a table's columns; empty for the flat layout.

        Raises:
            ConfigurationError: the date column is missing, is not a date, or the name of its folders is taken.
        """
        if not self.is_dated:
            return ""
        types = {lake_column.name: lake_column.lake_type for lake_column in columns}
        found = types.get(self.date_column)
        if found is None:
            msg = f"{table} has no column {self.date_column!r}; it has {', '.join(types)}"
            raise ConfigurationError(msg)
        if found == "date":
            return self._from_date(table, columns)
        if found not in _TIMESTAMPS:
            msg = f"{table}: column {self.date_column!r} is of type {found}; folders by date need a date or a timestamp"
            raise ConfigurationError(msg)
        return self._from_timestamp(table, types)

    def _from_date(self, table: str, columns: Sequence[Column]) -> str:
        if len(columns) == 1:
            msg = f"{table}: {self.date_column!r} is its only column; nothing would be left for the files"
            raise ConfigurationError(msg, hint="--layout flat")
        return self.date_column

    def _from_timestamp(self, table: str, types: dict[str, str]) -> str:
        name = f"{self.date_column}_date"
        taken = next((column_name for column_name in types if column_name.casefold() == name.casefold()), None)
        if taken is not None:
            msg = f"{table}: the folders of {self.date_column!r} would be named like its column {taken!r}"
            hint = f"--date-column {taken}" if types[taken] == "date" else "--layout flat"
            raise ConfigurationError(msg, hint=hint)
        return name

    def published_columns(self, table: str, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns of a table that are published, in their order.

        Raises:
            ConfigurationError: a chosen column or one of ``partition_by`` does not exist or cannot be used.
        """
        known = {lake_column.name: lake_column for lake_column in columns}
        if unknown := [name for name in self.chosen if name not in known]:
            msg = f"{table}: publish: columns: names {', '.join(unknown)}; the table has {', '.join(known)}"
            raise ConfigurationError(msg, hint="correct columns: under publish:, or leave it out to publish all")
        chosen = tuple(known[name] for name in self.chosen) or tuple(columns)
        self._require_folders(table, {lake_column.name: lake_column.lake_type for lake_column in chosen})
        return chosen

    def _require_folders(self, table: str, types: dict[str, str]) -> None:
        hint = "correct partition_by: under publish:, or leave it out"
        if unknown := [name for name in self.partition_by if name not in types]:
            msg = f"{table}: publish: partition_by: names {', '.join(unknown)}; published are {', '.join(types)}"
            raise ConfigurationError(msg, hint=hint)
        if len(self.partition_by) == len(types):
            msg = f"{table}: publish: partition_by: names every column; nothing would be left for the files"
            raise ConfigurationError(msg, hint=hint)
        for name in self.partition_by:
            if name.startswith("."):
                msg = f"{table}: publish: partition_by: folders by {name} would be hidden from every reader"
                raise ConfigurationError(msg, hint=hint)
            if not _FOLDER_TYPES.fullmatch(types[name]):
                msg = f"{table}: publish: partition_by: {name} is of type {types[name]}, which cannot name folders"
                by_date = "layout: dated with date_column: makes one folder per date"
                raise ConfigurationError(msg, hint=by_date if types[name] in _TIMESTAMPS else hint)
