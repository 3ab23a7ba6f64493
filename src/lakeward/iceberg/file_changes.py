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
    """A file of rows."""

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
# checksum. The bitmap consists of 32-bit bitmaps, each preceded by the upper half of its positions. Each of these
# consists of containers for 65,536 positions: a sorted array, a bitmap, or runs.


_MAGIC = b"\xd1\xd3\x39\x64"
_NO_RUNS, _WITH_RUNS = 12346, 12347
# A container with more positions than this is a bitmap of 8 KiB.
_DENSE, _BITMAP_BYTES = 4096, 8192
_FEW_CONTAINERS = 4


def vector_positions(blob: bytes) -> np.ndarray:
    """Return the positions of a deletion vector, in order.

    Raises:
        ValueError: the bytes are not a deletion vector.
    """
    (length,) = struct.unpack_from(">i", blob, 0)
    body = blob[4 : 4 + length]
    (checksum,) = struct.unpack_from(">I", blob, 4 + length)
    if body[:4] != _MAGIC or zlib.crc32(body) != checksum:
        msg = "the bytes are not a deletion vector, or a damaged one"
        raise ValueError(msg)
    (bitmaps,) = struct.unpack_from("<q", body, 4)
    at, found = 12, []
    for _ in range(bitmaps):
        (upper,) = struct.unpack_from("<I", body, at)
        at, lower = _bitmap(body, at + 4)
        found.append(lower + (np.int64(upper) << 32))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _bitmap(body: bytes, at: int) -> tuple[int, np.ndarray]:
    """Return the end of a 32-bit bitmap, and its positions."""
    (cookie,) = struct.unpack_from("<I", body, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = body[at : at + (count + 7) // 8]
        at += len(runs)
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", body, at)
        at += 4
    else:
        msg = f"a bitmap begins with {cookie}, which is unknown"
        raise ValueError(msg)
    headers = np.frombuffer(body, "<u2", 2 * count, at).astype(np.int64)
    at += 4 * count
    if not runs or count >= _FEW_CONTAINERS:
        # Skip the offsets of the containers, which are read one after the other.
        at += 4 * count
    found = []
    for number in range(count):
        key, size = int(headers[2 * number]), int(headers[2 * number + 1]) + 1
        is_run = bool(runs) and bool(runs[number // 8] >> (number % 8) & 1)
        at, values = _container(body, at, size, is_run=is_run)
        found.append(values + (key << 16))
    return at, np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _container(body: bytes, at: int, size: int, *, is_run: bool) -> tuple[int, np.ndarray]:
    if is_run:
        (count,) = struct.unpack_from("<H", body, at)
        pairs = np.frombuffer(body, "<u2", 2 * count, at + 2).astype(np.int64)
        spans = [np.arange(first, first + more + 1) for first, more in zip(pairs[::2], pairs[1::2], strict=True)]
        return at + 2 + 4 * count, np.concatenate(spans)
    if size > _DENSE:
        bits = np.unpackbits(np.frombuffer(body, np.uint8, _BITMAP_BYTES, at), bitorder="little")
        return at + _BITMAP_BYTES, np.flatnonzero(bits).astype(np.int64)
    return at + 2 * size, np.frombuffer(body, "<u2", size, at).astype(np.int64)
