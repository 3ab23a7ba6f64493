"""A comparison of keys and row hashes, after which only the rows that differ are fetched and compared whole.

Both sides are read twice, but what is shuffled is a key and two numbers for each row: it pays where rows are wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.diffing.joining import joined
from lakeward.diffing.options import DuplicateKeys
from lakeward.diffing.refusals import duplicate_failure
from lakeward.diffing.widening import as_type
from lakeward.spark.settings import session_settings
from lakeward.storage.sets import OBSERVED
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import all_of
from lakeward.transforms.hashing import value_hash_lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.diffing.alignment import AlignedColumn, Alignment
    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.pairs import Pairs
    from lakeward.pipeline.workspace import Workspace

_LANES = (f"{S.PREFIX}first", f"{S.PREFIX}second")
_IS_LEFT, _LEFT, _RIGHT = f"{S.PREFIX}is_left", f"{S.PREFIX}left_rows", f"{S.PREFIX}right_rows"
# Keys of so many rows are sent to every task; more are joined by a shuffle.
_FEW_KEYS = 500_000


@dataclass(frozen=True)
class Narrowed:
    """The pairs that differ, and what was counted on the way."""

    pairs: Pairs
    past_rows: int
    current_rows: int
    candidates: int


def narrow_pairs(
    past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, workspace: Workspace
) -> Narrowed:
    """Find the keys whose rows differ by number or hash, now, and pair these rows; duplicates fail as in a join."""
    counts = Observation()
    # What is kept is planned with the settings of the moment it is kept in.
    with session_settings(past.sparkSession, OBSERVED):
        differing = workspace.keep(_differing_keys(past, current, alignment, options, counts))
        candidates = differing.count()
    keys = differing.select(*columns(_key_names(alignment)))
    wanted = F.broadcast(keys) if candidates <= _FEW_KEYS else keys
    left = _fetched(past, wanted, alignment, is_left=True)
    right = _fetched(current, wanted, alignment, is_left=False)
    pairs = joined(left, right, alignment, options, whole=False)
    return Narrowed(pairs, int(counts.get[_LEFT] or 0), int(counts.get[_RIGHT] or 0), candidates)


def _differing_keys(
    past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, counts: Observation
) -> DataFrame:
    both = _hashed(past, alignment, is_left=True).unionAll(_hashed(current, alignment, is_left=False))
    left, right = F.count(F.when(column(_IS_LEFT), 1)).alias(_LEFT), F.count(F.when(~column(_IS_LEFT), 1)).alias(_RIGHT)
    names = _key_names(alignment)
    # The exclusive-or of two hashes is zero exactly where they are equal.
    grouped = (
        both.observe(counts, left, right)
        .groupBy(*columns(names))
        .agg(left, right, *[F.bit_xor(column(lane)).alias(lane) for lane in _LANES])
    )
    if options.duplicate_keys is DuplicateKeys.FAIL:
        grouped = grouped.filter(_once(alignment, names))
    is_equal = [column(one) == wanted for one, wanted in ((_LEFT, 1), (_RIGHT, 1), (_LANES[0], 0), (_LANES[1], 0))]
    return grouped.filter(~all_of(is_equal))


def _once(alignment: Alignment, names: Sequence[str]) -> Column:
    """Fail where a key comes more than once on a side."""
    key = [(one.name, column(name)) for one, name in zip(alignment.keys, names, strict=True)]
    past, current = duplicate_failure("past", key), duplicate_failure("current", key)
    return F.when(column(_LEFT) > 1, past).when(column(_RIGHT) > 1, current).otherwise(F.lit(True))


def _hashed(frame: DataFrame, alignment: Alignment, *, is_left: bool) -> DataFrame:
    """Give the key and the hashes of the compared columns; a column that a side lacks is null on it."""
    values = [(_source(one, is_left=is_left), one.type) for one in alignment.compared]
    lanes = value_hash_lanes(values)
    return frame.select(
        *[
            _source(one, is_left=is_left).alias(name)
            for one, name in zip(alignment.keys, _key_names(alignment), strict=True)
        ],
        *[lane.alias(name) for lane, name in zip(lanes, _LANES, strict=True)],
        F.lit(is_left).alias(_IS_LEFT),
    )


def _fetched(frame: DataFrame, wanted: DataFrame, alignment: Alignment, *, is_left: bool) -> DataFrame:
    """Keep the rows of a side whose key is among those wanted; a null is the same key as a null."""
    matches = [
        _source(one, is_left=is_left).eqNullSafe(column(name))
        for one, name in zip(alignment.keys, _key_names(alignment), strict=True)
    ]
    return frame.join(wanted, all_of(matches[1:]) & matches[0], "left_semi")


def _key_names(alignment: Alignment) -> list[str]:
    return [f"{S.PREFIX}key{at}" for at in range(len(alignment.keys))]


def _source(one: AlignedColumn, *, is_left: bool) -> Column:
    """Give a column of a side's frame in the type in which it is compared."""
    name, own = (one.in_left, one.left_type) if is_left else (one.in_right, one.right_type)
    if name is None or own is None:
        return F.lit(None).cast(one.type)
    return as_type(column(name), own, one.type)
