"""Apply an op to the mirror: work on a branch, publish by fast-forward. Readers see all of the op or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import DataError
from lakeward.lake.iceberg.attempt import BASE_STAMP, Attempt
from lakeward.lake.iceberg.define import LOAD_STAMP, empty_snapshot
from lakeward.pipeline.effect import load_branch
from lakeward.pipeline.erase.lake import erase_from_main
from lakeward.pipeline.folding import ONE_TASK
from lakeward.pipeline.planner import Strategy
from lakeward.pipeline.stamps import applied_stamps
from lakeward.pipeline.steps import Step
from lakeward.transforms.columns import columns
from lakeward.transforms.fold import is_delete
from lakeward.transforms.keys import lacking_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Effect
    from lakeward.pipeline.folding import Folded
    from lakeward.pipeline.records import OpRecord

_SHUFFLING = (Strategy.SHUFFLED_DELETE, Strategy.REWRITE, Strategy.REPLACE, Strategy.RESTORE)
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
_BROADCAST_BYTES = str(1 << 30)


def apply_op(context: TableContext, record: OpRecord, effect: Effect, *, base: int, names: Sequence[str]) -> Snapshot:
    """Bring an op into the mirror on top of snapshot ``base``; give the snapshot that readers see now.

    Raises:
        ConflictError: ``main`` has moved since, or the lease was lost. Readers saw nothing of this attempt.
    """
    if effect.plan.strategy in _SHUFFLING:
        context.adapt_plans(wanted=True)
    if effect.load_rows is not None:
        _extend_load(context, record, effect.load_rows, effect.load_count)
    elif effect.plan.strategy is Strategy.CLEAR:
        _begin_empty_load(context, record.generation)
    if effect.plan.strategy is Strategy.LOAD:
        return _become_load(context, record, base)
    stamps = applied_stamps(record)
    with Attempt(context.mirror, op=record.op, base=base) as attempt:
        context.reached(Step.APPLY_BRANCH)
        if effect.plan.strategy is Strategy.CLEAR:
            attempt.clear(stamps)
        elif effect.plan.strategy is Strategy.REPLACE:
            load = context.mirror.require_head(load_branch(record.generation))
            attempt.overwrite(context.mirror.read(load.id), stamps, expected=load.rows)
        elif effect.plan.strategy is Strategy.RESTORE:
            _restore(attempt, effect, stamps)
        elif effect.plan.strategy is Strategy.ERASE:
            erase_from_main(context, attempt, record, stamps)
        elif effect.folded is not None:
            _write_folded(context, attempt, effect, effect.folded, stamps, names)
        else:
            attempt.stamp(stamps)
        context.reached(Step.APPLY_APPEND)
        snapshot = attempt.publish(before=context.permission.require)
        context.reached(Step.APPLY_PUBLISH)
    context.reached(Step.APPLY_DROP)
    return snapshot


def _restore(attempt: Attempt, effect: Effect, stamps: dict[str, str]) -> None:
    """Let the mirror hold an earlier state and nothing else."""
    if effect.state is None or effect.state_count == 0:
        attempt.clear(stamps)
    else:
        attempt.overwrite(effect.state, stamps, expected=effect.state_count)


def _write_folded(
    context: TableContext,
    attempt: Attempt,
    effect: Effect,
    folded: Folded,
    stamps: dict[str, str],
    names: Sequence[str],
) -> None:
    keys = context.settings.primary_key
    touched = folded.rows.select(*columns(keys))
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    if effect.plan.strategy is Strategy.REWRITE:
        _rewrite(context, attempt, folded, stamps, names)
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
    context: TableContext, attempt: Attempt, folded: Folded, stamps: dict[str, str], names: Sequence[str]
) -> None:
    """Write the mirror anew: its rows of other keys, and the folded ones."""
    keys = context.settings.primary_key
    touched = folded.rows.select(*columns(keys))
    before = context.mirror.read(attempt.base)
    others = lacking_keys(before, touched, keys=keys).select(*columns(names))
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    attempt.overwrite(others.unionByName(writes), stamps, expected=others.count() + folded.writes)
    _require_still_whole(context, folded)


def _delete_settings(effect: Effect, folded: Folded) -> dict[str, str]:
    """Make Spark send the touched keys to every task, or shuffle them, as planned; few positions make one file."""
    if effect.plan.strategy is Strategy.SHUFFLED_DELETE:
        return {_BROADCAST: "-1"}
    gathered = {_SHUFFLE_TASKS: "1"} if folded.touched <= ONE_TASK else {}
    return {_BROADCAST: _BROADCAST_BYTES, **gathered}


def _require_still_whole(context: TableContext, folded: Folded) -> None:
    """Refuse folded rows that Spark lost and computed again from files that have changed since.

    For writes that are not an append of counted rows.
    """
    found = folded.rows.count()
    if found != folded.touched:
        msg = f"{context.table}: {found:,} keys were applied, expected {folded.touched:,}; nothing was published"
        raise DataError(msg, hint=f"an input file changed while it was read: lakeward run {context.table}")


def _extend_load(context: TableContext, record: OpRecord, rows: DataFrame, count: int) -> None:
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
    """Tell whether the op's rows are already in its generation's load branch."""
    return context.mirror.stamp(LOAD_STAMP, load_branch(record.generation)) == str(record.op)


def take_back_load(context: TableContext, *, generation: int, op: int) -> None:
    """Cut a load branch back to what it was before an op; does nothing where the op has not reached it."""
    mirror, branch = context.mirror, load_branch(generation)
    head = mirror.head(branch)
    if head is None or head.summary.get(LOAD_STAMP) != str(op):
        return
    before = int(head.summary[BASE_STAMP])
    if before == empty_snapshot(mirror):
        mirror.drop_branch(branch)
    else:
        mirror.reset_branch(branch, before)


def _become_load(context: TableContext, record: OpRecord, base: int) -> Snapshot:
    """Let an untouched, empty mirror share the load branch's snapshot: nothing is written twice."""
    branch = load_branch(record.generation)
    context.permission.require()
    context.mirror.fast_forward(branch, "main", expected=base)
    context.reached(Step.APPLY_PUBLISH)
    return context.mirror.require_head()


def _begin_empty_load(context: TableContext, generation: int) -> None:
    if context.mirror.head(load_branch(generation)) is None:
        context.mirror.create_branch(load_branch(generation), empty_snapshot(context.mirror))
