"""The feed of a table's changes for jobs that follow it: all changes between two ops or between two commit times.

By op, a job continues where it stopped: the range begins after the first op and ends with the last. Loads appear as
rows of operation L, and a row of operation T marks a new generation, which begins with an empty table. By time there
are neither, because a load has no commit time.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.iceberg.define import LOAD_STAMP
from lakeward.mirror.op.checkpoints import MomentKind, is_undone, parse_moment
from lakeward.mirror.op.effect import load_branch
from lakeward.model import OpKind
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import is_standing
from lakeward.transforms.versions import LOADED, shown_operation
from lakeward.views.history.timeline import read_timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.history.timeline import Timeline

EMPTIED = "T"
# Lakeward's own columns, in the order of the feed; the table's columns follow.
FEED = (
    S.OP, S.GENERATION, S.OPERATION, S.COMMIT_TIME, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.UNCHANGED,
)  # fmt: skip


def changes_between(context: TableContext, since: str | None, until: str | None) -> DataFrame:
    """Return the changes after ``since`` up to ``until``, without those of undone ops.

    Raises:
        ConfigurationError: the moments are of different kinds or not in order, or the op that the job stopped at was
            undone.
        DataError: the original state of a load in the range is no longer kept.
    """
    timeline = read_timeline(context)
    first, last = _moment(timeline, since), _moment(timeline, until)
    kinds = {moment.kind for moment in (first, last) if moment is not None} or {MomentKind.OP}
    if len(kinds) > 1:
        msg = f"{context.table}: {since} and {until} are moments of two kinds; expected two ops or two times"
        raise ConfigurationError(msg, hint=f"lakeward changes {context.table} --from op:N --to op:M")
    kind = kinds.pop()
    if first is not None and last is not None and first.is_after(last):
        msg = f"{context.table}: the changes after {since} and up to {until} are asked for, but {until} comes first"
        raise ConfigurationError(msg, hint=f"lakeward changes {context.table} --from {until} --to {since}")
    _require_answerable(timeline, kind, first, last)
    changes = timeline.changes.filter(_is_between(first, last))
    frames = [changes.withColumn(S.OPERATION, shown_operation()).select(*FEED, *columns(timeline.names))]
    if kind is MomentKind.OP:
        low, high = (first.op if first else 0) or 0, (last.op if last else None) or timeline.progress.op
        frames += [_beginnings(timeline, low, high), *_load_rows(timeline, low, high)]
    return reduce(DataFrame.unionByName, frames)


def in_feed_order(feed: DataFrame) -> DataFrame:
    """Sort a feed in the order for applying it: by op, the beginning of a generation first, then its load."""
    rank = F.when(column(S.OPERATION) == EMPTIED, 0).when(column(S.OPERATION) == LOADED, 1).otherwise(2)
    own = columns((S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP))
    return feed.orderBy(column(S.OP), rank, *[order_column.asc_nulls_first() for order_column in own])


def _moment(timeline: Timeline, text: str | None) -> Moment | None:
    return parse_moment(text, timeline.context.config.timezone) if text is not None else None


def _require_answerable(timeline: Timeline, kind: MomentKind, first: Moment | None, last: Moment | None) -> None:
    table, progress = timeline.context.table, timeline.progress
    if kind is MomentKind.TIME and timeline.context.settings.timestamp_column is None:
        msg = f"{table} has no timestamp_column: it is not known when its changes were committed"
        raise ConfigurationError(msg, hint=f"lakeward changes {table} --from op:N")
    ops = [moment.op for moment in (first, last) if moment is not None and moment.op is not None]
    if ops and max(ops) > progress.op:
        msg = f"{table}: there is no op {max(ops)}; its newest is {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward status {table}")
    if first is not None and first.op is not None and is_undone(first.op, progress.undone):
        standing = min(low for low, high in progress.undone if low <= int(first.op) <= high) - 1
        msg = (
            f"{table}: op {first.op} was undone: what came after op {standing} no longer counts, "
            f"even where a job has already applied it"
        )
        hint = f"rebuild the job's copy from the mirror, and continue from op:{progress.op}"
        raise ConfigurationError(msg, hint=hint)


def _is_between(first: Moment | None, last: Moment | None) -> Column:
    condition = F.lit(True)
    if first is not None:
        condition &= ~_is_upto(first)
    return condition & _is_upto(last) if last is not None else condition


def _is_upto(moment: Moment) -> Column:
    if moment.kind is MomentKind.OP:
        return column(S.OP) <= F.lit(moment.op)
    if moment.kind is MomentKind.SEQUENCE:
        return column(S.SEQUENCE) <= F.lit(moment.limit)
    return column(S.COMMIT_TIME) <= F.timestamp_micros(F.lit(moment.micros))


def _beginnings(timeline: Timeline, low: int, high: int) -> DataFrame:
    """Return one row for every generation, except the first, that an op in the range started."""
    control = timeline.log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull())
    begins = (column(S.GENERATION) > 1) & (F.get_json_object(column(S.DETAIL), "$.starts") == "true")
    ours = control.filter(begins & is_standing(timeline.progress.undone) & _is_in(low, high))
    return ours.withColumn(S.OPERATION, F.lit(EMPTIED)).select(*FEED, *columns(timeline.names))


def _load_rows(timeline: Timeline, low: int, high: int) -> Iterator[DataFrame]:
    """Yield the rows that each load op in the range added to its load."""
    for generation, ops in _load_ops(timeline, high).items():
        head = timeline.mirror.head(load_branch(generation))
        lineage = timeline.mirror.lineage(head.id) if head else ()
        loads = {
            int(snapshot.summary[LOAD_STAMP]): snapshot.id for snapshot in lineage if LOAD_STAMP in snapshot.summary
        }
        wanted = [op for op in ops if op > low]
        if wanted and not timeline.keys:
            _require_distinct_loads(timeline, max((op for op in ops if op <= low), default=None), loads)
        for op in sorted({_kept_op(timeline, load_op, loads, high) for load_op in wanted}):
            rows = timeline.context.mirror.read(loads[op]).select(*columns(timeline.names))
            if earlier := [load for load in loads if load < op]:
                before = timeline.context.mirror.read(loads[max(earlier)])
                rows = rows.exceptAll(before.select(*columns(timeline.names)))
            yield _as_feed(timeline, rows, op, generation)


def _load_ops(timeline: Timeline, high: int) -> dict[int, list[int]]:
    """Return the load ops up to op ``high``, by generation."""
    kind = F.get_json_object(column(S.DETAIL), "$.kind") == OpKind.LOAD.value
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & is_standing(timeline.progress.undone)
    rows = timeline.log.filter(control & kind & (column(S.OP) <= high)).select(S.GENERATION, S.OP)
    found: dict[int, list[int]] = {}
    for generation, op in rows.toLocalIterator():
        found.setdefault(generation, []).append(op)
    return found


def _require_distinct_loads(timeline: Timeline, before: int | None, loads: dict[int, int]) -> None:
    """Refuse to repeat rows from before the range. With a key a repeat does no harm, as all later changes follow."""
    if before is not None and before not in loads:
        table = timeline.context.table
        msg = f"{table}: the load as op {before} left it is no longer kept: its rows would be returned twice"
        raise DataError(msg, hint=f"read the mirror, and continue from op:{timeline.progress.op}")


def _kept_op(timeline: Timeline, op: int, loads: dict[int, int], high: int) -> int:
    """Return the op whose kept load state contains the rows of ``op``: that op, or a later one in the range."""
    kept = min((load for load in loads if op <= load <= high), default=None)
    if kept is None:
        msg = f"{timeline.context.table}: the load of op {op} is no longer kept as it was then"
        raise DataError(msg, hint=f"read the mirror, and continue from op:{timeline.progress.op}")
    return kept


def _as_feed(timeline: Timeline, rows: DataFrame, op: int, generation: int) -> DataFrame:
    own = {field.name: F.lit(None).cast(field.dataType) for field in (*S.OP_FIELDS, *S.RECORD_FIELDS)}
    given = {S.OP: F.lit(op).cast("long"), S.GENERATION: F.lit(generation), S.OPERATION: F.lit(LOADED)}
    fields = [({**own, **given})[name].alias(name) for name in FEED]
    return rows.select(*fields, *columns(timeline.names))


def _is_in(low: int, high: int) -> Column:
    return (column(S.OP) > low) & (column(S.OP) <= high)
