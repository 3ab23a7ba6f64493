"""The Spark connector, in a Spark of its own: reads a table into Parquet, or appends Parquet to a table.

Run by :mod:`benchmarks.cassandra` as a process, because two Sparks do not fit into one. Prints the CPU-seconds as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from tests.servers.jars import fetched_once

from benchmarks.cpu import cost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTOR = "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1"
_FORMAT = "org.apache.spark.sql.cassandra"


def main() -> int:
    """Measure what the arguments say, after some rounds to warm up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("export", "import"))
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--table", required=True, help="keyspace.table")
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--warm-ups", type=int, default=3)
    options = parser.parse_args()
    spark = _session(options.host, options.port)
    keyspace, table = options.table.split(".")
    named = {"keyspace": keyspace, "table": table}
    work = _export if options.what == "export" else _import
    spent = [cost(lambda: work(spark, named, options.folder)) for _ in range(options.warm_ups + options.times)]
    json.dump({"cpu": statistics.median(spent[options.warm_ups :]), "all": spent}, sys.stdout)
    return 0


def _session(host: str, port: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, fetched_once(CONNECTOR).glob("*.jar"))))
        .config("spark.cassandra.connection.host", host)
        .config("spark.cassandra.connection.port", port)
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )


def _export(spark: SparkSession, named: dict[str, str], folder: Path) -> None:
    rows: DataFrame = spark.read.format(_FORMAT).options(**named).load()
    rows.write.mode("overwrite").parquet(str(folder))


def _import(spark: SparkSession, named: dict[str, str], folder: Path) -> None:
    spark.read.parquet(str(folder)).write.format(_FORMAT).options(**named).mode("append").save()


if __name__ == "__main__":
    sys.exit(main())
