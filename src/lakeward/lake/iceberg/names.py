"""Columns that get another name, or go, in every schema that a table has had: rows are neither read nor written.

Iceberg reads a snapshot of the past under the schema of its day. Where that schema has a name that Iceberg cannot read,
renaming the column of today leaves the past unreadable, load branches included; so it is renamed there too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakeward.column_names import UNREADABLE_NAMES
from lakeward.errors import ConfigurationError
from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakeward.lake.iceberg.table import IcebergTable


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
