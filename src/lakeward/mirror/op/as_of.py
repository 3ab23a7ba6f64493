"""A table as of the end of a moment: the nearest checkpoint, and the changes between it and the moment.

Only checkpoints that the lake itself holds are used, never results computed for earlier queries, so queries may come
in any order. Keys with late changes are folded again from the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.op.checkpoints import MomentKind, best_checkpoint, load_at, parse_moment, require_load
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless
from lakeward.mirror.op.ledger import applied_progress, last_load_ops, op_record, op_records, require_state
from lakeward.model import Generation, OrderBy
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import (
    is_delete,
    is_from_load,
    is_partial,
    is_standing,
    lacking_keys,
    lacks_commit_time,
    place,
)
from lakeward.transforms.moves import is_arrival

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakeward.iceberg.metadata import Snapshot
    from lakeward.mirror.op.checkpoints import Checkpoint, Moment
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.fold import Folded
    from lakeward.model import Progress
    from lakeward.spark.workspace import Workspace

# The generation of a table all of whose ops are undone: no change and no load belongs to it.
_NOTHING = Generation(0)


@dataclass(frozen=True)
class PointInTime:
    """A table at a moment, pinned: the changelog snapshot, the progress at the moment, and its generation."""

    context: TableContext
    bases: Bases
    moment: Moment
    progress: Progress
    generation: Generation
    load: Snapshot | None

    @property
    def names(self) -> tuple[str, ...]:
        """The table's column names."""
        return tuple(field.name for field in self.bases.columns)

    def changes(self) -> DataFrame:
        """Return the changes that count at the moment, with their op numbers.

        A file named after a reload may hold changes that were committed before it: they count for the generation
        before too, whether they were logged in that generation, in the next, or in both.
        """
        log = self.context.changelog.read(self.changelog.id)
        changes = log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.OP) <= F.lit(self.progress.op)))
        counted = changes.filter(self._is_counted() & is_standing(self.progress.undone))
        number = self.generation.number
        if self.moment.kind is MomentKind.OP or self.generation == self.progress.generation:
            return counted.filter(column(S.GENERATION) == number).drop(S.GENERATION)
        own = (column(S.GENERATION) == number) | ((column(S.GENERATION) > number) & ~_is_load_row())
        return logged_first(counted.filter(own)).drop(S.GENERATION)

    def load_rows(self) -> DataFrame | None:
        """Read the load that the generation began with."""
        return self.context.mirror.read(self.load.id) if self.load else None

    @property
    def changelog(self) -> Snapshot:
        """The changelog snapshot to read."""
        if self.bases.changelog is None:
            raise never_run(self.context)
        return self.bases.changelog

    def _is_counted(self) -> Column:
        if self.moment.kind is MomentKind.OP:
            return F.lit(True)
        if self.moment.kind is MomentKind.SEQUENCE:
            return _is_load_row() | (column(S.SEQUENCE) <= F.lit(self.moment.limit))
        if self.moment.kind is MomentKind.FILE:
            return is_from_load() | (column(S.FILE_TIME) <= F.lit(self.moment.limit))
        by_then = column(S.COMMIT_TIME) <= F.timestamp_micros(F.lit(self.moment.micros))
        return _is_load_row() | column(S.COMMIT_TIME).isNull() | by_then


@dataclass(frozen=True)
class AsOf:
    """All rows as of a moment, and how they were computed.

    ``folded`` are the rows of every key that may differ from the snapshot ``start``, which is the checkpoint's or the
    load's; None where nothing differs or the table has no key.
    """

    at: PointInTime
    rows: DataFrame
    checkpoint: Checkpoint | None
    start: int | None
    folded: Folded | None = None

    @property
    def op(self) -> int:
        """The newest op that counts."""
        return self.at.progress.op


@dataclass(frozen=True)
class _Span:
    """A summary of the changes between a checkpoint and the moment."""

    count: int
    is_late: bool
    partial: bool
    moves: bool


def rows_as_of(context: TableContext, workspace: Workspace, moment: Moment) -> AsOf:
    """Return a table's rows as of a moment; frames stay valid as long as the workspace.

    Raises:
        ConfigurationError: the table has no state at this moment.
        DataError: a state that this needs is no longer kept.
    """
    at = point_in_time(context, moment)
    context.adapt_plans(wanted=True)
    if not context.settings.primary_key:
        return _keyless(at, workspace)
    mirror = context.mirror.metadata()
    newest = _newest_op_before(at) if moment.kind is MomentKind.FILE else None
    checkpoint = best_checkpoint(mirror, moment, at.generation.number, at.progress, at.load, newest_op=newest)
    changes, is_held = at.changes(), _is_held(checkpoint)
    _require_times(at, changes)
    span = _span_since(at, changes, checkpoint)
    start = checkpoint.snapshot if checkpoint else (at.load.id if at.load else None)
    base = context.mirror.read(start).select(*columns(at.names)) if start is not None else None
    if not span.count:
        return AsOf(at, base if base is not None else _no_rows(at), checkpoint, start)
    since, before = (changes.filter(condition).drop(S.OP) for condition in (~is_held, is_held))
    folded = _folded(at, workspace, since, base, before, span)
    writes = folded.rows.filter(~is_delete()).select(*columns(at.names))
    if base is None:
        return AsOf(at, writes, checkpoint, start, folded)
    touched = folded.rows.select(*columns(context.settings.primary_key))
    others = lacking_keys(base, touched, keys=context.settings.primary_key)
    return AsOf(at, others.unionByName(writes), checkpoint, start, folded)


def point_in_time(context: TableContext, moment: Moment) -> PointInTime:
    """Pin a table at a moment: with the ops that readers see, without one that is still being applied.

    Raises:
        ConfigurationError: the table has no state at the moment, or its changes have no times.
        DataError: the load as of then is no longer kept.
    """
    bases = capture(context)
    if bases.changelog is None or bases.mirror is None or not bases.logged:
        raise never_run(context)
    newest = applied_progress(context, bases)
    progress = newest if moment.op is None else _progress_at(context, bases, newest, moment.op)
    generation = _generation_at(context, progress, moment)
    if moment.kind is not MomentKind.OP:
        _require_order(context, moment, generation)
    load = load_at(context.mirror.metadata(), generation.number, progress)
    if progress != newest:
        # The load that the newest op is based on is always kept.
        last_ops = last_load_ops(context.changelog.read(bases.changelog.id), progress)
        require_load(context.table, generation.number, load, last_ops.get(generation.number))
    return PointInTime(context, bases, moment, progress, generation, load)


def _is_load_row() -> Column:
    """Return the condition for load rows that were set aside and put back: they count whatever their time."""
    return column(S.SEQUENCE).isNull()


def logged_first(changes: DataFrame) -> DataFrame:
    """Return each change once, as the first op logged it."""
    position = f"{S.PREFIX}position"
    same = Window.partitionBy(S.FILE, S.ROW, S.STEP).orderBy(column(S.OP).asc_nulls_last())
    return changes.withColumn(position, F.row_number().over(same)).filter(column(position) == 1).drop(position)


def _progress_at(context: TableContext, bases: Bases, progress: Progress, op: int) -> Progress:
    if progress.op < op <= bases.logged:
        msg = f"{context.table}: op {op} is logged and not yet applied: it is being written, or was interrupted"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table} finishes it")
    if not 1 <= op <= progress.op or bases.changelog is None:
        msg = f"{context.table}: there is no op {op}; its ops are 1 to {progress.op}"
        raise ConfigurationError(msg, hint=f"lakeward status {context.table}")
    if op == progress.op:
        return progress
    records = op_records(context.changelog.read(bases.changelog.id), (op, op + 1))
    require_state(context, op, records)
    return records[op].progress


def _generation_at(context: TableContext, progress: Progress, moment: Moment) -> Generation:
    """Return the generation that was current at the moment."""
    if progress.generation is None:
        # An undo may undo all ops, and then leaves an empty table.
        if progress.op and moment.kind is MomentKind.OP:
            return _NOTHING
        raise never_run(context)
    if moment.kind is MomentKind.OP:
        return progress.generation
    require_captured(context, moment)
    seen = [generation for generation in progress.generations if not generation.unseen]
    begun = [generation for generation in seen if generation.began <= moment.digits]
    if not begun:
        first = seen[0]
        msg = f"{context.table}: {moment.label} lies before its first load, which began at {first.began}"
        raise ConfigurationError(msg)
    return begun[-1]


def require_captured(context: TableContext, moment: Moment) -> None:
    """Refuse a moment before ``cdc_start``: the table's state then is unknown."""
    start = context.settings.cdc_start
    if start is not None and moment.digits < first_digits(start, context.config.timezone):
        msg = f"{context.table}: {moment.label} lies before the start of its capture, cdc_start {start}"
        raise ConfigurationError(msg, hint=f"ask for {start} or later")


def first_digits(cdc_start: str, timezone: str) -> str:
    """Return the first moment of a capture as 20 digits: for a day its beginning in the time zone."""
    is_day = len(cdc_start) == len("2020-11-14")
    return parse_moment(f"{cdc_start}T00:00:00" if is_day else cdc_start, timezone).digits


def _require_order(context: TableContext, moment: Moment, generation: Generation) -> None:
    """Refuse a query by time or sequence where the changes do not contain it; files are placed by their names."""
    if moment.kind is MomentKind.FILE:
        return
    by_sequence = moment.kind is MomentKind.SEQUENCE
    if by_sequence and generation.order_by not in (OrderBy.SEQUENCE, None):
        msg = (
            f"{context.table}: its changes have no {context.settings.sequence_column}; it cannot be queried by sequence"
        )
        raise ConfigurationError(msg, hint="ask by op: --as-of op:NUMBER")
    if not by_sequence and context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: the commit times of its changes are unknown"
        raise ConfigurationError(msg, hint="ask by op: --as-of op:NUMBER   (lakeward runs lists ops with their times)")


def _newest_op_before(at: PointInTime) -> int:
    """Return the newest op up to which no op of the generation read a file that is named after the moment."""
    later = (column(S.KIND) == S.KIND_FILE) & (column(S.FILE_TIME) > F.lit(at.moment.limit))
    counts = (column(S.OP) <= F.lit(at.progress.op)) & is_standing(at.progress.undone)
    own = counts & (column(S.GENERATION) == F.lit(at.generation.number))
    first = at.context.changelog.read(at.changelog.id).filter(later & own).agg(F.min(S.OP)).collect()[0][0]
    return at.progress.op if first is None else first - 1


def _is_held(checkpoint: Checkpoint | None) -> Column:
    """Return the condition for changes that a checkpoint holds."""
    if checkpoint is None:
        return F.lit(False)
    is_held = column(S.OP) <= checkpoint.op
    if checkpoint.until is None:
        return is_held
    until = F.timestamp_micros(F.lit(checkpoint.until))
    return is_held & (column(S.COMMIT_TIME).isNull() | (column(S.COMMIT_TIME) <= until))


def _span_since(at: PointInTime, changes: DataFrame, checkpoint: Checkpoint | None) -> _Span:
    """Return a summary of the changes since a checkpoint, and whether any of them precedes a change that it holds."""
    is_held = _is_held(checkpoint)
    between = changes.filter(~is_held)
    count, first, partial, moves = between.agg(
        F.count(F.lit(1)), F.min(place()), F.max(is_partial()), F.max(is_arrival())
    ).collect()[0]  # fmt: skip
    held = changes.filter(is_held)
    last = _last_held(at, held, checkpoint) if checkpoint is not None and count else None
    is_late = last is not None and (_is_before(first, last) or _splits_commit(between, held, moves=bool(moves)))
    return _Span(count, is_late, bool(partial), bool(moves))


def _splits_commit(between: DataFrame, held: DataFrame, *, moves: bool) -> bool:
    """Whether a checkpoint holds only a part of a commit with key changes: then its rows must be read together."""
    if not (moves or held.filter(is_arrival()).take(1)):
        return False
    # A change without a commit time may belong to any commit.
    first = between.agg(F.min(column(S.COMMIT_TIME)), F.max(column(S.COMMIT_TIME).isNull())).collect()[0]
    last = held.agg(F.max(column(S.COMMIT_TIME))).collect()[0][0]
    return bool(first[1]) if last is None or first[0] is None else bool(first[1] or first[0] <= last)


def _last_held(at: PointInTime, held: DataFrame, checkpoint: Checkpoint) -> tuple[object, ...] | None:
    """Return the greatest place that a checkpoint holds; for a state of ``main`` its op's record has it."""
    if checkpoint.until is not None:
        found: tuple[object, ...] | None = held.agg(F.max(place())).collect()[0][0]
        return found
    record = op_record(at.context.changelog.read(at.changelog.id), checkpoint.op)
    last = record.progress.last_place
    return (1, last.sequence, last.file_time, last.file, last.row, last.step) if last else None


def _require_times(at: PointInTime, changes: DataFrame) -> None:
    """Refuse a query by time where some change has no commit time.

    Where changes are ordered by time, a change without one is a bad row, and there is nothing to check.
    """
    own = [generation for generation in at.progress.generations if generation.number >= at.generation.number]
    if at.moment.kind is not MomentKind.TIME or all(generation.order_by is OrderBy.TIMESTAMP for generation in own):
        return
    if changes.filter(lacks_commit_time()).select(S.OP).take(1):
        msg = f"{at.context.table}: some changes have no commit time; it is unknown whether they count"
        raise DataError(msg, hint="ask by op: --as-of op:NUMBER")


def _is_before(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    """Whether a place precedes another, in Spark's order: nulls first, text by code point."""
    return [(value is not None, value) for value in left] < [(value is not None, value) for value in right]


def _folded(
    at: PointInTime, workspace: Workspace, since: DataFrame, base: DataFrame | None, before: DataFrame, span: _Span
) -> Folded:
    keys = at.context.settings.primary_key
    history = before if span.is_late else None
    start = at.load_rows() if span.is_late else base if span.partial or span.moves else None
    reading, table = at.context.settings.key_moves, str(at.context.table)
    source = FoldInput(
        workspace, since, span.count, keys, at.names, span.partial, span.moves, start, history, reading, table,
        at.context.settings.metadata_columns.listed,
    )  # fmt: skip
    return fold_changes(source)


def _keyless(at: PointInTime, workspace: Workspace) -> AsOf:
    """Return every loaded and inserted row; a change sequence, where there is one, identifies repeats."""
    changes = at.changes().drop(S.OP)
    source = FoldInput(workspace, changes, 0, (), at.names)
    inserted = fold_keyless(source, at.generation.order_by).rows.select(*columns(at.names))
    load = at.load_rows()
    return AsOf(at, inserted if load is None else load.select(*columns(at.names)).unionByName(inserted), None, None)


def _no_rows(at: PointInTime) -> DataFrame:
    return at.context.mirror.read(at.context.mirror.require_head().id).select(*columns(at.names)).filter(F.lit(False))


def never_run(context: TableContext) -> ConfigurationError:
    """Return the error for a table that was never run."""
    return ConfigurationError(f"{context.table} has no rows yet: nothing was run", hint=f"lakeward run {context.table}")
