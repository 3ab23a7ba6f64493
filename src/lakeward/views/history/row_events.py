"""Everything that the lake contains about a row: its changes and their results, bad rows, the other sides of moves.

Every query filters by the key first, so that files whose statistics exclude it are not opened, and has a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.quarantined import raw_values
from lakeward.iceberg.define import LOAD_STAMP
from lakeward.mirror.op.changelog import REBUILD, is_named
from lakeward.mirror.op.effect import load_branch
from lakeward.mirror.op.ledger import bad_row_details
from lakeward.model import Generation, Operation, OrderBy, Place
from lakeward.text import json_object, refusing_damage
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import as_base, is_standing, place
from lakeward.transforms.versions import operation_after, shown_operation, values_after
from lakeward.views.history.timeline import closed_keys, everything, finished, of_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, Row

    from lakeward.spark.workspace import Workspace
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.timeline import Restriction, Timeline


Values = dict[str, Any]
_TIME = f"{S.PREFIX}time"
_AFTER = f"{S.PREFIX}after"
_PLACE = f"{S.PREFIX}place"
_WHERE = (S.OP, S.GENERATION, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.UNCHANGED)


@dataclass(frozen=True)
class RowEvent:
    """A load or change of the row. ``after`` is the row as the event left it, None where it deleted the row."""

    operation: str
    op: int
    generation: int
    place: Place
    commit_time: str | None
    unchanged: frozenset[str]
    after: Values | None
    is_numbered: bool = False

    @property
    def is_load(self) -> bool:
        """Whether the event is a row of the load."""
        return not self.place.file_time

    @property
    def order(self) -> tuple[int, Place, int]:
        """The sort key of the event in the history."""
        return (self.generation, self.place, self.op)


def standing_events(timeline: Timeline, workspace: Workspace, key: RowKey, *, limit: int) -> list[RowEvent]:
    """Return the newest events of the row that were not undone, in order, each with the row as it left it."""
    events = _events(timeline, workspace, key)
    upto = (
        Window.partitionBy(column(S.GENERATION))
        .orderBy(place().asc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    others = [name for name in timeline.source_names if name not in timeline.keys]
    after = [operation_after(upto).alias(_AFTER), *values_after(others, upto)]
    described = events.select(
        *_WHERE, place().alias(_PLACE), shown_operation().alias(S.OPERATION), _time(), *columns(timeline.keys), *after
    )
    newest = described.orderBy(column(S.GENERATION).desc(), column(_PLACE).desc_nulls_last()).limit(limit)
    rows = newest.select(*_WHERE, S.OPERATION, _TIME, _AFTER, *_shown(timeline, timeline.source_names)).collect()
    return [_event(timeline, row, is_gone=row[_AFTER] == Operation.DELETE) for row in reversed(rows)]


def undone_events(timeline: Timeline, key: RowKey, *, limit: int) -> list[RowEvent]:
    """Return the newest events of the row that were undone, with the values that they set."""
    if not timeline.progress.undone:
        return []
    is_undone = (column(S.KIND) == S.KIND_CHANGE) & ~is_standing(timeline.progress.undone) & key.matches()
    rows = timeline.log.filter(is_undone).orderBy(column(S.OP).desc(), place().desc_nulls_last()).limit(limit)
    found = rows.select(*_WHERE, S.OPERATION, _time(), *_shown(timeline, timeline.source_names)).collect()
    return [_event(timeline, row, is_gone=row[S.OPERATION] == Operation.DELETE) for row in found]


def partners(timeline: Timeline, events: Iterable[RowEvent]) -> dict[tuple[int, str, int, int], Values]:
    """Return the keys on the other side of key changes, by (op, file, row, step) of that side."""
    moved = [event for event in events if event.place.step == S.STEP_MOVED_HERE or event.operation == Operation.DELETE]
    if not moved:
        return {}
    narrowed = column(S.OP).isin(*{event.op for event in moved}) & column(S.FILE).isin(
        *{event.place.file for event in moved}
    )
    named = is_named({f"{event.place.file}:{event.place.row}" for event in moved})
    rows = timeline.log.filter((column(S.KIND) == S.KIND_CHANGE) & narrowed & named)
    found = rows.select(S.OP, S.FILE, S.ROW, S.STEP, *_shown(timeline, timeline.keys)).limit(2 * len(moved)).collect()
    return {(row[S.OP], row[S.FILE], row[S.ROW], row[S.STEP]): _values(timeline.keys, row) for row in found}


def row_now(timeline: Timeline, key: RowKey) -> Values | None:
    """Return the row as it is in the mirror, None where the mirror has no such row."""
    assert timeline.bases.mirror is not None  # read_timeline has checked this
    mirror = timeline.context.mirror.read(timeline.bases.mirror.id).filter(key.matches())
    found = mirror.select(*_shown(timeline, timeline.source_names)).take(1)
    return _values(timeline.source_names, found[0]) if found else None


def first_ops(timeline: Timeline) -> dict[int, int]:
    """Return the op that began each generation."""
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & is_standing(timeline.progress.undone)
    rows = timeline.log.filter(control).groupBy(S.GENERATION).agg(F.min(S.OP).alias(S.OP)).collect()
    return {row[S.GENERATION]: row[S.OP] for row in rows}


def load_files(timeline: Timeline, ops: Iterable[int]) -> dict[int, str]:
    """Return the file of each load op that read a single file; the mirror does not record which file a row is from."""
    if not (wanted := {*ops}):
        return {}
    files = timeline.log.filter((column(S.KIND) == S.KIND_FILE) & column(S.OP).isin(*wanted))
    counted = files.groupBy(S.OP).agg(F.count(F.lit(1)).alias("files"), F.min(S.FILE).alias(S.FILE))
    return {row[S.OP]: row[S.FILE] for row in counted.filter("files = 1").collect()}


def _events(timeline: Timeline, workspace: Workspace, key: RowKey) -> DataFrame:
    """Return the row's load rows and changes, with op and generation; moves into the key are completed."""
    own: Restriction = lambda rows: rows.filter(key.matches())  # noqa: E731
    if not timeline.has_moves:
        return _with_loads(timeline, timeline.progress.generations, own, timeline.changes)
    related = of_keys(timeline, closed_keys(timeline, workspace, key.frame(timeline.context.spark)))
    frames = []
    for generation in timeline.progress.generations:
        changes = timeline.changes.filter(column(S.GENERATION) == generation.number)
        events, every = (_with_loads(timeline, (generation,), only, changes) for only in (related, everything))
        frames.append(own(finished(timeline, workspace, events, every)))
    return reduce(DataFrame.unionByName, frames)


def _with_loads(
    timeline: Timeline, generations: Sequence[Generation], only: Restriction, changes: DataFrame
) -> DataFrame:
    """Return changes and the rows of loads, in the state after each op that wrote to a load."""
    frames = [only(changes)]
    for generation in generations:
        head = timeline.mirror.head(load_branch(generation.number))
        for snapshot in timeline.mirror.lineage(head.id) if head else ():
            op = snapshot.summary.get(LOAD_STAMP)
            if op is not None and int(op) <= timeline.progress.op:
                rows = only(timeline.context.mirror.read(snapshot.id)).withColumns(
                    {S.OP: F.lit(int(op)).cast("long"), S.GENERATION: F.lit(generation.number)}
                )
                base = as_base(rows, (*timeline.names, S.OP, S.GENERATION))
                # A later part of the load replaces rows of earlier ones.
                frames.append(base.withColumn(S.ROW, column(S.OP)))
    return reduce(DataFrame.unionByName, frames)


def _event(timeline: Timeline, row: Row, *, is_gone: bool) -> RowEvent:
    # Generations that were undone are missing here.
    orders = {generation.number: generation.order_by for generation in timeline.progress.generations}
    # Rows of the load have no place. Empty texts sort first, and the load does come first.
    found = Place(row[S.SEQUENCE] or "", row[S.FILE_TIME] or "", row[S.FILE] or "", row[S.ROW], row[S.STEP] or 0)
    return RowEvent(
        operation=row[S.OPERATION],
        op=row[S.OP],
        generation=row[S.GENERATION],
        place=found,
        commit_time=row[_TIME],
        unchanged=frozenset(row[S.UNCHANGED] or ()),
        after=None if is_gone else _values(timeline.source_names, row),
        is_numbered=orders.get(row[S.GENERATION]) is OrderBy.SEQUENCE and bool(found.sequence),
    )


def _values(names: Sequence[str], row: Row) -> Values:
    return dict(zip(names, tuple(row)[-len(names) :], strict=True))


def _time() -> Column:
    return _iso(column(S.COMMIT_TIME)).alias(_TIME)


def _shown(timeline: Timeline, names: Iterable[str]) -> list[Column]:
    """Return columns for Python, times as ISO text: Python would convert them to its own time zone."""
    types = {lake_column.name: S.spark_type(lake_column.lake_type) for lake_column in timeline.bases.columns}
    return [_readable(column(name), types[name]).alias(name) for name in names]


def _readable(value: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.TimestampType):
        return _iso(value)
    if isinstance(data_type, T.TimestampNTZType):
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    return value.cast("string") if isinstance(data_type, T.DateType) else value


def _iso(value: Column) -> Column:
    return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")


# Bad rows that were set aside and whose text contains the key.


@dataclass(frozen=True)
class SetAside:
    """A bad row of the key: where it is from, what is wrong with it, and what was decided."""

    op: int
    generation: int
    file_time: str
    file: str
    row: int
    reason: str
    raw: str | None


def set_aside(timeline: Timeline, key: RowKey, *, limit: int) -> list[SetAside]:
    """Return the bad rows whose text holds the key, in file and row order."""
    bad = timeline.log.filter((column(S.KIND) == S.KIND_BAD) & _may_hold(key))
    ordered = bad.select(S.OP, S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.DETAIL, S.RAW).orderBy(
        S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.OP
    )
    found = []
    for row in ordered.toLocalIterator():
        if key.is_text(_texts(timeline, row), timeline.context.settings.csv.binary):
            found.append(row)
        if len(found) == limit:
            break
    decided = _decisions(timeline, found)
    return [_set_aside(row, decided.get((row[S.FILE], row[S.ROW]))) for row in found]


def _may_hold(key: RowKey) -> Column:
    """Return a condition that skips rows whose text cannot contain the key, where its values have only one spelling."""
    condition = F.lit(True)
    for value in key.values.values():
        if value.is_valid and (pa.types.is_string(value.type) or pa.types.is_integer(value.type)):
            # Quotes are doubled and some characters escaped: only plain text can be searched for.
            text = str(value.as_py()).lstrip("-")
            if text.isalnum() and text.isascii():
                condition &= column(S.RAW).contains(text)
    return condition


def _texts(timeline: Timeline, row: Row) -> dict[str, str | None]:
    if row[S.RAW] is None:
        return {}  # of a table with a column policy
    settings, generations = timeline.context.settings, timeline.progress.generations
    number = row[S.GENERATION]
    generation = next((known for known in generations if known.number == number), Generation(number))
    spec = ReadSpec(timeline.context.table, timeline.bases.columns, settings, generation.order_by)
    return raw_values(row[S.RAW], row[S.FILE], spec, load=not row[S.FILE_TIME])


def _decisions(timeline: Timeline, rows: Iterable[Row]) -> dict[tuple[str, int], str]:
    """Return what was decided about bad rows, by file and row."""
    ids = {f"{row[S.FILE]}:{row[S.ROW]}" for row in rows}
    if not ids:
        return {}
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & is_standing(timeline.progress.undone)
    found = timeline.log.filter(control & is_named(ids)).select(S.OP, S.FILE, S.ROW, S.DETAIL).orderBy(S.OP)
    return {(row[S.FILE], row[S.ROW]): _decision(row) for row in found.toLocalIterator()}


def _decision(row: Row) -> str:
    done = {"retried": "put back", "dropped": "dropped"}
    with refusing_damage("a control row of the changelog", hint=REBUILD):
        outcome = json_object(row[S.DETAIL])["resolved"]
    return f"{done.get(outcome, outcome)} by op {row[S.OP]}"


def _set_aside(row: Row, decision: str | None) -> SetAside:
    fault, name, value = bad_row_details(row[S.DETAIL])
    where = f"{name} {value!r}: " if name is not None else ""
    reason = f"{where}{fault}" + (f"; {decision}" if decision else "")
    return SetAside(row[S.OP], row[S.GENERATION], row[S.FILE_TIME] or "", row[S.FILE], row[S.ROW], reason, row[S.RAW])
