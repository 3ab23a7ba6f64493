"""Snapshots with a manifest: published versions, and sets that a patch or an export wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from lakeward.diffing.changesets.manifest import KIND as CHANGE_SET
from lakeward.diffing.inputs.files import parse_type
from lakeward.diffing.inputs.folders import or_as_it_is
from lakeward.diffing.inputs.sides import FoundSet, Side
from lakeward.diffing.inputs.texts import TEXT_FORMATS, read_text_rows
from lakeward.errors import DataError, RefusedInputError
from lakeward.reading_back import json_object, refusing_damage
from lakeward.snapshots.versions.manifest import MANIFEST, SUCCESS
from lakeward.snapshots.versions.reading import find_version
from lakeward.storage.filesystem import read_parquet
from lakeward.storage.publish import not_as_written
from lakeward.storage.sets import SetLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.diffing.inputs.folders import Listing
    from lakeward.storage.filesystem import FileSystem

# What a version's manifest has and a set's has not.
_OF_VERSION = "lineage"


def manifest_side(
    spark: SparkSession, store: FileSystem, listing: Listing, label: str, *, incomplete_ok: bool | None
) -> Side | None:
    """Open a snapshot by its manifest; None where it is not whole and shall be taken as the plain files it has.

    Raises:
        RefusedInputError: the manifest is damaged, is of a change set, or lists files that are not as written.
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
        # Touched here, so that what is missing is told here.
        if document.get("kind") != CHANGE_SET:
            _ = (document["schema"], _files(document), int(document["rows"]))
    return document


def _files(document: Mapping[str, Any]) -> dict[str, int]:
    return {one["path"]: one["size"] for one in document["files"]}


def _version(spark: SparkSession, store: FileSystem, folder: str) -> DataFrame:
    try:
        return find_version(store, folder).read(spark)
    except DataError as error:
        raise RefusedInputError(error.message, hint=error.hint) from error


def _rows(spark: SparkSession, store: FileSystem, folder: str, document: Mapping[str, Any], format_: str) -> DataFrame:
    """Read the rows of a set or an export, by the types that its manifest has."""
    struct = T.StructType([T.StructField(one["name"], parse_type(spark, one["type"])) for one in document["schema"]])
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
    """Give what an export says of its table; the rows of each range tell nothing to others."""
    found = document.get("cassandra")
    return {name: value for name, value in found.items() if name != "ranges"} if found else None
