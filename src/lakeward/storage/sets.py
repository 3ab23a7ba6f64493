"""Snapshot sets: rows as one Parquet file per bucket of the key, sorted by key, each with the checksum of its rows.

The written files are read back once to describe them. Rows whose key has a type that buckets cannot be made of become
plain files, which are described as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.documents import Record
from lakeward.errors import DataError, RefusedInputError
from lakeward.spark.errors import Failure, translated
from lakeward.spark.marks import Mark
from lakeward.spark.workspace import session_settings
from lakeward.storage.checksum import Checksum, checksum_columns, checksum_of, read_checksum, total
from lakeward.storage.claims import written_files
from lakeward.storage.filesystem import read_parquet
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.storage.filesystem import FileSystem


# Spark's own hash: Murmur3 of the key columns, seed 42, modulo the number of buckets.
FUNCTION = "spark-murmur3"
ROWS_PER_BUCKET = 250_000
MOST_BUCKETS = 4096


@dataclass(frozen=True)
class Bucket(Record):
    """A file of a set: ``path`` is relative to the set's folder, ``checksum`` is 32 hexadecimal digits."""

    number: int
    path: str
    size: int
    rows: int
    checksum: str

    @property
    def content(self) -> Checksum:
        """Rows and checksum as one value."""
        return Checksum.of(self.rows, self.checksum)


@dataclass(frozen=True)
class SetLayout(Record, keys=("keys", "count", "function", "checksum", "buckets"), ignores_unknown=True):
    """A set: the key, the number of buckets (a power of two), and a file for each bucket that holds rows.

    Rows whose key has the hash ``h`` are in the bucket ``h mod count``, sorted by key, and no key occurs twice. With a
    set of twice as many buckets, each bucket is two of that set: ``b`` and ``b + count``.
    """

    keys: tuple[str, ...]
    count: int
    function: str
    buckets: tuple[Bucket, ...]

    @property
    def content(self) -> Checksum:
        """Rows and checksum of the whole set."""
        return total(bucket.content for bucket in self.buckets)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.content.rows

    @property
    def checksum(self) -> str:
        """The checksum of all rows, as text."""
        return self.content.text

    def grouped(self, count: int) -> dict[int, tuple[Bucket, ...]]:
        """Return the buckets that form each bucket of a set with fewer buckets, by its number there."""
        found: dict[int, tuple[Bucket, ...]] = {}
        for bucket in self.buckets:
            found[bucket.number % count] = (*found.get(bucket.number % count, ()), bucket)
        return found

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` returned.

        Raises:
            DataError: a part is missing, or its checksums do not add up.
        """
        try:
            found = super().from_dict(document)
            expected = str(document["checksum"])
            if found.checksum != expected:
                msg = f"the set's buckets add up to {found.checksum}, its checksum is {expected}"
                raise DataError(msg, hint="create the snapshot again: its manifest is damaged")
        except (KeyError, TypeError, ValueError) as error:
            msg = f"the description of the set's buckets is damaged: {error!r}"
            raise DataError(msg, hint="create the snapshot again") from error
        return found


def file_list(sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return files with their sizes as manifests list them."""
    return [{"path": path, "size": size} for path, size in sorted(sizes.items())]


def sizes_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sizes of files by their paths, as a manifest lists them."""
    return {str(file["path"]): int(file["size"]) for file in listed}


def bucket_count(rows: int) -> int:
    """Return the number of buckets for a number of rows: a power of two with up to 250,000 rows in each."""
    count = 1
    while count < MOST_BUCKETS and count * ROWS_PER_BUCKET < rows:
        count *= 2
    return count


def is_usable_count(count: int) -> bool:
    """Whether a set can have this number of buckets: sets with other numbers could not be compared."""
    return 1 <= count <= MOST_BUCKETS and count & (count - 1) == 0


# Spark would remove a stage without rows from a running query, and with it the observations made there.
OBSERVED = {
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
}
# Instants in the type that other readers support, and dates of past centuries by the present calendar.
SESSION = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    **OBSERVED,
}
WRITER_OPTIONS = {
    # The mark of the job means that Spark is done, not that the set is complete.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # A bucket is one file however many rows it has.
    "maxRecordsPerFile": "0",
}
# Spark has no hash for these types, or equal values may have different hashes (floating-point numbers). They are listed
# by name because Spark 3.5 has no variants.
_UNPLACEABLE = ("MapType", "CalendarIntervalType", "VariantType", "FloatType", "DoubleType")
_PLACE, _FILE, _NTH = f"{S.PREFIX}bucket", f"{S.PREFIX}file", f"{S.PREFIX}nth"
# Spark puts the number of the partition, which is the bucket, into a file's name, after the id of the writer.
PART_PATTERN = r"(?:^|/)part-(?:w[0-9a-f]{12}-)?(\d+)-[^/]*\.parquet$"
_PART = re.compile(PART_PATTERN)
_DUPLICATE = Mark("duplicate key of a set")


@dataclass(frozen=True)
class _SetWrite:
    """The folder, key and number of buckets of a set that is being written."""

    store: FileSystem
    folder: str
    keys: tuple[str, ...]
    count: int


def write_set(
    rows: DataFrame,
    store: FileSystem,
    folder: str,
    keys: Sequence[str],
    *,
    count: int | None = None,
    expected_rows: int | None = None,
) -> SetLayout:
    """Write rows into a folder as a set of ``count`` buckets, by default as many as fit the number of rows.

    Files that are in the folder already stay and are not part of the set. Spark's own hash of the key places the rows,
    so that the number in a file's name is its bucket; the pass over the written files checks that for every row.

    Raises:
        RefusedInputError: a key occurs twice, or :func:`why_no_set` returns a reason.
        DataError: the files do not hold the rows that were to be written.
    """
    if problem := why_no_set(rows.schema, keys):
        raise RefusedInputError(problem, hint="choose another key")
    if count is None:
        count = bucket_count(rows.count() if expected_rows is None else expected_rows)
    if not is_usable_count(count):
        msg = f"a set of {count} buckets: their number must be a power of two up to 4096"
        raise RefusedInputError(msg)
    target = _SetWrite(store, folder, tuple(keys), count)
    before = store.files(folder)
    with session_settings(rows.sparkSession, SESSION):
        _write(rows, target)
    written = written_files(store, folder, before)
    files = {path: size for path, size in written.items() if _PART.search(path)}
    layout = _described(rows.sparkSession, rows.schema, target, files)
    if expected_rows is not None and layout.rows != expected_rows:
        msg = f"the files in {folder} hold {layout.rows:,} rows, expected {expected_rows:,}"
        raise DataError(msg, hint="nothing was published: try again")
    return layout


def why_no_set(schema: T.StructType, keys: Sequence[str]) -> str | None:
    """Return why rows cannot be written as a set by these keys; None where they can."""
    if not keys:
        return "a snapshot set is made by key, and there is none"
    for name in keys:
        if name not in schema.names:
            return f"there is no key column {name!r}; there are {', '.join(schema.names)}"
        if _holds_unplaceable(schema[name].dataType):
            type_name = schema[name].dataType.simpleString()
            return f"key column {name!r} is of type {type_name}, which cannot be assigned to buckets"
    return None


def _holds_unplaceable(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return any(_holds_unplaceable(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _holds_unplaceable(data_type.elementType)
    return type(data_type).__name__ in _UNPLACEABLE


def _write(rows: DataFrame, target: _SetWrite) -> None:
    keys = columns(target.keys)
    # The window uses the order of the rows as placed and sorted: it needs no further exchange or sort.
    placed = rows.repartition(target.count, *keys).sortWithinPartitions(*[key.asc_nulls_first() for key in keys])
    nth = F.row_number().over(Window.partitionBy(*keys).orderBy(*[key.asc_nulls_first() for key in keys]))
    is_first = F.when(column(_NTH) == 1, F.lit(True)).otherwise(_DUPLICATE.failing(F.to_json(F.struct(*keys))))
    unique = placed.withColumn(_NTH, nth).filter(is_first).drop(_NTH)
    writer = unique.write.mode("append")
    for name, value in {**target.store.options, **WRITER_OPTIONS}.items():
        writer = writer.option(name, value)

    def duplicate_key(failure: Failure) -> RefusedInputError | None:
        found = failure.marked(_DUPLICATE)
        if found is None:
            return None
        msg = f"key {found} occurs more than once: a snapshot set has each key of {', '.join(target.keys)} once"
        return RefusedInputError(msg, hint="name all columns of the key, or remove the surplus rows")

    with translated(duplicate_key):
        writer.parquet(target.store.for_spark(target.folder))


def _described(spark: SparkSession, schema: T.StructType, target: _SetWrite, files: Mapping[str, int]) -> SetLayout:
    """Return the layout of the written files, after checking that every row is in the file of its bucket."""
    found = spark.createDataFrame([], schema)
    if files:
        found = read_parquet(spark, target.store, target.folder, files, schema)
    place = F.pmod(F.hash(*columns(target.keys)), F.lit(target.count))
    by_file = found.groupBy(F.input_file_name().alias(_FILE), place.alias(_PLACE)).agg(*checksum_columns(schema))
    numbered = {_number(path): path for path in files}
    buckets = []
    # There is one row for each file; one row more shows that a file has rows of two buckets.
    for row in by_file.limit(target.count + 1).collect():
        number, content = _number(row[_FILE]), read_checksum(row.asDict())
        if number != row[_PLACE]:
            msg = f"{target.folder}: rows of bucket {row[_PLACE]} of {target.count} are in the file of bucket {number}"
            raise DataError(msg, hint="nothing was published: this Spark places rows by another hash; please report it")
        path = numbered[number]
        buckets.append(Bucket(number, path, files[path], content.rows, content.digits))
    return SetLayout(target.keys, target.count, FUNCTION, tuple(sorted(buckets, key=lambda bucket: bucket.number)))


def _number(path: str) -> int:
    found = _PART.search(path)
    assert found is not None
    return int(found.group(1))


def write_plain(rows: DataFrame, store: FileSystem, folder: str) -> tuple[Checksum, dict[str, int]]:
    """Write rows into a folder as plain files; return their checksum, and every file with its size."""
    before, writer = store.files(folder), rows.write.mode("append")
    for name, value in {**store.options, **WRITER_OPTIONS}.items():
        writer = writer.option(name, value)
    with session_settings(rows.sparkSession, SESSION):
        writer.parquet(store.for_spark(folder))
    files = {path: size for path, size in written_files(store, folder, before).items() if path.endswith(".parquet")}
    written = read_parquet(rows.sparkSession, store, folder, files, rows.schema)
    return checksum_of(written), files
