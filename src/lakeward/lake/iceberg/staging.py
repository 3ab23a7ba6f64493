"""Chosen files of a table read as a frame and written anew, without a commit: what compaction is made of.

Iceberg's own compaction does the same below its actions, which choose files by other rules than Lakeward's and cannot
merge delete files on a branch. What comes out are files for one commit that replaces the old ones by them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakeward.lake.iceberg.metadata import each_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.lake.iceberg.table import IcebergTable


@dataclass
class Replacement:
    """Files that leave a table and those that take their place, as Iceberg's Java objects."""

    old: list[Any] = field(default_factory=list)
    new: list[Any] = field(default_factory=list)
    old_deletes: list[Any] = field(default_factory=list)
    # With the sequence number from which they count, which is that of the newest file they stand for.
    new_deletes: list[tuple[Any, int]] = field(default_factory=list)

    def update(self, table: IcebergTable, base: int, stamps: Mapping[str, str]) -> Any:
        """Give the update of the table that does it, stamped and not yet committed."""
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
    """Files of one table, set aside for reading and for being replaced, for the time of a ``with`` block."""

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

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cache.remove(self._id)
        self._manager.removeTasks(self._table, self._id)
        self._coordinator.clearRewrite(self._table, self._id)

    def read(self, *, split_bytes: int | None = None) -> DataFrame:
        """Read what the files hold, without rows that are deleted."""
        # Iceberg for Spark 3.5 goes by these options, that for Spark 4 by the name alone.
        reader = self._spark.read.format("iceberg").option("scan-task-set-id", self._id).option("file-open-cost", "0")
        if split_bytes is not None:
            reader = reader.option("split-size", str(split_bytes))
        return reader.load(self._id)

    def write(self, rows: DataFrame, options: Mapping[str, str]) -> list[Any]:
        """Write rows as the files' replacement and give the new files."""
        writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", self._id)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.mode("append").save(self._id)
        return list(self._coordinator.fetchNewFiles(self._table, self._id).toArray())

    @property
    def files(self) -> list[Any]:
        """The staged files themselves."""
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
    """Find Iceberg's table cache: of its two methods ``get`` the bridge may see only the one that is not static."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getMethods()
    getter = next(one for one in methods if one.getName() == "get" and one.getParameterCount() == 0)
    return getter.invoke(None, None)


def location_of(file: Any) -> str:
    """Give the path of a file."""
    return str(file.location())


def size_of(files: Collection[Any]) -> int:
    """Give the bytes of files together."""
    return sum(int(file.fileSizeInBytes()) for file in files)
