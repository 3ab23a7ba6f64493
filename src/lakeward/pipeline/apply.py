"""Write the rows of touched keys to a branch of the mirror: what was there is deleted, what holds now appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import DataError
from lakeward.pipeline.folding import ONE_TASK
from lakeward.pipeline.planner import Strategy
from lakeward.pipeline.steps import Step
from lakeward.transforms.columns import columns
from lakeward.transforms.fold import is_delete
from lakeward.transforms.keys import lacking_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.lake.iceberg.attempt import Attempt
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Effect
    from lakeward.pipeline.folding import Folded

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
    """Write the folded rows of an effect to the attempt's branch as planned; without any, only say that it is applied.

    ``keys`` are the columns by which rows are found, ``names`` all columns that are written.
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
    """Write the mirror anew: its rows of other keys, and the folded ones."""
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
