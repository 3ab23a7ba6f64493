"""Fill the registry from the lake: a mirror carries its table's settings as a property."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.datatypes import quote_name
from lakeward.lake.iceberg.define import changelog_of, is_complete, mirror_of
from lakeward.lake.iceberg.session import table_session
from lakeward.lake.iceberg.table import CATALOG
from lakeward.model import RESERVED_SUFFIXES, TableId
from lakeward.pipeline.settings import kept_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.state.base import StateStore


def rebuild_registry(spark: SparkSession, config: Config, state: StateStore) -> list[TableId]:
    """Register every mirror found in the lake as active, with the settings it carries; give those tables."""
    spark, declared = table_session(spark), config.declared()
    found = []
    for table in _mirrors(spark):
        settings = kept_settings(mirror_of(spark, table))
        if settings is None or not is_complete(changelog_of(spark, table)):
            continue
        found.append(table)
        if table not in declared:
            state.set_table(table, active=True, settings=settings)
    return found


def _mirrors(spark: SparkSession) -> Iterator[TableId]:
    for namespace in spark.sql(f"SHOW NAMESPACES IN {CATALOG}").toLocalIterator():
        schema = _unquoted(namespace[0])
        if not schema.endswith(tuple(RESERVED_SUFFIXES)):
            for row in spark.sql(f"SHOW TABLES IN {CATALOG}.{quote_name(schema)}").toLocalIterator():
                yield TableId(schema, row["tableName"])


def _unquoted(name: str) -> str:
    """Give a namespace's own name: Spark quotes those that need it, and only those."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
