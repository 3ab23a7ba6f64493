"""What Spark 3.5 (Glue, EMR) does in another way than Spark 4: the only place that asks which one it is."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Level of Spark's own log, read by log4j2.properties too.
LOG_VARIABLE = "LAKEWARD_SPARK_LOG"
IS_SPARK_3 = pyspark.__version__.startswith("3.")
# Iceberg for Spark 3.5 does not stamp the commits of DELETE statements: only their place in the ancestry is checked.
STAMPS_STATEMENTS = not IS_SPARK_3


def all_settings(session: SparkSession) -> dict[str, str]:
    """Return every setting of a session."""
    if not IS_SPARK_3:
        return dict(session.conf.getAll)
    jvm: Any = session._jvm
    return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(session._jsparkSession.conf().getAll()))


def quiet_query_errors() -> None:
    """Keep pyspark 4 from printing each failed query as a page of JSON: the exception says it all."""
    if IS_SPARK_3 or LOG_VARIABLE in os.environ:
        return
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def gathered(frame: DataFrame, by: Column) -> DataFrame:
    """Bring rows of one value together, in partitions of even size where Spark takes a column for that."""
    return frame.repartition(by) if IS_SPARK_3 else frame.hint("rebalance", by)
