"""Telling statements that only read from those that do more, by what Spark's parser makes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Commands that only tell something, or set what ends with the session.
_HARMLESS = re.compile(r"Show\w+|Describe\w+|SetCommand|ResetCommand|SetCatalogAndNamespace")
_EXPLAIN = "ExplainCommand"
# These run while they are analysed, and so while they are explained.
_RUN_AT_ONCE = re.compile(r"Call|\w*ExecuteImmediate\w*|Compound\w+")


def require_read_only(spark: SparkSession, query: str) -> None:
    """Refuse a statement that does more than read: a foreign row in a mirror would never leave it.

    Spark runs a command as soon as it is handed over, some while they are analysed; so this goes by the grammar.

    Raises:
        ConfigurationError: it is neither a query nor a command that only tells something.
    """
    if _is_query(spark, query):
        return
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)
    kind = _kind(plan)
    is_explained = kind == _EXPLAIN and not _RUN_AT_ONCE.fullmatch(_kind(plan.logicalPlan()))
    if not is_explained and not _HARMLESS.fullmatch(kind):
        msg = f"the statement does more than read ({kind}): only queries, SHOW, DESCRIBE and EXPLAIN run here"
        raise ConfigurationError(msg, hint='lakeward sql --allow-writes "…"')


def _is_query(spark: SparkSession, query: str) -> bool:
    """Ask Spark's own parser: Iceberg's takes any statement for a query."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.sql.execution.SparkSqlParser().parseQuery(query)
    except ParseException:
        return False
    return True


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName()).removesuffix("$")
