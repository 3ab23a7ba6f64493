"""Creating and evolving the Iceberg tables that Lakeward keeps per source table: mirror, changelog and history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward import schemas as S
from lakeward.columns import UNREADABLE_NAMES, Column, quote_name
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.iceberg.metadata import EMPTY_TAG, MAIN
from lakeward.iceberg.partitions import partition_sql
from lakeward.iceberg.table import CATALOG, IcebergTable
from lakeward.model import CHANGELOG_SUFFIX, HISTORY_SUFFIX
from lakeward.session.catalog import CATALOG_KEY, CUT_OFF_CHARACTERS, S3_FILE_IO
from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakeward.model import TableId


APPLIED_STAMP = "lakeward.applied-op"
LOGGED_STAMP = "lakeward.op"
# The number of bad rows that wait for a decision after the op with this stamp.
BAD_ROWS_STAMP = "lakeward.bad-rows"
# The generation that the mirror shows, and the latest commit time in it, in microseconds since 1970.
GENERATION_STAMP = "lakeward.generation"
COMMIT_STAMP = "lakeward.newest-commit"
# The op whose load rows a load branch received last.
LOAD_STAMP = "lakeward.load-op"
# The newest op that repaired rows of the mirror itself: older states may be wrong.
REPAIRED_STAMP = "lakeward.repaired-op"
SETTINGS_PROPERTY = "lakeward.settings"
LAYOUT_PROPERTY = "lakeward.layout"
# The settings with which the table's files were read last.
READING_PROPERTY = "lakeward.reading"
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
    # A file weighs at least this for itself and for each delete file: with the default, a scan has one task per file.
    "read.split.open-file-cost": str(256 << 10),
    # A batch deletes few positions: gathered, they make a single delete file for later scans to read.
    "write.delete.distribution-mode": "hash",
}


def mirror_of(spark: SparkSession, table: TableId) -> IcebergTable:
    """Return the table's mirror: the source's rows as they are now."""
    return IcebergTable(spark, table.schema, table.name)


def changelog_of(spark: SparkSession, table: TableId, renames: Mapping[str, str] | None = None) -> IcebergTable:
    """Return the table's changelog: every change and every op. ``renames`` are the declared ones, for reading."""
    return IcebergTable(spark, table.schema + CHANGELOG_SUFFIX, table.name, renames=renames)


def history_of(spark: SparkSession, table: TableId) -> IcebergTable:
    """Return the table's history, where one is kept: every version of every row."""
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

    It is not partitioned: an op is one data file, and the columns for ledger and quarantine are almost empty in change
    rows.
    """
    own = ", ".join(
        f"{quote_name(field.name)} {field.dataType.simpleString()}" for field in (*S.OP_FIELDS, *S.RECORD_FIELDS)
    )
    properties = {**_COMMON, "write.distribution-mode": "none", "format-version": "2"}
    _create(changelog, f"{own}, {_column_sql(columns)}", (), properties)
    _first_snapshot(changelog, {LOGGED_STAMP: "0"})


def is_complete(table: IcebergTable) -> bool:
    """Whether the table exists with its first snapshot; a crash may have prevented that."""
    metadata = table.find_metadata()
    return metadata is not None and metadata.head(EMPTY_TAG) is not None


def empty_snapshot(table: IcebergTable) -> int:
    """Return the id of the table's first, empty snapshot."""
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
    """Create the table unless it exists.

    Raises:
        ConflictError: another writer creates the namespace or the table at the same time.
    """
    _require_whole_location(table)
    options = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    partitioned = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    created = f"CREATE TABLE IF NOT EXISTS {table.identifier} ({columns}) USING iceberg{partitioned}"
    _create_namespace(table)
    with commit_errors(table.identifier):
        table.spark.sql(f"{created} TBLPROPERTIES ({options})")


def _require_whole_location(table: IcebergTable) -> None:
    """Refuse a name that cannot be part of a path in S3.

    Iceberg's S3 client treats ``?`` and ``#`` as the start of a query or fragment: all files of the table would be
    the same object.

    Raises:
        ConfigurationError: the name contains such a character.
    """
    conf = table.spark.conf
    is_s3 = (
        S3_FILE_IO in (conf.get(f"{CATALOG_KEY}.io-impl", "") or "") or conf.get(f"{CATALOG_KEY}.type", "") == "rest"
    )
    if is_s3 and any(character in table.namespace + table.name for character in CUT_OFF_CHARACTERS):
        msg = f"{table.identifier} cannot be kept in S3: Iceberg cuts the path of its files off at '?' and '#'"
        raise ConfigurationError(msg, hint="declare the table under another name, and set its path: to the folder")


def _create_namespace(table: IcebergTable) -> None:
    """Create the namespace unless it exists; new tables of the same schema may do so at the same time."""
    create = f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{quote_name(table.namespace)}"
    try:
        with commit_errors(table.identifier):
            table.spark.sql(create)
    except ConflictError:
        # Another writer created it between Spark's check and its creation: the second check finds it.
        with commit_errors(table.identifier):
            table.spark.sql(create)


def rename_table(table: IcebergTable, to: IcebergTable) -> None:
    """Rename a table in the catalog; its files stay where they are."""
    _create_namespace(to)
    with commit_errors(table.identifier):
        name = ".".join(quote_name(part) for part in (to.namespace, to.name))
        table.spark.sql(f"ALTER TABLE {table.identifier} RENAME TO {name}")


def _first_snapshot(table: IcebergTable, stamps: Mapping[str, str]) -> None:
    """Add an empty, tagged snapshot to a new table: branches need one to start from."""
    if table.head() is None:
        table.commit_empty(MAIN, stamps)
    if EMPTY_TAG not in table.branches():
        first = table.require_head().id
        table.create_tag(EMPTY_TAG, first)


# Renaming columns in every schema that a table has had. Rows are neither read nor written.
# Iceberg reads an old snapshot under the schema of that time. Where that schema has a name that Iceberg cannot read,
# renaming only the current column leaves old snapshots unreadable, including load branches.


def rename_everywhere(table: IcebergTable, renames: Mapping[str, str], drops: Collection[str] = ()) -> None:
    """Rename current columns in all schemas, and drop others from the current schema only.

    Columns that the table does not have are ignored, so that a second call after a crash completes the first.

    Raises:
        ConfigurationError: unreadable names in a REST catalog, which accepts changes of the current schema only.
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
    """Whether the table's catalog builds the metadata itself, from the changes sent to it."""
    return bool(java.operations().getClass().getSimpleName() == "RESTTableOperations")


def _rename_in_metadata(table: IcebergTable, java: Any, renames: Mapping[str, str]) -> None:
    """Commit metadata with the new field names in all schemas; field ids, which the data uses, stay the same."""
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
    hint = "drop the table's mirror and changelog and run again: both are then rebuilt from the landing files"
    return ConfigurationError(msg, hint=hint)
