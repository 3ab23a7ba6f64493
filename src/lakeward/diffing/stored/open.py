"""Opening sides by their addresses: files, snapshots with a manifest, and tables of the lake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from lakeward.diffing.frames.refusals import input_errors
from lakeward.diffing.stored.addresses import AddressKind, FoundSet, IcebergState, Side, parse_address, snapshot_number
from lakeward.diffing.stored.changesets import KIND as CHANGE_SET
from lakeward.diffing.stored.files import SELF_DESCRIBING, parse_type, plain_files
from lakeward.diffing.stored.folders import FULL, Listing, choose, or_as_it_is, require_one
from lakeward.diffing.stored.rows import TEXT_FORMATS, read_text_rows
from lakeward.errors import ConfigurationError, DataError, RefusedInputError
from lakeward.iceberg.define import LAYOUT_PROPERTY
from lakeward.iceberg.metadata import MAIN
from lakeward.iceberg.table import IcebergTable
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.filesystem import (
    open_filesystem,
    read_parquet,
    task_filesystem,
)
from lakeward.storage.publish import not_as_written
from lakeward.storage.sets import SetLayout
from lakeward.text import json_object, reading_property, refusing_damage
from lakeward.views.versions.folders import find_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config import Config
    from lakeward.diffing.stored.addresses import Address
    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.spark.workspace import Workspace
    from lakeward.storage.filesystem import FileSystem


# Snapshots with a manifest: published versions, and sets that a patch or an export wrote.


# The field that only the manifest of a version has, not that of a set.
_OF_VERSION = "lineage"


def manifest_side(
    spark: SparkSession, store: FileSystem, listing: Listing, label: str, *, incomplete_ok: bool | None
) -> Side | None:
    """Open a snapshot by its manifest; return None where it is incomplete and to be read as plain files.

    Raises:
        RefusedInputError: the manifest is damaged, or of a change set, or lists files that are missing or damaged.
    """
    document = _read(store, listing.location)
    if document.get("kind") == CHANGE_SET:
        msg = f"{listing.location} is a change set, not a snapshot"
        into_cluster = f"lakeward cassandra apply {listing.location} --into KEYSPACE.TABLE"
        raise RefusedInputError(msg, hint=f"lakeward patch PAST {listing.location} --to PATH, or {into_cluster}")
    wrong = not_as_written(_files(document), listing.files)
    if incomplete_ok and (wrong or not listing.has(SUCCESS)):
        return None
    if wrong:
        msg = f"{listing.location}: {wrong}"
        raise RefusedInputError(msg, hint=f"write the snapshot again{or_as_it_is(incomplete_ok)}")
    if _OF_VERSION in document:
        frame, format_ = _version(spark, store, listing.location), str(document["format"])
    else:
        format_ = str(document.get("format", "parquet"))
        frame = _rows(spark, store, listing.location, document, format_)
    return _side(store, listing.location, document, label, frame, format_)


def _read(store: FileSystem, folder: str) -> dict[str, Any]:
    what = f"{folder}: its {MANIFEST}"
    with refusing_damage(what, hint="write the snapshot again", kind=RefusedInputError):
        document = json_object(store.read_text(f"{folder}/{MANIFEST}") or "")
        # Read here, so that a missing field is reported as damage.
        if document.get("kind") != CHANGE_SET:
            _ = (document["schema"], _files(document), int(document["rows"]))
    return document


def _files(document: Mapping[str, Any]) -> dict[str, int]:
    return {file["path"]: file["size"] for file in document["files"]}


def _version(spark: SparkSession, store: FileSystem, folder: str) -> DataFrame:
    try:
        return find_version(store, folder).read(spark)
    except DataError as error:
        raise RefusedInputError(error.message, hint=error.hint) from error


def _rows(spark: SparkSession, store: FileSystem, folder: str, document: Mapping[str, Any], format_: str) -> DataFrame:
    """Read the rows of a set or an export, by the types that its manifest has."""
    struct = T.StructType(
        [T.StructField(field["name"], parse_type(spark, field["type"])) for field in document["schema"]]
    )
    files = _files(document)
    if format_ in TEXT_FORMATS:
        return read_text_rows(spark, store, folder, files, struct, format_)
    return read_parquet(spark, store, folder, files, struct) if files else spark.createDataFrame([], struct)


def _side(
    store: FileSystem, folder: str, document: Mapping[str, Any], label: str, frame: DataFrame, format_: str
) -> Side:
    layout = SetLayout.from_dict(document["set"]) if document.get("set") else None
    checksum = layout.checksum if layout else document.get("checksum")
    identity = {
        "kind": "version" if _OF_VERSION in document else document.get("kind", "set"),
        "location": folder,
        "id": document.get("id"),
        "table": document.get("table"),
        "version": document.get("version"),
        "created": document.get("created"),
        "rows": document["rows"],
        "checksum": checksum,
        "cassandra": _exported_table(document),
    }
    return Side(
        label,
        frame,
        tuple(document.get("primary_key") or (layout.keys if layout else ())),
        set=FoundSet(store, folder, layout) if layout else None,
        rows=document["rows"],
        checksum=checksum,
        format=format_,
        identity={name: value for name, value in identity.items() if value is not None},
    )


def _exported_table(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the description of the exported table, without the ranges, which only the export itself needs."""
    found = document.get("cassandra")
    return {name: value for name, value in found.items() if name != "ranges"} if found else None


def open_side(
    spark: SparkSession,
    config: Config,
    address: str,
    *,
    schema: str | None = None,
    format: str | None = None,  # noqa: A002 - the word that the command uses
    incomplete_ok: bool | None = None,
    root: str | None = None,
    contexts: Callable[[str], TableContext] | None = None,
    workspace: Workspace | None = None,
) -> Side:
    """Open the side that an address names.

    Args:
        spark: a session that counts in UTC and takes column names exactly (``table_session``).
        config: how file systems are reached, and the lake.
        address: a path; ``PATH/latest``, ``PATH/previous``, ``PATH/2026-11-15``; ``iceberg:schema.table@…``;
            ``mirror:schema.table@MOMENT``.
        schema: columns of JSON and CSV files.
        format: the files' format, where their names do not show it.
        incomplete_ok: accept an unfinished snapshot; None: no, and no hint mentions the option.
        root: folder of snapshots for an address that is just ``latest`` or a date.
        contexts: returns a mirror's context by its name.
        workspace: keeps what a mirror as of a moment is computed from.

    Raises:
        ConfigurationError: the address, the schema or the format is missing or wrong.
        RefusedInputError: there is not exactly one complete snapshot.
    """
    parsed = parse_address(address, root)
    if parsed.kind is AddressKind.FILES:
        return _files_side(spark, config, address, parsed, schema, format, incomplete_ok=incomplete_ok)
    # Reading tables of the lake needs much that plain files do not.

    if parsed.kind is AddressKind.ICEBERG:
        return iceberg_side(spark, config, address, parsed)
    if contexts is None or workspace is None:
        msg = f"{address} needs the configuration of a lake"
        raise ConfigurationError(msg, hint="--config lakeward.yaml")
    return mirror_side(contexts(parsed.table), workspace, address, parsed)


def _files_side(
    spark: SparkSession,
    config: Config,
    label: str,
    address: Address,
    schema: str | None,
    format: str | None,  # noqa: A002
    *,
    incomplete_ok: bool | None,
) -> Side:
    location = address.location
    with input_errors(location):
        store = open_filesystem(spark, config, location)
        if address.chosen is not None:
            location = _chosen(store, location, address.chosen)
        listing = _listing(store, location)
    is_file = set(listing.files) == {""}
    if not is_file:
        require_one(listing, incomplete_ok=incomplete_ok)
        if listing.has(MANIFEST) and (side := manifest_side(spark, store, listing, label, incomplete_ok=incomplete_ok)):
            return side
    files = plain_files(store, location, listing.files if is_file else listing.data, format)
    identity = {
        "kind": "files",
        "location": location,
        "format": files.format,
        "files": len(files.sizes),
        "bytes": sum(files.sizes.values()),
        "complete": is_file or listing.has(SUCCESS),
    }
    frame = files.read(spark, schema)
    with input_errors(location):
        # Footers have the number of rows, so that these are not read.
        rows = frame.count() if files.format in SELF_DESCRIBING else None
    return Side(label, frame, rows=rows, format=files.format, identity=identity)


def _chosen(store: FileSystem, location: str, word: str) -> str:
    """Return the snapshot that a word such as ``latest`` selects, or a folder of that name if there is one."""
    literal = f"{location.rstrip('/')}/{word}"
    if store.exists(literal):
        # The recipe's first layout: beside the snapshot of a day is the change set that leads to it.
        whole = f"{literal}/{FULL}"
        return whole if store.exists(f"{whole}/{SUCCESS}") else literal
    if not store.exists(location):
        raise _nothing(location)
    return f"{location.rstrip('/')}/{choose(Listing(location, store.files(location)), word)}"


def _listing(store: FileSystem, location: str) -> Listing:
    """List a folder, or a single file."""
    if not store.exists(location):
        raise _nothing(location)
    return Listing(location, store.files(location))


def _nothing(location: str) -> RefusedInputError:
    return RefusedInputError(f"there is nothing at {location}", hint="check the path, which is relative to this folder")


# Tables of the lake as sides: at a snapshot, a tag or a time, and mirrors as of a moment of their source.


def iceberg_side(spark: SparkSession, config: Config, label: str, address: Address) -> Side:
    """Return a table of the lake as it was at a snapshot, with the columns that it had then.

    Raises:
        RefusedInputError: there is no such table, or it had no such state.
    """
    namespace, name = address.table.split(".")
    table = IcebergTable(spark, namespace, name)
    metadata = table.find_metadata()
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
    files = task_filesystem(config.s3, str(metadata.java.location()))
    return Side(label, frame, primary_key(metadata), iceberg=IcebergState(table, found.id, files), identity=identity)


def mirror_side(context: TableContext, workspace: Workspace, label: str, address: Address) -> Side:
    """Return a mirror's rows as of a moment of the source; the frame is valid as long as the workspace.

    Raises:
        ConfigurationError: the table's state at this moment cannot be computed.
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
    found = next((snapshot for snapshot in lineage if snapshot.committed_ms * 1000 <= micros), None)
    return _required(found, address, "no snapshot of that time, or no longer")


def parse_time(text: str, timezone: str) -> int:
    """Return a day's end or a time in microseconds since 1970.

    Raises:
        ConfigurationError: the text is neither.
    """
    moment = parse_moment(text, timezone)
    if moment.micros is None:
        msg = f"{text!r} is a moment of the source; a table of the lake is addressed by snapshot:ID, tag:NAME or a time"
        raise ConfigurationError(msg, hint="mirror:TABLE@… takes moments of the source")
    return moment.micros


def _required(found: Snapshot | None, address: Address, trouble: str) -> Snapshot:
    if found is None:
        msg = f"{address.table} has {trouble}"
        raise RefusedInputError(msg, hint=f"lakeward sql 'SELECT * FROM {address.table}.snapshots'")
    return found


def primary_key(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the key that a mirror was built with, or the identifier fields of any other Iceberg table."""
    layout = metadata.property(LAYOUT_PROPERTY)
    if layout is not None:
        with reading_property(LAYOUT_PROPERTY, of="mirror"):
            return tuple(json_object(layout)["primary_key"])
    names: Any = metadata.java.schema().identifierFieldNames()
    return tuple(sorted(str(name) for name in names.toArray()))
