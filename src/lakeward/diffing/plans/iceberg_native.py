"""A small batch between two snapshots compared in one Spark task: DuckDB reads the few rows and pairs them.

Planning and shuffling a join in Spark costs more than such a batch is worth.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_type

from lakeward.diffing.plans.iceberg_positions import FILE, POSITION, PositionRead
from lakeward.diffing.plans.kernel import Group, Kernel, KernelColumn
from lakeward.diffing.plans.set_files import LocalFiles
from lakeward.diffing.refusals import duplicate_error
from lakeward.lake.iceberg.vectors import vector_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.diffing.alignment import Alignment
    from lakeward.lake.iceberg.file_changes import DeleteFile

    _Positions = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class NativeSide:
    """One side: how its rows are read, the data files and the delete files that only it has."""

    read: PositionRead
    data: tuple[str, ...]
    deletes: tuple[DeleteFile, ...]


@dataclass(frozen=True)
class NativeBatch:
    """What the task needs. ``keys`` are the positions of the key columns among the aligned ones."""

    left: NativeSide
    right: NativeSide
    kernel: Kernel
    keys: Mapping[int, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run as the function of a Spark task: whatever row comes, the batch is compared."""
        for batch in batches:
            if batch.num_rows:
                yield from self._pairs()

    def _pairs(self) -> Iterator[pa.RecordBatch]:
        gone = frozenset((*self.left.data, *self.right.data))
        left_deleted, right_deleted = (_positions(one) for one in (self.left, self.right))
        with tempfile.TemporaryDirectory(prefix="lakeward-batch-") as folder:
            left = self._written(self.left, left_deleted, right_deleted, gone, Path(folder), "past")
            right = self._written(self.right, right_deleted, left_deleted, gone, Path(folder), "current")
            if left or right:
                yield from self.kernel.pairs([Group(left, right)], LocalFiles(folder), LocalFiles(folder))

    def _written(
        self, side: NativeSide, own: _Positions, other: _Positions, gone: frozenset[str], folder: Path, name: str
    ) -> tuple[str, ...]:
        """Write a side's rows that the other may not have into one file; nothing where there are none."""
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
    """Name an aligned column in the files of a batch: by number, as a name may hold anything."""
    return f"c{position}"


def native_fields(alignment: Alignment, ids: Mapping[str, int], *, is_left: bool) -> tuple[tuple[int, pa.Field], ...]:
    """Give the columns of one side by field id, in the aligned types."""
    found = []
    for at, one in enumerate(alignment.columns):
        name = one.in_left if is_left else one.in_right
        if name is not None:
            found.append((ids[name], pa.field(pair_name(at), to_arrow_type(one.type))))
    return tuple(found)


def native_kernel(alignment: Alignment, schema: Any) -> Kernel:
    """Give the kernel that pairs a batch's two files."""
    columns = [
        KernelColumn(
            left=pair_name(at) if one.left_type is not None else None,
            right=pair_name(at) if one.right_type is not None else None,
            is_key=one.is_key,
            is_compared=not one.is_ignored,
        )
        for at, one in enumerate(alignment.columns)
    ]
    return Kernel(tuple(columns), schema, whole=False)


def _positions(side: NativeSide) -> dict[str, np.ndarray]:
    """Read which positions of which data files a side's delete files speak of."""
    found: dict[str, list[np.ndarray]] = {}
    for one in side.deletes:
        with side.read.opened(one.path) as path:
            if one.of is not None and one.offset is not None and one.length is not None:
                with Path(path).open("rb") as file:
                    file.seek(one.offset)
                    found.setdefault(one.of, []).append(vector_positions(file.read(one.length)))
                continue
            table = pq.read_table(path, columns=[FILE, POSITION])
        grouped = table.group_by(FILE).aggregate([(POSITION, "list")])
        for name, positions in zip(grouped.column(FILE).to_pylist(), grouped.column(f"{POSITION}_list"), strict=True):
            found.setdefault(name, []).append(positions.values.to_numpy())
    return {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}
