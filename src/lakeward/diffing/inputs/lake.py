"""Tables of the lake as sides: at a snapshot, a tag or a time, and mirrors as of a moment of their source."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.diffing.inputs.addresses import snapshot_number
from lakeward.diffing.inputs.sides import IcebergState, Side
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.lake.iceberg.define import LAYOUT_PROPERTY
from lakeward.lake.iceberg.metadata import MAIN
from lakeward.lake.iceberg.table import IcebergTable
from lakeward.pipeline.as_of import rows_as_of
from lakeward.pipeline.moments import parse_moment
from lakeward.reading_back import json_object, reading_property
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.diffing.inputs.addresses import Address
    from lakeward.lake.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.workspace import Workspace


def iceberg_side(spark: SparkSession, config: Config, label: str, address: Address) -> Side:
    """Give a table of the lake as it was at a snapshot, with the columns that it had then.

    Raises:
        RefusedInputError: there is no such table, or it had no such state.
    """
    namespace, name = address.table.split(".")
    table = IcebergTable(spark, namespace, name)
    metadata = table.look()
    if metadata is None:
        msg = f"the lake has no table {address.table}"
        raise RefusedInputError(msg, hint="lakeward status   (and --config for another lake)")
    found = _snapshot(metadata, address, config.timezone)
    frame = spark.read.option("versionAsOf", str(found.id)).table(table.identifier)
    identity = {
        "kind": "iceberg",
        "location": address.table,
        "table_uuid": str(metadata.java.uuid()),
        "snapshot": found.id,
        "created": datetime.fromtimestamp(found.committed_ms / 1000, UTC).isoformat(),
    }
    store = open_filesystem(spark, config, str(metadata.java.location()))
    return Side(label, frame, primary_key(metadata), iceberg=IcebergState(table, found.id, store), identity=identity)


def mirror_side(context: TableContext, workspace: Workspace, label: str, address: Address) -> Side:
    """Give a mirror's rows as of a moment of the source; the frame is valid as long as the workspace.

    Raises:
        ConfigurationError: the table cannot be asked for this moment.
    """
    moment = parse_moment(str(address.at), context.config.timezone)
    answer = rows_as_of(context, workspace, moment)
    identity = {
        "kind": "mirror",
        "location": address.table,
        "as_of": moment.label,
        "generation": answer.at.generation.number,
        "op": answer.op,
    }
    return Side(label, answer.rows, tuple(context.settings.primary_key), identity=identity)


def _snapshot(metadata: TableMetadata, address: Address, timezone: str) -> Snapshot:
    at = address.at
    if at is None:
        return _required(metadata.head(MAIN), address, "no snapshot yet")
    if (number := snapshot_number(at)) is not None:
        return _required(metadata.snapshots().get(number), address, f"no snapshot {number}, or no longer")
    if at.startswith("tag:"):
        name = at.removeprefix("tag:")
        known = ", ".join(sorted(metadata.tags())) or "none"
        return _required(metadata.head(name) if name in metadata.tags() else None, address, f"no tag {name}: {known}")
    return _at_time(metadata, address, parse_time(at, timezone))


def _at_time(metadata: TableMetadata, address: Address, micros: int) -> Snapshot:
    head = metadata.head(MAIN)
    lineage = metadata.lineage(head.id) if head else ()
    found = next((one for one in lineage if one.committed_ms * 1000 <= micros), None)
    return _required(found, address, "no snapshot of that time any more")


def parse_time(text: str, timezone: str) -> int:
    """Give a day's end or a time in microseconds since 1970.

    Raises:
        ConfigurationError: the text is neither.
    """
    moment = parse_moment(text, timezone)
    if moment.micros is None:
        msg = f"{text!r} is a moment of the source; a table of the lake is asked by snapshot:ID, tag:NAME or a time"
        raise ConfigurationError(msg, hint="mirror:TABLE@… asks by moments of the source")
    return moment.micros


def _required(found: Snapshot | None, address: Address, trouble: str) -> Snapshot:
    if found is None:
        msg = f"{address.table} has {trouble}"
        raise RefusedInputError(msg, hint=f"lakeward sql 'SELECT * FROM {address.table}.snapshots'")
    return found


def primary_key(metadata: TableMetadata) -> tuple[str, ...]:
    """Give the key that a mirror was built with, or what Iceberg knows as the identifier of a row."""
    layout = metadata.property(LAYOUT_PROPERTY)
    if layout is not None:
        with reading_property(LAYOUT_PROPERTY, of="mirror"):
            return tuple(json_object(layout)["primary_key"])
    names: Any = metadata.java.schema().identifierFieldNames()
    return tuple(sorted(str(one) for one in names.toArray()))
