"""Two snapshot sets compared bucket by bucket: no shuffle, and buckets with equal checksums are not read at all."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lakeward.diffing.pairs import HAS_LEFT, HAS_RIGHT, Pairs, left_name, right_name
from lakeward.diffing.plans.kernel import Group, Kernel, KernelColumn, compare_in_tasks
from lakeward.diffing.plans.native_types import native_type, why_not_native
from lakeward.diffing.plans.planned import BUCKETS, Planned
from lakeward.diffing.plans.sent_files import MOST_BYTES, compare_sent, sent_files
from lakeward.diffing.plans.set_files import files_of
from lakeward.diffing.widening import is_same
from lakeward.spark.marks import in_task
from lakeward.storage.checksum import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.diffing.alignment import AlignedColumn, Alignment
    from lakeward.diffing.inputs.sides import FoundSet, Side
    from lakeward.diffing.options import DiffOptions
    from lakeward.storage.sets import Bucket

    _Pair = tuple[tuple[Bucket, ...], tuple[Bucket, ...]]

# Tasks for each core: each has a database of its own, and memory that is got anew costs more than it seems.
_TASKS_PER_CORE = 2


@dataclass(frozen=True)
class _PairsWanted:
    struct: T.StructType
    kernel: Kernel

    @classmethod
    def of(cls, alignment: Alignment, *, whole: bool) -> _PairsWanted:
        struct = pair_struct(alignment)
        return cls(struct, Kernel(tuple(_column(one) for one in alignment.columns), to_arrow_schema(struct), whole))


def bucket_pairs(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool
) -> Planned | str:
    """Pair the rows of two sets by the native kernel; a text says why that cannot be.

    ``exact`` reads every bucket, whatever its checksum says.
    """
    if past.set is None or current.set is None:
        other = past if past.set is None else current
        return f"{other.label} is no snapshot set"
    problem = _why_not(past.set, current.set, alignment)
    if problem:
        return problem
    count = min(past.set.layout.count, current.set.layout.count)
    groups = _groups(past.set, current.set, count)
    may_skip = not exact and not options.include_unchanged and _same_columns(alignment)
    chosen = {number: pair for number, pair in groups.items() if not may_skip or _differs(pair)}
    whole = options.include_unchanged
    wanted = _PairsWanted.of(alignment, whole=whole)
    frame = _compared(past.frame.sparkSession, (past.set, current.set), chosen, count, wanted)
    if isinstance(frame, str):
        return frame
    pairs = Pairs(frame, alignment, whole)
    reason = _reason(past.set, current.set, len(chosen), len(groups), may_skip=may_skip)
    return Planned(pairs, BUCKETS, reason, past.set.layout.rows, current.set.layout.rows)


def _why_not(past: FoundSet, current: FoundSet, alignment: Alignment) -> str | None:
    left, right = past.layout, current.layout
    if (left.keys, left.function) != (right.keys, right.function):
        return f"one set is made by {', '.join(left.keys)}, the other by {', '.join(right.keys)}"
    keys = {one.in_left for one in alignment.keys if one.in_left == one.in_right and one.in_left is not None}
    if not keys.issuperset(left.keys):
        return f"the sets are made by {', '.join(left.keys)}, and the key asked for is {', '.join(sorted(keys))}"
    if find_spec("duckdb") is None:
        return "DuckDB is not installed (pip install 'lakeward[diff]')"
    if finer := finer_comparator(alignment):
        return f"the comparator {finer} tells values apart that are equal to DuckDB and in checksums"
    return why_not_native(alignment)


def finer_comparator(alignment: Alignment) -> str | None:
    """Give the comparator that tells values apart which plain equality, and so a hash, does not; None without one."""
    return next((str(one.comparator) for one in alignment.compared if one.comparator.is_finer), None)


def _same_columns(alignment: Alignment) -> bool:
    """Tell whether checksums speak of the same columns and types."""
    sides = [(one.in_left == one.in_right, one.left_type, one.right_type) for one in alignment.columns]
    return all(named and left and right and is_same(left, right) for named, left, right in sides)


def _groups(past: FoundSet, current: FoundSet, count: int) -> dict[int, _Pair]:
    left, right = past.layout.grouped(count), current.layout.grouped(count)
    return {number: (left.get(number, ()), right.get(number, ())) for number in sorted(left.keys() | right.keys())}


def _differs(pair: _Pair) -> bool:
    left, right = (total(one.content for one in side) for side in pair)
    return left != right


def pair_struct(alignment: Alignment) -> T.StructType:
    """Give the schema of :class:`Pairs`."""
    flags = [T.StructField(name, T.BooleanType(), nullable=False) for name in (HAS_LEFT, HAS_RIGHT)]
    sides = [
        [T.StructField(name(at), one.shown_type(is_left=is_left)) for at, one in enumerate(alignment.columns)]
        for name, is_left in ((left_name, True), (right_name, False))
    ]
    return T.StructType([*flags, *sides[0], *sides[1]])


def _cast(one: AlignedColumn, *, is_left: bool) -> str | None:
    own = one.left_type if is_left else one.right_type
    return None if own is None or is_same(own, one.shown_type(is_left=is_left)) else native_type(one.type)


def _column(one: AlignedColumn) -> KernelColumn:
    return KernelColumn(
        left=one.in_left,
        right=one.in_right,
        left_cast=_cast(one, is_left=True),
        right_cast=_cast(one, is_left=False),
        is_key=one.is_key,
        is_compared=not one.is_ignored,
    )


def _compared(
    spark: SparkSession, sets: tuple[FoundSet, FoundSet], chosen: dict[int, _Pair], count: int, pairs: _PairsWanted
) -> DataFrame | str:
    if not chosen:
        return _no_pairs(spark, pairs.struct)
    past, current = sets
    left, right = files_of(past.store, past.folder), files_of(current.store, current.folder)
    if left is not None and right is not None:
        groups = [Group(*(tuple(one.path for one in side) for side in pair)) for pair in chosen.values()]
        tasks = _shared_out(groups, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(in_task(compare_in_tasks(pairs.kernel, tasks, left, right)), pairs.struct)
    largest = max(sum(one.size for side in pair for one in side) for pair in chosen.values())
    if largest > MOST_BYTES:
        return f"the files of a bucket have {largest:,} bytes, too many to be sent to a task whole"
    return sent_files(spark, past, current, chosen, count).mapInArrow(in_task(compare_sent(pairs.kernel)), pairs.struct)


def _no_pairs(spark: SparkSession, struct: T.StructType) -> DataFrame:
    """Give a frame without rows, of which Spark knows it without starting a task."""
    values = [(F.lit(None) if one.nullable else F.lit(False)).cast(one.dataType).alias(one.name) for one in struct]
    return spark.range(0).select(*values).limit(0)


def _shared_out(groups: Sequence[Group], most: int) -> list[list[Group]]:
    """Share groups out among tasks: one for each, or up to so many tasks of about as many groups."""
    count = min(len(groups), most)
    return [list(groups[at::count]) for at in range(count)]


def _reason(past: FoundSet, current: FoundSet, read: int, of: int, *, may_skip: bool) -> str:
    """Say what is read, and why not less."""
    counts = sorted({past.layout.count, current.layout.count})
    sets = f"both sides are snapshot sets by {', '.join(past.layout.keys)}, of {' and '.join(map(str, counts))} buckets"
    if not may_skip:
        return f"{sets}; all are read"
    return f"{sets}; {of - read} of {of} have equal checksums and are not read"
