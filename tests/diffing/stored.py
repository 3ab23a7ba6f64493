"""What keeps tests of many small diffs quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.session.sessions import table_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stored(frame: DataFrame) -> DataFrame:
    """Return a small frame's rows as if they were read from somewhere.

    Its plan is no part of what is done with them.
    """
    return frame.sparkSession.createDataFrame(frame.collect(), frame.schema)


def uncompiled(spark: SparkSession) -> SparkSession:
    """Open a session that does not compile its plans: tables are small, and plans many."""
    session = table_session(spark)
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session
