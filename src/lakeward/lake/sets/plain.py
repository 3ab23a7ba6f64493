"""Rows as plain Parquet files, for keys that no bucket is told by: read back once to say what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.lake.ownership import written_files
from lakeward.lake.sets.writing import SESSION, WRITER_OPTIONS
from lakeward.lake.settings import session_settings
from lakeward.lake.stores import read_parquet
from lakeward.storage.checksum import checksum_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.lake.stores import Store
    from lakeward.storage.checksum import Checksum


def write_plain(rows: DataFrame, store: Store, folder: str) -> tuple[Checksum, dict[str, int]]:
    """Write rows into a folder as Spark has them; give their checksum, and every file with its size."""
    before, writer = store.files(folder), rows.write.mode("append")
    for name, value in {**store.options, **WRITER_OPTIONS}.items():
        writer = writer.option(name, value)
    with session_settings(rows.sparkSession, SESSION):
        writer.parquet(store.for_spark(folder))
    files = {path: size for path, size in written_files(store, folder, before).items() if path.endswith(".parquet")}
    written = read_parquet(rows.sparkSession, store, folder, files, rows.schema)
    return checksum_of(written), files
