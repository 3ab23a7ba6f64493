"""External tables that point to a version: in Glue if that is the lake's catalog, else in the session's catalog."""

from __future__ import annotations

import re
from contextlib import contextmanager
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote

from lakeward.columns import quote_name
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from lakeward.session.catalog import CatalogKind, catalog_kind
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.s3 import s3_errors
from lakeward.views.versions.folders import find_version, table_uuid
from lakeward.views.versions.layouts import reader_options
from lakeward.views.versions.manifest import PublicationKind, list_publications

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.versions.folders import FoundVersion
    from lakeward.views.versions.manifest import Manifest, Publication

    # Comments of columns, by name.
    Comments: TypeAlias = Mapping[str, str]


# External tables of AWS Glue, for Athena and other readers of Glue's catalog.


Value = TypeVar("Value")

OWN_PARAMETER = "lakeward.table"
# The permanent id of the mirror: tables of two lakes may have one name. Tables that were made formerly lack it.
OWN_MIRROR = "lakeward.mirror"
# Set on tables over all versions, which are never pointed to a single one; the value is the format of the files.
ALL_VERSIONS = "lakeward.versions"
CREATED_AT_ONCE, DELETED_AT_ONCE = 100, 25
# Glue takes comments of columns up to this length.
_COMMENT_LENGTH = 255
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

    def point(self, name: str, location: str, manifest: Manifest, comments: Comments | None = None) -> None:
        """Point a table to a version with its partitions.

        Without partitions this is one call. With them it is one for each hundred partitions, and the table's own last:
        a query that is planned meanwhile can see some partitions of the new version and others of the former.

        Raises:
            ConfigurationError: the name is taken by a table that Lakeward did not create, or Glue refuses.
        """
        database, table = name.split(".")
        where = {**self._catalog, "DatabaseName": database}
        wanted = _table_input(table, location, manifest, comments or {})
        partitions = _partition_inputs(location, manifest)
        with s3_errors(f"glue://{name}"):
            present = self._find(database, table)
            if present is None:
                self._create_database(database)
                self._client.create_table(**where, TableInput=wanted)
                self._set_partitions(database, table, {}, partitions)
                return
            _require_own_table(name, present, manifest.table, manifest.lineage.mirror_uuid)
            known = self._partitions(database, table) if present.get("PartitionKeys") else {}
            if present.get("PartitionKeys", []) != wanted["PartitionKeys"]:
                self._drop_partitions(database, table, known)
                self._client.update_table(**where, TableInput=wanted, SkipArchive=True)
                self._set_partitions(database, table, {}, partitions)
                return
            self._set_partitions(database, table, known, partitions)
            self._drop_partitions(database, table, known.keys() - partitions.keys())
            self._client.update_table(**where, TableInput=wanted, SkipArchive=True)

    def forget(self, name: str, owner: str, mirror_uuid: str = "") -> None:
        """Remove a table that points to a version of ``owner``, without its files; any other stays."""
        database, table = name.split(".")
        with s3_errors(f"glue://{name}"):
            present = self._find(database, table)
            if present is not None and _is_for_one_version(present.get("Parameters", {}), owner, mirror_uuid):
                self._client.delete_table(**self._catalog, DatabaseName=database, Name=table)

    def location(self, name: str) -> str:
        """Return where a table that Lakeward created points to, empty where there is none."""
        with s3_errors(f"glue://{name}"):
            found = self._find(*name.split("."))
        if found is None or OWN_PARAMETER not in found.get("Parameters", {}):
            return ""
        return str(found["StorageDescriptor"]["Location"])

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

    def _partitions(self, database: str, table: str) -> dict[tuple[str, ...], Mapping[str, Any]]:
        """Return the partitions of a table by their values."""
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        pages = self._client.get_paginator("get_partitions").paginate(**where)
        return {tuple(partition["Values"]): partition for page in pages for partition in page["Partitions"]}

    def _drop_partitions(self, database: str, table: str, gone: Iterable[tuple[str, ...]]) -> None:
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        for chunk in chunks(sorted(gone), DELETED_AT_ONCE):
            deleted = [{"Values": [*each]} for each in chunk]
            answer = self._client.batch_delete_partition(**where, PartitionsToDelete=deleted)
            errors = [
                error
                for error in answer.get("Errors", [])
                if error.get("ErrorDetail", {}).get("ErrorCode") != "EntityNotFoundException"
            ]
            self._require_taken(database, table, {"Errors": errors})

    def _set_partitions(
        self,
        database: str,
        table: str,
        known: Mapping[tuple[str, ...], Any],
        wanted: Mapping[tuple[str, ...], Mapping[str, Any]],
    ) -> None:
        """Create the partitions that are not known, and point the others to their new place."""
        where = {**self._catalog, "DatabaseName": database, "TableName": table}
        for chunk in chunks([wanted[values] for values in sorted(wanted.keys() - known.keys())], CREATED_AT_ONCE):
            self._require_taken(database, table, self._client.batch_create_partition(**where, PartitionInputList=chunk))
        for chunk in chunks([wanted[values] for values in sorted(wanted.keys() & known.keys())], CREATED_AT_ONCE):
            entries = [{"PartitionValueList": each["Values"], "PartitionInput": each} for each in chunk]
            self._require_taken(database, table, self._client.batch_update_partition(**where, Entries=entries))

    def _require_taken(self, database: str, table: str, answer: Mapping[str, Any]) -> None:
        if refused := answer.get("Errors"):
            reason = refused[0].get("ErrorDetail", {}).get("ErrorMessage", "no reason given")
            msg = f"Glue refused {len(refused)} partitions of {database}.{table}: {reason}"
            raise ConfigurationError(msg, hint="check the rights of the role, then register again with --replace")


def _require_own_table(name: str, present: Mapping[str, Any], owner: str, mirror_uuid: str = "") -> None:
    parameters = present.get("Parameters", {})
    if ALL_VERSIONS in parameters:
        raise _holds_all(name)
    if reason := why_not_own(parameters, owner, mirror_uuid):
        msg = f"Glue's table {name} exists already and {reason}"
        raise ConfigurationError(msg, hint="--register ANOTHER.NAME, or another register: under publish:")


def why_not_own(properties: Mapping[str, str], owner: str, mirror_uuid: str) -> str | None:
    """Return why a table of a catalog does not belong to the table ``owner`` of this lake, None where it does."""
    found, mirror = properties.get(OWN_PROPERTY), properties.get(OWN_MIRROR)
    if found != owner:
        return "was not made by Lakeward" if found is None else f"belongs to {found}, not to {owner}"
    if mirror is None or not mirror_uuid or mirror == mirror_uuid:
        return None
    return f"belongs to another table of the name {owner}, made from {mirror}; this one is made from {mirror_uuid}"


def _is_for_one_version(properties: Mapping[str, str], owner: str, mirror_uuid: str) -> bool:
    """Whether a table was made for ``owner`` and points to one version, and is not over all of them."""
    return why_not_own(properties, owner, mirror_uuid) is None and ALL_VERSIONS not in properties


def _holds_all(name: str) -> ConfigurationError:
    msg = f"the table {name} holds all scheduled versions of a table, and cannot point to a single one"
    return ConfigurationError(msg, hint="--register ANOTHER.NAME, or another register: under publish: or snapshots:")


def _partition_inputs(location: str, manifest: Manifest) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the partitions of a version by their values."""
    if not manifest.folder_columns:
        return {}
    found: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for folder in sorted({path.rpartition("/")[0] for path in manifest.files}):
        values = tuple(unquote(part.rpartition("=")[2]) for part in folder.split("/"))
        found[values] = {"Values": [*values], "StorageDescriptor": storage_descriptor(f"{location}/{folder}", manifest)}
    return found


def chunks(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Yield values in groups of at most ``size``."""
    return (values[start : start + size] for start in range(0, len(values), size))


def _table_input(table: str, location: str, manifest: Manifest, comments: Comments) -> dict[str, Any]:
    types = {column.name: glue_type(column.lake_type, manifest) for column in manifest.columns}
    keys = {name: types[name] if name in manifest.shape.partition_by else "date" for name in manifest.folder_columns}
    has_header = manifest.format == "csv" and manifest.shape.header
    return {
        "Name": table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": manifest.format,
            OWN_PARAMETER: manifest.table,
            OWN_MIRROR: manifest.lineage.mirror_uuid,
            "lakeward.version": manifest.version,
            **({"skip.header.line.count": "1"} if has_header else {}),
        },
        "PartitionKeys": [_glue_column(name, kind, comments) for name, kind in keys.items()],
        "StorageDescriptor": storage_descriptor(location, manifest, comments),
    }


def storage_descriptor(location: str, manifest: Manifest, comments: Comments | None = None) -> dict[str, Any]:
    """Return Glue's description of the files in a folder of a version."""
    reads, writes, serde = _FORMATS[manifest.format]
    held = [column for column in manifest.columns if column.name not in manifest.folder_columns]
    return {
        "Columns": [
            _glue_column(lake_column.name, glue_type(lake_column.lake_type, manifest), comments or {})
            for lake_column in held
        ],
        "Location": for_glue(location),
        "InputFormat": reads,
        "OutputFormat": writes,
        "SerdeInfo": {"SerializationLibrary": serde},
    }


def _glue_column(name: str, kind: str, comments: Comments) -> dict[str, str]:
    comment = {"Comment": comments[name][:_COMMENT_LENGTH]} if name in comments else {}
    return {"Name": name, "Type": kind, **comment}


def glue_type(lake_type: str, manifest: Manifest) -> str:
    """Return the name of a type in Glue, for the files of a version."""
    # The reader of CSV that unquotes values reads dates and times as numbers only: as text they are what was written.
    return "string" if manifest.format == "csv" else _TYPES.get(lake_type, lake_type)


def for_glue(location: str) -> str:
    """Return a location as readers of Glue's catalog know it."""
    return location.replace("s3a://", "s3://", 1)


SESSION_CATALOG = "spark_catalog"
# Marks tables that Lakeward created: no other table is ever replaced.
OWN_PROPERTY = "lakeward.table"
_DEFINITION = "lakeward.definition"
# A table that is about to take another one's place.
_NEXT = "__next"
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


class Pointing(StrEnum):
    """The reason for which a registered table points to a version, named as users set it."""

    CURRENT = "publish: register:"
    SCHEDULE = "snapshots: register:"
    REQUEST = "snapshot create --register"


def require_free_name(context: TableContext, name: str, pointing: Pointing) -> None:
    """Refuse a registered table that points to versions of the same table for another reason.

    Each would turn it to its own versions in turn. A schedule may take over from versions that were requested.
    Catalogs do not distinguish case.

    Raises:
        ConfigurationError: names the other use.
    """
    metadata = context.mirror.find_metadata()
    for publication in list_publications(metadata) if metadata else ():
        other = _pointing_of(publication)
        is_taken_over = (other, pointing) == (Pointing.REQUEST, Pointing.SCHEDULE)
        if publication.registered.lower() == name.lower() and other is not pointing and not is_taken_over:
            msg = f"{context.table}: {pointing}: the table {name} points to versions of {other} already"
            raise ConfigurationError(msg, hint="use another name, or drop that: lakeward snapshot list, snapshot drop")


def _pointing_of(publication: Publication) -> Pointing:
    if publication.kind is PublicationKind.CURRENT:
        return Pointing.CURRENT
    return Pointing.SCHEDULE if publication.period is not None else Pointing.REQUEST


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


def register(context: TableContext, publication: Publication, comments: Comments | None = None) -> None:
    """Point the external table of a publication to it, with its partitions; other versions stay where they are.

    Raises:
        ConfigurationError: the name is taken by a table that Lakeward did not create.
    """
    store = open_filesystem(context.spark, context.config, publication.location)
    found = find_version(store, publication.location)
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            glue.point(publication.registered, publication.location, found.manifest, comments)
    else:
        _SessionTables(context).point(publication.registered, found, comments or {})
    context.reached(Step.PUBLISH_REGISTERED)


def unregister(context: TableContext, name: str, versions: Sequence[str] | None = None) -> None:
    """Remove the external table of a context's table, if Lakeward made it for that one; files stay.

    With the folders of ``versions``, only if it points to one of them or to one that was beside them.
    """
    if versions is not None and not _points_beside(context, name, versions):
        return
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            glue.forget(name, str(context.table), table_uuid(context))
    else:
        _SessionTables(context).forget(name)


def _points_beside(context: TableContext, name: str, versions: Sequence[str]) -> bool:
    found = _location_of(context, name).rstrip("/").rpartition("/")[0]
    roots = {version.rpartition("/")[0] for version in versions}
    return any(is_same_place(found, _address(context, root)) for root in roots) if found else False


def points_to(context: TableContext, name: str, location: str) -> bool:
    """Whether a table that Lakeward created points to a version."""
    found = _location_of(context, name)
    return bool(found) and is_same_place(found, _address(context, location))


def _location_of(context: TableContext, name: str) -> str:
    """Return where a table that Lakeward created points to, empty where there is none."""
    if catalog_kind(context.config) is CatalogKind.GLUE:
        with GlueTables.open(context.config) as glue:
            return glue.location(name)
    return _SessionTables(context).location(name)


def _address(context: TableContext, location: str) -> str:
    if catalog_kind(context.config) is CatalogKind.GLUE:
        return for_glue(location)
    return open_filesystem(context.spark, context.config, location).for_spark(location)


def renew_registration(context: TableContext, publication: Publication, former: str | None = None) -> None:
    """Renew a registered table after its version was rebuilt, if it still points to its present or ``former`` place."""
    if points_to(context, publication.registered, former or publication.location):
        register(context, publication)


class _SessionTables:
    """External tables of Spark's own catalog, which are permanent only in a Hive metastore."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._spark = context.spark

    def point(self, name: str, found: FoundVersion, comments: Comments) -> None:
        """Create the table, or point it to a version: in one step if it has no partitions and the same columns.

        Otherwise a second table is completed and then takes the first one's name: for a moment there is no table of
        that name, but never one with a part of the partitions.
        """
        full, next_full = session_name(name), session_name(f"{name}{_NEXT}")
        present = self._require_own(name, found.manifest)
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {SESSION_CATALOG}.{quote_name(name.partition('.')[0])}")
        if self._require_own(f"{name}{_NEXT}", found.manifest) is not None:
            self._spark.sql(f"DROP TABLE {next_full}")
        if present is None:
            self._create(full, found, comments)
        elif not found.manifest.folder_columns and present.get(_DEFINITION) == _definition(found, comments):
            location = sql_text(found.store.for_spark(found.folder))
            if OWN_MIRROR not in present:
                own = f"{sql_text(OWN_MIRROR)}={sql_text(found.manifest.lineage.mirror_uuid)}"
                self._spark.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ({own})")
            self._spark.sql(f"ALTER TABLE {full} SET LOCATION {location}")
        else:
            self._create(next_full, found, comments)
            self._spark.sql(f"DROP TABLE {full}")
            self._spark.sql(f"ALTER TABLE {next_full} RENAME TO {full.partition('.')[2]}")

    def forget(self, name: str) -> None:
        """Remove a table that points to a version of this context's table; any other stays."""
        present = self._properties(session_name(name))
        if present is not None and _is_for_one_version(present, str(self._context.table), table_uuid(self._context)):
            self._spark.sql(f"DROP TABLE {session_name(name)}")

    def _create(self, full: str, found: FoundVersion, comments: Comments) -> None:
        self._spark.sql(_create_sql(full, found, comments))
        if found.manifest.folder_columns:
            self._spark.sql(f"MSCK REPAIR TABLE {full}")

    def _require_own(self, name: str, manifest: Manifest) -> dict[str, str] | None:
        """Return the properties of a table that was made for the same table, None where there is none."""
        present = self._properties(session_name(name))
        if present is not None and ALL_VERSIONS in present:
            raise _holds_all(name)
        reason = why_not_own(present, manifest.table, manifest.lineage.mirror_uuid) if present is not None else None
        if reason is None:
            return present
        msg = f"{SESSION_CATALOG}.{name} exists already and {reason}"
        raise ConfigurationError(msg, hint="--register ANOTHER.NAME, or another register: under publish:")

    def location(self, name: str) -> str:
        """Return where a table that Lakeward created points to, empty where there is none."""
        full = session_name(name)
        present = self._properties(full)
        if present is None or OWN_PROPERTY not in present:
            return ""
        described = {row[0]: row[1] for row in self._spark.sql(f"DESCRIBE TABLE EXTENDED {full}").collect()}
        return str(described.get("Location", ""))

    def _properties(self, full: str) -> dict[str, str] | None:
        """Return the properties of a table by name, None where there is no such table."""
        # Checked first, because Spark logs a failed statement with pages of Java stack.
        if not self._spark.catalog.tableExists(full):
            return None
        return {row[0]: row[1] for row in self._spark.sql(f"SHOW TBLPROPERTIES {full}").collect()}


def is_same_place(left: str, right: str) -> bool:
    """Whether two URIs name the same folder: Spark writes ``file:/`` for ``file:///`` and adds a missing host."""
    (scheme, host, path), (other_scheme, other_host, other_path) = (_parts(uri) for uri in (left, right))
    return (scheme, path) == (other_scheme, other_path) and (host == other_host or not host or not other_host)


def _parts(uri: str) -> tuple[str, ...]:
    found = _URI.fullmatch(uri.rstrip("/"))
    return found.groups(default="") if found else ()


def session_name(name: str) -> str:
    """Return the quoted name of a table of the session's own catalog."""
    database, table = name.split(".")
    return f"{SESSION_CATALOG}.{quote_name(database)}.{quote_name(table)}"


def _create_sql(full: str, found: FoundVersion, comments: Comments) -> str:
    location = f"LOCATION {sql_text(found.store.for_spark(found.folder))}"
    properties = {
        OWN_PROPERTY: found.manifest.table,
        OWN_MIRROR: found.manifest.lineage.mirror_uuid,
        _DEFINITION: _definition(found, comments),
    }
    listed = ", ".join(f"{sql_text(key)}={sql_text(value)}" for key, value in properties.items())
    return f"CREATE TABLE {full} {_body_sql(found, comments)} {location} TBLPROPERTIES ({listed})"


def _body_sql(found: FoundVersion, comments: Comments) -> str:
    """Return the columns, format and partitions of a table over a version."""
    manifest = found.manifest
    columns = ", ".join(
        f"{quote_name(name)} {kind}" + (f" COMMENT {sql_text(comments[name])}" if name in comments else "")
        for name, kind in table_columns(manifest)
    )
    by = ", ".join(map(quote_name, manifest.folder_columns))
    given = reader_options(manifest.shape)
    options = (
        f" OPTIONS ({', '.join(f'{sql_text(key)} {sql_text(value)}' for key, value in given.items())})" if given else ""
    )
    return f"({columns}) USING {manifest.format}{options}{f' PARTITIONED BY ({by})' if by else ''}"


def _definition(found: FoundVersion, comments: Comments) -> str:
    """Return a hash of everything about a table but its location."""
    return blake2b(_body_sql(found, comments).encode(), digest_size=16).hexdigest()


def table_columns(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the columns of a table over a version's files, including that of the folders."""
    found = [(column.name, column.lake_type) for column in manifest.columns]
    is_extra = manifest.folder_column and manifest.folder_column != manifest.date_column
    return [*found, (manifest.folder_column, "date")] if is_extra else found


def sql_text(value: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
