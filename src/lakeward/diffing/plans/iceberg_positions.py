"""Rows at given positions of Iceberg's data files, read by DuckDB in Spark tasks: the other rows are never decoded.

Columns are found by their field ids, as Iceberg does: one that was renamed since has its old name in the file, one that
was added since is null, one of a narrower type is cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from lakeward.diffing.plans.native_types import is_native
from lakeward.diffing.plans.set_files import LocalFiles, S3Files, files_of
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.marks import in_task
from lakeward.storage.s3 import S3Location, is_s3
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from lakeward.diffing.inputs.sides import IcebergState
    from lakeward.lake.iceberg.metadata import TableMetadata

_ID = b"PARQUET:field_id"
_NAME_MAPPING = "schema.name-mapping.default"
_ENCRYPTED = "encryption.key-id"
_LISTED = 1000
# What DuckDB calls the position of a row.
_NUMBER = "file_row_number"
FILE, POSITION = "file_path", "pos"


@dataclass(frozen=True)
class PositionRead:
    """What a task needs to read rows at positions: the columns as (field id, Arrow field), and the way to the files."""

    fields: tuple[tuple[int, pa.Field], ...]
    files: LocalFiles | S3Files

    def rows(self, path: str, positions: Any, *, others: bool = False) -> pa.Table:
        """Give the rows of one file at positions, or all others, in the schema that is asked for."""
        with self.opened(path) as local:
            names = _names_by_id(local)
            wanted = [names.get(number) for number, _ in self.fields]
            found = _selected(local, [one for one in wanted if one is not None], pa.array(positions), others=others)
        if not others and found.num_rows != len(positions):
            msg = f"{path} has {found.num_rows} of {len(positions)} rows that the table's deletes speak of"
            raise RefusedInputError(msg, hint="compare with --plan join")
        values = iter(found.columns)
        columns = [
            pa.nulls(found.num_rows, field.type) if name is None else next(values).cast(field.type)
            for name, (_, field) in zip(wanted, self.fields, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def opened(self, path: str) -> AbstractContextManager[str]:
        """Give a file's path on this machine's disk, for as long as it is needed."""
        return self.files.local(_relative(path, self.files))

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
    """Prepare the native read of a side; a text says why it cannot be.

    ``fields`` are what to read of ``struct``, ``schemas`` is the number of schemas that the table has had.
    """
    files = _way_to_files(state, str(metadata.java.location()))
    if files is None:
        return "its files are on a file system that only Spark reads"
    if problem := _why_not(metadata, struct, schemas):
        return problem
    return PositionRead(fields, files)


def _why_not(metadata: TableMetadata, struct: T.StructType, schemas: int) -> str | None:
    nested = any(isinstance(one.dataType, T.StructType | T.ArrayType | T.MapType) for one in struct.fields)
    strange = next((one.name for one in struct.fields if not is_native(one.dataType)), None)
    is_taken = any(one.name.lower() == _NUMBER for one in struct.fields)
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
    """Read the rows at positions (``file_path``, ``pos``); a file's positions come together in one task."""
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
    """Give the names of a file's columns by their field ids."""
    schema = pq.read_schema(path)
    return {int(one.metadata[_ID]): one.name for one in schema if one.metadata and _ID in one.metadata}


def _selected(path: str, names: Sequence[str], positions: pa.Array, *, others: bool) -> pa.Table:
    try:
        import duckdb
    except ImportError as error:
        msg = "this Spark executor has no DuckDB, which reads single rows of the lake's files"
        raise ConfigurationError(msg, hint="pip install 'lakeward[diff]' there too, or use --plan join") from error
    chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in names) or _NUMBER
    # DuckDB reads less where it sees the numbers before it begins.
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


def _way_to_files(state: IcebergState, location: str) -> LocalFiles | S3Files | None:
    if is_s3(location) and state.store is not None:
        # Data files may lie beside the table, so paths count from the bucket.
        return files_of(state.store, f"s3://{S3Location.parse(location, 'table').bucket}")  # type: ignore[return-value]
    return LocalFiles("/") if urlsplit(location).scheme in ("", "file") else None


def _relative(path: str, files: LocalFiles | S3Files) -> str:
    """Give a file's path as the way to the files takes it."""
    if isinstance(files, LocalFiles):
        return path.removeprefix("file://").removeprefix("file:")
    return S3Location.parse(path, "data file").prefix
