"""Write an op to the mirror: the rows of touched keys, the stamps of its commits, and the load branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConflictError, DataError
from lakeward.iceberg.attempt import BASE_STAMP, ROWS_STAMP, Attempt
from lakeward.iceberg.define import (
    APPLIED_STAMP,
    BAD_ROWS_STAMP,
    COMMIT_STAMP,
    GENERATION_STAMP,
    LOAD_STAMP,
    LOGGED_STAMP,
    REPAIRED_STAMP,
    empty_snapshot,
)
from lakeward.iceberg.metadata import EMPTY_TAG, MAIN
from lakeward.iceberg.table import set_references
from lakeward.mirror.op.checkpoints import load_at, require_load
from lakeward.mirror.op.effect import LOAD_BRANCH_PREFIX, Strategy, load_branch
from lakeward.mirror.op.fold import ONE_TASK
from lakeward.mirror.op.ledger import last_load_ops
from lakeward.mirror.op.steps import Step
from lakeward.transforms.columns import columns
from lakeward.transforms.fold import is_delete, lacking_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases, Effect
    from lakeward.mirror.op.fold import Folded
    from lakeward.model import Progress, TableId


_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
_BROADCAST_BYTES = str(1 << 30)


def write_folded(
    context: TableContext,
    attempt: Attempt,
    effect: Effect,
    stamps: dict[str, str],
    *,
    keys: tuple[str, ...],
    names: Sequence[str],
) -> None:
    """Write the folded rows of an effect to the attempt's branch as planned; without any, only stamp it as applied.

    Old rows of touched keys are deleted and new ones appended. ``keys`` are the columns by which rows are found,
    ``names`` all columns that are written.
    """
    folded = effect.folded
    if folded is None:
        attempt.stamp(stamps)
        return
    touched = folded.rows.select(*columns(keys))
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    if effect.plan.strategy is Strategy.REWRITE:
        _rewrite(context, attempt, folded, stamps, keys, names)
        return
    if effect.plan.strategy is not Strategy.APPEND:
        with context.spark_settings(_delete_settings(effect, folded)):
            attempt.delete_keys(touched, keys, without_nulls=folded.bounds)
        context.reached(Step.APPLY_DELETE)
    if folded.writes:
        attempt.append(writes, stamps, expected=folded.writes)
    else:
        _require_still_whole(context, folded)
        attempt.stamp(stamps)


def _rewrite(
    context: TableContext,
    attempt: Attempt,
    folded: Folded,
    stamps: dict[str, str],
    keys: tuple[str, ...],
    names: Sequence[str],
) -> None:
    """Rewrite the mirror: its rows of other keys, and the folded rows."""
    touched = folded.rows.select(*columns(keys))
    before = context.mirror.read(attempt.base)
    others = lacking_keys(before, touched, keys=keys).select(*columns(names))
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    attempt.overwrite(others.unionByName(writes), stamps, expected=others.count() + folded.writes)
    _require_still_whole(context, folded)


def _delete_settings(effect: Effect, folded: Folded) -> dict[str, str]:
    """Return settings that make Spark broadcast the touched keys or shuffle them, as planned.

    Few positions are gathered in one task, so that they make one file.
    """
    if effect.plan.strategy is Strategy.SHUFFLED_DELETE:
        return {_BROADCAST: "-1"}
    gathered = {_SHUFFLE_TASKS: "1"} if folded.touched <= ONE_TASK else {}
    return {_BROADCAST: _BROADCAST_BYTES, **gathered}


def _require_still_whole(context: TableContext, folded: Folded) -> None:
    """Refuse folded rows that Spark lost and recomputed from files that have changed since.

    Needed for writes that do not append a known number of rows.
    """
    found = folded.rows.count()
    if found != folded.touched:
        msg = f"{context.table}: {found:,} keys were applied, expected {folded.touched:,}; nothing was published"
        raise DataError(msg, hint=f"an input file changed while it was read: lakeward run {context.table}")


# The stamps by which the metadata alone shows a table's progress. Every commit to a mirror or changelog repeats those
# that still hold, because older snapshots expire.
CARRIED = (
    APPLIED_STAMP,
    GENERATION_STAMP,
    COMMIT_STAMP,
    ROWS_STAMP,
    LOAD_STAMP,
    REPAIRED_STAMP,
    LOGGED_STAMP,
    BAD_ROWS_STAMP,
)


def applied_stamps(record: OpRecord) -> dict[str, str]:
    """Return the stamps of a mirror commit that applies an op."""
    progress = record.progress
    # Zero is written rather than left out: a reader would go on to the stamp of an older commit, which may be undone.
    return {
        APPLIED_STAMP: str(record.op),
        GENERATION_STAMP: str(progress.generation.number if progress.generation else 0),
        COMMIT_STAMP: str(progress.newest_commit or 0),
    }


def carried_stamps(table: TableMetadata, snapshot_id: int) -> dict[str, str]:
    """Return the stamps that hold at a snapshot, for a commit on top of it that changes no row."""
    found: dict[str, str] = {}
    # Read all snapshots together: a stamp that none has is looked up in each of them.
    snapshots = table.snapshots()
    current = snapshots.get(snapshot_id)
    while current is not None and len(found) < len(CARRIED):
        for name in CARRIED:
            # The load stamp is not inherited: a later state of main holds changes too and would be mistaken for the
            # load.
            holds_here = name != LOAD_STAMP or current.id == snapshot_id
            if holds_here and name in current.summary:
                found.setdefault(name, current.summary[name])
        current = snapshots.get(current.parent) if current.parent is not None else None
    return found


# An undo tags the heads it replaces: undone-<op of the undo>, undone-<op>-load-<generation>.
UNDONE_TAG_PREFIX = "undone-"


def undone_tag(op: int, branch: str = MAIN) -> str:
    """Return the name of the tag that keeps the head of a branch before an undo."""
    return f"{UNDONE_TAG_PREFIX}{op}" if branch == MAIN else f"{UNDONE_TAG_PREFIX}{op}-{branch}"


def extend_load(context: TableContext, record: OpRecord, rows: DataFrame, count: int) -> None:
    """Add load rows to the generation's load branch, unique per key, once per op."""
    mirror, branch, keys = context.mirror, load_branch(record.generation), context.settings.primary_key
    if is_load_written(context, record):
        return
    head = mirror.head(branch)
    stamps = {**applied_stamps(record), LOAD_STAMP: str(record.op)}
    with Attempt(mirror, op=record.op, base=head.id if head else empty_snapshot(mirror)) as attempt:
        context.reached(Step.LOAD_BRANCH)
        if head is not None and keys:
            attempt.delete_keys(rows.select(*columns(keys)), keys)
            context.reached(Step.LOAD_DELETE)
        attempt.append(rows, stamps, expected=count)
        context.reached(Step.LOAD_APPEND)
        if head is not None:
            attempt.publish(before=context.permission.require, to=branch)
        else:
            snapshot = attempt.checked_head()
            context.permission.require()
            mirror.create_branch(branch, snapshot.id)
        context.reached(Step.LOAD_PUBLISH)


def is_load_written(context: TableContext, record: OpRecord) -> bool:
    """Whether the op's rows are already in its generation's load branch."""
    return context.mirror.stamp(LOAD_STAMP, load_branch(record.generation)) == str(record.op)


def take_back_load(context: TableContext, *, generation: int, op: int) -> None:
    """Reset a load branch to its state before an op; does nothing where the op has not reached it."""
    mirror, branch = context.mirror, load_branch(generation)
    head = mirror.head(branch)
    if head is None or head.summary.get(LOAD_STAMP) != str(op):
        return
    before = int(head.summary[BASE_STAMP])
    if before == empty_snapshot(mirror):
        mirror.drop_branch(branch)
    else:
        mirror.reset_branch(branch, before)


def share_load_snapshot(context: TableContext, record: OpRecord, base: int) -> Snapshot:
    """Point ``main`` of an untouched, empty mirror at the load branch's snapshot: nothing is written twice."""
    branch = load_branch(record.generation)
    context.permission.require()
    context.mirror.fast_forward(branch, MAIN, expected=base)
    context.reached(Step.APPLY_PUBLISH)
    return context.mirror.require_head()


def begin_empty_load(context: TableContext, generation: int) -> None:
    """Begin a generation with a load without rows."""
    if context.mirror.head(load_branch(generation)) is None:
        context.mirror.create_branch(load_branch(generation), empty_snapshot(context.mirror))


def loads_at(mirror: TableMetadata, table: TableId, progress: Progress, last_ops: Mapping[int, int]) -> dict[str, int]:
    """Return the heads that the load branches had at a progress.

    ``last_ops`` is the op that read the newest part of each generation's load by then.

    Raises:
        DataError: a load grew or was undone since, and its earlier state is no longer kept.
    """
    empty = mirror.head(EMPTY_TAG)
    found: dict[str, int] = {}
    for generation in progress.generations:
        branch = load_branch(generation.number)
        load, head = load_at(mirror, generation.number, progress), mirror.head(branch)
        require_load(table, generation.number, load, last_ops.get(generation.number))
        if load is None and generation.emptied:
            load = empty
        if load is not None and head is not None and head.summary.get(LOAD_STAMP) == load.summary.get(LOAD_STAMP):
            # The same load, possibly rewritten since by an erasure: erased rows must not reappear.
            load = head
        if load is not None:
            found[branch] = load.id
    return found


def reset_loads(context: TableContext, record: OpRecord, bases: Bases) -> None:
    """Reset every load branch to its head at the target op of an undo, and tag all heads that are replaced.

    Happens in one commit, so that no snapshot is ever unreferenced, and is idempotent.
    """
    mirror = context.mirror.metadata()
    head = mirror.head()
    if head is None or bases.mirror is None or head.id != bases.mirror.id or bases.changelog is None:
        msg = f"{context.table}: the mirror changed during this undo"
        raise ConflictError(msg)
    last_ops = last_load_ops(context.changelog.read(bases.changelog.id), record.progress)
    wanted = loads_at(mirror, context.table, record.progress, last_ops)
    present = {name: branch for name, branch in mirror.branches().items() if name.startswith(LOAD_BRANCH_PREFIX)}
    moved = {name: wanted.get(name) for name in {*present, *wanted} if wanted.get(name) != present.get(name)}
    left = {MAIN: head.id, **{name: value for name, value in present.items() if name in moved}}
    tags = {undone_tag(record.op, name): value for name, value in left.items()}
    known = mirror.tags()
    context.permission.require()
    set_references(context.mirror, tags={name: tag for name, tag in tags.items() if name not in known}, branches=moved)
