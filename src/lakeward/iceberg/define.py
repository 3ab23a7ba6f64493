"""Creating and evolving the two tables that Lakeward keeps per source table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward import schemas as S
from lakeward.columns import UNREADABLE_NAMES, Column, quote_name
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.iceberg.metadata import MAIN
from lakeward.iceberg.partitions import partition_sql
from lakeward.iceberg.table import CATALOG, IcebergTable
from lakeward.model import CHANGELOG_SUFFIX, HISTORY_SUFFIX
from lakeward.session.catalog import CATALOG_KEY, CUT_OFF_SIGNS, S3_FILE_IO
from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakeward.model import TableId


APPLIED_STAMP = "lakeward.applied-op"
LOGGED_STAMP = "lakeward.op"
# Bad rows that wait for a decision once the op that stamps it is logged.
BAD_ROWS_STAMP = "lakeward.bad-rows"
# The generation that the mirror shows, and the latest commit time in it, in microseconds since 1970.
GENERATION_STAMP = "lakeward.generation"
COMMIT_STAMP = "lakeward.newest-commit"
# The op whose load rows a load branch received last.
LOAD_STAMP = "lakeward.load-op"
# The newest op that corrected rows of the mirror itself: what is older than it may be wrong.
REPAIRED_STAMP = "lakeward.repaired-op"
SETTINGS_PROPERTY = "lakeward.settings"
LAYOUT_PROPERTY = "lakeward.layout"
# The settings by which its files were read last.
READING_PROPERTY = "lakeward.reading"
EMPTY_TAG = "lakeward-empty"

_COMMON = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.spark.fanout.enabled": "true",
    # Column statistics for every column of narrow tables are cheap; keys must have them to prune files.
    "write.metadata.metrics.max-inferred-column-defaults": "200",
}
_MIRROR = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.granularity": "partition",
    # Iceberg weighs a file by its delete files times this: with the default a scan falls apart into one task per file.
    "read.split.open-file-cost": str(256 << 10),
    # Positions of a batch's deletes are few: gathered, they are one delete file, which every later scan must read.
    "write.delete.distribution-mode": "hash",
}


def mirror_of(spark: SparkSession, table: TableId) -> IcebergTable:
    """The table's mirror: the source's rows as they are now."""
    return IcebergTable(spark, table.schema, table.name)


def changelog_of(spark: SparkSession, table: TableId, renames: Mapping[str, str] | None = None) -> IcebergTable:
    """The table's changelog: every change and every op. ``renames`` are the declared ones, for reading changes."""
    return IcebergTable(spark, table.schema + CHANGELOG_SUFFIX, table.name, renames=renames)


def history_of(spark: SparkSession, table: TableId) -> IcebergTable:
    """The table's history, where one is kept: every version of every row."""
    return IcebergTable(spark, table.schema + HISTORY_SUFFIX, table.name)


def create_mirror(
    mirror: IcebergTable, columns: Iterable[Column], *, partition_by: Sequence[str], format_version: int
) -> None:
    """Create an empty mirror whose first snapshot is kept as the start of every load branch."""
    columns = tuple(columns)
    names = [column.name for column in columns]
    partitions = [partition_sql(expression, names) for expression in partition_by]
    distribution = {"write.distribution-mode": "hash" if partitions else "none"}
    properties = {**_COMMON, **_MIRROR, **distribution, "format-version": str(format_version)}
    _create(mirror, _column_sql(columns), partitions, properties)
    _first_snapshot(mirror, {APPLIED_STAMP: "0"})


def create_history(history: IcebergTable, columns: Iterable[Column], *, format_version: int) -> None:
    """Create an empty history; versions of changed keys are replaced in it as rows are in a mirror."""
    properties = {**_COMMON, **_MIRROR, "write.distribution-mode": "none", "format-version": str(format_version)}
    _create(history, _column_sql(columns), (), properties)
    _first_snapshot(history, {})


def create_changelog(changelog: IcebergTable, columns: Iterable[Column]) -> None:
    """Create an empty changelog.

    It is not partitioned: an op is one data file, and the columns that ledger and quarantine read are almost empty
    for changes.
    """
    own = ", ".join(
        f"{quote_name(field.name)} {field.dataType.simpleString()}" for field in (*S.OP_FIELDS, *S.RECORD_FIELDS)
    )
    properties = {**_COMMON, "write.distribution-mode": "none", "format-version": "2"}
    _create(changelog, f"{own}, {_column_sql(columns)}", (), properties)
    _first_snapshot(changelog, {LOGGED_STAMP: "0"})


def is_complete(table: IcebergTable) -> bool:
    """Return whether the table exists with its first snapshot; a crash may have come in between."""
    metadata = table.look()
    return metadata is not None and metadata.head(EMPTY_TAG) is not None


def empty_snapshot(table: IcebergTable) -> int:
    """The table's first, empty snapshot."""
    return table.require_head(EMPTY_TAG).id


def evolve(table: IcebergTable, wanted: Sequence[Column], *, renames: Mapping[str, str]) -> None:
    """Add, widen and rename columns in one commit. The caller has checked that each change is safe."""
    present = {column.name: column for column in table.columns()}
    statements: list[tuple[str, str, str]] = []
    for column in wanted:
        old = next((before for before, after in renames.items() if after == column.name and before in present), None)
        if column.name not in present and old is not None:
            statements.append(("RENAME", old, column.name))
            present[column.name] = present.pop(old)
        if column.name not in present:
            statements.append(("ADD", column.name, column.lake_type))
        elif present[column.name].type != column.lake_type:
            statements.append(("ALTER", column.name, column.lake_type))
    with commit_errors(table.identifier):
        for verb, name, argument in statements:
            table.spark.sql(_evolution_sql(table, verb, name, argument))


def _evolution_sql(table: IcebergTable, verb: str, name: str, argument: str) -> str:
    quoted = quote_name(name)
    if verb == "ADD":
        return f"ALTER TABLE {table.identifier} ADD COLUMN {quoted} {argument}"
    if verb == "RENAME":
        return f"ALTER TABLE {table.identifier} RENAME COLUMN {quoted} TO {quote_name(argument)}"
    return f"ALTER TABLE {table.identifier} ALTER COLUMN {quoted} TYPE {argument}"


def _column_sql(columns: Iterable[Column]) -> str:
    return ", ".join(f"{quote_name(column.name)} {column.lake_type}" for column in columns)


def _create(table: IcebergTable, columns: str, partitions: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create the table unless it is there.

    Raises:
        ConflictError: another writer creates the namespace or the table at this moment.
    """
    _require_whole_location(table)
    options = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    partitioned = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    created = f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING iceberg{partitioned}"
    _create_namespace(table)
    with commit_errors(table.identifier):
        table.spark.sql(f"{created} TBLPROPERTIES ({options})")


def _require_whole_location(table: IcebergTable) -> None:
    """Refuse a name that the lake's files in S3 cannot have in their path.

    Iceberg's client for S3 takes what follows for a query or a fragment: all files of the table would be one object.
    """
    conf = table.spark.conf
    is_s3 = (
        S3_FILE_IO in (conf.get(f"{CATALOG_KEY}.io-impl", "") or "") or conf.get(f"{CATALOG_KEY}.type", "") == "rest"
    )
    if is_s3 and any(sign in table.namespace + table.name for sign in CUT_OFF_SIGNS):
        msg = f"{table.identifier} cannot be kept in S3: Iceberg cuts the path of its files off at '?' and '#'"
        raise ConfigurationError(msg, hint="declare the table under another name, and set its path: to the folder")


def _create_namespace(table: IcebergTable) -> None:
    """Create the namespace unless it is there; tables of one schema that are new in one run all want to."""
    create = f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{quote_name(table.namespace)}"
    try:
        with commit_errors(table.identifier):
            table.spark.sql(create)
    except ConflictError:
        # Another made it between Spark's look and its creation: the second look finds it.
        with commit_errors(table.identifier):
            table.spark.sql(create)


def _first_snapshot(table: IcebergTable, stamps: Mapping[str, str]) -> None:
    """Give a new table an empty, tagged snapshot: branches need one to start from."""
    if table.head() is None:
        table.commit_empty(MAIN, stamps)
    if EMPTY_TAG not in table.branches():
        first = table.require_head().id
        table.create_tag(EMPTY_TAG, first)


# Columns that get another name, or go, in every schema that a table has had: rows are neither read nor written.
# Iceberg reads a snapshot of the past under the schema of its day. Where that schema has a name that Iceberg cannot
# read, renaming the column of today leaves the past unreadable, load branches included; so it is renamed there too.


def rename_everywhere(table: IcebergTable, renames: Mapping[str, str], drops: Collection[str] = ()) -> None:
    """Rename columns of today in all schemas, and drop others from today's schema alone.

    What the table does not have is passed over, so that a second call after a crash completes the first.

    Raises:
        ConfigurationError: a REST catalog, which takes changes of today's schema only, and names that cannot be read.
        ConflictError: another writer committed first.
    """
    java = table.load()
    names = {field.name() for field in java.schema().columns()}
    renames = {old: new for old, new in renames.items() if old in names and new not in names}
    if renames and not _keeps_schemas(java):
        _rename_in_metadata(table, java, renames)
        java, renames = table.load(), {}
    elif UNREADABLE_NAMES & renames.keys():
        raise _unreadable_past(table)
    with commit_errors(table.identifier):
        update = java.updateSchema()
        for old, new in renames.items():
            update.renameColumn(old, new)
        for name in names & set(drops):
            update.deleteColumn(name)
        update.commit()


def _keeps_schemas(java: Any) -> bool:
    """Whether the table's catalog builds the metadata itself, out of changes that it is sent."""
    return bool(java.operations().getClass().getSimpleName() == "RESTTableOperations")


def _rename_in_metadata(table: IcebergTable, java: Any, renames: Mapping[str, str]) -> None:
    """Commit metadata in which the fields have their new names in all schemas; field ids, which data uses, stay."""
    operations = java.operations()
    base = operations.current()
    parser = table.jvm.org.apache.iceberg.TableMetadataParser
    document = json.loads(parser.toJson(base))
    by_id = {field.fieldId(): renames[field.name()] for field in java.schema().columns() if field.name() in renames}
    for schema in document["schemas"]:
        for field in schema["fields"]:
            field["name"] = by_id.get(field["id"], field["name"])
    log = {"timestamp-ms": base.lastUpdatedMillis(), "metadata-file": base.metadataFileLocation()}
    document["metadata-log"] = [*document.get("metadata-log", ()), log]
    with commit_errors(table.identifier):
        operations.commit(base, parser.fromJson(json.dumps(document)))


def _unreadable_past(table: IcebergTable) -> ConfigurationError:
    msg = (
        f"{table.identifier} cannot be repaired in a REST catalog: it keeps the schemas of earlier snapshots as they "
        "are, and those have names that Iceberg does not read"
    )
    hint = "drop the table's mirror and changelog and run again: both are then built anew from the landing files"
    return ConfigurationError(msg, hint=hint)
