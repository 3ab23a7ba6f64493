"""Change sets without a manifest, as the published recipe writes them: files of what spark-extension's ``diff`` gives.

Parquet tells its columns. Those of JSON and CSV are the past's: ``diff``, the keys, ``left_…`` and ``right_…``. JSON by
Spark leaves out nulls, so that a column may come in no row at all; one that the past does not have is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lakeward.diffing.inputs.files import PlainFiles, format_of_name
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import for_reading, read_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.diffing.inputs.folders import Listing
    from lakeward.diffing.options import DiffOptions
    from lakeward.storage.filesystem import FileSystem

_SHOWN = 5
_TEXTS = ("json", "csv")


def read_recipe(
    spark: SparkSession,
    store: FileSystem,
    listing: Listing,
    keys: Sequence[str],
    options: DiffOptions,
    past: T.StructType | None,
) -> DataFrame:
    """Read the rows of a change set without a manifest; ``past`` tells the types of JSON and CSV.

    Raises:
        RefusedInputError: its files are of several formats or of one that cannot be read, or have other columns.
    """
    folder, paths = listing.location, list(listing.data)
    kinds = {format_of_name(path) for path in paths}
    known = ("parquet", *(_TEXTS if past is not None else ()))
    if len(kinds) != 1 or not kinds <= {*known}:
        found = ", ".join(sorted(paths)[:_SHOWN]) or "none"
        msg = f"{folder}: files of a change set without {MANIFEST} must be all {' or all '.join(known)}; found: {found}"
        raise RefusedInputError(msg, hint="write it as Parquet")
    kind = kinds.pop()
    if kind == "parquet" or past is None:
        return read_parquet(spark, store, folder, paths)
    struct = _expected(past, keys, options)
    if kind == "json":
        _require_known(spark, store, listing, struct)
    return PlainFiles(store, folder, listing.data, str(kind)).read_as(spark, struct)


def _expected(past: T.StructType, keys: Sequence[str], options: DiffOptions) -> T.StructType:
    if missing := [name for name in keys if name not in past.names]:
        msg = f"the table has no key column {', '.join(missing)}; it has {', '.join(past.names)}"
        raise RefusedInputError(msg, hint="--keys COLUMN,COLUMN")
    sides = (options.left_column_prefix, options.right_column_prefix)
    values = [(f"{side}_{one.name}", one.dataType) for one in past if one.name not in keys for side in sides]
    fields = [(options.diff_column, T.StringType()), *((name, past[name].dataType) for name in keys), *values]
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields])


def _require_known(spark: SparkSession, store: FileSystem, listing: Listing, struct: T.StructType) -> None:
    """Refuse columns that the schema would pass over in silence: a key that was not named, or another table's."""
    reader = spark.read.option("mode", "FAILFAST").option("primitivesAsString", "true")
    for name, value in store.options.items():
        reader = reader.option(name, value)
    found = reader.json([for_reading(store.for_spark(f"{listing.location}/{path}")) for path in sorted(listing.data)])
    if unknown := [name for name in found.columns if name not in struct.names]:
        msg = f"{listing.location} has columns that the table does not have: {', '.join(unknown)}"
        raise RefusedInputError(msg, hint="are they keys? Name all keys; or is this the change set of another table?")
