"""Which way two sides are compared, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.diffing.counting import JoinCounts
from lakeward.diffing.joining import joined, joined_and_counted
from lakeward.diffing.options import DuplicateKeys
from lakeward.diffing.plans.buckets import bucket_pairs, finer_comparator
from lakeward.diffing.plans.narrow import narrow_pairs
from lakeward.diffing.plans.planned import BUCKETS, HASH, ICEBERG, JOIN, PLANS, Planned
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.transforms.normalising import holds_map
from lakeward.words import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.diffing.alignment import Alignment
    from lakeward.diffing.inputs.sides import Side
    from lakeward.diffing.options import DiffOptions
    from lakeward.pipeline.workspace import Workspace

AUTO = "auto"
# Formats of which columns are read quickly and alone, so that reading twice costs less than shuffling all.
_COLUMNAR = ("parquet", "orc", "iceberg")
# Hashing and reading twice is cheaper than shuffling whole rows where rows take so many bytes in their files, and their
# values so many: small ones cost more to hash than to shuffle. Measured on one machine; networks make shuffling dearer.
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
) -> Planned:
    """Pair the rows of both sides by the cheapest plan that fits, or by the one that is asked for.

    ``exact`` lets no hash or checksum stand for a comparison. The hash plan reads both sides now, the others when the
    pairs are used; a key that comes twice may so be told here already.

    Raises:
        ConfigurationError: there is no such plan.
        RefusedInputError: the plan that is asked for cannot be used here.
    """
    ways: dict[str, Callable[[], Planned | str]] = {
        BUCKETS: lambda: bucket_pairs(past, current, alignment, options, exact=exact),
        ICEBERG: lambda: _iceberg(past, current, alignment, options, exact=exact, workspace=workspace),
        HASH: lambda: _hashed(past, current, alignment, options, exact=exact, workspace=workspace),
        JOIN: lambda: _joined(past, current, alignment, options, "it was asked for"),
    }
    if plan != AUTO:
        return _forced(plan, ways)
    told = []
    for name, is_open in ((BUCKETS, past.set or current.set), (ICEBERG, past.iceberg and current.iceberg)):
        if not is_open:
            continue
        found = ways[name]()
        if isinstance(found, Planned):
            return found
        told.append(found)
    why_join = _why_not_narrow(alignment, options, exact=exact) or _why_cheaper_joined(alignment, past, current)
    if why_join is None:
        found = ways[HASH]()
        assert isinstance(found, Planned)
        return found
    return _joined(past, current, alignment, options, "; ".join([*told, why_join]))


def _forced(plan: str, ways: dict[str, Callable[[], Planned | str]]) -> Planned:
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
) -> Planned | str:
    from lakeward.diffing.plans.iceberg import iceberg_pairs

    return iceberg_pairs(past, current, alignment, options, exact=exact, workspace=workspace)


def _joined(past: Side, current: Side, alignment: Alignment, options: DiffOptions, reason: str) -> Planned:
    if options.include_unchanged or options.duplicate_keys is not DuplicateKeys.FAIL:
        # Whole pairs tell how many rows each side has where nothing else does.
        whole = options.include_unchanged or past.rows is None or current.rows is None
        pairs = joined(past.frame, current.frame, alignment, options, whole=whole)
        return Planned(pairs, JOIN, reason, past.rows, current.rows)
    counts = JoinCounts(past.rows, current.rows)
    pairs = joined_and_counted(past.frame, current.frame, alignment, counts)
    return Planned(pairs, JOIN, reason, counts=counts)


def _hashed(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool, workspace: Workspace
) -> Planned | str:
    problem = _why_not_narrow(alignment, options, exact=exact)
    if problem:
        return problem
    found = narrow_pairs(past.frame, current.frame, alignment, options, workspace)
    reason = (
        "keys and 128-bit hashes of all rows were compared first, then the rows of "
        f"{count(found.candidates, 'key that differs', 'keys that differ')}"
    )
    return Planned(found.pairs, HASH, reason, found.past_rows, found.current_rows)


def _why_not_narrow(alignment: Alignment, options: DiffOptions, *, exact: bool) -> str | None:
    """Say why rows cannot be compared by their hashes first; None where they can."""
    if exact:
        return "an exact comparison was asked for, and a hash is none"
    if options.include_unchanged:
        return "unchanged rows are wanted too, so that all must be brought together"
    if finer := finer_comparator(alignment):
        return f"the comparator {finer} tells values apart that have the same hash"
    if not alignment.compared:
        return "there is nothing to compare but the key"
    held = [one.name for one in alignment.keys if holds_map(one.type)]
    return f"key column {held[0]} holds maps" if held else None


def _why_cheaper_joined(alignment: Alignment, past: Side, current: Side) -> str | None:
    for side in (past, current):
        if side.iceberg is None and side.format not in _COLUMNAR:
            return f"{side.label} ({side.format or 'computed'}) is better read once: one join of whole rows"
    found = [side.bytes_per_row() for side in (past, current)]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return "nobody knows how wide the rows are: one join of whole rows"
    if min(known) < max(WIDE_ROW_BYTES, WIDE_VALUE_BYTES * len(alignment.compared)):
        return f"rows are narrow ({min(known):,.0f} bytes each in their files): one join of whole rows"
    return None
