"""How an op reaches the mirror, chosen from counts and metadata, with the reason in words."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.words import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.config import TableSettings
    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.folding import Folded


class Strategy(StrEnum):
    """Ways to bring an op into the mirror."""

    APPEND = "append"
    BROADCAST_DELETE = "broadcast delete + append"
    SHUFFLED_DELETE = "shuffled delete + append"
    REWRITE = "full rewrite"
    LOAD = "load"
    REPLACE = "replace by load"
    CLEAR = "clear"
    RESTORE = "replace by an earlier state"
    ERASE = "erase"
    LOG_ONLY = "log only"

    @property
    def shuffles(self) -> bool:
        """Whether rows are moved between tasks, so that it pays to let Spark plan again while it runs."""
        return self in (Strategy.SHUFFLED_DELETE, Strategy.REWRITE, Strategy.REPLACE, Strategy.RESTORE)


@dataclass(frozen=True)
class ApplyPlan:
    """The chosen strategy and why."""

    strategy: Strategy
    reason: str


def plan_fold(mirror: IcebergTable, base: Snapshot | None, folded: Folded, settings: TableSettings) -> ApplyPlan:
    """Choose the strategy for folded rows on top of a mirror snapshot; None: the mirror does not exist yet."""
    rows = base.rows if base else 0
    touched = f"{count(folded.touched, 'key')} touched"
    if not settings.primary_key:
        return ApplyPlan(Strategy.APPEND, "the table has no key: rows are only added")
    if base is None or rows == 0 or folded.touched == 0:
        return ApplyPlan(Strategy.APPEND, "the mirror is empty" if rows == 0 else "no key is touched")
    if _no_file_reaches(mirror, base, folded.bounds):
        return ApplyPlan(Strategy.APPEND, f"no file of the mirror reaches the {count(folded.touched, 'touched key')}")
    share = folded.touched / rows
    if share >= settings.rewrite_share:
        return ApplyPlan(Strategy.REWRITE, f"{touched}, {share:.0%} of {count(rows, 'row')}")
    if folded.touched <= settings.broadcast_keys:
        return ApplyPlan(Strategy.BROADCAST_DELETE, f"{touched} of {count(rows, 'row')}")
    reason = f"{touched}, more than the {settings.broadcast_keys:,} sent to every task"
    return ApplyPlan(Strategy.SHUFFLED_DELETE, reason)


def _no_file_reaches(mirror: IcebergTable, base: Snapshot, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    """Tell from file statistics alone that no touched key can exist in the mirror."""
    ranges = {name: limits for name, limits in bounds.items() if all(_comparable(value) for value in limits)}
    if not ranges:
        return False
    return not mirror.any_file_in_range(base.id, {name: _literals(limits) for name, limits in ranges.items()})


def _comparable(value: Any) -> bool:
    return isinstance(value, int | str | decimal.Decimal | dt.date) and not isinstance(value, bool)


def _literals(limits: tuple[Any, Any]) -> tuple[Any, Any]:
    """Give limits as Iceberg reads literals: numbers and text as they are, the rest as ISO text."""
    low, high = (
        value if isinstance(value, int | str) else _iso(value) for value in limits
    )  # fmt: skip
    return low, high


def _iso(value: decimal.Decimal | dt.date) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    return str(value)
