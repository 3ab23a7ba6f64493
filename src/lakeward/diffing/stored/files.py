"""Plain files as rows: Parquet and ORC by their own schemas, JSON and CSV by a schema from the user.

The values of partition folders (``dept=007``) are texts, unless the schema has another type for them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.errors import ParseException
from pyspark.sql import types as T

from lakeward.diffing.frames.refusals import input_errors
from lakeward.diffing.stored.rows import OPTIONS as CSV_OPTIONS
from lakeward.diffing.stored.rows import SPARK_OPTIONS, read_csv, read_spark_csv
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.workspace import session_settings
from lakeward.storage.filesystem import for_reading
from lakeward.transforms.columns import column
from lakeward.views.versions.layouts import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.storage.filesystem import FileSystem

_SUFFIXES = {
    "parquet": "parquet", "parq": "parquet", "pq": "parquet", "orc": "orc",
    "json": "json", "jsonl": "json", "ndjson": "json", "csv": "csv",
}  # fmt: skip
_PACKED = {"gz", "gzip", "bz2", "zst", "zstd", "snappy", "lz4", "deflate", "xz"}
SELF_DESCRIBING = ("parquet", "orc")
# Never recognised by the names of files: a line of names would be taken for a row.
SPARK_CSV = "spark-csv"
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    # Tasks read every footer first: this finds damaged files, and columns that only some files have.
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
    "json": {"mode": "FAILFAST"},
    "csv": CSV_OPTIONS,
    SPARK_CSV: SPARK_OPTIONS,
}
_UNTYPED_FOLDERS = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


@dataclass(frozen=True)
class PlainFiles:
    """Files of one format: a folder with its partitions, or a single file, whose path in ``sizes`` is empty."""

    store: FileSystem
    location: str
    sizes: Mapping[str, int]
    format: str

    def read(self, spark: SparkSession, schema: str | None) -> DataFrame:
        """Read the rows; for Parquet and ORC the schema sets only the types of partition columns.

        Raises:
            ConfigurationError: the format needs a schema, or the schema cannot be parsed.
            RefusedInputError: a file is damaged, or the files do not fit each other.
        """
        struct = parse_schema(spark, schema) if schema else None
        if self.format not in SELF_DESCRIBING and struct is None:
            msg = f"{self.location} is {self.format.upper()}, which does not contain the types of its columns"
            raise ConfigurationError(msg, hint="--schema 'id bigint, name string, …'   (or --schema FILE)")
        return self.read_as(spark, struct)

    def read_as(self, spark: SparkSession, struct: T.StructType | None) -> DataFrame:
        """Read the rows as :meth:`read` does, with a parsed schema; JSON and CSV need one."""
        reader = spark.read.format("csv" if self.format == SPARK_CSV else self.format)
        for name, value in {**_OPTIONS[self.format], **self.store.options}.items():
            reader = reader.option(name, value)
        path = for_reading(self.store.for_spark(self.location))
        with input_errors(self.location), session_settings(spark, _UNTYPED_FOLDERS):
            if self.format == SPARK_CSV and struct is not None:
                return read_spark_csv(reader, path, struct, sorted(self._folders))
            if self.format == "csv" and struct is not None:
                return read_csv(reader, path, self._first(), struct, sorted(self._folders), self.location)
            if self.format not in SELF_DESCRIBING and struct is not None:
                reader = reader.schema(_all_nullable(struct))
            rows = reader.load(path)
        return rows if struct is None else self._typed(rows, struct)

    def _first(self) -> str:
        path = min(self.sizes)
        return for_reading(self.store.for_spark(f"{self.location}/{path}" if path else self.location))

    @property
    def _folders(self) -> set[str]:
        """The partition columns."""
        return {unquote(part.partition("=")[0]) for path in self.sizes for part in path.split("/")[:-1] if "=" in part}

    def _typed(self, rows: DataFrame, struct: T.StructType) -> DataFrame:
        """Return the rows with partition columns in the types of a schema; other columns keep their own."""
        folders = self._folders
        types = {field.name: field.dataType for field in struct.fields if field.name in folders}
        return rows.select(
            *[column(name).cast(types[name]).alias(name) if name in types else column(name) for name in rows.columns]
        )


def plain_files(store: FileSystem, location: str, sizes: Mapping[str, int], format: str | None) -> PlainFiles:  # noqa: A002
    """Return files with their format, after checking their names and sizes.

    Raises:
        RefusedInputError: there are none, or some cannot be complete.
        ConfigurationError: their format is not known.
    """
    if not sizes:
        msg = f"{location} holds no files"
        raise RefusedInputError(msg, hint="an export without rows still has a file with its columns")
    _require_partitions(location, sizes)
    chosen = format or _format_of(location, sizes)
    # An empty file has no footer or first line either, and Spark would ignore it.
    if chosen not in ("json", SPARK_CSV) and (empty := sorted(path for path, size in sizes.items() if not size)):
        name = f"{location}/{empty[0]}".rstrip("/")
        msg = f"{name} is empty and thus not a {chosen} file: its writing was interrupted"
        raise RefusedInputError(msg, hint="write the snapshot again")
    return PlainFiles(store, location, sizes, chosen)


def _require_partitions(location: str, paths: Iterable[str]) -> None:
    """Refuse files in folders that are not partitions: Spark would ignore them."""
    for path in sorted(paths):
        *folders, _ = path.split("/")
        if (wrong := next((folder for folder in folders if "=" not in folder), None)) is not None:
            inner = "/".join(folders[: folders.index(wrong) + 1])
            msg = f"{location} has files in the folder {inner}, which is no partition (name=value): {path}"
            raise RefusedInputError(msg, hint=f"name the folder of one snapshot's files: {location}/{inner}")


def format_of_name(path: str) -> str | None:
    """Return a file's format by the suffix of its name before any suffix of compression; None for an unknown one."""
    parts = path.rpartition("/")[2].lower().split(".")[1:]
    while parts and parts[-1] in _PACKED:
        parts.pop()
    return _SUFFIXES.get(parts[-1]) if parts else None


def parse_schema(spark: SparkSession, text: str) -> T.StructType:
    """Parse a schema: columns as in CREATE TABLE, Spark's JSON, or a file that holds either.

    Raises:
        ConfigurationError: it cannot be parsed.
    """
    written = _content(text).strip()
    try:
        if not written.startswith("{"):
            jvm: Any = spark._jvm
            written = jvm.org.apache.spark.sql.types.StructType.fromDDL(written).json()
        return _plain_texts(T.StructType.fromJson(json.loads(written)))
    except (ParseException, ValueError, KeyError, TypeError) as error:
        first = str(error).strip().splitlines()[0]
        file = "" if " " in text.strip() else " and not an existing file"
        msg = f"{text!r} is not a schema{file}: {first}"
        raise ConfigurationError(msg, hint="--schema 'id bigint, name string, price decimal(10,2)'") from error


def parse_type(spark: SparkSession, written: str | Mapping[str, Any]) -> T.DataType:
    """Parse a type of a manifest: as in CREATE TABLE, or Spark's JSON."""
    if isinstance(written, str) and not written.startswith(("{", '"')):
        return parse_schema(spark, f"value {written}").fields[0].dataType
    found = json.loads(written) if isinstance(written, str) else written
    field = {"name": "value", "type": found, "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType


def _content(text: str) -> str:
    """Return the content of the file of that name, or the text itself."""
    is_name = "\n" not in text and " " not in text.strip()
    file = Path(text.removeprefix("@"))
    if text.startswith("@") or (is_name and file.is_file()):
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            msg = f"cannot read the schema in {file}: {error.strerror}"
            raise ConfigurationError(msg) from error
        except UnicodeDecodeError as error:
            msg = f"cannot read the schema in {file}: it is not UTF-8 at position {error.start}"
            raise ConfigurationError(msg) from None
    return text


def _format_of(location: str, sizes: Iterable[str]) -> str:
    names = [path or location for path in sizes]
    found = {format_of_name(name) for name in names}
    known = sorted(name for name in found if name)
    if len(known) > 1:
        msg = f"{location} holds files of several formats: {', '.join(known)}"
        raise RefusedInputError(msg, hint="move them into separate folders, or name one format")
    if not known or None in found:
        unknown = min(name for name in names if format_of_name(name) is None)
        msg = f"the format of {unknown} in {location} is not known"
        raise ConfigurationError(msg, hint=f"name it: --past-format or --current-format {'|'.join(FORMATS)}")
    return known[0]


def _plain_texts(struct: T.StructType) -> T.StructType:
    """Return a schema with plain texts instead of texts of limited length, as Spark does when it reads files."""
    limited = (T.CharType, T.VarcharType)
    return T.StructType(
        [
            T.StructField(field.name, T.StringType()) if isinstance(field.dataType, limited) else field
            for field in struct
        ]
    )


def _all_nullable(struct: T.StructType) -> T.StructType:
    """Return a schema in which every column may be null: the comparison reports values that a file lacks."""
    return T.StructType([T.StructField(field.name, field.dataType, True) for field in struct.fields])
