"""From an address to a side: what lies there, whether it is whole, and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.diffing.inputs.addresses import AddressKind, parse_address
from lakeward.diffing.inputs.files import SELF_DESCRIBING, plain_files
from lakeward.diffing.inputs.folders import Listing, choose, require_one
from lakeward.diffing.inputs.manifests import manifest_side
from lakeward.diffing.inputs.sides import Side
from lakeward.diffing.refusals import input_errors
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.snapshots.versions.manifest import MANIFEST, SUCCESS
from lakeward.storage.filesystem import LocalFileSystem, local_path, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.diffing.inputs.addresses import Address
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.workspace import Workspace
    from lakeward.storage.filesystem import FileSystem


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
    """Open what an address names.

    Args:
        spark: a session that counts in UTC and takes column names exactly (``table_session``).
        config: how file systems are reached, and the lake.
        address: a path; ``PATH/latest``, ``PATH/previous``, ``PATH/2026-11-15``; ``iceberg:schema.table@…``;
            ``mirror:schema.table@MOMENT``.
        schema: columns of JSON and CSV files.
        format: the files' format, where their names do not tell it.
        incomplete_ok: take a snapshot that was not finished; None: no, and no hint speaks of it.
        root: folder of snapshots that a mere ``latest`` or date speaks of.
        contexts: gives a mirror's context by its name.
        workspace: keeps what a mirror as of a moment is computed from.

    Raises:
        ConfigurationError: the address, the schema or the format is missing or wrong.
        RefusedInputError: what lies there cannot be taken as one whole snapshot.
    """
    parsed = parse_address(address, root)
    if parsed.kind is AddressKind.FILES:
        return _files_side(spark, config, address, parsed, schema, format, incomplete_ok=incomplete_ok)
    # Reading tables of the lake needs much that plain files do not.
    from lakeward.diffing.inputs.lake import iceberg_side, mirror_side

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
        # Footers tell it without the rows being read.
        rows = frame.count() if files.format in SELF_DESCRIBING else None
    return Side(label, frame, rows=rows, format=files.format, identity=identity)


def _chosen(store: FileSystem, location: str, word: str) -> str:
    """Give the snapshot that a word stands for, or the folder that really has that name."""
    literal = f"{location.rstrip('/')}/{word}"
    if store.exists(literal):
        return literal
    if not store.exists(location):
        raise _nothing(location)
    return f"{location.rstrip('/')}/{choose(Listing(location, store.files(location)), word)}"


def _listing(store: FileSystem, location: str) -> Listing:
    """List a folder; a single file is listed under the empty name."""
    if not store.exists(location):
        raise _nothing(location)
    if isinstance(store, LocalFileSystem) and (file := local_path(location)).is_file():
        return Listing(location, {"": file.stat().st_size})
    return Listing(location, store.files(location))


def _nothing(location: str) -> RefusedInputError:
    return RefusedInputError(f"there is nothing at {location}", hint="check the path; local ones count from here")
