"""What an op does to the mirror, worked out before anything is written.

The same from files just read and, after a crash, from the changelog: an op's effect depends only on its changes
and the snapshots it stands on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.attempt import ROWS_STAMP
from lakeward.lake.iceberg.define import (
    APPLIED_STAMP,
    BAD_ROWS_STAMP,
    EMPTY_TAG,
    LAYOUT_PROPERTY,
    LOGGED_STAMP,
    READING_PROPERTY,
    SETTINGS_PROPERTY,
    empty_snapshot,
)
from lakeward.model import OpKind
from lakeward.pipeline.changelog import changes_before
from lakeward.pipeline.erase.erased import erased_keys
from lakeward.pipeline.folding import ONE_TASK, FoldInput, fold_changes, fold_keyless, rows_once_per_key
from lakeward.pipeline.planner import ApplyPlan, Strategy, plan_fold
from lakeward.pipeline.schema import require_readable_names
from lakeward.transforms.columns import columns as named
from lakeward.transforms.columns import conformed
from lakeward.transforms.keys import lacking_keys
from lakeward.transforms.order import as_base
from lakeward.words import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.datatypes import Column
    from lakeward.lake.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.erase.erased import ErasedKeys
    from lakeward.pipeline.folding import Folded
    from lakeward.pipeline.records import OpRecord
    from lakeward.pipeline.workspace import Workspace


LOAD_BRANCH_PREFIX = "load-"
_PROPERTIES = (LAYOUT_PROPERTY, READING_PROPERTY, SETTINGS_PROPERTY)
# Ops whose kind alone says what they do to the mirror.
_WITHOUT_ROWS = {
    OpKind.TRUNCATE: ApplyPlan(Strategy.CLEAR, "the table's folder is gone and on_missing_folder is truncate"),
    OpKind.VOID: ApplyPlan(Strategy.LOG_ONLY, "an op that could not be finished is taken back"),
    OpKind.ERASE: ApplyPlan(Strategy.ERASE, "rows of erased keys are taken out of every file that holds them"),
}


@dataclass(frozen=True)
class Bases:
    """What an op stands on, captured once; every read inside the op is pinned to these snapshots.

    ``logged`` and ``applied`` are the newest op numbers that changelog and mirror carry, ``columns`` and
    ``properties`` (layout and settings) the mirror's. ``bad_rows`` wait for a decision.
    ``expected_rows`` is what the last op left in the mirror, where that is known. ``erased`` are keys that were erased.
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
    """An op's changes (for a load: its rows) and what they stand on."""

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
    """What reaches the mirror: ``load_rows`` its load branch, ``folded`` the rows of every touched key in ``main``.

    ``state`` are all rows of ``main``, where an earlier state takes the place of today's; None: it had none.
    """

    plan: ApplyPlan
    folded: Folded | None = None
    load_rows: DataFrame | None = None
    load_count: int = 0
    state: DataFrame | None = None
    state_count: int = 0


def load_branch(generation: int) -> str:
    """Name of the mirror's branch that holds a generation's load alone."""
    return f"{LOAD_BRANCH_PREFIX}{generation}"


def capture(context: TableContext) -> Bases:
    """Capture what the next op stands on, loading each table's metadata once.

    Raises:
        ConfigurationError: the mirror's columns have names under which it cannot be read.
    """
    bases = bases_of(context.changelog.look(), context.mirror.look())
    require_readable_names(context.table, bases.columns, context.settings)
    return bases


def bases_of(changelog: TableMetadata | None, mirror: TableMetadata | None) -> Bases:
    """Tell what an op would stand on from the metadata of both tables."""
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


def work_out(context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
    """Fold an op's changes and choose how they reach the mirror."""
    record = given.record
    context.adapt_plans(wanted=given.rows > ONE_TASK or record.late)
    if record.kind in _WITHOUT_ROWS:
        return Effect(_WITHOUT_ROWS[record.kind])
    if record.progress.generations and record.generation < record.progress.generations[-1].number:
        return Effect(ApplyPlan(Strategy.LOG_ONLY, "the changes belong to a generation that a newer load replaced"))
    if given.changes is None:
        return Effect(ApplyPlan(Strategy.LOG_ONLY, "no file brings rows"))
    if record.kind is OpKind.LOAD:
        return _load_effect(context, workspace, given, given.changes)
    return _batch_effect(context, workspace, given, given.changes)


def _batch_effect(context: TableContext, workspace: Workspace, given: OpInput, changes: DataFrame) -> Effect:
    record, key = given.record, context.settings.primary_key
    base = history = None
    if record.late:
        history = _earlier_changes(context, given)
        base = load_rows(context, record.generation, given)
    elif (record.partial or record.moves) and given.bases.mirror is not None:
        base = _with_columns(context, context.mirror.read(given.bases.mirror.id), given)
    source = FoldInput(
        workspace, changes, given.rows, key, given.names, record.partial, record.moves, base if key else None, history,
        context.settings.key_moves, str(context.table),
    )  # fmt: skip
    folded = fold_changes(source) if key else fold_keyless(source, record.progress.generations[-1].order_by)
    return Effect(plan_fold(context.mirror, given.bases.mirror, folded, context.settings), folded)


def strategy_of_first_load(context: TableContext, bases: Bases) -> Strategy:
    """Tell how the load that a generation begins with reaches ``main``.

    An untouched mirror can share the load's snapshot. One that was emptied, as by an undo, has commits of its own.
    """
    is_untouched = bases.mirror is None or bases.mirror.id == empty_snapshot(context.mirror)
    return Strategy.LOAD if is_untouched else Strategy.REPLACE


def _load_effect(context: TableContext, workspace: Workspace, given: OpInput, changes: DataFrame) -> Effect:
    """Give a load's rows to its branch; ``main`` becomes the load, or gets the fold for the keys of late parts."""
    key, mirror = context.settings.primary_key, given.bases.mirror
    unique, count = rows_once_per_key(workspace, changes, key, given.rows)
    rows, left_out = unique.select(*named(given.names)), _left_out(given.rows - count)
    if given.record.starts:
        strategy = strategy_of_first_load(context, given.bases)
        is_new = strategy is Strategy.LOAD
        reason = "the mirror is empty: it becomes the load" if is_new else "a new load replaces the mirror"
        return Effect(ApplyPlan(strategy, f"{reason}{left_out}"), load_rows=rows, load_count=count)
    arrived = as_base(rows, given.names)
    earlier = load_rows(context, given.record.generation, given) if key else None
    base = lacking_keys(earlier, rows.select(*named(key)), keys=key) if earlier is not None else None
    history = _earlier_changes(context, given) if key else None
    reading, table = context.settings.key_moves, str(context.table)
    source = FoldInput(
        workspace, arrived, given.rows, key, given.names, True, False, base, history, reading, table
    )  # fmt: skip
    folded = fold_changes(source) if key else fold_keyless(source, None)
    plan = plan_fold(context.mirror, mirror, folded, context.settings)
    plan = replace(plan, reason=f"{plan.reason}{left_out}")
    return Effect(plan, folded, load_rows=rows, load_count=count)


def _left_out(rows: int) -> str:
    """Tell of a load's rows that have no place in the mirror: it is more often a wrong key than what was meant."""
    left_out = count(
        rows, "row whose key comes again later in the load is", "rows whose key comes again later in the load are"
    )
    return f"; {left_out} left out" if rows else ""


def _earlier_changes(context: TableContext, given: OpInput) -> DataFrame | None:
    if given.bases.changelog is None:
        return None
    log = context.changelog.read(given.bases.changelog.id)
    earlier = changes_before(log, given.record)
    return _with_columns(context, earlier, given)


def load_rows(context: TableContext, generation: int, given: OpInput) -> DataFrame | None:
    """Read the load that a generation began with, None when it began without one."""
    head = context.mirror.head(load_branch(generation)) if given.bases.mirror else None
    return _with_columns(context, context.mirror.read(head.id), given) if head else None


def _with_columns(context: TableContext, pinned: DataFrame, given: OpInput) -> DataFrame:
    """Give a pinned frame the columns that this op is about to add."""
    return conformed(pinned, given.columns, context.settings.renames)
