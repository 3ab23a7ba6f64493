"""All that happened to a table's rows, over all its generations: loads and the changes that stand, pinned.

A file named after a reload may hold changes that were committed before it. Asked by time, they count for the generation
before too, as for a snapshot of that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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


# When each generation of a table was the table.


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Span:
    """A generation, and the time in which it was the table, in microseconds since 1970.

    ``start`` None: from the beginning, which is not known. ``end`` is the first moment after it, None: it still is.
    """

    generation: Generation
    start: int | None
    end: int | None


def spans_of(generations: Sequence[Generation], cdc_start: str | None, timezone: str) -> list[Span]:
    """Return the time of every generation that ever was the table, oldest first.

    At any moment the newest generation that had begun by then is the table, and nothing is before the capture began.
    A day of ``cdc_start`` begins in ``timezone``. Of a generation whose load nobody saw nothing can be told.
    """
    floor = first_digits(cdc_start, timezone) if cdc_start else ""
    found = []
    for number, generation in enumerate(generations):
        start = max(generation.began, floor)
        end = min((one.began for one in generations[number + 1 :]), default=None)
        if not generation.unseen and (end is None or start < end):
            found.append(Span(generation, _micros(start) if start else None, _micros(end) if end else None))
    return found


def _micros(digits: str) -> int:
    moment = datetime.strptime(digits.ljust(20, "0")[:20], "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


if TYPE_CHECKING:
    Restriction = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Story:
    """A table's changelog and loads at one moment, read by the snapshots that were captured then."""

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
        return tuple(one.name for one in self.bases.columns)

    @cached_property
    def log(self) -> DataFrame:
        """The changelog, without an op that is not yet applied."""
        if self.bases.changelog is None:
            raise never_run(self.context)
        log = self.context.changelog.read(self.bases.changelog.id)
        return log.filter(column(S.OP) <= F.lit(self.progress.op))

    @property
    def changes(self) -> DataFrame:
        """Every change that stands, of all generations."""
        return self.log.filter((column(S.KIND) == S.KIND_CHANGE) & is_standing(self.progress.undone))

    @cached_property
    def has_moves(self) -> bool:
        """Whether some row changed its key."""
        return bool(self.changes.filter(is_arrival()).select(S.OP).take(1))

    def spans(self) -> list[Span]:
        """Return the time of every generation."""
        return spans_of(self.progress.generations, self.context.settings.cdc_start, self.context.config.timezone)

    def load_rows(self, generation: Generation) -> DataFrame | None:
        """Read the load that a generation began with, as it is now; None where it has none."""
        load = load_at(self.mirror, generation.number, self.progress)
        return self.context.mirror.read(load.id).select(*columns(self.names)) if load else None


def read_story(context: TableContext) -> Story:
    """Capture what there is to tell of a table.

    Raises:
        ConfigurationError: nothing was run.
    """
    bases = capture(context)
    if bases.changelog is None or bases.mirror is None or not min(bases.logged, bases.applied):
        raise never_run(context)
    return Story(context, bases, applied_progress(context, bases), context.mirror.metadata())


def require_times(story: Story) -> None:
    """Refuse questions about time where the changes do not tell it."""
    table = story.context.table
    if story.context.settings.timestamp_column is None:
        msg = f"{table} has no timestamp_column: nothing tells from when to when its rows were valid"
        raise ConfigurationError(msg, hint="let DMS add one (TimestampColumnName) and name it: timestamp_column:")
    timeless = story.changes.filter(column(S.COMMIT_TIME).isNull() & ~is_load_row()).select(S.FILE, S.ROW).take(1)
    if timeless:
        file, row = timeless[0]
        msg = f"{table}: {file}, row {row}, has no commit time; nothing tells since when it is valid"
        raise DataError(msg, hint=f"lakeward changes {table}")


def events_in_time(story: Story, workspace: Workspace, only: Restriction) -> DataFrame:
    """Return every event with the time from which it counts and the generation it counts in.

    ``only`` keeps the rows of some keys, which must be closed over moves.
    """
    frames = [_events(story, workspace, span, only) for span in story.spans()]
    if not frames:
        raise never_run(story.context)
    return reduce(DataFrame.unionByName, frames)


def closed_keys(story: Story, workspace: Workspace, touched: DataFrame) -> DataFrame:
    """Add the keys that exchange values with touched ones when rows change their key."""
    if not story.has_moves:
        return touched
    history = story.changes.drop(S.OP, S.GENERATION)
    nothing = FoldInput(workspace, history.filter(F.lit(False)), 0, story.keys, story.names)
    return with_linked_keys(touched, history, nothing)


def everything(rows: DataFrame) -> DataFrame:
    """Keep the rows of all keys."""
    return rows


def of_keys(story: Story, touched: DataFrame) -> Restriction:
    """Return the function that keeps rows of these keys."""
    return lambda rows: having_keys(rows, touched, keys=story.keys)


def related_to(story: Story, workspace: Workspace, key: RowKey) -> Restriction:
    """Return the function that keeps rows of one key, and of keys that its row may have come from."""
    if not story.has_moves:
        return lambda rows: rows.filter(key.matches())
    return of_keys(story, closed_keys(story, workspace, key.frame(story.context.spark)))


def finished(story: Story, workspace: Workspace, events: DataFrame, context: DataFrame) -> DataFrame:
    """Return events so that they can be read one after the other, also where rows changed their keys.

    ``context`` are the events of all keys.
    """
    if not story.has_moves:
        return events
    reading, table = story.context.settings.key_moves, str(story.context.table)
    source = FoldInput(workspace, events, 0, story.keys, story.names, key_moves=reading, table=table)
    return with_moves_finished(events, source, context)


def _events(story: Story, workspace: Workspace, span: Span, only: Restriction) -> DataFrame:
    events, load = _changes_in(story, span), story.load_rows(span.generation)
    events = events if load is None else events.unionByName(as_base(load, story.names))
    start = F.timestamp_micros(F.lit(span.start)) if span.start is not None else F.lit(None).cast("timestamp")
    end = F.timestamp_micros(F.lit(span.end)) if span.end is not None else F.lit(None).cast("timestamp")
    # A change committed before its generation began counts from its beginning on.
    at = F.when(is_load_row(), start).otherwise(F.greatest(column(S.COMMIT_TIME), start))
    return finished(story, workspace, only(events), events).withColumns(
        {S.GENERATION: F.lit(span.generation.number), AT: at, UNTIL: end}
    )


def _changes_in(story: Story, span: Span) -> DataFrame:
    """Return the changes that count while a generation is the table."""
    number, newest = span.generation.number, story.progress.generations[-1].number
    if number == newest:
        return story.changes.filter(column(S.GENERATION) == number).drop(S.OP, S.GENERATION)
    counted = story.changes.filter((column(S.GENERATION) >= number) & _is_before(span.end))
    # Rows of a later load that were set aside and put back belong to that load alone.
    own = counted.filter((column(S.GENERATION) == number) | ~is_load_row())
    return logged_first(own).drop(S.OP, S.GENERATION)


def _is_before(end: int | None) -> Column:
    if end is None:
        return F.lit(True)
    return is_load_row() | (column(S.COMMIT_TIME) < F.timestamp_micros(F.lit(end)))
