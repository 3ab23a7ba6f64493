"""Reading a published version: all of it and nothing else, or an error that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import DataError
from lakeward.snapshots.versions.files import VERSION_PREFIX
from lakeward.snapshots.versions.layouts import read_files
from lakeward.snapshots.versions.manifest import MANIFEST, SUCCESS, Manifest, read_manifest
from lakeward.storage.claims import SET_ASIDE
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.publish import not_as_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config import Config
    from lakeward.storage.filesystem import FileSystem


@dataclass(frozen=True)
class FoundVersion:
    """A complete version: its folder, its manifest and the file system it lies on."""

    store: FileSystem
    folder: str
    manifest: Manifest

    def read(self, spark: SparkSession) -> DataFrame:
        """Read its rows in the table's column order."""
        found = self.manifest
        return read_files(spark, self.store, self.folder, sorted(found.files), found.columns, found.shape)


def read_version(spark: SparkSession, config: Config, location: str) -> DataFrame:
    """Read the version in a folder.

    Raises:
        DataError: there is no complete version, or more than one below the folder.
    """
    return find_version(open_filesystem(spark, config, location), location).read(spark)


def find_version(store: FileSystem, location: str) -> FoundVersion:
    """Find the version in a folder and hold its files against its manifest.

    Raises:
        DataError: the folder holds no version or several, or what it lists is missing or of another size.
    """
    folder = _readable(store, location.rstrip("/"))
    text = store.read_text(f"{folder}/{MANIFEST}")
    if text is None:
        raise _no_version(store, location, folder)
    manifest = read_manifest(text, folder)
    present = store.files(folder)
    if SUCCESS not in present:
        msg = f"{folder} has no {SUCCESS}: it was not finished"
        raise DataError(msg, hint="lakeward snapshot create … --replace")
    if wrong := not_as_written(manifest.files, present):
        msg = f"{folder}: {wrong}"
        raise DataError(msg, hint=f"lakeward snapshot refresh {manifest.table} --version {manifest.version}")
    return FoundVersion(store, folder, manifest)


def _readable(store: FileSystem, folder: str) -> str:
    """Give the folder, or the former version that an interrupted replacement has put aside."""
    parent, _, name = folder.rpartition("/")
    if not name.startswith(VERSION_PREFIX) or not store.can_rename or store.exists(folder):
        return folder
    aside = [one for one in store.folders(parent) if one.startswith(f"{SET_ASIDE}{name}@")]
    return f"{parent}/{aside[0]}" if aside else folder


def _no_version(store: FileSystem, location: str, folder: str) -> DataError:
    """Say what is there instead: reading several versions as one would mix them."""
    below = [one for one in store.folders(folder) if not one.startswith((".", "_"))]
    versions = [one for one in below if one.startswith(VERSION_PREFIX)] or [
        f"{one}/{inner}" for one in below for inner in store.folders(f"{folder}/{one}") if VERSION_PREFIX in inner
    ]
    if versions:
        msg = f"{location} is not one version but holds {len(versions)}: {', '.join(versions[:20])}"
        return DataError(msg, hint=f"read {folder}/{versions[-1]}")
    if store.exists(folder):
        msg = f"{location} has no {MANIFEST}: it is no version, only a part of one, or was not finished"
        return DataError(msg, hint="lakeward snapshot list")
    return DataError(f"there is nothing at {location}", hint="lakeward snapshot list")
