"""Landing files as one Spark frame of typed, placed records, read once.

Files of one table are read op by op. A transaction file belongs to many tables: the first that asks for it has it
sorted out, and the others find it on the shelf for as long as the run lasts.
"""

from __future__ import annotations

import threading
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError, ConfigurationError, DataError
from lakeward.model import FileClass
from lakeward.pipeline.check import require_readable
from lakeward.pipeline.erased import without_erased
from lakeward.pipeline.schema import known_columns, require_names, require_usable, with_file_columns
from lakeward.sources.base import FileSummary, ReadSpec
from lakeward.sources.dms import transactions as T
from lakeward.sources.dms.limits import Limits
from lakeward.sources.dms.parquet import parquet_columns
from lakeward.sources.dms.problems import UnusableFileError
from lakeward.sources.dms.reader import read_file
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from lakeward.config import TableSettings
    from lakeward.datatypes import Column
    from lakeward.model import Generation, LandingFile
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.erased import ErasedKeys
    from lakeward.pipeline.workspace import Workspace
    from lakeward.sources.storage import Storage

# Below this a batch is read by one task: a second one costs more than it saves.
_BYTES_PER_TASK = 16 << 20
_FILES_PER_TASK = 250
# A file's columns are learnt while it is read; each round can only add or widen, so this many never happen.
_SCHEMA_ROUNDS = 5


class TransactionShelf:
    """Transaction files that were read in this run, sorted out by table, for all tables of the run."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._shelved: dict[tuple[LandingFile, str, str, Limits], DataFrame] = {}
        self._lock = threading.Lock()

    def records(self, spark: SparkSession, files: Sequence[LandingFile], spec: ReadSpec) -> DataFrame:
        """Give one table's records of transaction files; those not yet on the shelf are read when it is computed."""
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
        """Give the frames that hold the files, each once; files that changed since they were shelved are new ones."""
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
    shelf: TransactionShelf,
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
    """Give the frame whose tasks read the files, each file by one of them and from its first row to its last."""
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
