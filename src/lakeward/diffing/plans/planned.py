"""A comparison that was decided on: how it is done, why so, and its pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.diffing.counting import JoinCounts
    from lakeward.diffing.pairs import Pairs

JOIN, HASH, BUCKETS, ICEBERG = "join", "hash", "buckets", "iceberg"
PLANS = (JOIN, HASH, BUCKETS, ICEBERG)


@dataclass(frozen=True)
class Planned:
    """Pairs by a plan of :data:`PLANS`; ``reason`` says why that one.

    The sides' numbers of rows are given where they are known without counting. Where there are ``counts``, they must be
    asked once the pairs were read: only they tell whether every key was unique.
    """

    pairs: Pairs
    name: str
    reason: str
    past_rows: int | None = None
    current_rows: int | None = None
    counts: JoinCounts | None = None
