"""Rewriting files of a table: what it would save, which files to choose, and the rewrite itself."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F

from lakeward.documents import Document
from lakeward.iceberg.metadata import each_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.iceberg.table import IcebergTable


@dataclass(frozen=True)
class Debt(Document):
    """The debt that merge-on-read and small commits leave for maintenance: files, deleted rows and snapshots.

    ``deleted_share`` is the share of the stored rows that every reader reads and discards. ``average_file_bytes``
    includes data and delete files.
    """

    data_files: int = 0
    delete_files: int = 0
    deleted_rows: int = 0
    deleted_share: float = 0.0
    average_file_bytes: int = 0
    snapshots: int = 0


def debt_of(table: TableMetadata) -> Debt:
    """Return a table's debt at the head of ``main``, from metadata alone."""
    head = table.head()
    summary = head.summary if head else {}

    def total(name: str) -> int:
        return int(summary.get(f"total-{name}", 0))

    rows, deleted = total("records"), total("position-deletes")
    files = total("data-files") + total("delete-files")
    return Debt(
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        deleted_rows=deleted,
        deleted_share=deleted / rows if rows else 0.0,
        average_file_bytes=total("files-size") // files if files else 0,
        snapshots=table.snapshot_count(),
    )


# Choosing the files of a mirror to rewrite.
# The list of files is collected on the driver, as Iceberg does for every query; positions of deleted rows are not.


# Files up to this size are always merged.
_TINY = 1 << 20


@dataclass(frozen=True)
class TableFile:
    """A data or delete file; ``group`` is its partition, ``of`` the data file of a deletion vector."""

    path: str
    size: int
    rows: int
    group: str = ""
    of: str | None = None


@dataclass(frozen=True)
class RewriteLimits:
    """The limits at which a file is rewritten, and the number of bytes chosen at a time."""

    deleted_share: float
    file_bytes: int
    slice_bytes: int

    @property
    def at_a_time(self) -> int:
        """The bytes of a slice: at least enough for two small files, as a single file would only be copied."""
        return max(self.slice_bytes, self.file_bytes)


@dataclass(frozen=True)
class Deleted:
    """The number of deleted rows by data file, and the delete files that delete them."""

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


def choose_files(table: IcebergTable, base: Snapshot, limits: RewriteLimits) -> Chosen:
    """Choose the next slice of a snapshot's files."""
    data = _files(table, base, "data_files")
    deletes = _files(table, base, "delete_files") if int(base.summary.get("total-delete-files", 0)) else []
    # In format version 3 each data file has its own deletion vector, which is removed with it.
    vectors = any(file.of for file in deletes)
    deleted = _by_vectors(deletes) if vectors else _by_positions(table, base) if deletes else Deleted()
    return choose(data, () if vectors else deletes, deleted, limits)


def choose(
    data: Iterable[TableFile], deletes: Collection[TableFile], deleted: Deleted, limits: RewriteLimits
) -> Chosen:
    """Choose data files that are small or have many deleted rows, and the delete files that refer to them.

    Where there are no such data files, delete files are merged.
    """
    with_deletes: list[TableFile] = []
    others: list[TableFile] = []
    for file in data:
        has_many_deletes = deleted.rows.get(file.path, 0) >= limits.deleted_share * file.rows
        (with_deletes if has_many_deletes and file.path in deleted.rows else others).append(file)
    small = [file for file in others if file.size < limits.file_bytes // 2]
    chosen = _up_to([*sorted(with_deletes, key=_by_size), *mergeable(small)], limits.at_a_time)
    if chosen:
        referring = {path for file in chosen for path in deleted.by.get(file.path, ())}
        merged = [file for file in deletes if file.path in referring]
    else:
        merged = _up_to(list(mergeable(deletes)), limits.at_a_time)
        merged = merged if len(merged) > 1 else []
    size = sum(file.size for file in (*chosen, *merged))
    return Chosen(frozenset(file.path for file in chosen), frozenset(file.path for file in merged), size)


def mergeable(files: Iterable[TableFile]) -> Iterator[TableFile]:
    """Yield the files of each partition that are worth merging: at least two.

    No file is larger than all smaller ones together, unless it is tiny. So each file is rewritten only a few times,
    however many files follow.
    """
    for _, found in groupby(sorted(files, key=lambda file: (file.group, *_by_size(file))), key=lambda file: file.group):
        group, total, last = list(found), 0, 0
        for number, file in enumerate(group, start=1):
            if file.size <= max(total, _TINY):
                last = number
            total += file.size
        if last >= 2:
            yield from group[:last]


def metadata_frame(table: IcebergTable, snapshot_id: int, name: str) -> DataFrame:
    """Return one of Iceberg's metadata tables of a table, as of a snapshot."""
    return table.spark.read.option("versionAsOf", str(snapshot_id)).table(f"{table.identifier}.{name}")


def _files(table: IcebergTable, base: Snapshot, name: str) -> list[TableFile]:
    frame = metadata_frame(table, base.id, name)
    values = F.to_json("partition", {"ignoreNullFields": "false"}) if "partition" in frame.columns else F.lit("")
    group = F.concat_ws(" ", F.col("spec_id").cast("string"), values)
    found = frame.select("file_path", "file_size_in_bytes", "record_count", group, "referenced_data_file")
    return [TableFile(*row) for row in found.collect()]


def _by_vectors(vectors: Iterable[TableFile]) -> Deleted:
    rows: dict[str, int] = {}
    for vector in vectors:
        if vector.of is not None:
            rows[vector.of] = rows.get(vector.of, 0) + vector.rows
    return Deleted(rows)


def _by_positions(table: IcebergTable, base: Snapshot) -> Deleted:
    """Count the positions in delete files by data file."""
    positions = metadata_frame(table, base.id, "position_deletes")
    counts = positions.groupBy("file_path", "delete_file_path").agg(F.count(F.lit(1)))
    rows: dict[str, int] = {}
    by: dict[str, set[str]] = {}
    for path, delete_file, count in counts.collect():
        rows[path] = rows.get(path, 0) + count
        by.setdefault(path, set()).add(delete_file)
    return Deleted(rows, {path: frozenset(files) for path, files in by.items()})


def _up_to(files: Sequence[TableFile], size: int) -> list[TableFile]:
    """Return the first files up to a total size, and at least one."""
    taken: list[TableFile] = []
    total = 0
    for file in files:
        if taken and total + file.size > size:
            break
        taken.append(file)
        total += file.size
    return taken


def _by_size(file: TableFile) -> tuple[int, str]:
    return (file.size, file.path)


# Rewriting chosen files: they are read as a frame and written again, without a commit.
# Iceberg's own compaction actions do the same, but choose files by other rules and cannot merge delete files on a
# branch. The result are files for one commit that replaces the old files.


@dataclass
class Replacement:
    """Files to remove from a table and the files that replace them, as Iceberg's Java objects."""

    old: list[Any] = field(default_factory=list)
    new: list[Any] = field(default_factory=list)
    old_deletes: list[Any] = field(default_factory=list)
    # Each with its sequence number, which is that of the newest delete file it replaces.
    new_deletes: list[tuple[Any, int]] = field(default_factory=list)

    def update(self, table: IcebergTable, base: int, stamps: Mapping[str, str]) -> Any:
        """Return the stamped update of the table, not yet committed."""
        update = table.load().newRewrite().validateFromSnapshot(base)
        for file in (*self.old, *self.old_deletes):
            update.deleteFile(file)
        for file in self.new:
            update.addFile(file)
        for file, sequence in self.new_deletes:
            update.addFile(file, sequence)
        for name, value in stamps.items():
            update.set(name, value)
        return update


class Staged:
    """Files of a table, staged for reading and replacing during a ``with`` block."""

    def __init__(self, spark: SparkSession, table: Any, tasks: list[Any], coordinator: Any) -> None:
        self.tasks = tasks
        self._spark = spark
        self._table = table
        self._id = uuid.uuid4().hex
        self._coordinator = coordinator
        jvm: Any = spark._jvm
        self._cache = _table_cache(jvm)
        self._manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        self._java_tasks = jvm.java.util.ArrayList()
        for task in tasks:
            self._java_tasks.add(task)

    def __enter__(self) -> Self:
        self._cache.add(self._id, self._table)
        self._manager.stageTasks(self._table, self._id, self._java_tasks)
        return self

    def __exit__(self, *_error: object) -> None:
        self._cache.remove(self._id)
        self._manager.removeTasks(self._table, self._id)
        self._coordinator.clearRewrite(self._table, self._id)

    def read(self, *, split_bytes: int | None = None) -> DataFrame:
        """Return the rows of the files, without deleted ones."""
        # Iceberg for Spark 3.5 uses these options, Iceberg for Spark 4 only the name.
        reader = self._spark.read.format("iceberg").option("scan-task-set-id", self._id).option("file-open-cost", "0")
        if split_bytes is not None:
            reader = reader.option("split-size", str(split_bytes))
        return reader.load(self._id)

    def write(self, rows: DataFrame, options: Mapping[str, str]) -> list[Any]:
        """Write rows as the replacement of the files, and return the new files."""
        writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", self._id)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.mode("append").save(self._id)
        return list(self._coordinator.fetchNewFiles(self._table, self._id).toArray())

    @property
    def files(self) -> list[Any]:
        """The staged files."""
        return [task.file() for task in self.tasks]


def staged_data(table: IcebergTable, snapshot_id: int, paths: Collection[str]) -> Staged:
    """Stage data files of a snapshot, by their paths."""
    java = table.load()
    jvm: Any = table.spark._jvm
    tasks = [
        task
        for task in each_of(java.newScan().useSnapshot(snapshot_id).planFiles())
        if str(task.file().location()) in paths
    ]
    return Staged(table.spark, java, tasks, jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get())


def staged_deletes(table: IcebergTable, snapshot_id: int, paths: Collection[str]) -> list[Staged]:
    """Stage files of position deletes of a snapshot, by their paths; one group for each partition."""
    jvm: Any = table.spark._jvm
    iceberg = jvm.org.apache.iceberg
    kind = iceberg.MetadataTableType.POSITION_DELETES
    deletes = iceberg.MetadataTableUtils.createMetadataTableInstance(table.load(), kind)
    groups: dict[tuple[int, str], list[Any]] = {}
    for task in each_of(deletes.newBatchScan().useSnapshot(snapshot_id).planFiles()):
        if str(task.file().location()) in paths:
            spec = task.spec()
            partition = str(spec.partitionToPath(task.file().partition()))
            groups.setdefault((spec.specId(), partition), []).append(task)
    coordinator = iceberg.spark.PositionDeletesRewriteCoordinator.get()
    return [Staged(table.spark, deletes, tasks, coordinator) for tasks in groups.values()]


def _table_cache(jvm: Any) -> Any:
    """Return Iceberg's table cache; py4j may find only the ``get`` that is not static."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getMethods()
    getter = next(method for method in methods if method.getName() == "get" and method.getParameterCount() == 0)
    return getter.invoke(None, None)


def location_of(file: Any) -> str:
    """Return the path of a file."""
    return str(file.location())


def size_of(files: Collection[Any]) -> int:
    """Return the total size of files in bytes."""
    return sum(int(file.fileSizeInBytes()) for file in files)
