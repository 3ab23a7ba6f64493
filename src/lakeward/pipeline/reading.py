"""Landing files as one Spark frame of typed, placed records, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.sources.base import FileSummary
from lakeward.sources.dms.reader import read_file
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.model import LandingFile
    from lakeward.pipeline.workspace import Workspace
    from lakeward.sources.base import ReadSpec
    from lakeward.sources.storage import Storage

# Below this a batch is read by one task: a second one costs more than it saves.
_BYTES_PER_TASK = 16 << 20
_FILES_PER_TASK = 250


def read_records(
    spark: SparkSession, workspace: Workspace, storage: Storage, files: Sequence[LandingFile], spec: ReadSpec
) -> tuple[DataFrame, list[FileSummary]]:
    """Read files into a kept frame and give each file's summary. Every file is read by one task."""
    bins = pack(files, spark.sparkContext.defaultParallelism)
    # A small batch is kept for seconds: packing its columns would cost more than the memory is worth.
    spark.conf.set("spark.sql.inMemoryColumnarStorage.compressed", str(len(bins) > 1).lower())
    numbers = spark.range(0, len(bins), 1, len(bins))
    records = workspace.keep(numbers.mapInArrow(_reader(storage, bins, spec), S.record_struct(spec.columns)))
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


def _reader(
    storage: Storage, bins: list[list[LandingFile]], spec: ReadSpec
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Give the function that a task runs on the numbers of its bins."""

    def read_bins(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for file in bins[number]:
                    yield from read_file(storage, file, spec)

    return read_bins
