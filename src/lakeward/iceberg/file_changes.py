"""The files that two snapshots of a table do not share, and the deletion vectors in such files.

Manifests are immutable: one that both snapshots list has the same files for both and is not read. So the cost depends
on what was written between the two snapshots, not on the size of the table.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64

from lakeward.iceberg.metadata import each_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable


_EQUALITY = "EQUALITY_DELETES"
_DATA = "DATA"


@dataclass(frozen=True)
class DataFile:
    """A data file."""

    path: str
    size: int
    rows: int
    format: str


@dataclass(frozen=True)
class DeleteFile:
    """A file of deleted positions, or the deletion vector of one data file (``of``) within a file."""

    path: str
    rows: int
    is_equality: bool
    offset: int | None = None
    of: str | None = None
    length: int | None = None


@dataclass(frozen=True)
class OneSided:
    """Live files that only one of two snapshots has."""

    data: frozenset[DataFile]
    deletes: frozenset[DeleteFile]

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the data files."""
        return frozenset(file.path for file in self.data)

    @property
    def delete_paths(self) -> frozenset[str]:
        """Paths of the delete files."""
        return frozenset(file.path for file in self.deletes)


@dataclass(frozen=True)
class FileChanges:
    """The files that only the left or only the right of two snapshots has."""

    left: OneSided
    right: OneSided

    @property
    def has_equality_deletes(self) -> bool:
        """Whether rows were deleted by their values: finding them needs a scan of the whole table."""
        return any(file.is_equality for file in (*self.left.deletes, *self.right.deletes))


def file_changes(spark: SparkSession, metadata: TableMetadata, left_id: int, right_id: int) -> FileChanges:
    """Compare the files of two snapshots of a table; neither needs to be an ancestor of the other."""
    jvm: Any = spark._jvm
    java, readers = metadata.java, jvm.org.apache.iceberg.ManifestFiles
    left, right = (_manifests(java, snapshot_id) for snapshot_id in (left_id, right_id))
    data, deletes = (
        [_files(java, readers, own, other, is_data=kind) for own, other in ((left, right), (right, left))]
        for kind in (True, False)
    )
    return FileChanges(
        OneSided(frozenset(data[0] - data[1]), frozenset(deletes[0] - deletes[1])),
        OneSided(frozenset(data[1] - data[0]), frozenset(deletes[1] - deletes[0])),
    )


def live_files(table: IcebergTable, snapshot_id: int) -> set[str]:
    """Return the paths of all data files of a snapshot."""
    tasks = table.load().newScan().useSnapshot(snapshot_id).planFiles()
    return {str(task.file().location()) for task in each_of(tasks)}


def _manifests(java: Any, snapshot_id: int) -> dict[str, tuple[Any, bool]]:
    """Return a snapshot's manifests by path, each with whether it lists data files."""
    found = java.snapshot(snapshot_id).allManifests(java.io()).toArray()
    return {str(manifest.path()): (manifest, str(manifest.content().toString()) == _DATA) for manifest in found}


def _files(
    java: Any, readers: Any, own: dict[str, tuple[Any, bool]], other: dict[str, tuple[Any, bool]], *, is_data: bool
) -> set[Any]:
    files: set[Any] = set()
    for path, (manifest, of_data) in own.items():
        if path not in other and of_data is is_data:
            files.update(_data_files(java, readers, manifest) if is_data else _delete_files(java, readers, manifest))
    return files


def _data_files(java: Any, readers: Any, manifest: Any) -> Iterator[DataFile]:
    for file in each_of(readers.read(manifest, java.io(), java.specs())):
        location, form = str(file.location()), str(file.format().toString()).lower()
        yield DataFile(location, int(file.fileSizeInBytes()), int(file.recordCount()), form)


def _delete_files(java: Any, readers: Any, manifest: Any) -> Iterator[DeleteFile]:
    for file in each_of(readers.readDeleteManifest(manifest, java.io(), java.specs())):
        offset, of, length = file.contentOffset(), file.referencedDataFile(), file.contentSizeInBytes()
        is_equality = str(file.content().toString()) == _EQUALITY
        yield DeleteFile(
            str(file.location()),
            int(file.recordCount()),
            is_equality,
            None if offset is None else int(offset),
            None if of is None else str(of),
            None if length is None else int(length),
        )


# Deletion vectors of Iceberg's format version 3, read in Python because a Python task has no JVM.
# A vector is a blob in a Puffin file: its length, a magic number, a 64-bit Roaring bitmap in the portable form, a
# checksum.


_MAGIC = b"\xd1\xd3\x39\x64"


def vector_positions(blob: bytes) -> np.ndarray:
    """Return the positions of a deletion vector, in order.

    Raises:
        ValueError: the bytes are not a deletion vector, or a damaged one.
    """
    (length,) = struct.unpack_from(">i", blob, 0)
    body = blob[4 : 4 + length]
    (checksum,) = struct.unpack_from(">I", blob, 4 + length)
    if body[:4] != _MAGIC or zlib.crc32(body) != checksum:
        msg = "the deletion vector is damaged: its magic number or its checksum is wrong"
        raise ValueError(msg)
    return np.frombuffer(BitMap64.deserialize(body[4:]).to_array(), np.uint64).astype(np.int64)
