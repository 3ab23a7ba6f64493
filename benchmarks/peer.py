"""The peer of batches: a twin of the table that a tuned MERGE keeps current, and what voids a measurement."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from benchmarks.data import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PEER = "bench.peer"
_PROPERTIES = (
    "'format-version'='2', 'write.merge.mode'='merge-on-read', 'write.delete.mode'='merge-on-read', "
    "'write.update.mode'='merge-on-read', 'write.delete.granularity'='partition', "
    "'write.parquet.compression-codec'='zstd'"
)


def make_peer(spark: SparkSession, table: str) -> None:
    """Copy a table to its twin."""
    spark.sql(f"CREATE TABLE {PEER} USING iceberg TBLPROPERTIES ({_PROPERTIES}) AS SELECT * FROM {table}")


def merge(spark: SparkSession, file: Path) -> None:
    """Run the statement a user would write; a batch has each key once, so nothing needs reducing."""
    spark.read.parquet(str(file)).createOrReplaceTempView("batch")
    sets = ", ".join(f"t.{name} = s.{name}" for name in SCHEMA.names)
    names, values = ", ".join(SCHEMA.names), ", ".join(f"s.{name}" for name in SCHEMA.names)
    spark.sql(
        f"MERGE INTO {PEER} t USING batch s ON t.id = s.id WHEN MATCHED AND s.Op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED AND s.Op <> 'D' THEN INSERT ({names}) VALUES ({values})"
    )


def require_equal(spark: SparkSession, *tables: str) -> None:
    """Void the measurement unless tables hold the same rows equally often."""
    for pair in combinations(tables, 2):
        for left, right in (pair, pair[::-1]):
            if differing := spark.sql(f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}").count():
                msg = f"{differing} rows of {left} are not in {right}: the measurement is void"
                raise AssertionError(msg)


def require_done(report: Any) -> None:
    """Void the measurement if a table failed."""
    if report.exit_code:
        raise AssertionError([table.message for table in report.tables])
