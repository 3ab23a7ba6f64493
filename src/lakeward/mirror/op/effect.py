"""The bases, the input and the effect of an op, as values that exist before anything is written.

An op's effect depends only on its changes and the snapshots it is based on. It is therefore the same from files just
read and, after a crash, from the changelog. The strategy is chosen from counts and metadata, with the reason in words.
"""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.column_policy import POLICY_PROPERTY
from lakeward.errors import DataError
from lakeward.iceberg.attempt import ROWS_STAMP
from lakeward.iceberg.define import (
    APPLIED_STAMP,
    BAD_ROWS_STAMP,
    LAYOUT_PROPERTY,
    LOGGED_STAMP,
    READING_PROPERTY,
    SETTINGS_PROPERTY,
)
from lakeward.iceberg.metadata import EMPTY_TAG
from lakeward.mirror.op.changelog import changes_before
from lakeward.mirror.op.erased import erased_keys
from lakeward.mirror.op.policy import require_same_policy
from lakeward.mirror.op.schema import require_readable_names
from lakeward.text import count
from lakeward.transforms.columns import conformed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.formats.base import FileSummary
    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.changelog import FileRecord, OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.erased import ErasedKeys
    from lakeward.mirror.op.fold import Folded


LOAD_BRANCH_PREFIX = "load-"
_PROPERTIES = (LAYOUT_PROPERTY, POLICY_PROPERTY, READING_PROPERTY, SETTINGS_PROPERTY)


@dataclass(frozen=True)
class Bases:
    """The snapshots that an op is based on, captured once; every read inside the op is pinned to them.

    ``logged`` and ``applied`` are the newest op numbers in changelog and mirror; ``columns`` and ``properties`` (layout
    and settings) are the mirror's. ``bad_rows`` is the number of rows set aside that wait for a decision,
    ``expected_rows`` the number that the last op left in the mirror, where known. ``erased`` are keys that were erased.
    """

    changelog: Snapshot | None
    mirror: Snapshot | None
    logged: int = 0
    applied: int = 0
    columns: tuple[Column, ...] = ()
    properties: Mapping[str, str | None] = field(default_factory=dict)
    bad_rows: int = 0
    expected_rows: int | None = None
    erased: ErasedKeys | None = None


@dataclass(frozen=True)
class OpInput:
    """An op's changes (for a load: its rows) and the snapshots they are based on."""

    record: OpRecord
    bases: Bases
    columns: tuple[Column, ...]
    changes: DataFrame | None
    rows: int

    @property
    def names(self) -> tuple[str, ...]:
        """The table's column names."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Effect:
    """The rows an op writes: ``load_rows`` to the load branch, ``folded``, the rows of every touched key, to ``main``.

    ``state`` holds all rows of ``main`` where an earlier state replaces the current one, None if it was empty.
    """

    plan: ApplyPlan
    folded: Folded | None = None
    load_rows: DataFrame | None = None
    load_count: int = 0
    state: DataFrame | None = None
    state_count: int = 0


@dataclass(frozen=True)
class PreparedOp:
    """An op ready to be logged and applied.

    ``rows`` holds the changes and bad rows to log, ``row_count`` of them. ``is_logged``: a crash came after that step,
    and the op has yet to be applied. ``is_last``: nothing else waits.
    """

    record: OpRecord
    bases: Bases
    columns: tuple[Column, ...]
    schema_changes: tuple[str, ...]
    files: tuple[FileRecord, ...]
    unstable: tuple[str, ...]
    rows: DataFrame | None
    row_count: int
    effect: Effect
    is_logged: bool = False
    is_last: bool = False

    @property
    def summaries(self) -> list[FileSummary]:
        """The summaries of the files that were read; files that were only recorded are left out."""
        return [file.summary for file in self.files if file.was_read]


def load_branch(generation: int) -> str:
    """Return the name of the mirror's branch that holds nothing but a generation's load."""
    return f"{LOAD_BRANCH_PREFIX}{generation}"


def capture(context: TableContext) -> Bases:
    """Return the bases of the next op, loading each table's metadata once.

    Raises:
        ConfigurationError: the mirror's columns have names under which it cannot be read, or its rows were stored under
            another column policy.
    """
    bases = bases_of(context.changelog.find_metadata(), context.mirror.find_metadata())
    require_fitting_mirror(context, bases)
    return bases


def require_fitting_mirror(context: TableContext, bases: Bases) -> None:
    """Refuse settings under which the mirror can neither be read nor continued.

    Raises:
        ConfigurationError: as for :func:`capture`.
    """
    require_readable_names(context.table, bases.columns, context.settings)
    if bases.logged:
        require_same_policy(context.table, context.settings, bases.properties, bases.columns)


def bases_of(changelog: TableMetadata | None, mirror: TableMetadata | None) -> Bases:
    """Return the bases of an op from the metadata of both tables."""
    log_head = changelog.head() if changelog else None
    head = mirror.head() if mirror and mirror.head(EMPTY_TAG) else None
    return Bases(
        changelog=log_head,
        mirror=head,
        logged=int(changelog.stamp_at(LOGGED_STAMP, log_head.id) or 0) if changelog and log_head else 0,
        applied=int(mirror.stamp_at(APPLIED_STAMP, head.id) or 0) if mirror and head else 0,
        columns=mirror.columns() if mirror and head else (),
        properties={name: mirror.property(name) for name in _PROPERTIES} if mirror and head else {},
        expected_rows=_expected_rows(mirror, head) if mirror and head else None,
        bad_rows=int(changelog.stamp_at(BAD_ROWS_STAMP, log_head.id) or 0) if changelog and log_head else 0,
        erased=erased_keys(changelog),
    )


def _expected_rows(mirror: TableMetadata, head: Snapshot) -> int | None:
    text = mirror.stamp_at(ROWS_STAMP, head.id)
    return int(text) if text is not None and text.isdigit() else None


def earlier_changes(context: TableContext, op_input: OpInput) -> DataFrame | None:
    """Read the changes of the op's generation that were logged before it, None when the changelog is new."""
    if op_input.bases.changelog is None:
        return None
    log = context.changelog.read(op_input.bases.changelog.id)
    earlier = changes_before(log, op_input.record)
    return with_columns(context, earlier, op_input)


def load_rows(context: TableContext, generation: int, op_input: OpInput) -> DataFrame | None:
    """Read the load that a generation began with, None when it began without one."""
    head = context.mirror.head(load_branch(generation)) if op_input.bases.mirror else None
    return with_columns(context, context.mirror.read(head.id), op_input) if head else None


def with_columns(context: TableContext, pinned: DataFrame, op_input: OpInput) -> DataFrame:
    """Return a pinned frame with the columns that the op is about to add."""
    return conformed(pinned, op_input.columns, context.settings.renames)


class Strategy(StrEnum):
    """Ways to apply an op to the mirror."""

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
        """Whether rows are shuffled, so that adaptive planning pays off."""
        return self in (Strategy.SHUFFLED_DELETE, Strategy.REWRITE, Strategy.REPLACE, Strategy.RESTORE)


@dataclass(frozen=True)
class ApplyPlan:
    """The chosen strategy and the reason for it."""

    strategy: Strategy
    reason: str


def plan_fold(mirror: IcebergTable, base: Snapshot | None, folded: Folded, settings: TableSettings) -> ApplyPlan:
    """Return the strategy for folded rows on top of a mirror snapshot, None where the mirror does not exist yet."""
    rows = base.rows if base else 0
    touched = f"{count(folded.touched, 'key')} touched"
    if not settings.primary_key:
        return ApplyPlan(Strategy.APPEND, "the table has no key: rows are only added")
    if base is None or rows == 0 or folded.touched == 0:
        return ApplyPlan(Strategy.APPEND, "the mirror is empty" if rows == 0 else "no key is touched")
    if _no_file_reaches(mirror, base, folded.bounds):
        return ApplyPlan(Strategy.APPEND, f"no file of the mirror contains the {count(folded.touched, 'touched key')}")
    share = folded.touched / rows
    if share >= settings.rewrite_share:
        return ApplyPlan(Strategy.REWRITE, f"{touched}, {share:.0%} of {count(rows, 'row')}")
    if folded.touched <= settings.broadcast_keys:
        return ApplyPlan(Strategy.BROADCAST_DELETE, f"{touched} of {count(rows, 'row')}")
    reason = f"{touched}, more than the {settings.broadcast_keys:,} sent to every task"
    return ApplyPlan(Strategy.SHUFFLED_DELETE, reason)


def _no_file_reaches(mirror: IcebergTable, base: Snapshot, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether file statistics alone prove that no touched key exists in the mirror."""
    ranges = {name: limits for name, limits in bounds.items() if all(_comparable(value) for value in limits)}
    if not ranges:
        return False
    return not mirror.any_file_in_range(base.id, {name: _literals(limits) for name, limits in ranges.items()})


def _comparable(value: Any) -> bool:
    return isinstance(value, int | str | decimal.Decimal | dt.date) and not isinstance(value, bool)


def _literals(limits: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return limits as Iceberg literals: numbers and text as they are, other values as ISO text."""
    low, high = (
        value if isinstance(value, int | str) else _iso(value) for value in limits
    )  # fmt: skip
    return low, high


def _iso(value: decimal.Decimal | dt.date) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    return str(value)


def require_expected_rows(context: TableContext, bases: Bases) -> None:
    """Refuse a mirror that something else changed. Cheap enough to check before every op: only metadata is read.

    Raises:
        DataError: the mirror's metadata counts other rows than Lakeward's last commit left.
    """
    if bases.mirror is None or bases.expected_rows is None or bases.mirror.rows == bases.expected_rows:
        return
    msg = (
        f"{context.table}: the mirror has {bases.mirror.rows:,} rows, but op {bases.applied} left "
        f"{bases.expected_rows:,}: something other than Lakeward wrote to {context.mirror.identifier}"
    )
    raise DataError(msg, hint=f"lakeward verify {context.table}   (with --repair it repairs the mirror)")
