"""Two snapshot sets compared bucket by bucket: no shuffle, and buckets with equal checksums are not read at all."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakeward.diffing.frames.alignment import is_same
from lakeward.diffing.frames.pairs import BUCKETS, HAS_LEFT, HAS_RIGHT, Pairs, PlannedPairs, left_name, right_name
from lakeward.diffing.plans.kernel import Group, Kernel, KernelColumn, compare_in_tasks, native_type, why_not_native
from lakeward.spark.errors import store_errors
from lakeward.spark.marks import in_task
from lakeward.storage.checksum import total
from lakeward.storage.filesystem import TaskFileSystem, for_reading
from lakeward.storage.sets import PART_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.plans.kernel import Files
    from lakeward.diffing.stored.addresses import FoundSet, Side
    from lakeward.storage.filesystem import FileSystem
    from lakeward.storage.sets import Bucket


# Access of Spark tasks to the files of a snapshot set.


@dataclass(frozen=True)
class FilesBelow:
    """Files of a folder that tasks open themselves: in place, or as a copy for the time that they are needed."""

    store: TaskFileSystem
    folder: str

    def local(self, path: str) -> AbstractContextManager[str]:
        """Return a context with a local path of a file's bytes."""
        return opened(self.store, f"{self.folder}/{path}")


@contextmanager
def opened(store: TaskFileSystem, path: str) -> Iterator[str]:
    """Yield a local path of a file's bytes.

    Raises:
        ConfigurationError: it may not be read.
        RetriableError: it is gone since it was listed, or the storage does not answer as it should.
    """
    with ExitStack() as stack:
        with store_errors(path):
            local = stack.enter_context(store.fetch(path))
        yield local


def files_of(store: FileSystem, folder: str) -> Files | None:
    """Return how tasks open a set's files; None where only Spark itself can read them."""
    return FilesBelow(store, folder) if isinstance(store, TaskFileSystem) else None


# Files that only Spark itself can read, such as those of HDFS, are sent to the tasks as bytes, not as rows. A
# partition's files are sent as one batch, and Arrow counts a batch's bytes in 31 bits.
MOST_BYTES = 1 << 30
_TRIES = 64


@dataclass(frozen=True)
class _TaskFiles:
    """Files that the task itself wrote to the disk of its machine."""

    def local(self, path: str) -> AbstractContextManager[str]:
        """Return the path itself."""
        return nullcontext(path)


def sent_files(spark: SparkSession, past: FoundSet, current: FoundSet, groups: Iterable[int], count: int) -> DataFrame:
    """Return a frame of (group, is left, bytes), each group of files in a separate partition."""
    wanted = sorted(groups)
    left = _bytes(spark, past, wanted, count, is_left=True)
    right = _bytes(spark, current, wanted, count, is_left=False)
    both = left if right is None else right if left is None else left.unionByName(right)
    assert both is not None
    place = _placing(spark, wanted)
    return both.repartition(len(wanted), place).select("group", "is_left", "content")


def compare_sent(kernel: Kernel) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function of a Spark task whose rows are those of :func:`sent_files`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="lakeward-files-") as folder:
            found: dict[int, tuple[list[str], list[str]]] = {}
            for batch in batches:
                for at in range(batch.num_rows):
                    number, is_left = batch.column(0)[at].as_py(), batch.column(1)[at].as_py()
                    sides = found.setdefault(number, ([], []))
                    own = sides[0] if is_left else sides[1]
                    path = Path(folder) / f"{number}-{is_left}-{len(own)}.parquet"
                    path.write_bytes(batch.column(2)[at].as_buffer())
                    own.append(str(path))
            groups = [Group(tuple(left), tuple(right)) for left, right in found.values()]
            yield from kernel.pairs(groups, _TaskFiles(), _TaskFiles())

    return run


def _bytes(spark: SparkSession, side: FoundSet, groups: list[int], count: int, *, is_left: bool) -> DataFrame | None:
    grouped = side.layout.grouped(count)
    paths = [bucket.path for number in groups for bucket in grouped.get(number, ())]
    if not paths:
        return None
    reader = spark.read.format("binaryFile")
    for name, value in side.store.options.items():
        reader = reader.option(name, value)
    found = reader.load([for_reading(side.store.for_spark(f"{side.folder}/{path}")) for path in paths])
    number = F.regexp_extract(F.col("path"), PART_PATTERN, 1).cast("int")
    return found.select(F.pmod(number, F.lit(count)).alias("group"), F.lit(is_left).alias("is_left"), F.col("content"))


def _placing(spark: SparkSession, groups: list[int]) -> Column:
    """Return the column by whose hash each group goes to a separate partition."""
    count = len(groups)
    number = F.col("id").cast("int")
    tried = spark.range(count * _TRIES).select(number.alias("salt"), F.pmod(F.hash(number), F.lit(count)).alias("to"))
    salts = {row[0]: row[1] for row in tried.groupBy("to").agg(F.min("salt")).collect()}
    # A partition that no salt leads to shares one with another group.
    chosen = [salts.get(at, at) for at in range(count)]
    position = F.array_position(F.array(*[F.lit(group) for group in groups]), F.col("group"))
    return F.element_at(F.array(*[F.lit(salt) for salt in chosen]), position.cast("int"))


if TYPE_CHECKING:
    _Pair = tuple[tuple[Bucket, ...], tuple[Bucket, ...]]

# Few tasks for each core: every task has a database of its own, whose memory is expensive to allocate.
_TASKS_PER_CORE = 2


@dataclass(frozen=True)
class _PairKernel:
    """The schema of the pairs, and the kernel that finds them."""

    struct: T.StructType
    kernel: Kernel

    @classmethod
    def of(cls, alignment: Alignment, *, whole: bool) -> _PairKernel:
        struct = pair_struct(alignment)
        return cls(
            struct, Kernel(tuple(_column(column) for column in alignment.columns), to_arrow_schema(struct), whole)
        )


def bucket_pairs(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool
) -> PlannedPairs | str:
    """Pair the rows of two sets by the native kernel, or return why that is not possible.

    ``exact`` reads every bucket, whatever its checksum.
    """
    if past.set is None or current.set is None:
        other = past if past.set is None else current
        return f"{other.label} is not a snapshot set"
    problem = _why_not(past.set, current.set, alignment)
    if problem:
        return problem
    count = min(past.set.layout.count, current.set.layout.count)
    groups = _groups(past.set, current.set, count)
    may_skip = not exact and not options.include_unchanged and _same_columns(alignment)
    chosen = {number: pair for number, pair in groups.items() if not may_skip or _differs(pair)}
    whole = options.include_unchanged
    wanted = _PairKernel.of(alignment, whole=whole)
    frame = _compared(past.frame.sparkSession, (past.set, current.set), chosen, count, wanted)
    if isinstance(frame, str):
        return frame
    pairs = Pairs(frame, alignment, whole)
    reason = _reason(past.set, current.set, len(chosen), len(groups), may_skip=may_skip)
    return PlannedPairs(pairs, BUCKETS, reason, past.set.layout.rows, current.set.layout.rows)


def _why_not(past: FoundSet, current: FoundSet, alignment: Alignment) -> str | None:
    left, right = past.layout, current.layout
    if (left.keys, left.function) != (right.keys, right.function):
        return f"one set is made by {', '.join(left.keys)}, the other by {', '.join(right.keys)}"
    keys = {key.in_left for key in alignment.keys if key.in_left == key.in_right and key.in_left is not None}
    if not keys.issuperset(left.keys):
        return f"the sets are made by {', '.join(left.keys)}, and the requested key is {', '.join(sorted(keys))}"
    if find_spec("duckdb") is None:
        return "DuckDB is not installed (pip install 'lakeward[diff]')"
    if finer := finer_comparator(alignment):
        return f"the comparator {finer} distinguishes values that are equal to DuckDB and in checksums"
    return why_not_native(alignment)


def finer_comparator(alignment: Alignment) -> str | None:
    """Return the comparator that distinguishes plainly equal values, which hashes cannot do; None without one."""
    return next((str(aligned.comparator) for aligned in alignment.compared if aligned.comparator.is_finer), None)


def _same_columns(alignment: Alignment) -> bool:
    """Whether checksums of the two sides are of the same columns and types."""
    sides = [(column.in_left == column.in_right, column.left_type, column.right_type) for column in alignment.columns]
    return all(named and left and right and is_same(left, right) for named, left, right in sides)


def _groups(past: FoundSet, current: FoundSet, count: int) -> dict[int, _Pair]:
    left, right = past.layout.grouped(count), current.layout.grouped(count)
    return {number: (left.get(number, ()), right.get(number, ())) for number in sorted(left.keys() | right.keys())}


def _differs(pair: _Pair) -> bool:
    left, right = (total(bucket.content for bucket in side) for side in pair)
    return left != right


def pair_struct(alignment: Alignment) -> T.StructType:
    """Return the schema of :class:`Pairs`."""
    flags = [T.StructField(name, T.BooleanType(), nullable=False) for name in (HAS_LEFT, HAS_RIGHT)]
    sides = [
        [T.StructField(name(at), column.shown_type(is_left=is_left)) for at, column in enumerate(alignment.columns)]
        for name, is_left in ((left_name, True), (right_name, False))
    ]
    return T.StructType([*flags, *sides[0], *sides[1]])


def _cast(aligned: AlignedColumn, *, is_left: bool) -> str | None:
    own = aligned.left_type if is_left else aligned.right_type
    return None if own is None or is_same(own, aligned.shown_type(is_left=is_left)) else native_type(aligned.type)


def _column(aligned: AlignedColumn) -> KernelColumn:
    return KernelColumn(
        left=aligned.in_left,
        right=aligned.in_right,
        left_cast=_cast(aligned, is_left=True),
        right_cast=_cast(aligned, is_left=False),
        is_key=aligned.is_key,
        is_compared=not aligned.is_ignored,
    )


def _compared(
    spark: SparkSession, sets: tuple[FoundSet, FoundSet], chosen: dict[int, _Pair], count: int, pairs: _PairKernel
) -> DataFrame | str:
    if not chosen:
        return _no_pairs(spark, pairs.struct)
    past, current = sets
    left, right = files_of(past.store, past.folder), files_of(current.store, current.folder)
    if left is not None and right is not None:
        groups = [Group(*(tuple(bucket.path for bucket in side) for side in pair)) for pair in chosen.values()]
        tasks = _shared_out(groups, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(in_task(compare_in_tasks(pairs.kernel, tasks, left, right)), pairs.struct)
    largest = max(sum(bucket.size for side in pair for bucket in side) for pair in chosen.values())
    if largest > MOST_BYTES:
        return f"the files of a bucket have {largest:,} bytes, too many to be sent to a task whole"
    return sent_files(spark, past, current, chosen, count).mapInArrow(in_task(compare_sent(pairs.kernel)), pairs.struct)


def _no_pairs(spark: SparkSession, struct: T.StructType) -> DataFrame:
    """Return a frame that is empty without a task being started."""
    values = [
        (F.lit(None) if field.nullable else F.lit(False)).cast(field.dataType).alias(field.name) for field in struct
    ]
    return spark.range(0).select(*values).limit(0)


def _shared_out(groups: Sequence[Group], most: int) -> list[list[Group]]:
    """Distribute groups among at most ``most`` tasks, about the same number to each."""
    count = min(len(groups), most)
    return [list(groups[at::count]) for at in range(count)]


def _reason(past: FoundSet, current: FoundSet, read: int, of: int, *, may_skip: bool) -> str:
    """Return what is read, and why not less."""
    counts = sorted({past.layout.count, current.layout.count})
    sets = f"both sides are snapshot sets by {', '.join(past.layout.keys)}, of {' and '.join(map(str, counts))} buckets"
    if not may_skip:
        return f"{sets}; all are read"
    return f"{sets}; {of - read} of {of} have equal checksums and are not read"
