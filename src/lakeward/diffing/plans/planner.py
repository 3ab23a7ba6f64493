"""The choice of the plan by which two sides are compared, and the plan that compares hashes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.diffing.frames.alignment import as_type
from lakeward.diffing.frames.joining import joined, joined_and_counted
from lakeward.diffing.frames.options import DuplicateKeys
from lakeward.diffing.frames.pairs import BUCKETS, HASH, ICEBERG, JOIN, PLANS, JoinCounts, PlannedPairs
from lakeward.diffing.frames.refusals import duplicate_failure
from lakeward.diffing.plans.buckets import bucket_pairs, finer_comparator
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.workspace import session_settings
from lakeward.storage.sets import OBSERVED
from lakeward.text import count
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import all_of, holds_map, value_hash_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import Pairs
    from lakeward.diffing.stored.addresses import Side
    from lakeward.spark.workspace import Workspace


# The hash plan compares keys and row hashes first, then fetches only the rows that differ and compares them whole. It
# reads both sides twice, but shuffles only a key and two numbers for each row, which pays where rows are wide.


_LANES = (f"{S.PREFIX}first", f"{S.PREFIX}second")
_IS_LEFT, _LEFT, _RIGHT = f"{S.PREFIX}is_left", f"{S.PREFIX}left_rows", f"{S.PREFIX}right_rows"
# Up to this number of keys are sent to every task; more are joined by a shuffle.
_FEW_KEYS = 500_000


@dataclass(frozen=True)
class NarrowedPairs:
    """The pairs that differ, and what was counted on the way."""

    pairs: Pairs
    past_rows: int
    current_rows: int
    candidates: int


def narrow_pairs(
    past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, workspace: Workspace
) -> NarrowedPairs:
    """Find the keys whose rows differ in number or hash, and pair these rows; duplicates fail as in a join."""
    counts = Observation()
    # Spark plans a frame that is kept with the settings in force at that time.
    with session_settings(past.sparkSession, OBSERVED):
        differing = workspace.keep(_differing_keys(past, current, alignment, options, counts))
        candidates = differing.count()
    keys = differing.select(*columns(_key_names(alignment)))
    wanted = F.broadcast(keys) if candidates <= _FEW_KEYS else keys
    left = _fetched(past, wanted, alignment, is_left=True)
    right = _fetched(current, wanted, alignment, is_left=False)
    pairs = joined(left, right, alignment, options, whole=False)
    return NarrowedPairs(pairs, int(counts.get[_LEFT] or 0), int(counts.get[_RIGHT] or 0), candidates)


def _differing_keys(
    past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, counts: Observation
) -> DataFrame:
    both = _rows_hashed(past, alignment, is_left=True).unionAll(_rows_hashed(current, alignment, is_left=False))
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
    is_equal = [column(name) == wanted for name, wanted in ((_LEFT, 1), (_RIGHT, 1), (_LANES[0], 0), (_LANES[1], 0))]
    return grouped.filter(~all_of(is_equal))


def _once(alignment: Alignment, names: Sequence[str]) -> Column:
    """Return a condition that fails where a key occurs more than once on a side."""
    key = [(key.name, column(name)) for key, name in zip(alignment.keys, names, strict=True)]
    past, current = duplicate_failure("past", key), duplicate_failure("current", key)
    return F.when(column(_LEFT) > 1, past).when(column(_RIGHT) > 1, current).otherwise(F.lit(True))


def _rows_hashed(frame: DataFrame, alignment: Alignment, *, is_left: bool) -> DataFrame:
    """Return the key and the hashes of the compared columns; a column that a side lacks is null on it."""
    values = [(_source(aligned, is_left=is_left), aligned.type) for aligned in alignment.compared]
    lanes = value_hash_lanes(values)
    return frame.select(
        *[
            _source(key, is_left=is_left).alias(name)
            for key, name in zip(alignment.keys, _key_names(alignment), strict=True)
        ],
        *[lane.alias(name) for lane, name in zip(lanes, _LANES, strict=True)],
        F.lit(is_left).alias(_IS_LEFT),
    )


def _fetched(frame: DataFrame, wanted: DataFrame, alignment: Alignment, *, is_left: bool) -> DataFrame:
    """Keep the rows of a side whose key is among those wanted; a null is the same key as a null."""
    matches = [
        _source(key, is_left=is_left).eqNullSafe(column(name))
        for key, name in zip(alignment.keys, _key_names(alignment), strict=True)
    ]
    return frame.join(wanted, all_of(matches[1:]) & matches[0], "left_semi")


def _key_names(alignment: Alignment) -> list[str]:
    return [f"{S.PREFIX}key{at}" for at in range(len(alignment.keys))]


def _source(aligned: AlignedColumn, *, is_left: bool) -> Column:
    """Return a column of a side's frame in the type in which it is compared."""
    name, own = (aligned.in_left, aligned.left_type) if is_left else (aligned.in_right, aligned.right_type)
    if name is None or own is None:
        return F.lit(None).cast(aligned.type)
    return as_type(column(name), own, aligned.type)


AUTO = "auto"
# Formats whose columns are read separately, so that reading them twice costs less than shuffling whole rows.
_COLUMNAR = ("parquet", "orc", "iceberg")
# From this size of a row, and of a value, in the files on, hashing and reading twice is cheaper than shuffling whole
# rows: small values cost more to hash than to shuffle. Measured on one machine; a network makes shuffling more
# expensive.
WIDE_ROW_BYTES, WIDE_VALUE_BYTES = 600, 32


def planned_pairs(
    past: Side,
    current: Side,
    alignment: Alignment,
    options: DiffOptions,
    *,
    plan: str = AUTO,
    exact: bool = False,
    workspace: Workspace,
) -> PlannedPairs:
    """Pair the rows of both sides by the cheapest plan that fits, or by the requested one.

    ``exact`` accepts no hash or checksum instead of a comparison. The hash plan reads both sides at once, so that a key
    that occurs twice may be reported here; the others read them when the pairs are used.

    Raises:
        ConfigurationError: there is no such plan.
        RefusedInputError: the requested plan cannot be used here.
    """
    ways: dict[str, Callable[[], PlannedPairs | str]] = {
        BUCKETS: lambda: bucket_pairs(past, current, alignment, options, exact=exact),
        ICEBERG: lambda: _iceberg(past, current, alignment, options, exact=exact, workspace=workspace),
        HASH: lambda: _hashed(past, current, alignment, options, exact=exact, workspace=workspace),
        JOIN: lambda: _joined(past, current, alignment, options, "as requested"),
    }
    if plan != AUTO:
        return _forced(plan, ways)
    reasons = []
    for name, is_open in ((BUCKETS, past.set or current.set), (ICEBERG, past.iceberg and current.iceberg)):
        if not is_open:
            continue
        found = ways[name]()
        if isinstance(found, PlannedPairs):
            return found
        reasons.append(found)
    why_join = _why_not_narrow(alignment, options, exact=exact) or _why_cheaper_joined(alignment, past, current)
    if why_join is None:
        found = ways[HASH]()
        assert isinstance(found, PlannedPairs)
        return found
    return _joined(past, current, alignment, options, "; ".join([*reasons, why_join]))


def _forced(plan: str, ways: dict[str, Callable[[], PlannedPairs | str]]) -> PlannedPairs:
    if plan not in ways:
        msg = f"there is no plan {plan!r}; there are {AUTO}, {', '.join(PLANS)}"
        raise ConfigurationError(msg)
    found = ways[plan]()
    if isinstance(found, str):
        msg = f"the plan {plan!r} cannot be used: {found}"
        raise RefusedInputError(msg, hint="--plan auto")
    return found


def _iceberg(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool, workspace: Workspace
) -> PlannedPairs | str:
    from lakeward.diffing.plans.iceberg import iceberg_pairs

    return iceberg_pairs(past, current, alignment, options, exact=exact, workspace=workspace)


def _joined(past: Side, current: Side, alignment: Alignment, options: DiffOptions, reason: str) -> PlannedPairs:
    if options.include_unchanged or options.duplicate_keys is not DuplicateKeys.FAIL:
        # Whole pairs are counted where the number of a side's rows is not known.
        whole = options.include_unchanged or past.rows is None or current.rows is None
        pairs = joined(past.frame, current.frame, alignment, options, whole=whole)
        return PlannedPairs(pairs, JOIN, reason, past.rows, current.rows)
    counts = JoinCounts(past.rows, current.rows)
    pairs = joined_and_counted(past.frame, current.frame, alignment, counts)
    return PlannedPairs(pairs, JOIN, reason, counts=counts)


def _hashed(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool, workspace: Workspace
) -> PlannedPairs | str:
    problem = _why_not_narrow(alignment, options, exact=exact)
    if problem:
        return problem
    found = narrow_pairs(past.frame, current.frame, alignment, options, workspace)
    reason = (
        "keys and 128-bit hashes of all rows were compared first, then the rows of "
        f"{count(found.candidates, 'key that differs', 'keys that differ')}"
    )
    return PlannedPairs(found.pairs, HASH, reason, found.past_rows, found.current_rows)


def _why_not_narrow(alignment: Alignment, options: DiffOptions, *, exact: bool) -> str | None:
    """Return why rows cannot be compared by their hashes first; None where they can."""
    if exact:
        return "an exact comparison was requested, which rules out hashes"
    if options.include_unchanged:
        return "unchanged rows are wanted too, so that all must be brought together"
    if finer := finer_comparator(alignment):
        return f"the comparator {finer} distinguishes values that have the same hash"
    if not alignment.compared:
        return "there is nothing to compare but the key"
    held = [key.name for key in alignment.keys if holds_map(key.type)]
    return f"key column {held[0]} holds maps" if held else None


def _why_cheaper_joined(alignment: Alignment, past: Side, current: Side) -> str | None:
    for side in (past, current):
        if side.iceberg is None and side.format not in _COLUMNAR:
            return f"{side.label} ({side.format or 'computed'}) is better read once: one join of whole rows"
    found = [side.bytes_per_row() for side in (past, current)]
    known = [width for width in found if width is not None]
    if len(known) < len(found):
        return "the width of the rows is not known: one join of whole rows"
    if min(known) < max(WIDE_ROW_BYTES, WIDE_VALUE_BYTES * len(alignment.compared)):
        return f"rows are narrow ({min(known):,.0f} bytes each in their files): one join of whole rows"
    return None
