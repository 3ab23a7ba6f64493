"""Everything that happened to a table's rows over all its generations, read at pinned snapshots: loads and changes.

A file named after a reload may hold changes that were committed before it. In queries by time these count for the
previous generation too, as they do for a snapshot of that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.op.as_of import first_digits, logged_first, never_run
from lakeward.mirror.op.checkpoints import load_at
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.fold import FoldInput, with_linked_keys, with_moves_finished
from lakeward.mirror.op.ledger import applied_progress
from lakeward.mirror.op.metadata_columns import source_names
from lakeward.model import digits_micros
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import as_base, having_keys, is_standing
from lakeward.transforms.moves import is_arrival
from lakeward.transforms.versions import AT, UNTIL, is_load_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Generation, Progress
    from lakeward.spark.workspace import Workspace
    from lakeward.views.history.keys import RowKey

    # Keeps the rows of some keys.
    Restriction = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Span:
    """The time in which a generation was the current one, in microseconds since 1970.

    ``start`` is None where it is not known. ``end`` is the first moment after it, None for the current generation.
    """

    generation: Generation
    start: int | None
    end: int | None


def spans_of(generations: Sequence[Generation], cdc_start: str | None, timezone: str) -> list[Span]:
    """Return the time span of every generation that ever was the current one, oldest first.

    At any moment the newest generation that had begun by then is the current one; before the capture began there is
    none. A day in ``cdc_start`` begins in ``timezone``. A generation whose load was never seen is left out.
    """
    floor = first_digits(cdc_start, timezone) if cdc_start else ""
    found = []
    for number, generation in enumerate(generations):
        start = max(generation.began, floor)
        end = min((following.began for following in generations[number + 1 :]), default=None)
        if not generation.unseen and (end is None or start < end):
            found.append(Span(generation, digits_micros(start) if start else None, digits_micros(end) if end else None))
    return found


@dataclass(frozen=True)
class Timeline:
    """A table's changelog and loads, read at the snapshots that were captured together."""

    context: TableContext
    bases: Bases
    progress: Progress
    mirror: TableMetadata

    @property
    def keys(self) -> tuple[str, ...]:
        """The table's key columns."""
        return self.context.settings.primary_key

    @property
    def names(self) -> tuple[str, ...]:
        """The table's column names."""
        return tuple(lake_column.name for lake_column in self.bases.columns)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the source's columns: a change's own fields show what metadata columns hold."""
        return source_names(self.names, self.context.settings)

    @cached_property
    def log(self) -> DataFrame:
        """The changelog, without an op that is not yet applied."""
        if self.bases.changelog is None:
            raise never_run(self.context)
        log = self.context.changelog.read(self.bases.changelog.id)
        return log.filter(column(S.OP) <= F.lit(self.progress.op))

    @property
    def changes(self) -> DataFrame:
        """Every change of all generations that was not undone."""
        return self.log.filter((column(S.KIND) == S.KIND_CHANGE) & is_standing(self.progress.undone))

    @cached_property
    def has_moves(self) -> bool:
        """Whether any row changed its key."""
        return bool(self.changes.filter(is_arrival()).select(S.OP).take(1))

    def spans(self) -> list[Span]:
        """Return the time span of every generation."""
        return spans_of(self.progress.generations, self.context.settings.cdc_start, self.context.config.timezone)

    def load_rows(self, generation: Generation) -> DataFrame | None:
        """Return the rows of the load that a generation began with, None where it has no load."""
        load = load_at(self.mirror, generation.number, self.progress)
        return self.context.mirror.read(load.id).select(*columns(self.names)) if load else None


def read_timeline(context: TableContext) -> Timeline:
    """Capture a table's changelog and loads as they are now.

    Raises:
        ConfigurationError: the table was never run.
    """
    bases = capture(context)
    if bases.changelog is None or bases.mirror is None or not min(bases.logged, bases.applied):
        raise never_run(context)
    return Timeline(context, bases, applied_progress(context, bases), context.mirror.metadata())


def require_times(timeline: Timeline) -> None:
    """Refuse queries by time where changes have no commit time.

    Raises:
        ConfigurationError: the table has no timestamp column.
        DataError: a change has no commit time.
    """
    table = timeline.context.table
    if timeline.context.settings.timestamp_column is None:
        msg = f"{table} has no timestamp_column: it is not known when its rows were valid"
        raise ConfigurationError(msg, hint="have DMS add one (TimestampColumnName) and set it: timestamp_column:")
    timeless = timeline.changes.filter(column(S.COMMIT_TIME).isNull() & ~is_load_row()).select(S.FILE, S.ROW).take(1)
    if timeless:
        file, row = timeless[0]
        msg = f"{table}: {file}, row {row}, has no commit time; it is not known since when it is valid"
        raise DataError(msg, hint=f"lakeward changes {table}")


def events_in_time(timeline: Timeline, workspace: Workspace, only: Restriction) -> DataFrame:
    """Return every event with the time from which it counts and the generation that it counts in.

    ``only`` keeps the rows of some keys, which must include all keys that exchange rows with them.
    """
    frames = [_events(timeline, workspace, span, only) for span in timeline.spans()]
    if not frames:
        raise never_run(timeline.context)
    return reduce(DataFrame.unionByName, frames)


def closed_keys(timeline: Timeline, workspace: Workspace, touched: DataFrame) -> DataFrame:
    """Return the touched keys, and those that exchange values with them when rows change their key."""
    if not timeline.has_moves:
        return touched
    history = timeline.changes.drop(S.OP, S.GENERATION)
    nothing = FoldInput(workspace, history.filter(F.lit(False)), 0, timeline.keys, timeline.names)
    return with_linked_keys(touched, history, nothing)


def everything(rows: DataFrame) -> DataFrame:
    """Return all rows: the restriction that keeps every key."""
    return rows


def of_keys(timeline: Timeline, touched: DataFrame) -> Restriction:
    """Return the restriction to rows of these keys."""
    return lambda rows: having_keys(rows, touched, keys=timeline.keys)


def related_to(timeline: Timeline, workspace: Workspace, key: RowKey) -> Restriction:
    """Return the restriction to rows of one key and of the keys that its row may have come from."""
    if not timeline.has_moves:
        return lambda rows: rows.filter(key.matches())
    return of_keys(timeline, closed_keys(timeline, workspace, key.frame(timeline.context.spark)))


def finished(timeline: Timeline, workspace: Workspace, events: DataFrame, context: DataFrame) -> DataFrame:
    """Return events with key changes completed, so that they can be applied one after the other.

    ``context`` are the events of all keys.
    """
    if not timeline.has_moves:
        return events
    settings, table = timeline.context.settings, str(timeline.context.table)
    source = FoldInput(
        workspace, events, 0, timeline.keys, timeline.names, key_moves=settings.key_moves, table=table,
        metadata=settings.metadata_columns.listed,
    )  # fmt: skip
    return with_moves_finished(events, source, context)


def _events(timeline: Timeline, workspace: Workspace, span: Span, only: Restriction) -> DataFrame:
    events, load = _changes_in(timeline, span), timeline.load_rows(span.generation)
    events = events if load is None else events.unionByName(as_base(load, timeline.names))
    start = F.timestamp_micros(F.lit(span.start)) if span.start is not None else F.lit(None).cast("timestamp")
    end = F.timestamp_micros(F.lit(span.end)) if span.end is not None else F.lit(None).cast("timestamp")
    # A change committed before its generation began counts from the start of the generation.
    at = F.when(is_load_row(), start).otherwise(F.greatest(column(S.COMMIT_TIME), start))
    return finished(timeline, workspace, only(events), events).withColumns(
        {S.GENERATION: F.lit(span.generation.number), AT: at, UNTIL: end}
    )


def _changes_in(timeline: Timeline, span: Span) -> DataFrame:
    """Return the changes that count while a generation is the current one."""
    number, newest = span.generation.number, timeline.progress.generations[-1].number
    if number == newest:
        return timeline.changes.filter(column(S.GENERATION) == number).drop(S.OP, S.GENERATION)
    counted = timeline.changes.filter((column(S.GENERATION) >= number) & _is_before(span.end))
    # Rows of a later load that were set aside and put back belong to that load alone.
    own = counted.filter((column(S.GENERATION) == number) | ~is_load_row())
    return logged_first(own).drop(S.OP, S.GENERATION)


def _is_before(end: int | None) -> Column:
    if end is None:
        return F.lit(True)
    return is_load_row() | (column(S.COMMIT_TIME) < F.timestamp_micros(F.lit(end)))
