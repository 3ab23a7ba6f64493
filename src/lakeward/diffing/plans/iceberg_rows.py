"""Rows at positions of a table's data files: read by DuckDB in Spark tasks, or by Iceberg's own reader."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from lakeward.diffing.frames.alignment import as_type
from lakeward.diffing.frames.refusals import duplicate_error
from lakeward.diffing.plans.buckets import FilesBelow, opened
from lakeward.diffing.plans.kernel import Group, Kernel, KernelColumn, is_native
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.iceberg.file_changes import vector_positions
from lakeward.iceberg.rewrite import staged_data, staged_deletes
from lakeward.spark.marks import in_task
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.stored.addresses import IcebergState
    from lakeward.iceberg.file_changes import DeleteFile
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.spark.workspace import Workspace
    from lakeward.storage.filesystem import TaskFileSystem


# DuckDB reads rows at given positions without decoding the others. It finds columns by their field ids, as Iceberg
# does: a column that was renamed since has its old name in the file, one that was added since is null, and one of a
# narrower type is cast.


_ID = b"PARQUET:field_id"
_NAME_MAPPING = "schema.name-mapping.default"
_ENCRYPTED = "encryption.key-id"
_LISTED = 1000
# What DuckDB calls the position of a row.
_NUMBER = "file_row_number"
FILE, POSITION = "file_path", "pos"


@dataclass(frozen=True)
class PositionRead:
    """The input of a task that reads rows at positions: columns as (field id, Arrow field), and access to the files."""

    fields: tuple[tuple[int, pa.Field], ...]
    files: TaskFileSystem

    def rows(self, path: str, positions: Any, *, others: bool = False) -> pa.Table:
        """Return the rows of one file at positions, or all others, in the schema of :attr:`schema`."""
        with self.opened(path) as local:
            names = _names_by_id(local)
            wanted = [names.get(number) for number, _ in self.fields]
            found = _selected(local, [name for name in wanted if name is not None], pa.array(positions), others=others)
        if not others and found.num_rows != len(positions):
            msg = f"{path} has {found.num_rows} of {len(positions)} rows that the table's delete files list"
            raise RefusedInputError(msg, hint="compare with --plan join")
        values = iter(found.columns)
        columns = [
            pa.nulls(found.num_rows, field.type) if name is None else next(values).cast(field.type)
            for name, (_, field) in zip(wanted, self.fields, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def opened(self, path: str) -> AbstractContextManager[str]:
        """Return a file's path on this machine's disk, for as long as it is needed."""
        # Tables may name local files with their scheme, and without the escapes of a URI.
        return opened(self.files, path.removeprefix("file://").removeprefix("file:"))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return pa.schema([field for _, field in self.fields])


def position_read(
    state: IcebergState,
    metadata: TableMetadata,
    struct: T.StructType,
    fields: tuple[tuple[int, pa.Field], ...],
    schemas: int,
) -> PositionRead | str:
    """Prepare the native read of a side, or return why it is not possible.

    ``fields`` are the columns of ``struct`` to read, ``schemas`` is the number of schemas that the table has had.
    """
    if state.files is None:
        return "its files are on a file system that only Spark reads"
    if problem := _why_not(metadata, struct, schemas):
        return problem
    return PositionRead(fields, state.files)


def _why_not(metadata: TableMetadata, struct: T.StructType, schemas: int) -> str | None:
    nested = any(isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType) for field in struct.fields)
    strange = next((field.name for field in struct.fields if not is_native(field.dataType)), None)
    is_taken = any(field.name.lower() == _NUMBER for field in struct.fields)
    problems = {
        f"a column is called {_NUMBER}, as DuckDB calls the position of a row": is_taken,
        "DuckDB is not installed (pip install 'lakeward[diff]')": find_spec("duckdb") is None,
        "the table's files are read by names and not by ids": metadata.property(_NAME_MAPPING) is not None,
        "the table's files are encrypted": metadata.property(_ENCRYPTED) is not None,
        f"column {strange} is of a type that DuckDB does not read as Spark does": strange is not None,
        "nested columns may have changed since some files were written": nested and schemas > 1,
    }
    return next((problem for problem, holds in problems.items() if holds), None)


def rows_at(positions: DataFrame, read: PositionRead, struct: T.StructType, tasks: int) -> DataFrame:
    """Read the rows at positions (``file_path``, ``pos``); one task reads all positions of a file."""
    spread = positions.select(FILE, POSITION).repartition(tasks, column(FILE))
    return spread.mapInArrow(in_task(_task(read)), struct)


def _task(read: PositionRead) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted: dict[str, list[pa.Array]] = {}
        for batch in batches:
            for path, positions in _by_file(batch):
                wanted.setdefault(path, []).append(positions)
        for path, parts in wanted.items():
            yield from read.rows(path, pa.concat_arrays(parts)).to_batches()

    return run


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    grouped = pa.Table.from_batches([batch]).group_by(FILE).aggregate([(POSITION, "list")])
    for path, positions in zip(grouped.column(FILE).to_pylist(), grouped.column(f"{POSITION}_list"), strict=True):
        yield path, positions.values


def _names_by_id(path: str) -> dict[int, str]:
    """Return the names of a file's columns by their field ids."""
    schema = pq.read_schema(path)
    return {int(field.metadata[_ID]): field.name for field in schema if field.metadata and _ID in field.metadata}


def _selected(path: str, names: Sequence[str], positions: pa.Array, *, others: bool) -> pa.Table:
    try:
        import duckdb
    except ImportError as error:
        msg = "this Spark executor has no DuckDB, which reads single rows of the lake's files"
        raise ConfigurationError(msg, hint="pip install 'lakeward[diff]' there too, or use --plan join") from error
    chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in names) or _NUMBER
    # DuckDB reads less if it has the numbers before it begins.
    few = 0 < len(positions) <= _LISTED
    numbers = ", ".join(map(str, positions.to_pylist())) if few else "SELECT pos FROM positions"
    query = (
        f"SELECT {chosen} FROM read_parquet($file, {_NUMBER}=true, hive_partitioning=false) "
        f"WHERE {_NUMBER} {'NOT IN' if others else 'IN'} ({numbers})"
    )
    with duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False}) as connection:
        connection.register("positions", pa.table({POSITION: positions.cast(pa.int64())}))
        try:
            found = connection.execute(query, {"file": path})
            read = getattr(found, "to_arrow_table", None) or found.fetch_arrow_table
            table = read()
        except duckdb.Error as error:
            msg = f"{path} cannot be read: {error}"
            raise RefusedInputError(msg, hint="compare with --plan join") from error
    return table if names else table.select([])


@dataclass(frozen=True)
class StagedRead:
    """A read of a side's files by Iceberg; ``names`` maps the side's column names to the present ones."""

    table: IcebergTable
    snapshot_id: int
    names: Mapping[str, str]
    struct: StructType
    workspace: Workspace

    def at(self, positions: DataFrame) -> DataFrame:
        """Read the snapshot, and keep the rows at positions."""
        pinned = self.table.spark.read.option("versionAsOf", str(self.snapshot_id)).table(self.table.identifier)
        rows = pinned.select(*columns(self.struct.names), "_file", "_pos")
        same = (rows["_file"] == positions[FILE]) & (rows["_pos"] == positions[POSITION])
        return rows.join(positions, same, "left_semi").drop("_file", "_pos")

    def whole(self, paths: Collection[str]) -> DataFrame:
        """Read all rows of files that are not deleted at the snapshot, with the names and types of that snapshot."""
        staged = staged_data(self.table, self.snapshot_id, paths)
        if not staged.tasks:
            return self.table.spark.createDataFrame([], self.struct)
        read = self.workspace.hold(staged).read()
        return read.select(*[self._as_of_snapshot(read, field).alias(field.name) for field in self.struct.fields])

    def _as_of_snapshot(self, read: DataFrame, field: StructField) -> Column:
        name = self.names[field.name]
        return as_type(column(name), read.schema[name].dataType, field.dataType)


def staged_positions(
    table: IcebergTable, snapshot_id: int, paths: Collection[str], workspace: Workspace
) -> DataFrame | None:
    """Read deleted positions from chosen delete files of a snapshot; None where there are none."""
    found = None
    for staged in staged_deletes(table, snapshot_id, paths) if paths else ():
        part = workspace.hold(staged).read().select(FILE, POSITION)
        found = part if found is None else found.unionByName(part)
    return found


# A small batch between two snapshots is compared in one Spark task, where DuckDB reads and pairs the few rows: planning
# and shuffling a join in Spark would take longer.


if TYPE_CHECKING:
    _Positions = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class NativeSide:
    """One side: how its rows are read, the data files and the delete files that only it has."""

    read: PositionRead
    data: tuple[str, ...]
    deletes: tuple[DeleteFile, ...]


@dataclass(frozen=True)
class NativeBatch:
    """The input of the task. ``keys`` are the positions of the key columns among the aligned ones."""

    left: NativeSide
    right: NativeSide
    kernel: Kernel
    keys: Mapping[int, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compare the batch; the function of a Spark task, which is called with a single row."""
        for batch in batches:
            if batch.num_rows:
                yield from self._pairs()

    def _pairs(self) -> Iterator[pa.RecordBatch]:
        gone = frozenset((*self.left.data, *self.right.data))
        left_deleted, right_deleted = (_positions(side) for side in (self.left, self.right))
        with tempfile.TemporaryDirectory(prefix="lakeward-batch-") as folder:
            left = self._written(self.left, left_deleted, right_deleted, gone, Path(folder), "past")
            right = self._written(self.right, right_deleted, left_deleted, gone, Path(folder), "current")
            if left or right:
                files = FilesBelow(LocalFileSystem(), folder)
                yield from self.kernel.pairs([Group(left, right)], files, files)

    def _written(
        self, side: NativeSide, own: _Positions, other: _Positions, gone: frozenset[str], folder: Path, name: str
    ) -> tuple[str, ...]:
        """Write the rows of a side that the other may lack into one file, and return its name; none without rows."""
        nothing = np.empty(0, dtype=np.int64)
        parts = [side.read.rows(path, own.get(path, nothing), others=True) for path in side.data]
        for path, positions in other.items():
            wanted = np.setdiff1d(positions, own.get(path, nothing))
            if path not in gone and len(wanted):
                parts.append(side.read.rows(path, wanted))
        rows = pa.concat_tables(parts) if parts else None
        if rows is None or not rows.num_rows:
            return ()
        self._require_unique(rows, name)
        file = folder / f"{name}.parquet"
        pq.write_table(rows, file, compression="none", use_dictionary=False, write_statistics=False)
        return (file.name,)

    def _require_unique(self, rows: pa.Table, side: str) -> None:
        names = [pair_name(at) for at in self.keys]
        counted = rows.group_by(names).aggregate([([], "count_all")])
        for row in counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1).to_pylist():
            key = {name: row[pair_name(at)] for at, name in self.keys.items()}
            raise duplicate_error(side, key)


def pair_name(position: int) -> str:
    """Return the name of an aligned column in the files of a batch: a number, as names may hold any character."""
    return f"c{position}"


def native_fields(alignment: Alignment, ids: Mapping[str, int], *, is_left: bool) -> tuple[tuple[int, pa.Field], ...]:
    """Return the columns of one side by field id, in the aligned types."""
    found = []
    for at, aligned in enumerate(alignment.columns):
        name = aligned.in_left if is_left else aligned.in_right
        if name is not None:
            found.append((ids[name], pa.field(pair_name(at), to_arrow_type(aligned.type))))
    return tuple(found)


def native_kernel(alignment: Alignment, schema: Any) -> Kernel:
    """Return the kernel that pairs a batch's two files."""
    columns = [
        KernelColumn(
            left=pair_name(at) if aligned.left_type is not None else None,
            right=pair_name(at) if aligned.right_type is not None else None,
            is_key=aligned.is_key,
            is_compared=not aligned.is_ignored,
        )
        for at, aligned in enumerate(alignment.columns)
    ]
    return Kernel(tuple(columns), schema, whole=False)


def _positions(side: NativeSide) -> dict[str, np.ndarray]:
    """Return the deleted positions of each data file that a side's delete files list."""
    found: dict[str, list[np.ndarray]] = {}
    for delete_file in side.deletes:
        with side.read.opened(delete_file.path) as path:
            if delete_file.of is not None and delete_file.offset is not None and delete_file.length is not None:
                with Path(path).open("rb") as file:
                    file.seek(delete_file.offset)
                    found.setdefault(delete_file.of, []).append(vector_positions(file.read(delete_file.length)))
                continue
            table = pq.read_table(path, columns=[FILE, POSITION])
        grouped = table.group_by(FILE).aggregate([(POSITION, "list")])
        for name, positions in zip(grouped.column(FILE).to_pylist(), grouped.column(f"{POSITION}_list"), strict=True):
            found.setdefault(name, []).append(positions.values.to_numpy())
    return {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}
