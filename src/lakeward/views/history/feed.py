"""The feed of a table's changes for jobs that follow it: all between two ops, or between two moments of commit.

By op a job continues where it stopped: the range begins after the first op and ends with the last. Loads come as rows
of operation L, and a row of operation T tells that a new generation begins with an empty table. By time there is
neither: a load has no commit time.
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
from lakeward.views.history.timeline import read_story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

    from lakeward.mirror.op.checkpoints import Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.history.timeline import Story

EMPTIED = "T"
# In this order the feed has Lakeward's own columns; the table's follow.
FEED = (
    S.OP, S.GENERATION, S.OPERATION, S.COMMIT_TIME, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.UNCHANGED,
)  # fmt: skip


def changes_between(context: TableContext, since: str | None, until: str | None) -> DataFrame:
    """Return the changes after ``since`` up to ``until``, ops that were undone left out.

    Raises:
        ConfigurationError: the moments are not of one kind or not in order, or the op that a job stopped at no longer
            stands.
        DataError: a load that the range holds is no longer kept as it was.
    """
    story = read_story(context)
    first, last = _moment(story, since), _moment(story, until)
    kinds = {one.kind for one in (first, last) if one is not None} or {MomentKind.OP}
    if len(kinds) > 1:
        msg = f"{context.table}: {since} and {until} are moments of two kinds; expected two ops or two times"
        raise ConfigurationError(msg, hint=f"lakeward changes {context.table} --from op:N --to op:M")
    kind = kinds.pop()
    if first is not None and last is not None and first.is_after(last):
        msg = f"{context.table}: the changes after {since} and up to {until} are asked for, but {until} comes first"
        raise ConfigurationError(msg, hint=f"lakeward changes {context.table} --from {until} --to {since}")
    _require_answerable(story, kind, first, last)
    changes = story.changes.filter(_is_between(first, last))
    frames = [changes.withColumn(S.OPERATION, shown_operation()).select(*FEED, *columns(story.names))]
    if kind is MomentKind.OP:
        low, high = (first.op if first else 0) or 0, (last.op if last else None) or story.progress.op
        frames += [_beginnings(story, low, high), *_load_rows(story, low, high)]
    return reduce(DataFrame.unionByName, frames)


def in_feed_order(feed: DataFrame) -> DataFrame:
    """Sort a feed as a job should take it in: op by op, the beginning of a generation first, then its load."""
    rank = F.when(column(S.OPERATION) == EMPTIED, 0).when(column(S.OPERATION) == LOADED, 1).otherwise(2)
    own = columns((S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP))
    return feed.orderBy(column(S.OP), rank, *[one.asc_nulls_first() for one in own])


def _moment(story: Story, text: str | None) -> Moment | None:
    return parse_moment(text, story.context.config.timezone) if text is not None else None


def _require_answerable(story: Story, kind: MomentKind, first: Moment | None, last: Moment | None) -> None:
    table, progress = story.context.table, story.progress
    if kind is MomentKind.TIME and story.context.settings.timestamp_column is None:
        msg = f"{table} has no timestamp_column: nothing tells when its changes were committed"
        raise ConfigurationError(msg, hint=f"lakeward changes {table} --from op:N")
    ops = [one.op for one in (first, last) if one is not None and one.op is not None]
    if ops and max(ops) > progress.op:
        msg = f"{table}: there is no op {max(ops)}; its newest is {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward status {table}")
    if first is not None and first.op is not None and is_undone(first.op, progress.undone):
        standing = min(low for low, high in progress.undone if low <= int(first.op) <= high) - 1
        msg = (
            f"{table}: op {first.op} was undone: what came after op {standing} no longer counts, "
            f"also where a job has taken it in"
        )
        hint = f"build the job's copy anew from the mirror, and go on from op:{progress.op}"
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


def _beginnings(story: Story, low: int, high: int) -> DataFrame:
    """Return a row for every generation but the first that an op in the range began."""
    control = story.log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull())
    begins = (column(S.GENERATION) > 1) & (F.get_json_object(column(S.DETAIL), "$.starts") == "true")
    ours = control.filter(begins & is_standing(story.progress.undone) & _is_in(low, high))
    return ours.withColumn(S.OPERATION, F.lit(EMPTIED)).select(*FEED, *columns(story.names))


def _load_rows(story: Story, low: int, high: int) -> Iterator[DataFrame]:
    """Yield the rows that each load op in the range brought: what its load has and had not before it."""
    for generation, ops in _load_ops(story, high).items():
        head = story.mirror.head(load_branch(generation))
        lineage = story.mirror.lineage(head.id) if head else ()
        loads = {int(one.summary[LOAD_STAMP]): one.id for one in lineage if LOAD_STAMP in one.summary}
        wanted = [op for op in ops if op > low]
        if wanted and not story.keys:
            _require_told_apart(story, max((op for op in ops if op <= low), default=None), loads)
        for op in sorted({_kept_op(story, one, loads, high) for one in wanted}):
            rows = story.context.mirror.read(loads[op]).select(*columns(story.names))
            if earlier := [load for load in loads if load < op]:
                before = story.context.mirror.read(loads[max(earlier)])
                rows = rows.exceptAll(before.select(*columns(story.names)))
            yield _as_feed(story, rows, op, generation)


def _load_ops(story: Story, high: int) -> dict[int, list[int]]:
    """Return the load ops up to one by generation."""
    kind = F.get_json_object(column(S.DETAIL), "$.kind") == OpKind.LOAD.value
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & is_standing(story.progress.undone)
    rows = story.log.filter(control & kind & (column(S.OP) <= high)).select(S.GENERATION, S.OP)
    found: dict[int, list[int]] = {}
    for generation, op in rows.toLocalIterator():
        found.setdefault(generation, []).append(op)
    return found


def _require_told_apart(story: Story, before: int | None, loads: dict[int, int]) -> None:
    """Refuse to give rows again that came before the range; with a key they change nothing, as every change follows."""
    if before is not None and before not in loads:
        msg = f"{story.context.table}: the load as op {before} left it is no longer kept: its rows would come twice"
        raise DataError(msg, hint=f"read the mirror, and go on from op:{story.progress.op}")


def _kept_op(story: Story, op: int, loads: dict[int, int], high: int) -> int:
    """Return the op whose kept state of the load holds the rows of ``op``: its own, or a later one's in the range."""
    kept = min((load for load in loads if op <= load <= high), default=None)
    if kept is None:
        msg = f"{story.context.table}: the load of op {op} is no longer kept as it was then"
        raise DataError(msg, hint=f"read the mirror, and go on from op:{story.progress.op}")
    return kept


def _as_feed(story: Story, rows: DataFrame, op: int, generation: int) -> DataFrame:
    own = {field.name: F.lit(None).cast(field.dataType) for field in (*S.OP_FIELDS, *S.RECORD_FIELDS)}
    given = {S.OP: F.lit(op).cast("long"), S.GENERATION: F.lit(generation), S.OPERATION: F.lit(LOADED)}
    fields = [({**own, **given})[name].alias(name) for name in FEED]
    return rows.select(*fields, *columns(story.names))


def _is_in(low: int, high: int) -> Column:
    return (column(S.OP) > low) & (column(S.OP) <= high)
