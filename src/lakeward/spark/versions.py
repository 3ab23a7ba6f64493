"""Differences between Spark 3.5 (Glue, EMR) and Spark 4: the only module that checks the version."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The level of Spark's own log; log4j2.properties reads it, too.
LOG_VARIABLE = "LAKEWARD_SPARK_LOG"
IS_SPARK_3 = pyspark.__version__.startswith("3.")
# Iceberg for Spark 3.5 does not stamp the commits of DELETE statements: only their ancestry is checked.
STAMPS_STATEMENTS = not IS_SPARK_3


def all_settings(session: SparkSession) -> dict[str, str]:
    """Return every setting of a session."""
    if not IS_SPARK_3:
        return dict(session.conf.getAll)
    jvm: Any = session._jvm
    return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(session._jsparkSession.conf().getAll()))


def quiet_query_errors() -> None:
    """Keep pyspark 4 from printing a page of JSON for each failed query: the exception has the same information."""
    if IS_SPARK_3 or LOG_VARIABLE in os.environ:
        return
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def gathered(frame: DataFrame, *by: Column) -> DataFrame:
    """Return the rows partitioned by values, in partitions of even size where Spark can do that."""
    return frame.repartition(*by) if IS_SPARK_3 else frame.hint("rebalance", *by)
