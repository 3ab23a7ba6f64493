"""The comparison of a bucket's files by DuckDB in a Spark task: only rows that differ reach the JVM."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import types as T

from lakeward.diffing.frames.alignment import is_same
from lakeward.diffing.frames.pairs import HAS_LEFT, HAS_RIGHT, left_name, right_name
from lakeward.errors import ConfigurationError, RefusedInputError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment


# A join that needs more than this spills to a temporary folder.
_MEMORY = "768MB"
_BATCH_ROWS = 8192
_ROOM = "make room there, or set TMPDIR to a larger disk, or use --plan join"
_PATTERN = frozenset("*?[]{}")


class Files(Protocol):
    """The files of a side, as a task reaches them."""

    def local(self, path: str) -> AbstractContextManager[str]:
        """Return a file's path on this machine's disk, for as long as it is needed."""


@dataclass(frozen=True)
class Group:
    """The files of both sides that have the rows of one bucket."""

    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass(frozen=True)
class KernelColumn:
    """An aligned column: its name in the files (None: the side lacks it), and a DuckDB type to cast to, if any."""

    left: str | None
    right: str | None
    left_cast: str | None = None
    right_cast: str | None = None
    is_key: bool = False
    is_compared: bool = True


@dataclass(frozen=True)
class Kernel:
    """A comparison of files: the columns, the Arrow schema of its pairs, and whether equal pairs are wanted too."""

    columns: tuple[KernelColumn, ...]
    schema: pa.Schema
    whole: bool

    def sql(self, left: Sequence[str], right: Sequence[str]) -> str:
        """Return the query that pairs the rows of local files; a side may have none."""
        if not left or not right:
            name, side, files = ("l", 0, left) if left else ("r", 1, right)
            return f"SELECT {', '.join(self._own(side))} FROM ({self._side(name, side, files)}) {name}"
        on = " AND ".join(
            f"{left_name(at)} IS NOT DISTINCT FROM {right_name(at)}"
            for at, column in enumerate(self.columns)
            if column.is_key
        )
        where = "" if self.whole else f" WHERE l.has IS NULL OR r.has IS NULL{self._differs()}"
        return (
            f"SELECT coalesce(l.has, false) AS {HAS_LEFT}, coalesce(r.has, false) AS {HAS_RIGHT}, "
            f"{', '.join([*self._names(0), *self._names(1)])} "
            f"FROM ({self._side('l', 0, left)}) l FULL OUTER JOIN ({self._side('r', 1, right)}) r ON {on}{where}"
        )

    def _own(self, side: int) -> list[str]:
        flags = [f"{'true' if side == 0 else 'false'} AS {HAS_LEFT}", f"{'true' if side else 'false'} AS {HAS_RIGHT}"]
        return [*flags, *self._names(side)]

    def _names(self, side: int) -> list[str]:
        return [_pair_name(side, at) for at, column in enumerate(self.columns) if _file_name(column, side) is not None]

    def _side(self, alias: str, side: int, files: Sequence[str]) -> str:
        values = ["true AS has"]
        for at, column in enumerate(self.columns):
            name = _file_name(column, side)
            if name is None:
                continue
            cast = column.right_cast if side else column.left_cast
            value = _quoted(name) if cast is None else f"CAST({_quoted(name)} AS {cast})"
            values.append(f"{value} AS {_pair_name(side, at)}")
        listed = ", ".join(_text(file) for file in files)
        # A folder such as version=… is not a column.
        return f"SELECT {', '.join(values)} FROM read_parquet([{listed}], hive_partitioning=false) {alias}_files"

    def _differs(self) -> str:
        """Return the condition of a difference as DuckDB sees it: null equals null, NaN equals NaN, -0.0 equals 0.0."""
        found = ""
        for at, column in enumerate(self.columns):
            if column.is_key or not column.is_compared:
                continue
            if column.left is not None and column.right is not None:
                found += f" OR {left_name(at)} IS DISTINCT FROM {right_name(at)}"
            else:
                found += f" OR {left_name(at) if column.right is None else right_name(at)} IS NOT NULL"
        return found

    def pairs(self, groups: Sequence[Group], left: Files, right: Files) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of groups of files, one group after the other."""
        with tempfile.TemporaryDirectory(prefix="lakeward-diff-") as folder, _connection(folder) as connection:
            for group in groups:
                with ExitStack() as stack:
                    past = [stack.enter_context(left.local(path)) for path in group.left]
                    current = [stack.enter_context(right.local(path)) for path in group.right]
                    yield from self._compared(connection, group, past, current, Path(folder))

    def _compared(
        self, connection: Any, group: Group, past: Sequence[str], current: Sequence[str], folder: Path
    ) -> Iterator[pa.RecordBatch]:
        import duckdb

        query = self.sql([_literal(path, folder) for path in past], [_literal(path, folder) for path in current])
        try:
            for batch in _batches(connection.sql(query)):
                yield self._conformed(batch)
        except duckdb.OutOfMemoryException as error:
            msg = f"there is not enough memory or disk in {folder} to compare {_shown(group)}: {error}"
            raise RetriableError(msg, hint=_ROOM) from error
        except duckdb.Error as error:
            msg = f"{_shown(group)} cannot be compared natively: {error}"
            raise RefusedInputError(msg, hint="check the files, or compare them with --plan join") from error

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns and types of the pairs; columns that a side lacks are null."""
        present = set(batch.schema.names)
        values = [
            batch.column(field.name).cast(field.type) if field.name in present else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(values, schema=self.schema)


def compare_in_tasks(
    kernel: Kernel, tasks: Sequence[Sequence[Group]], left: Files, right: Files
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function of a Spark task whose rows are numbers of ``tasks``."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from kernel.pairs(tasks[number], left, right)

    return run


def _connection(folder: str) -> Any:
    try:
        import duckdb
    except ImportError as error:
        msg = "this Spark executor has no DuckDB, which compares snapshot sets"
        raise ConfigurationError(msg, hint="pip install 'lakeward[diff]' there too, or use --plan join") from error
    settings: dict[str, Any] = {
        "threads": 1,
        "memory_limit": _MEMORY,
        "temp_directory": folder,
        "preserve_insertion_order": False,
        # Extensions are not downloaded: Parquet is built in.
        "autoinstall_known_extensions": False,
    }
    return duckdb.connect(config=settings)


def _batches(relation: Any) -> Any:
    """Return the result piece by piece; DuckDB before 1.5 has another name for it."""
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return read(_BATCH_ROWS)


def _literal(path: str, folder: Path) -> str:
    """Return a path escaped so that DuckDB does not treat it as a pattern."""
    if not _PATTERN.intersection(path):
        return path
    link = folder / f"file-{abs(hash(path))}"
    if not link.is_symlink():
        link.symlink_to(path)
    return str(link)


def _shown(group: Group) -> str:
    return " and ".join([*group.left, *group.right])


def _pair_name(side: int, at: int) -> str:
    return right_name(at) if side else left_name(at)


def _file_name(column: KernelColumn, side: int) -> str | None:
    return column.right if side else column.left


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# DuckDB's names of the types that it compares exactly as Spark does: texts as bytes, for example. Intervals, times of
# day and variants are missing because Spark stores them in its own ways.
_SIMPLE: dict[str, str] = {
    "BooleanType": "BOOLEAN",
    "ByteType": "TINYINT",
    "ShortType": "SMALLINT",
    "IntegerType": "INTEGER",
    "LongType": "BIGINT",
    "FloatType": "FLOAT",
    "DoubleType": "DOUBLE",
    "StringType": "VARCHAR",
    "BinaryType": "BLOB",
    "DateType": "DATE",
    "TimestampType": "TIMESTAMPTZ",
    "TimestampNTZType": "TIMESTAMP",
}
_NO_KEY = (T.FloatType, T.DoubleType)


def native_type(data_type: T.DataType) -> str | None:
    """Return the DuckDB name of a simple type, None where there is none that compares alike."""
    if isinstance(data_type, T.DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if isinstance(data_type, T.StringType) and data_type != T.StringType():
        # It has another collation, or a limited length.
        return None
    return _SIMPLE.get(type(data_type).__name__)


def is_native(data_type: T.DataType) -> bool:
    """Whether DuckDB compares values of a type, nested ones among them, as Spark does."""
    if isinstance(data_type, T.StructType):
        names = [field.name for field in data_type.fields]
        return bool(names) and not _alike(names) and all(is_native(field.dataType) for field in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return is_native(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return is_native(data_type.keyType) and is_native(data_type.valueType)
    return native_type(data_type) is not None


def why_not_native(alignment: Alignment) -> str | None:
    """Return why columns cannot be compared by DuckDB; None where they can."""
    if alike := _alike(alignment.left.names) or _alike(alignment.right.names):
        return f"columns {alike} differ in upper and lower case only, which DuckDB does not distinguish"
    for column in alignment.columns:
        problem = _key_problem(column) if column.is_key else _problem(column)
        if problem:
            return problem
    return None


def _key_problem(aligned: AlignedColumn) -> str | None:
    if aligned.left_type is None or aligned.right_type is None or not is_same(aligned.left_type, aligned.right_type):
        problem = "has different types on the two sides, so that its rows are in different buckets"
        return f"key column {aligned.name} {problem}"
    if native_type(aligned.type) is None or isinstance(aligned.type, _NO_KEY):
        type_name = aligned.type.simpleString()
        return f"key column {aligned.name} is of type {type_name}, which DuckDB does not pair as Spark does"
    return None


def _problem(aligned: AlignedColumn) -> str | None:
    for found in (aligned.left_type, aligned.right_type):
        if found is None:
            continue
        if not is_native(found):
            return (
                f"column {aligned.name} is of type {found.simpleString()}, which DuckDB does not compare as Spark does"
            )
        if aligned.has_one_type and not is_same(found, aligned.type) and not _is_castable(found, aligned.type):
            types = f"{found.simpleString()} on one side and {aligned.type.simpleString()} on the other"
            return f"column {aligned.name} is {types}"
    return None


def _is_castable(found: T.DataType, wanted: T.DataType) -> bool:
    return isinstance(found, T.NumericType) and isinstance(wanted, T.NumericType)


def _alike(names: Iterable[str]) -> str | None:
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            return f"{seen[name.casefold()]} and {name}"
        seen[name.casefold()] = name
    return None
