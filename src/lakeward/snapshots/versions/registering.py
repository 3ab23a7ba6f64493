"""External tables that point to a version: in Glue where the lake's catalog is there, else in the session's catalog."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakeward.datatypes import quote_name
from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.catalog import CatalogKind, catalog_kind
from lakeward.pipeline.steps import Step
from lakeward.snapshots.versions.glue import GlueTables
from lakeward.snapshots.versions.layouts import reader_options
from lakeward.snapshots.versions.reading import find_version
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.versions.manifest import Manifest
    from lakeward.snapshots.versions.publications import Publication
    from lakeward.snapshots.versions.reading import FoundVersion

SESSION_CATALOG = "spark_catalog"
# Says whose table it is: one that Lakeward did not make is never replaced.
OWN_PROPERTY = "lakeward.table"
_NAME_PARTS = 2
_LASTING = "hive"
_SESSION_NAME = re.compile(r"\w+", re.ASCII)
_URI = re.compile(r"(?:([\w.+-]+):)?(?://([^/]*))?(.*)", re.DOTALL)


def default_name(table_name: str) -> str:
    """Give the name under which a table's versions are registered unless another is given."""
    return f"default.{table_name}_snapshot"


def require_name(name: str, kind: CatalogKind) -> str:
    """Refuse a name that is not ``database.table``, or that a catalog cannot have, before any file is written."""
    parts = name.split(".")
    if len(parts) != _NAME_PARTS or not all(part.strip() for part in parts):
        msg = f"{name!r} cannot name a registered table; expected database.table"
        raise ConfigurationError(msg, hint="--register default.product_snapshot")
    if kind is not CatalogKind.GLUE and not all(_SESSION_NAME.fullmatch(part) for part in parts):
        msg = f"{name!r} cannot name a table of Spark's own catalog; expected letters, digits and _"
        raise ConfigurationError(msg, hint="--register default.product_snapshot")
    return name


def require_lasting(spark: SparkSession, config: Config) -> None:
    """Refuse to register where the table would be gone with the process, and nobody could ever read it.

    Raises:
        ConfigurationError: the session keeps its tables in memory.
    """
    if catalog_kind(config) is CatalogKind.GLUE or spark.conf.get("spark.sql.catalogImplementation") == _LASTING:
        return
    msg = "a registered table would be gone when this process ends: Spark keeps its own catalog in memory here"
    hint = (
        "leave out --register and read the version's folder; or lake: {catalog: glue://}; or a Hive metastore: "
        "spark: {conf: {spark.sql.catalogImplementation: hive, spark.hadoop.hive.metastore.uris: thrift://…}}"
    )
    raise ConfigurationError(msg, hint=hint)


def register(context: TableContext, publication: Publication) -> None:
    """Point the external table of a publication to it, with its partitions; other versions stay where they are.

    Raises:
        ConfigurationError: a table of the name is there that is not Lakeward's.
    """
    store = open_filesystem(context.spark, context.config, publication.location)
    found = find_version(store, publication.location)
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            glue.point(publication.registered, publication.location, found.manifest)
    else:
        _SessionTables(context).point(publication.registered, found)
    context.reached(Step.PUBLISH_REGISTERED)


def renew_registration(context: TableContext, publication: Publication) -> None:
    """Renew a registered table's partitions after its version was made anew, if it still points there."""
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            points = glue.points_to(publication.registered, publication.location)
    else:
        points = _SessionTables(context).points_to(publication.registered, publication.location)
    if points:
        register(context, publication)


class _SessionTables:
    """External tables of Spark's own catalog: they last with a Hive metastore, else as long as the application."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._spark = context.spark

    def point(self, name: str, found: FoundVersion) -> None:
        """Make the table anew: Spark's catalog cannot replace a table's schema and place in one step."""
        full = _full_name(name)
        described = self._described(full)
        if described is not None and not _is_own(described):
            msg = f"{SESSION_CATALOG}.{name} is there already and was not made by Lakeward"
            raise ConfigurationError(msg, hint="--register ANOTHER.NAME")
        database = quote_name(name.partition(".")[0])
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {SESSION_CATALOG}.{database}")
        self._spark.sql(f"DROP TABLE IF EXISTS {full}")
        self._spark.sql(_create_sql(full, found))
        if found.manifest.folder_column:
            self._spark.sql(f"MSCK REPAIR TABLE {full}")

    def points_to(self, name: str, location: str) -> bool:
        """Tell whether a table of Lakeward's points to a version."""
        described = self._described(_full_name(name))
        if described is None or not _is_own(described):
            return False
        store = open_filesystem(self._spark, self._context.config, location)
        return is_same_place(described.get("Location", ""), store.for_spark(location))

    def _described(self, full: str) -> dict[str, str] | None:
        """Give what Spark tells of a table, by name: its columns, then facts; None where there is none."""
        # Asked first, since Spark logs a statement that fails as an error, with pages of Java's stack.
        if not self._spark.catalog.tableExists(full):
            return None
        rows = self._spark.sql(f"DESCRIBE TABLE EXTENDED {full}").collect()
        return {row[0]: row[1] for row in rows}


def _is_own(described: Mapping[str, str]) -> bool:
    return OWN_PROPERTY in described.get("Table Properties", "")


def is_same_place(one: str, other: str) -> bool:
    """Tell whether two URIs name one folder: Spark writes ``file:/`` for ``file:///`` and fills in a host left out."""
    (scheme, host, path), (other_scheme, other_host, other_path) = (_parts(uri) for uri in (one, other))
    return (scheme, path) == (other_scheme, other_path) and (host == other_host or not host or not other_host)


def _parts(uri: str) -> tuple[str, ...]:
    found = _URI.fullmatch(uri.rstrip("/"))
    return found.groups(default="") if found else ()


def _full_name(name: str) -> str:
    database, table = name.split(".")
    return f"{SESSION_CATALOG}.{quote_name(database)}.{quote_name(table)}"


def _create_sql(full: str, found: FoundVersion) -> str:
    manifest = found.manifest
    columns = ", ".join(f"{quote_name(name)} {kind}" for name, kind in table_columns(manifest))
    partitioned = f" PARTITIONED BY ({quote_name(manifest.folder_column)})" if manifest.folder_column else ""
    given = reader_options(manifest.shape)
    options = f" OPTIONS ({', '.join(f'{_text(key)} {_text(value)}' for key, value in given.items())})" if given else ""
    return (
        f"CREATE TABLE {full} ({columns}) USING {manifest.format}{options}{partitioned} "
        f"LOCATION {_text(found.store.for_spark(found.folder))} "
        f"TBLPROPERTIES ({_text(OWN_PROPERTY)}={_text(manifest.table)})"
    )


def table_columns(manifest: Manifest) -> list[tuple[str, str]]:
    """Give the columns of a table over a version's files, the folders' column among them."""
    found = [(one.name, one.lake_type) for one in manifest.columns]
    is_extra = manifest.folder_column and manifest.folder_column != manifest.date_column
    return [*found, (manifest.folder_column, "date")] if is_extra else found


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
