"""Reading all that the lake has on one row: its changes with what they left of it, bad rows, partners of key changes.

Every reading is narrowed by the key first, so that files whose statistics exclude it are not opened, and is bounded.
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
    from lakeward.views.history.timeline import Restriction, Story


Values = dict[str, Any]
_TIME = f"{S.PREFIX}time"
_AFTER = f"{S.PREFIX}after"
_PLACE = f"{S.PREFIX}place"
_WHERE = (S.OP, S.GENERATION, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.UNCHANGED)


@dataclass(frozen=True)
class Event:
    """Something that happened to the row. ``after`` is the row as it left it, None: gone."""

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
        """Whether it is the load's row."""
        return not self.place.file_time

    @property
    def order(self) -> tuple[int, Place, int]:
        """Where it stands in the history."""
        return (self.generation, self.place, self.op)


def standing_events(story: Story, workspace: Workspace, key: RowKey, *, limit: int) -> list[Event]:
    """Return the newest events of the row that stand, in order, each with the row as it left it."""
    events = _events(story, workspace, key)
    upto = (
        Window.partitionBy(column(S.GENERATION))
        .orderBy(place().asc_nulls_first())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    others = [name for name in story.names if name not in story.keys]
    after = [operation_after(upto).alias(_AFTER), *values_after(others, upto)]
    told = events.select(
        *_WHERE, place().alias(_PLACE), shown_operation().alias(S.OPERATION), _time(), *columns(story.keys), *after
    )
    newest = told.orderBy(column(S.GENERATION).desc(), column(_PLACE).desc_nulls_last()).limit(limit)
    rows = newest.select(*_WHERE, S.OPERATION, _TIME, _AFTER, *_shown(story, story.names)).collect()
    return [_event(story, row, is_gone=row[_AFTER] == Operation.DELETE) for row in reversed(rows)]


def undone_events(story: Story, key: RowKey, *, limit: int) -> list[Event]:
    """Return the newest events of the row that were taken back, with the values they brought themselves."""
    if not story.progress.undone:
        return []
    taken_back = (column(S.KIND) == S.KIND_CHANGE) & ~is_standing(story.progress.undone) & key.matches()
    rows = story.log.filter(taken_back).orderBy(column(S.OP).desc(), place().desc_nulls_last()).limit(limit)
    told = rows.select(*_WHERE, S.OPERATION, _time(), *_shown(story, story.names)).collect()
    return [_event(story, row, is_gone=row[S.OPERATION] == Operation.DELETE) for row in told]


def partners(story: Story, events: Iterable[Event]) -> dict[tuple[int, str, int, int], Values]:
    """Return the keys on the other side of key changes, by (op, file, row, step) of that side."""
    moved = [event for event in events if event.place.step == S.STEP_MOVED_HERE or event.operation == Operation.DELETE]
    if not moved:
        return {}
    narrowed = column(S.OP).isin(*{one.op for one in moved}) & column(S.FILE).isin(*{one.place.file for one in moved})
    named = is_named({f"{one.place.file}:{one.place.row}" for one in moved})
    rows = story.log.filter((column(S.KIND) == S.KIND_CHANGE) & narrowed & named)
    found = rows.select(S.OP, S.FILE, S.ROW, S.STEP, *_shown(story, story.keys)).limit(2 * len(moved)).collect()
    return {(row[S.OP], row[S.FILE], row[S.ROW], row[S.STEP]): _values(story.keys, row) for row in found}


def row_now(story: Story, key: RowKey) -> Values | None:
    """Return the row as the mirror has it, None: it has none."""
    assert story.bases.mirror is not None  # the story was read
    mirror = story.context.mirror.read(story.bases.mirror.id).filter(key.matches())
    found = mirror.select(*_shown(story, story.names)).take(1)
    return _values(story.names, found[0]) if found else None


def first_ops(story: Story) -> dict[int, int]:
    """Return the op that began each generation."""
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & is_standing(story.progress.undone)
    rows = story.log.filter(control).groupBy(S.GENERATION).agg(F.min(S.OP).alias(S.OP)).collect()
    return {row[S.GENERATION]: row[S.OP] for row in rows}


def load_files(story: Story, ops: Iterable[int]) -> dict[int, str]:
    """Return the file of each load op that read one alone: rows of several are not told apart in the mirror."""
    if not (wanted := {*ops}):
        return {}
    files = story.log.filter((column(S.KIND) == S.KIND_FILE) & column(S.OP).isin(*wanted))
    counted = files.groupBy(S.OP).agg(F.count(F.lit(1)).alias("files"), F.min(S.FILE).alias(S.FILE))
    return {row[S.OP]: row[S.FILE] for row in counted.filter("files = 1").collect()}


def _events(story: Story, workspace: Workspace, key: RowKey) -> DataFrame:
    """Return the row's load rows and changes, with op and generation; moves into it are finished."""
    own: Restriction = lambda rows: rows.filter(key.matches())  # noqa: E731
    if not story.has_moves:
        return _with_loads(story, story.progress.generations, own, story.changes)
    related = of_keys(story, closed_keys(story, workspace, key.frame(story.context.spark)))
    frames = []
    for generation in story.progress.generations:
        changes = story.changes.filter(column(S.GENERATION) == generation.number)
        events, every = (_with_loads(story, (generation,), only, changes) for only in (related, everything))
        frames.append(own(finished(story, workspace, events, every)))
    return reduce(DataFrame.unionByName, frames)


def _with_loads(story: Story, generations: Sequence[Generation], only: Restriction, changes: DataFrame) -> DataFrame:
    """Join changes and the rows of loads, as every op that wrote to a load left them."""
    frames = [only(changes)]
    for generation in generations:
        head = story.mirror.head(load_branch(generation.number))
        for snapshot in story.mirror.lineage(head.id) if head else ():
            op = snapshot.summary.get(LOAD_STAMP)
            if op is not None and int(op) <= story.progress.op:
                rows = only(story.context.mirror.read(snapshot.id)).withColumns(
                    {S.OP: F.lit(int(op)).cast("long"), S.GENERATION: F.lit(generation.number)}
                )
                base = as_base(rows, (*story.names, S.OP, S.GENERATION))
                # A later part of the load replaces rows of earlier ones.
                frames.append(base.withColumn(S.ROW, column(S.OP)))
    return reduce(DataFrame.unionByName, frames)


def _event(story: Story, row: Row, *, is_gone: bool) -> Event:
    # A generation that was undone is no longer among them.
    orders = {generation.number: generation.order_by for generation in story.progress.generations}
    # What the load brought has no place of its own; text sorts as if it came first, as it did.
    found = Place(row[S.SEQUENCE] or "", row[S.FILE_TIME] or "", row[S.FILE] or "", row[S.ROW], row[S.STEP] or 0)
    return Event(
        operation=row[S.OPERATION],
        op=row[S.OP],
        generation=row[S.GENERATION],
        place=found,
        commit_time=row[_TIME],
        unchanged=frozenset(row[S.UNCHANGED] or ()),
        after=None if is_gone else _values(story.names, row),
        is_numbered=orders.get(row[S.GENERATION]) is OrderBy.SEQUENCE and bool(found.sequence),
    )


def _values(names: Sequence[str], row: Row) -> Values:
    return dict(zip(names, tuple(row)[-len(names) :], strict=True))


def _time() -> Column:
    return _iso(column(S.COMMIT_TIME)).alias(_TIME)


def _shown(story: Story, names: Iterable[str]) -> list[Column]:
    """Return columns as Python can hold them: times as ISO text, as Python would move them to its own zone."""
    types = {one.name: S.spark_type(one.lake_type) for one in story.bases.columns}
    return [_readable(column(name), types[name]).alias(name) for name in names]


def _readable(value: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.TimestampType):
        return _iso(value)
    if isinstance(data_type, T.TimestampNTZType):
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
    return value.cast("string") if isinstance(data_type, T.DateType) else value


def _iso(value: Column) -> Column:
    return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")


# Bad rows that were set aside and that belong to a key, as far as their text tells it.


@dataclass(frozen=True)
class SetAside:
    """A bad row of the key: where it is, what is wrong with it, and what was decided."""

    op: int
    generation: int
    file_time: str
    file: str
    row: int
    reason: str
    raw: str


def set_aside(story: Story, key: RowKey, *, limit: int) -> list[SetAside]:
    """Return the bad rows whose text holds the key, in file and row order."""
    bad = story.log.filter((column(S.KIND) == S.KIND_BAD) & _may_hold(key))
    ordered = bad.select(S.OP, S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.DETAIL, S.RAW).orderBy(
        S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.OP
    )
    found = []
    for row in ordered.toLocalIterator():
        if key.is_text(_texts(story, row), story.context.settings.csv.binary):
            found.append(row)
        if len(found) == limit:
            break
    decided = _decisions(story, found)
    return [_set_aside(row, decided.get((row[S.FILE], row[S.ROW]))) for row in found]


def _may_hold(key: RowKey) -> Column:
    """Leave rows out whose text cannot hold the key, where its values have one way to be written."""
    condition = F.lit(True)
    for value in key.values.values():
        if value.is_valid and (pa.types.is_string(value.type) or pa.types.is_integer(value.type)):
            # Quotes are doubled and some characters escaped: only plain text is looked for.
            text = str(value.as_py()).lstrip("-")
            if text.isalnum() and text.isascii():
                condition &= column(S.RAW).contains(text)
    return condition


def _texts(story: Story, row: Row) -> dict[str, str | None]:
    settings, generations = story.context.settings, story.progress.generations
    generation = next((one for one in generations if one.number == row[S.GENERATION]), Generation(row[S.GENERATION]))
    spec = ReadSpec(story.context.table, story.bases.columns, settings, generation.order_by)
    return raw_values(row[S.RAW], row[S.FILE], spec, load=not row[S.FILE_TIME])


def _decisions(story: Story, rows: Iterable[Row]) -> dict[tuple[str, int], str]:
    """Return what became of bad rows that someone decided on."""
    ids = {f"{row[S.FILE]}:{row[S.ROW]}" for row in rows}
    if not ids:
        return {}
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & is_standing(story.progress.undone)
    found = story.log.filter(control & is_named(ids)).select(S.OP, S.FILE, S.ROW, S.DETAIL).orderBy(S.OP)
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
