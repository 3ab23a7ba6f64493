"""Reading of landing files as one Spark frame of typed, ordered records, and checks of a load's key.

Files of one table are read op by op. A transaction file belongs to many tables: the first table that needs it has it
split by table and cached, and the others use the cache for the rest of the run.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.column_policy import as_stored, of_files
from lakeward.config.policy import rules_of
from lakeward.errors import BugError, ConfigurationError, DataError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms import transactions as T
from lakeward.formats.dms.files import Limits, UnusableFileError
from lakeward.formats.dms.parquet import parquet_columns
from lakeward.formats.dms.reader import read_file
from lakeward.mirror.op.adopted import adopted_columns
from lakeward.mirror.op.check import require_readable
from lakeward.mirror.op.erased import without_erased
from lakeward.mirror.op.metadata_columns import source_columns, with_metadata, with_metadata_columns
from lakeward.mirror.op.policy import require_known_rules
from lakeward.mirror.op.schema import known_columns, require_names, require_usable, with_file_columns
from lakeward.model import FileClass
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.erased import ErasedKeys
    from lakeward.model import Generation, LandingFile
    from lakeward.spark.workspace import Workspace
    from lakeward.storage.landing import Landing


# Below this size a batch is read by one task: a second task costs more than it saves.
_BYTES_PER_TASK = 16 << 20
_FILES_PER_TASK = 250
# A file's columns are known only once it is read. Each round can only add or widen columns, so few rounds suffice.
_SCHEMA_ROUNDS = 5


class TransactionCache:
    """The transaction files read in this run, split by table and cached for all tables of the run."""

    def __init__(self, storage: Landing) -> None:
        self._storage = storage
        self._cached: dict[tuple[LandingFile, str, str, Limits], DataFrame] = {}
        self._lock = threading.Lock()

    def records(self, spark: SparkSession, files: Sequence[LandingFile], spec: ReadSpec) -> DataFrame:
        """Return one table's records of transaction files; files not yet cached are read when the frame is computed."""
        by_path = {file.path: file for file in files}
        schema, table = T.source_name(spec)
        is_own = (column(T.SCHEMA) == schema) & (column(T.TABLE) == table)
        # Cached frames belong to the session of the table that read them first; a union belongs to this session.
        frames = [_no_transactions(spark), *self._frames(spark, files, spec.settings)]
        rows = reduce(DataFrame.unionAll, frames).filter(is_own | column(T.ENDING).isNotNull())

        def read_own(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return T.read_sorted(batches, by_path, spec)

        return rows.mapInArrow(in_task(read_own), S.record_struct(spec.columns))

    def close(self) -> None:
        """Release the cached rows."""
        for frame in {id(frame): frame for frame in self._cached.values()}.values():
            frame.unpersist()
        self._cached.clear()

    def _frames(self, spark: SparkSession, files: Sequence[LandingFile], settings: TableSettings) -> list[DataFrame]:
        """Return the frames that hold the files, each once; files that changed since they were cached are new files."""
        csv, limits = settings.csv, Limits.of(settings)
        keys = {file: (file, csv.delimiter, csv.quote, limits) for file in files}
        storage = self._storage  # the cache itself cannot be sent to tasks
        with self._lock:
            if new := [file for file, key in keys.items() if key not in self._cached]:
                frame = _read_bins(spark, new, T.SORTED_DDL, lambda file: T.sort_file(storage, file, csv, limits))
                frame.persist(StorageLevel.MEMORY_AND_DISK)
                self._cached.update((keys[file], frame) for file in new)
            return list({id(frame): frame for frame in (self._cached[key] for key in keys.values())}.values())


def read_records(
    spark: SparkSession,
    workspace: Workspace,
    storage: Landing,
    cache: TransactionCache,
    files: Sequence[LandingFile],
    spec: ReadSpec,
) -> tuple[DataFrame, list[FileSummary]]:
    """Return the records of files as a kept frame, and each file's summary. Every file is read by one task."""
    shared = [file for file in files if file.file_class is FileClass.TRANSACTIONS]
    own = [file for file in files if file.file_class is not FileClass.TRANSACTIONS]
    # A small batch is kept for seconds: compressing its columns would cost more than the memory is worth.
    is_small = sum(file.identity.size for file in files) < _BYTES_PER_TASK
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", str(not is_small).lower())
    frames = [cache.records(spark, shared, spec)] if shared else []
    if own:
        struct = S.record_struct(spec.columns)
        frames.append(_read_bins(spark, own, struct, lambda file: read_file(storage, file, spec)))
    records = workspace.keep(reduce(DataFrame.unionAll, frames))
    rows = records.filter(column(S.KIND) == S.KIND_FILE).select(S.DETAIL).collect()
    return records, [FileSummary.from_json(row[0]) for row in rows]


def task_count(size: int, files: int) -> int:
    """Return how many tasks read so many files of so many bytes together."""
    return max(size // _BYTES_PER_TASK, files // _FILES_PER_TASK) + 1


def pack(files: Sequence[LandingFile], slots: int) -> list[list[LandingFile]]:
    """Return the files distributed among tasks by size, the largest first."""
    size = sum(file.identity.size for file in files)
    count = max(1, min(len(files), task_count(size, len(files)), slots * 4))
    bins: list[list[LandingFile]] = [[] for _ in range(count)]
    loads = [0] * count
    for file in sorted(files, key=lambda file: (-file.identity.size, file.path)):
        lightest = loads.index(min(loads))
        bins[lightest].append(file)
        loads[lightest] += file.identity.size + 1
    return bins


def _read_bins(
    spark: SparkSession,
    files: Sequence[LandingFile],
    struct: StructType | str,
    read: Callable[[LandingFile], Iterable[pa.RecordBatch]],
) -> DataFrame:
    """Return the frame whose tasks read the files, each file as a whole by one task."""
    bins = pack(files, spark.sparkContext.defaultParallelism)

    def read_bins(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for file in bins[number]:
                    yield from read(file)

    return spark.range(0, len(bins), 1, len(bins)).mapInArrow(in_task(read_bins), struct)


def _no_transactions(spark: SparkSession) -> DataFrame:
    return spark.range(1).select(F.from_json(F.lit("{}"), T.SORTED_DDL).alias("row")).select("row.*").filter("false")


def read_work(
    context: TableContext,
    workspace: Workspace,
    generation: Generation,
    files: Sequence[LandingFile],
    mirror_columns: Sequence[Column],
    *,
    op: int,
    erased: ErasedKeys | None,
) -> tuple[tuple[Column, ...], DataFrame | None, list[FileSummary]]:
    """Return the columns, records and summaries of files, evolving the table's schema until every file fits.

    Rows of erased keys are left out. Without files there are no records. ``op`` is the op that reads the files.
    """
    settings = context.settings
    present = source_columns(mirror_columns, settings)
    columns = known_columns(context.table, present, settings)
    if not files:
        require_names(context.table, columns, settings, present)
        return with_metadata_columns(columns, mirror_columns, settings), None, []
    columns = columns or _columns_of_first(context, files)
    for _ in range(_SCHEMA_ROUNDS):
        require_usable(context.table, columns, settings, present)
        spec = ReadSpec(context.table, columns, settings, generation.order_by)
        records, summaries = read_records(context.spark, workspace, context.storage, context.transactions, files, spec)
        require_readable(context, [summary for summary in summaries if summary.stable])
        evolved = with_file_columns(context.table, columns, summaries, settings)
        if evolved == columns:
            require_known_rules(context, columns, summaries, present)
            kept, summaries = without_erased(workspace, records, summaries, spec, erased)
            wanted = with_metadata_columns(columns, mirror_columns, settings)
            return wanted, with_metadata(kept, wanted, settings, F.lit(op)), summaries
        columns = evolved
    msg = f"{context.table}: the schema still changed after the files were read {_SCHEMA_ROUNDS} times"
    raise BugError(msg)


def _columns_of_first(context: TableContext, files: Sequence[LandingFile]) -> tuple[Column, ...]:
    """Return the schema of a new table from a Parquet file's footer; CSV files have no types."""
    if any(context.storage.below_lake(file.path) is not None for file in files):
        rules = rules_of(context.settings)
        found = adopted_columns(context.table, context.storage, context.settings, files)
        return as_stored(of_files(found, rules), rules)
    for file in sorted(files, key=lambda file: file.order):
        if ".parquet" in file.path:
            return _footer_columns(context, file)
    msg = f"{context.table}: no schema: CSV files have no types, and types are never guessed"
    hint = f"declare it in lakeward.yaml: tables: {{{context.table}: {{schema: 'id int, name string, …'}}}}"
    raise ConfigurationError(msg, hint=hint)


def _footer_columns(context: TableContext, file: LandingFile) -> tuple[Column, ...]:
    try:
        with context.storage.spool(file.path) as (local_path, _):
            rules = rules_of(context.settings)
            return as_stored(of_files(parquet_columns(local_path, context.settings), rules), rules)
    except (UnusableFileError, OSError, pa.ArrowException) as error:
        msg = f"{context.table}: {file.path} cannot be used: {error}"
        raise DataError(msg, hint=f"repair or remove it, then: lakeward run {context.table}") from error


# Checks of the configured key on a load's rows: repeated keys and NULLs. A small load is read in this process, with
# eight bytes of memory per row; a large load is read by Spark.

if TYPE_CHECKING:
    Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_EXAMPLES = 5
# Types that are never keys, and how many columns are tried, alone and in pairs.
_NO_KEYS = ("float", "double", "boolean")
_LIKELY, _PAIRED = 24, 6
# Keys that are compared again by value: beyond this number, hash collisions do not matter.
_VERIFIED = 1000
_FIRST, _LAST = f"{S.PREFIX}first", f"{S.PREFIX}last"


@dataclass
class KeyReport:
    """The result of checking the key on a load's rows.

    ``examples`` are repeated keys with their counts, ``sharing`` the first and last path of the parts that hold such a
    key. ``unread`` parts have columns that differ from the spec; a run would evolve the schema to them.
    """

    rows: int = 0
    bad: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    examples: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    sharing: set[tuple[str, str]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def check_keys(storage: Landing, parts: Sequence[LandingFile], spec: ReadSpec) -> KeyReport:
    """Check the key in this process. Parts that change meanwhile or do not fit are reported as problems."""
    report = KeyReport(nulls=dict.fromkeys(spec.key, 0))
    hashes = [_hashes(keys) for keys in _keys(storage, parts, spec, report)]
    found, times = np.unique(np.concatenate([*hashes, np.empty(0, np.uint64)]), return_counts=True)
    suspects = found[times > 1]
    if len(suspects):
        again = _by_value(storage, parts, spec, suspects[:_VERIFIED])
        repeated = sorted(
            ((key, paths) for key, paths in again.items() if len(paths) > 1), key=lambda found: -len(found[1])
        )
        # Suspects that are not compared again count as repeated keys.
        report.repeated = len(repeated) + max(0, len(suspects) - _VERIFIED)
        report.examples = [(_named(spec, key), len(paths)) for key, paths in repeated[:_EXAMPLES]]
        report.sharing = {(min(paths), max(paths)) for _, paths in repeated}
    return report


def check_keys_with_spark(
    spark: SparkSession, storage: Landing, parts: Sequence[LandingFile], spec: ReadSpec
) -> KeyReport:
    """Check the key with Spark, one task per part."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from lakeward.session.sessions import table_session
    from lakeward.spark.workspace import Workspace
    from lakeward.transforms.columns import column, columns

    kept = [S.KIND, S.DETAIL, S.FILE, *spec.key]
    files = list(parts)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from (records.select(kept) for records in read_file(storage, files[number], spec))

    whole = S.record_struct(spec.columns)
    struct = StructType([whole[name] for name in kept])
    times = f"{S.PREFIX}times"
    numbers = table_session(spark).range(0, len(files), 1, len(files))
    with Workspace() as workspace:
        records = workspace.keep(numbers.mapInArrow(in_task(read), struct))
        report = KeyReport()
        for row in records.filter(column(S.KIND) == S.KIND_FILE).select(S.DETAIL).collect():
            _note(report, FileSummary.from_json(row[0]))
        rows = records.filter(column(S.KIND) == S.KIND_CHANGE)
        nulls = rows.agg(*[F.count_if(column(name).isNull()).alias(name) for name in spec.key]).collect()[0]
        report.nulls = dict(zip(spec.key, nulls, strict=True))
        counts = (F.count(F.lit(1)).alias(times), F.min(S.FILE).alias(_FIRST), F.max(S.FILE).alias(_LAST))
        repeated = rows.groupBy(*columns(spec.key)).agg(*counts).filter(column(times) > 1)
        report.repeated = repeated.count()
        shown = repeated.orderBy(column(times).desc()).limit(_EXAMPLES).collect() if report.repeated else []
        report.examples = [(_named(spec, tuple(row)[: len(spec.key)]), row[times]) for row in shown]
        pairs = repeated.select(_FIRST, _LAST).distinct().limit(_VERIFIED).collect() if report.repeated else []
        report.sharing = {(row[0], row[1]) for row in pairs}
    return report


@dataclass(frozen=True)
class FoundKey:
    """Columns whose values are unique in a load and never NULL; no names without any.

    ``is_named_so``: the one column has the name of a key, as ``id`` has. ``rivals`` are other columns of which the same
    is true.
    """

    names: tuple[str, ...] = ()
    is_named_so: bool = False
    rivals: tuple[str, ...] = ()


def load_rows(storage: Landing, parts: Sequence[LandingFile], spec: ReadSpec) -> pa.Table | None:
    """Return the good rows of a small load, None where there are none."""
    names = [field.name for field in spec.columns]
    batches = [
        records.filter(pc.equal(records.column(S.KIND), S.KIND_CHANGE)).select(names)
        for part in parts
        for records in read_file(storage, part, spec)
    ]
    rows = pa.Table.from_batches(batches) if batches else None
    return rows if rows is not None and rows.num_rows else None


def unique_key(rows: pa.Table, spec: ReadSpec) -> FoundKey:
    """Return the likeliest key of a load by its rows, with eight bytes of memory per value.

    One column if any is unique, else two of the first few.
    """
    likely = sorted(
        (field for field in spec.columns if field.lake_type not in _NO_KEYS),
        key=lambda field: (key_rank(field, spec.table.name), spec.columns.index(field)),
    )[:_LIKELY]
    candidates = [field for field in likely if not rows.column(field.name).null_count]
    unique = [field for field in candidates if _is_unique(rows, [field.name])]
    if unique:
        ranks = [key_rank(field, spec.table.name) for field in unique]
        rivals = tuple(field.name for field, rank in zip(unique, ranks, strict=True) if rank == ranks[0])[1:]
        return FoundKey((unique[0].name,), ranks[0] == 0, rivals)
    names = sorted((field.name for field in candidates[:_PAIRED]), key=[field.name for field in spec.columns].index)
    return next((FoundKey(pair) for pair in combinations(names, 2) if _is_unique(rows, pair)), FoundKey())


def _is_unique(rows: pa.Table, names: Sequence[str]) -> bool:
    hashes = np.concatenate([_hashes(batch) for batch in rows.select(list(names)).to_batches()])
    return len(np.unique(hashes)) == int(rows.num_rows)


def key_rank(column: Column, table: str) -> int:
    """Return a column's rank by how keys are usually named, 0 for the names of a key; times and bytes come last."""
    name, own = column.name.lower(), table.lower()
    owns = {own, own.removesuffix("s"), own.removesuffix("es"), re.sub("ies$", "y", own)}
    if name == "id" or any(name in (f"{noun}_id", f"{noun}id", f"id_{noun}") for noun in owns):
        return 0
    if column.lake_type.startswith(("timestamp", "date", "binary")):
        return 3
    return 1 if name.endswith(("id", "key", "code", "no", "nr", "number")) else 2


def describe_keys(examples: Sequence[tuple[dict[str, Any], int]]) -> str:
    """Return example keys as readable text."""
    return "; ".join(f"{json.dumps(key, default=str, ensure_ascii=False)} {count} times" for key, count in examples)


def _keys(
    storage: Landing, parts: Sequence[LandingFile], spec: ReadSpec, report: KeyReport | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the key columns of every good row; the files' summaries go into the report."""
    for part in parts:
        for records in read_file(storage, part, spec):
            kinds = records.column(S.KIND)
            if kinds[0].as_py() == S.KIND_FILE:
                if report is not None:
                    _note(report, FileSummary.from_json(records.column(S.DETAIL)[0].as_py()))
                continue
            keys = records.filter(pc.equal(kinds, S.KIND_CHANGE)).select(list(spec.key))
            if report is not None:
                for name in spec.key:
                    report.nulls[name] += keys.column(name).null_count
            yield keys


def _note(report: KeyReport, summary: FileSummary) -> None:
    report.rows += summary.rows
    report.bad += summary.bad
    if not summary.stable:
        report.problems.append(f"{summary.path} is still being written")
    elif summary.problem:
        report.problems.append(f"{summary.path}: {summary.problem}")
    elif summary.mismatch:
        report.unread.append(summary.path)


def _hashes(keys: pa.RecordBatch) -> Hashes:
    """Return a hash for each key; equal keys have equal hashes, whatever their types."""
    texts = {str(place): _plain(array) for place, array in enumerate(keys.columns)}
    hashed: Hashes = pd.util.hash_pandas_object(pd.DataFrame(texts), index=False).to_numpy()
    return hashed


def _plain(array: pa.Array) -> np.ndarray[Any, Any]:
    as_text = array if pa.types.is_binary(array.type) else array.cast(pa.string())
    return np.asarray(as_text.to_numpy(zero_copy_only=False), dtype=object)


def _by_value(
    storage: Landing, parts: Sequence[LandingFile], spec: ReadSpec, suspects: Hashes
) -> dict[tuple[Any, ...], list[str]]:
    """Return the keys behind repeated hashes by value, each with the path of every row that has it."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for part in parts:
        for keys in _keys(storage, [part], spec):
            chosen = keys.filter(pa.array(np.isin(_hashes(keys), suspects)))
            for row in chosen.to_pylist():
                found.setdefault(tuple(row.values()), []).append(part.path)
    return found


def _named(spec: ReadSpec, key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(spec.key, key, strict=True))
