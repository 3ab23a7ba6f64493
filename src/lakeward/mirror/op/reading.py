"""Landing files as one Spark frame of typed, placed records, read once.

Files of one table are read op by op. A transaction file belongs to many tables: the first that asks for it has it
sorted out, and the others find it on the shelf for as long as the run lasts.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
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
from lakeward.errors import BugError, ConfigurationError, DataError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms import transactions as T
from lakeward.formats.dms.files import Limits, UnusableFileError
from lakeward.formats.dms.parquet import parquet_columns
from lakeward.formats.dms.reader import read_file
from lakeward.mirror.op.check import require_readable
from lakeward.mirror.op.erased import without_erased
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
    from lakeward.storage.landing import Storage


# Below this a batch is read by one task: a second one costs more than it saves.
_BYTES_PER_TASK = 16 << 20
_FILES_PER_TASK = 250
# A file's columns are learnt while it is read; each round can only add or widen, so this many never happen.
_SCHEMA_ROUNDS = 5


class TransactionCache:
    """Transaction files that were read in this run, sorted out by table, for all tables of the run."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._shelved: dict[tuple[LandingFile, str, str, Limits], DataFrame] = {}
        self._lock = threading.Lock()

    def records(self, spark: SparkSession, files: Sequence[LandingFile], spec: ReadSpec) -> DataFrame:
        """Return one table's records of transaction files; those not yet on the shelf are read when it is computed."""
        by_path = {file.path: file for file in files}
        schema, table = T.source_name(spec)
        is_own = (column(T.SCHEMA) == schema) & (column(T.TABLE) == table)
        # Frames of the shelf belong to the session of the table that came first; a union belongs to this one.
        frames = [_nothing_sorted(spark), *self._frames(spark, files, spec.settings)]
        rows = reduce(DataFrame.unionAll, frames).filter(is_own | column(T.ENDING).isNotNull())

        def read_own(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return T.read_sorted(batches, by_path, spec)

        return rows.mapInArrow(in_task(read_own), S.record_struct(spec.columns))

    def close(self) -> None:
        """Let the kept rows go."""
        for frame in {id(frame): frame for frame in self._shelved.values()}.values():
            frame.unpersist()
        self._shelved.clear()

    def _frames(self, spark: SparkSession, files: Sequence[LandingFile], settings: TableSettings) -> list[DataFrame]:
        """Return the frames that hold the files, each once; files that changed since they were shelved are new ones."""
        csv, limits = settings.csv, Limits.of(settings)
        keys = {file: (file, csv.delimiter, csv.quote, limits) for file in files}
        storage = self._storage  # the shelf itself cannot travel into tasks
        with self._lock:
            if new := [file for file, key in keys.items() if key not in self._shelved]:
                frame = _read_bins(spark, new, T.SORTED_DDL, lambda file: T.sort_file(storage, file, csv, limits))
                frame.persist(StorageLevel.MEMORY_AND_DISK)
                self._shelved.update((keys[file], frame) for file in new)
            return list({id(frame): frame for frame in (self._shelved[key] for key in keys.values())}.values())


def read_records(
    spark: SparkSession,
    workspace: Workspace,
    storage: Storage,
    shelf: TransactionCache,
    files: Sequence[LandingFile],
    spec: ReadSpec,
) -> tuple[DataFrame, list[FileSummary]]:
    """Read files into a kept frame and give each file's summary. Every file is read by one task."""
    shared = [file for file in files if file.file_class is FileClass.TRANSACTIONS]
    own = [file for file in files if file.file_class is not FileClass.TRANSACTIONS]
    # A small batch is kept for seconds: packing its columns would cost more than the memory is worth.
    is_small = sum(file.identity.size for file in files) < _BYTES_PER_TASK
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", str(not is_small).lower())
    frames = [shelf.records(spark, shared, spec)] if shared else []
    if own:
        struct = S.record_struct(spec.columns)
        frames.append(_read_bins(spark, own, struct, lambda file: read_file(storage, file, spec)))
    records = workspace.keep(reduce(DataFrame.unionAll, frames))
    rows = records.filter(column(S.KIND) == S.KIND_FILE).select(S.DETAIL).collect()
    return records, [FileSummary.from_json(row[0]) for row in rows]


def pack(files: Sequence[LandingFile], slots: int) -> list[list[LandingFile]]:
    """Share files among tasks by size, the largest first."""
    size = sum(file.identity.size for file in files)
    wanted = max(size // _BYTES_PER_TASK, len(files) // _FILES_PER_TASK) + 1
    count = max(1, min(len(files), wanted, slots * 4))
    bins: list[list[LandingFile]] = [[] for _ in range(count)]
    loads = [0] * count
    for file in sorted(files, key=lambda one: (-one.identity.size, one.path)):
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
    """Return the frame whose tasks read the files, each file by one of them and from its first row to its last."""
    bins = pack(files, spark.sparkContext.defaultParallelism)

    def read_bins(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for file in bins[number]:
                    yield from read(file)

    return spark.range(0, len(bins), 1, len(bins)).mapInArrow(in_task(read_bins), struct)


def _nothing_sorted(spark: SparkSession) -> DataFrame:
    return spark.range(1).select(F.from_json(F.lit("{}"), T.SORTED_DDL).alias("row")).select("row.*").filter("false")


def read_work(
    context: TableContext,
    workspace: Workspace,
    generation: Generation,
    files: Sequence[LandingFile],
    mirror_columns: Sequence[Column],
    *,
    erased: ErasedKeys | None,
) -> tuple[tuple[Column, ...], DataFrame | None, list[FileSummary]]:
    """Read files under the table's schema, evolving it until every file fits; rows of erased keys are left out."""
    settings = context.settings
    columns = known_columns(context.table, mirror_columns, settings.columns, settings.renames)
    if not files:
        require_names(context.table, columns, settings, mirror_columns)
        return columns, None, []
    columns = columns or _columns_of_first(context, files)
    for _ in range(_SCHEMA_ROUNDS):
        require_usable(context.table, columns, settings, mirror_columns)
        spec = ReadSpec(context.table, columns, settings, generation.order_by)
        records, summaries = read_records(context.spark, workspace, context.storage, context.transactions, files, spec)
        require_readable(context, [summary for summary in summaries if summary.stable])
        evolved = with_file_columns(context.table, columns, summaries, settings)
        if evolved == columns:
            return columns, *without_erased(workspace, records, summaries, spec, erased)
        columns = evolved
    msg = f"{context.table}: the schema did not settle after {_SCHEMA_ROUNDS} readings"
    raise BugError(msg)


def _columns_of_first(context: TableContext, files: Sequence[LandingFile]) -> tuple[Column, ...]:
    """Learn the schema of a table never seen from a Parquet file's footer; CSV files have no types."""
    for file in sorted(files, key=lambda file: file.order):
        if ".parquet" in file.path:
            return _footer_columns(context, file)
    msg = f"{context.table}: no schema: CSV files do not tell types, and they are never guessed"
    hint = f"declare it in lakeward.yaml: tables: {{{context.table}: {{schema: 'id int, name string, …'}}}}"
    raise ConfigurationError(msg, hint=hint)


def _footer_columns(context: TableContext, file: LandingFile) -> tuple[Column, ...]:
    try:
        with context.storage.spool(file.path) as (local_path, _):
            return parquet_columns(local_path, context.settings)
    except (UnusableFileError, OSError, pa.ArrowException) as error:
        msg = f"{context.table}: {file.path} cannot be used: {error}"
        raise DataError(msg, hint=f"repair or remove it, then: lakeward run {context.table}") from error


# Whether a load's rows have the key that is set: no key twice, and how many hold a NULL.
# A small load is read here, holding eight bytes per row; a large one by the tasks of Spark.


if TYPE_CHECKING:
    Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_EXAMPLES = 5
# Types that nobody makes a key of, and how many columns are tried, alone and in pairs.
_NO_KEYS = ("float", "double", "boolean")
_LIKELY, _PAIRED = 24, 6
# Keys looked at again by value: with more of them nobody asks whether two hashes met by chance.
_VERIFIED = 1000


@dataclass
class KeyReport:
    """What the load's rows say of the key.

    ``examples`` are keys that come more than once, with how often. ``unread`` parts have other columns than the spec,
    which a run would evolve to.
    """

    rows: int = 0
    bad: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    examples: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def check_keys(storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec) -> KeyReport:
    """Read the load here. Parts that changed meanwhile or do not fit give problems and no rows to rely on."""
    report = KeyReport(nulls=dict.fromkeys(spec.key, 0))
    hashes = [_hashes(keys) for keys in _keys(storage, parts, spec, report)]
    found, times = np.unique(np.concatenate([*hashes, np.empty(0, np.uint64)]), return_counts=True)
    suspects = found[times > 1]
    if len(suspects):
        again = _by_value(storage, parts, spec, suspects[:_VERIFIED])
        repeated = [(key, count) for key, count in again.most_common() if count > 1]
        # Of suspects not looked at again each is a key that comes twice.
        report.repeated = len(repeated) + max(0, len(suspects) - _VERIFIED)
        report.examples = [(_named(spec, key), count) for key, count in repeated[:_EXAMPLES]]
    return report


def check_keys_with_spark(
    spark: SparkSession, storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec
) -> KeyReport:
    """Read the load by Spark's tasks, one per part."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from lakeward.session.sessions import table_session
    from lakeward.spark.workspace import Workspace
    from lakeward.transforms.columns import column, columns

    kept = [S.KIND, S.DETAIL, *spec.key]
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
        repeated = rows.groupBy(*columns(spec.key)).agg(F.count(F.lit(1)).alias(times)).filter(column(times) > 1)
        report.repeated = repeated.count()
        shown = repeated.orderBy(column(times).desc()).limit(_EXAMPLES).collect() if report.repeated else []
        report.examples = [(_named(spec, tuple(row)[:-1]), row[-1]) for row in shown]
    return report


def unique_key(storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec) -> tuple[str, ...]:
    """Return columns whose values come once in the load and are never NULL, the likeliest key first; () where none do.

    One column if any will do, else two of the first few. The load is read here, holding eight bytes per value.
    """
    likely = sorted(
        (one for one in spec.columns if one.lake_type not in _NO_KEYS),
        key=lambda one: (_rank(one, spec.table.name), spec.columns.index(one)),
    )[:_LIKELY]
    batches = [records.filter(pc.equal(records.column(S.KIND), S.KIND_CHANGE)).select([one.name for one in likely])
               for part in parts for records in read_file(storage, part, spec)]  # fmt: skip
    rows = pa.Table.from_batches(batches) if batches else None
    if rows is None or not rows.num_rows:
        return ()
    candidates = [one.name for one in likely if not rows.column(one.name).null_count]
    pairs = combinations(sorted(candidates[:_PAIRED], key=[one.name for one in spec.columns].index), 2)
    for names in (*((name,) for name in candidates), *pairs):
        hashes = np.concatenate([_hashes(batch) for batch in rows.select(list(names)).to_batches()])
        if len(np.unique(hashes)) == rows.num_rows:
            return names
    return ()


def _rank(column: Column, table: str) -> int:
    """Place a column by what keys are usually named; times and bytes come last."""
    name, own = column.name.lower(), table.lower()
    if name in ("id", f"{own}_id", f"{own}id", f"id_{own}"):
        return 0
    if column.lake_type.startswith(("timestamp", "date", "binary")):
        return 3
    return 1 if name.endswith(("id", "key", "code", "no", "nr", "number")) else 2


def describe_keys(examples: Sequence[tuple[dict[str, Any], int]]) -> str:
    """Write example keys for eyes."""
    return "; ".join(f"{json.dumps(key, default=str, ensure_ascii=False)} {count} times" for key, count in examples)


def _keys(
    storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec, report: KeyReport | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the key columns of every good row; what the files say of themselves goes into the report."""
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
    """Hash each key; equal keys have equal hashes, whatever their types."""
    texts = {str(place): _plain(array) for place, array in enumerate(keys.columns)}
    hashed: Hashes = pd.util.hash_pandas_object(pd.DataFrame(texts), index=False).to_numpy()
    return hashed


def _plain(array: pa.Array) -> np.ndarray[Any, Any]:
    as_text = array if pa.types.is_binary(array.type) else array.cast(pa.string())
    return np.asarray(as_text.to_numpy(zero_copy_only=False), dtype=object)


def _by_value(
    storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec, suspects: Hashes
) -> Counter[tuple[Any, ...]]:
    """Count the keys behind suspicious hashes by their values."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for keys in _keys(storage, parts, spec):
        chosen = keys.filter(pa.array(np.isin(_hashes(keys), suspects)))
        counts.update(tuple(row.values()) for row in chosen.to_pylist())
    return counts


def _named(spec: ReadSpec, key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(spec.key, key, strict=True))
