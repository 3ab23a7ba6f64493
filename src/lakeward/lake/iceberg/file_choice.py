"""Which files of a mirror are worth being rewritten.

The list of files comes to the driver, as Iceberg's own does for every query; the positions of deleted rows do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.lake.iceberg.table import IcebergTable

# Files up to this size are merged whatever the others are.
_TINY = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """A data or delete file; ``group`` names its partition, ``of`` the data file that a deletion vector belongs to."""

    path: str
    size: int
    rows: int
    group: str = ""
    of: str | None = None


@dataclass(frozen=True)
class Limits:
    """What makes a file worth it, and how many bytes at most are chosen at a time."""

    deleted_share: float
    file_bytes: int
    slice_bytes: int

    @property
    def at_a_time(self) -> int:
        """Bytes of a slice: two small files always fit in, as one alone would only be copied."""
        return max(self.slice_bytes, self.file_bytes)


@dataclass(frozen=True)
class Deleted:
    """How many rows of which data files are deleted, and by which delete files."""

    rows: Mapping[str, int] = field(default_factory=dict)
    by: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """Paths of data files to be rewritten and of delete files to be merged, with the bytes of both."""

    data: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()
    size: int = 0

    def __bool__(self) -> bool:
        return bool(self.data or self.deletes)


def choose_files(table: IcebergTable, base: Snapshot, limits: Limits) -> Chosen:
    """Look at a snapshot's files and choose the next slice of them."""
    data = _files(table, base, "data_files")
    deletes = _files(table, base, "delete_files") if int(base.summary.get("total-delete-files", 0)) else []
    # In format version 3 a data file has one deletion vector of its own, which goes with it.
    vectors = any(one.of for one in deletes)
    deleted = _by_vectors(deletes) if vectors else _by_positions(table, base) if deletes else Deleted()
    return choose(data, () if vectors else deletes, deleted, limits)


def choose(data: Iterable[StoredFile], deletes: Collection[StoredFile], deleted: Deleted, limits: Limits) -> Chosen:
    """Choose data files of which much is deleted or that are small, and the delete files that speak of them.

    Where there are none, delete files themselves are merged.
    """
    worn: list[StoredFile] = []
    others: list[StoredFile] = []
    for file in data:
        is_worn = deleted.rows.get(file.path, 0) >= limits.deleted_share * file.rows
        (worn if is_worn and file.path in deleted.rows else others).append(file)
    small = [file for file in others if file.size < limits.file_bytes // 2]
    chosen = _up_to([*sorted(worn, key=_by_size), *mergeable(small)], limits.at_a_time)
    if chosen:
        spoken = {path for file in chosen for path in deleted.by.get(file.path, ())}
        merged = [one for one in deletes if one.path in spoken]
    else:
        merged = _up_to(list(mergeable(deletes)), limits.at_a_time)
        merged = merged if len(merged) > 1 else []
    size = sum(one.size for one in (*chosen, *merged))
    return Chosen(frozenset(one.path for one in chosen), frozenset(one.path for one in merged), size)


def mergeable(files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Give the files of each partition that are worth being one: two at least.

    None is larger than all smaller ones together, unless it is tiny: a file is then rewritten few times in its life,
    however many come after it.
    """
    for _, found in groupby(sorted(files, key=lambda one: (one.group, *_by_size(one))), key=lambda one: one.group):
        group, total, last = list(found), 0, 0
        for number, file in enumerate(group, start=1):
            if file.size <= max(total, _TINY):
                last = number
            total += file.size
        if last >= 2:
            yield from group[:last]


def metadata_frame(table: IcebergTable, snapshot_id: int, name: str) -> DataFrame:
    """Read one of Iceberg's tables about a table, as of a snapshot."""
    return table.spark.read.option("versionAsOf", str(snapshot_id)).table(f"{table.identifier}.{name}")


def _files(table: IcebergTable, base: Snapshot, name: str) -> list[StoredFile]:
    frame = metadata_frame(table, base.id, name)
    values = F.to_json("partition", {"ignoreNullFields": "false"}) if "partition" in frame.columns else F.lit("")
    group = F.concat_ws(" ", F.col("spec_id").cast("string"), values)
    found = frame.select("file_path", "file_size_in_bytes", "record_count", group, "referenced_data_file")
    return [StoredFile(*row) for row in found.collect()]


def _by_vectors(vectors: Iterable[StoredFile]) -> Deleted:
    rows: dict[str, int] = {}
    for one in vectors:
        if one.of is not None:
            rows[one.of] = rows.get(one.of, 0) + one.rows
    return Deleted(rows)


def _by_positions(table: IcebergTable, base: Snapshot) -> Deleted:
    """Count the positions in delete files by the data file that they are of."""
    positions = metadata_frame(table, base.id, "position_deletes")
    counts = positions.groupBy("file_path", "delete_file_path").agg(F.count(F.lit(1)))
    rows: dict[str, int] = {}
    by: dict[str, set[str]] = {}
    for path, delete_file, count in counts.collect():
        rows[path] = rows.get(path, 0) + count
        by.setdefault(path, set()).add(delete_file)
    return Deleted(rows, {path: frozenset(files) for path, files in by.items()})


def _up_to(files: Sequence[StoredFile], size: int) -> list[StoredFile]:
    """Take files up to so many bytes; one at least, however large it is."""
    taken: list[StoredFile] = []
    total = 0
    for file in files:
        if taken and total + file.size > size:
            break
        taken.append(file)
        total += file.size
    return taken


def _by_size(file: StoredFile) -> tuple[int, str]:
    return (file.size, file.path)
