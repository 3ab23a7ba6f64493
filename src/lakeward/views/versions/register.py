"""External tables that point to a version: in Glue if that is the lake's catalog, else in the session's catalog."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote

from lakeward.columns import quote_name
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from lakeward.session.catalog import CatalogKind, catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.s3 import s3_errors
from lakeward.views.versions.folders import find_version
from lakeward.views.versions.layouts import reader_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.versions.folders import FoundVersion
    from lakeward.views.versions.manifest import Manifest, Publication


# External tables of AWS Glue, for Athena and other readers of Glue's catalog.


Value = TypeVar("Value")

OWN_PARAMETER = "lakeward.table"
_CREATED_AT_ONCE, _DELETED_AT_ONCE = 100, 25
_HADOOP = "org.apache.hadoop"
_FORMATS = {
    "parquet": (
        f"{_HADOOP}.hive.ql.io.parquet.MapredParquetInputFormat",
        f"{_HADOOP}.hive.ql.io.parquet.MapredParquetOutputFormat",
        f"{_HADOOP}.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "orc": (
        f"{_HADOOP}.hive.ql.io.orc.OrcInputFormat",
        f"{_HADOOP}.hive.ql.io.orc.OrcOutputFormat",
        f"{_HADOOP}.hive.ql.io.orc.OrcSerde",
    ),
    "csv": (
        f"{_HADOOP}.mapred.TextInputFormat",
        f"{_HADOOP}.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        f"{_HADOOP}.hive.serde2.OpenCSVSerde",
    ),
    "json": (
        f"{_HADOOP}.mapred.TextInputFormat",
        f"{_HADOOP}.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        "org.openx.data.jsonserde.JsonSerDe",
    ),
}
# Hive has only one timestamp type.
_TYPES = {"timestamp_ntz": "timestamp"}


class GlueTables:
    """Tables of one account's Glue catalog."""

    def __init__(self, client: Any, account: str | None = None) -> None:
        """Use a boto3 client; ``account`` names another account's catalog."""
        self._client = client
        self._catalog = {"CatalogId": account} if account else {}

    @classmethod
    @contextmanager
    def open(cls, config: Config) -> Iterator[Self]:
        """Open the catalog that ``lake.catalog: glue://`` names."""
        try:
            import boto3
        except ImportError as error:
            msg = f"Glue needs boto3, which is not installed ({error.name})"
            raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
        account, _, query = config.lake.catalog.removeprefix("glue://").partition("?")
        region = dict(parse_qsl(query)).get("region") or config.s3.region
        with s3_errors("glue://"):
            client = boto3.client("glue", region_name=region)
        try:
            yield cls(client, account.strip("/") or None)
        finally:
            client.close()

    def point(self, name: str, location: str, manifest: Manifest) -> None:
        """Point a table to a version with its partitions.

        Raises:
            ConfigurationError: the name is taken by a table that Lakeward did not create, or Glue refuses.
        """
        database, table = name.split(".")
        where = {**self._catalog, "DatabaseName": database}
        wanted = _table_input(table, location, manifest)
        with s3_errors(f"glue://{name}"):
            present = self._find(database, table)
            if present is None:
                self._create_database(database)
                self._client.create_table(**where, TableInput=wanted)
            elif OWN_PARAMETER not in present.get("Parameters", {}):
                msg = f"Glue's table {name} exists already and was not made by Lakeward"
                raise ConfigurationError(msg, hint="--register ANOTHER.NAME")
            else:
                self._drop_partitions(database, table)
                self._client.update_table(**where, TableInput=wanted)
            self._add_partitions(database, table, location, manifest)

    def points_to(self, name: str, location: str) -> bool:
        """Whether a table that Lakeward created points to a version."""
        with s3_errors(f"glue://{name}"):
            found = self._find(*name.split("."))
        if found is None or OWN_PARAMETER not in found.get("Parameters", {}):
            return False
        return bool(found["StorageDescriptor"]["Location"] == _for_glue(location))

    def _find(self, database: str, table: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._client.get_table(**self._catalog, DatabaseName=database, Name=table)
        except self._client.exceptions.EntityNotFoundException:
            return None
        inner: Mapping[str, Any] = found["Table"]
        return inner

    def _create_database(self, database: str) -> None:
        try:
            self._client.create_database(**self._catalog, DatabaseInput={"Name": database})
        except self._client.exceptions.AlreadyExistsException:
            return

    def _drop_partitions(self, database: str, table: str) -> None:
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        pages = self._client.get_paginator("get_partitions").paginate(**where)
        values = [partition["Values"] for page in pages for partition in page["Partitions"]]
        for chunk in _chunks(values, _DELETED_AT_ONCE):
            self._client.batch_delete_partition(**where, PartitionsToDelete=[{"Values": value} for value in chunk])

    def _add_partitions(self, database: str, table: str, location: str, manifest: Manifest) -> None:
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        folders = sorted({path.split("/")[0] for path in manifest.files}) if manifest.folder_column else []
        for chunk in _chunks(folders, _CREATED_AT_ONCE):
            wanted = [
                {
                    "Values": [unquote(folder.rpartition("=")[2])],
                    "StorageDescriptor": _storage(f"{location}/{folder}", manifest),
                }
                for folder in chunk
            ]
            answer = self._client.batch_create_partition(**where, PartitionInputList=wanted)
            if refused := answer.get("Errors"):
                reason = refused[0].get("ErrorDetail", {}).get("ErrorMessage", "no reason given")
                msg = f"Glue refused {len(refused)} partitions of {database}.{table}: {reason}"
                raise ConfigurationError(msg, hint="check the rights of the role, then register again with --replace")


def _chunks(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _table_input(table: str, location: str, manifest: Manifest) -> dict[str, Any]:
    dated = [{"Name": manifest.folder_column, "Type": "date"}] if manifest.folder_column else []
    return {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": manifest.format,
            OWN_PARAMETER: manifest.table,
            "lakeward.version": manifest.version,
            **({"skip.header.line.count": "1"} if manifest.format == "csv" else {}),
        },
        "PartitionKeys": dated,
        "StorageDescriptor": _storage(location, manifest),
    }


def _storage(location: str, manifest: Manifest) -> dict[str, Any]:
    reads, writes, serde = _FORMATS[manifest.format]
    held = [column for column in manifest.columns if column.name != manifest.folder_column]
    return {
        "Columns": [
            {"Name": lake_column.name, "Type": _TYPES.get(lake_column.lake_type, lake_column.lake_type)}
            for lake_column in held
        ],
        "Location": _for_glue(location),
        "InputFormat": reads,
        "OutputFormat": writes,
        "SerdeInfo": {"SerializationLibrary": serde},
    }


def _for_glue(location: str) -> str:
    return location.replace("s3a://", "s3://", 1)


SESSION_CATALOG = "spark_catalog"
# Marks tables that Lakeward created: no other table is ever replaced.
OWN_PROPERTY = "lakeward.table"
_NAME_PARTS = 2
_LASTING = "hive"
_SESSION_NAME = re.compile(r"\w+", re.ASCII)
_URI = re.compile(r"(?:([\w.+-]+):)?(?://([^/]*))?(.*)", re.DOTALL)


def default_name(table_name: str) -> str:
    """Return the default name under which a table's versions are registered."""
    return f"default.{table_name}_snapshot"


def require_name(name: str, kind: CatalogKind) -> str:
    """Return the name of a table to register, checked before any file is written.

    Raises:
        ConfigurationError: it is not ``database.table``, or the catalog does not allow it.
    """
    parts = name.split(".")
    if len(parts) != _NAME_PARTS or not all(part.strip() for part in parts):
        msg = f"{name!r} cannot name a registered table; expected database.table"
        raise ConfigurationError(msg, hint="--register default.product_snapshot")
    if kind is not CatalogKind.GLUE and not all(_SESSION_NAME.fullmatch(part) for part in parts):
        msg = f"{name!r} cannot name a table of Spark's own catalog; expected letters, digits and _"
        raise ConfigurationError(msg, hint="--register default.product_snapshot")
    return name


def require_lasting(spark: SparkSession, config: Config) -> None:
    """Refuse to register a table that would end with this process.

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
        ConfigurationError: the name is taken by a table that Lakeward did not create.
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
    """Renew a registered table's partitions after its version was rebuilt, if it still points there."""
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            points = glue.points_to(publication.registered, publication.location)
    else:
        points = _SessionTables(context).points_to(publication.registered, publication.location)
    if points:
        register(context, publication)


class _SessionTables:
    """External tables of Spark's own catalog, which are permanent only in a Hive metastore."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._spark = context.spark

    def point(self, name: str, found: FoundVersion) -> None:
        """Create or recreate the table: Spark's catalog cannot replace its schema and location in one step."""
        full = _full_name(name)
        described = self._described(full)
        if described is not None and not _is_own(described):
            msg = f"{SESSION_CATALOG}.{name} exists already and was not made by Lakeward"
            raise ConfigurationError(msg, hint="--register ANOTHER.NAME")
        database = quote_name(name.partition(".")[0])
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {SESSION_CATALOG}.{database}")
        self._spark.sql(f"DROP TABLE IF EXISTS {full}")
        self._spark.sql(_create_sql(full, found))
        if found.manifest.folder_column:
            self._spark.sql(f"MSCK REPAIR TABLE {full}")

    def points_to(self, name: str, location: str) -> bool:
        """Whether a table that Lakeward created points to a version."""
        described = self._described(_full_name(name))
        if described is None or not _is_own(described):
            return False
        store = open_filesystem(self._spark, self._context.config, location)
        return is_same_place(described.get("Location", ""), store.for_spark(location))

    def _described(self, full: str) -> dict[str, str] | None:
        """Return Spark's description of a table by name, None where there is no such table."""
        # Checked first, because Spark logs a failed statement with pages of Java stack.
        if not self._spark.catalog.tableExists(full):
            return None
        rows = self._spark.sql(f"DESCRIBE TABLE EXTENDED {full}").collect()
        return {row[0]: row[1] for row in rows}


def _is_own(described: Mapping[str, str]) -> bool:
    return OWN_PROPERTY in described.get("Table Properties", "")


def is_same_place(left: str, right: str) -> bool:
    """Whether two URIs name the same folder: Spark writes ``file:/`` for ``file:///`` and adds a missing host."""
    (scheme, host, path), (other_scheme, other_host, other_path) = (_parts(uri) for uri in (left, right))
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
    """Return the columns of a table over a version's files, including that of the folders."""
    found = [(column.name, column.lake_type) for column in manifest.columns]
    is_extra = manifest.folder_column and manifest.folder_column != manifest.date_column
    return [*found, (manifest.folder_column, "date")] if is_extra else found


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
