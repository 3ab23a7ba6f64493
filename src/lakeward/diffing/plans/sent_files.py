"""Files that only Spark itself can read, such as those of HDFS: their bytes go to the tasks, not their rows."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.diffing.plans.kernel import Group, Kernel
from lakeward.storage.filesystem import for_reading
from lakeward.storage.sets import PART_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.diffing.inputs.sides import FoundSet

# A partition's files are one batch on their way into a task, and Arrow counts a batch's bytes in 31 bits.
MOST_BYTES = 1 << 30
_TRIES = 64


@dataclass(frozen=True)
class _Here:
    """Files that were written to this machine's disk already."""

    def local(self, path: str) -> AbstractContextManager[str]:
        """Give the path itself."""
        return nullcontext(path)


def sent_files(spark: SparkSession, past: FoundSet, current: FoundSet, groups: Iterable[int], count: int) -> DataFrame:
    """Give a frame of (group, is left, bytes), each group of files in a partition of its own."""
    wanted = sorted(groups)
    left = _bytes(spark, past, wanted, count, is_left=True)
    right = _bytes(spark, current, wanted, count, is_left=False)
    both = left if right is None else right if left is None else left.unionByName(right)
    assert both is not None
    place = _placing(spark, wanted)
    return both.repartition(len(wanted), place).select("group", "is_left", "content")


def compare_sent(kernel: Kernel) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Give the function of a Spark task whose rows are those of :func:`sent_files`."""

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
            yield from kernel.pairs(groups, _Here(), _Here())

    return run


def _bytes(spark: SparkSession, side: FoundSet, groups: list[int], count: int, *, is_left: bool) -> DataFrame | None:
    grouped = side.layout.grouped(count)
    paths = [one.path for number in groups for one in grouped.get(number, ())]
    if not paths:
        return None
    reader = spark.read.format("binaryFile")
    for name, value in side.store.options.items():
        reader = reader.option(name, value)
    found = reader.load([for_reading(side.store.for_spark(f"{side.folder}/{path}")) for path in paths])
    number = F.regexp_extract(F.col("path"), PART_PATTERN, 1).cast("int")
    return found.select(F.pmod(number, F.lit(count)).alias("group"), F.lit(is_left).alias("is_left"), F.col("content"))


def _placing(spark: SparkSession, groups: list[int]) -> Column:
    """Give the column by whose hash each group goes to a partition of its own."""
    count = len(groups)
    number = F.col("id").cast("int")
    tried = spark.range(count * _TRIES).select(number.alias("salt"), F.pmod(F.hash(number), F.lit(count)).alias("to"))
    salts = {row[0]: row[1] for row in tried.groupBy("to").agg(F.min("salt")).collect()}
    # A partition that no number leads to shares with the next.
    chosen = [salts.get(at, at) for at in range(count)]
    position = F.array_position(F.array(*[F.lit(one) for one in groups]), F.col("group"))
    return F.element_at(F.array(*[F.lit(one) for one in chosen]), position.cast("int"))
