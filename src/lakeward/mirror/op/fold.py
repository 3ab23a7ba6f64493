"""Fold an op's changes into the rows that the mirror must hold for every key they touch.

Where rows change their keys, which changes count is decided key by key in Spark tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import TimestampType

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.model import OrderBy
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import (
    as_base,
    fold,
    having_keys,
    is_delete,
    lacking_keys,
    latest_per_key,
    sortable_load_part,
)
from lakeward.transforms.moves import (
    CONCERNED,
    DECIDED,
    DOUBT,
    EVENT,
    FIRST,
    PARENT,
    all_linked_keys,
    carried,
    events,
    finished,
    followed,
    is_arrival,
    is_unfinished,
    linked_keys,
    links,
    standing,
)
from lakeward.transforms.occupants import Event, EventKind, arrange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from lakeward.spark.workspace import Workspace
    from lakeward.transforms.occupants import Arrangement, Reading


# Up to this many changes are handled by one task: shuffling them would cost more than a second task saves.
ONE_TASK = 50_000
# How many links of a chain of moves are followed before all connected keys are taken together.
_LINK_ROUNDS = 4
_SHOWN_DOUBTS = 5


def with_decisions(events: DataFrame, reading: Reading | None) -> DataFrame:
    """Return the events of ``transforms.moves.events`` as changes with the ``DECIDED`` columns: which of them count."""
    width = len(events.columns) - len(EVENT) - 2
    # pyspark looks its input's columns up by name, and a name may hold backticks and dots.
    own = [name if name.startswith(S.PREFIX) else f"{S.PREFIX}c{at}" for at, name in enumerate(events.columns)]
    fields = events.schema.fields[:width]
    plain = [T.StructField(name, field.dataType, field.nullable) for name, field in zip(own, fields, strict=False)]

    def decide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _decide(batches, width, reading)

    found = events.toDF(*own).mapInArrow(in_task(decide), T.StructType([*plain, *DECIDED]))
    return found.toDF(*(field.name for field in (*fields, *DECIDED)))


def _decide(batches: Iterable[pa.RecordBatch], width: int, reading: Reading | None) -> Iterator[pa.RecordBatch]:
    """Decide key by key; the rows of a key follow each other, possibly over several batches."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        starts = [at for at, first in enumerate(batch.column(FIRST).to_pylist()) if first]
        if not starts:
            waiting.append(batch)
            continue
        if waiting or starts[0]:
            waiting.append(batch.slice(0, starts[0]))
            yield _decided(waiting, width, reading)
        if starts[-1] > starts[0]:
            yield _decided([batch.slice(starts[0], starts[-1] - starts[0])], width, reading)
        waiting = [batch.slice(starts[-1])]
    if waiting:
        yield _decided(waiting, width, reading)


def _decided(batches: list[pa.RecordBatch], width: int, reading: Reading | None) -> pa.RecordBatch:
    """Decide the keys whose rows the batches hold completely."""
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if len(batches) > 1 else batches[0]
    size = rows.num_rows
    kept, found, doubt = [True] * size, [False] * size, [False] * size
    taken: list[dict[str, Any] | None] = [None] * size
    firsts, concerned = (rows.column(name).to_pylist() for name in (FIRST, CONCERNED))
    starts = [at for at in range(size) if firsts[at] or at == 0]
    if any(concerned):
        values = list(zip(*(rows.column(name).to_pylist() for name in EVENT), strict=True))
        files, numbers = rows.column(S.FILE).to_pylist(), rows.column(S.ROW).to_pylist()
        for start, end in zip(starts, [*starts[1:], size], strict=True):
            if concerned[start]:
                result = arrange([_event(value) for value in values[start:end]], reading)
                kept[start:end], found[start:end] = result.kept, result.found
                taken[start:end] = _takers(result, files[start:end], numbers[start:end])
                if result.doubt is not None:
                    doubt[start + result.doubt] = True
    decided = [
        pa.array(kept, pa.bool_()),
        pa.array(taken, pa.struct([pa.field(S.FILE, pa.string()), pa.field(S.ROW, pa.int64())])),
        pa.array(found, pa.bool_()),
        pa.array(doubt, pa.bool_()),
    ]
    names = [*rows.schema.names[:width], *(field.name for field in DECIDED)]
    return pa.RecordBatch.from_arrays([*rows.columns[:width], *decided], names=names)


def _event(values: tuple[Any, ...]) -> Event:
    kind, commit, known, token, content, arrived, takes, landed = values
    return Event(
        EventKind(kind),
        commit,
        bool(known),
        token,
        None if content is None else tuple(content),
        None if arrived is None else tuple(arrived),
        bool(takes),
        bool(landed),
    )


def _takers(result: Arrangement, files: list[str], rows: list[int]) -> list[dict[str, Any] | None]:
    """Return the file and row of the moves that took rows away."""
    return [None if at is None else {S.FILE: files[at], S.ROW: rows[at]} for at in result.taken]


@dataclass
class Folded:
    """The folded rows of an op, kept in Spark. ``bounds`` are the smallest and greatest touched key values."""

    rows: DataFrame
    writes: int
    deletes: int
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def touched(self) -> int:
        """Number of keys."""
        return self.writes + self.deletes


@dataclass(frozen=True)
class FoldInput:
    """The input of a fold.

    ``base`` holds full rows: those of the mirror where the op only goes forward, those of the load branch where it has
    late changes. ``history`` holds the generation's earlier changes, where the op has late changes. ``moves``: some
    change has a new key. ``key_moves`` is how changes with the same commit time are read, where that is declared.
    ``metadata`` are those of ``names`` that are metadata columns.
    """

    workspace: Workspace
    changes: DataFrame
    rows: int
    keys: tuple[str, ...]
    names: tuple[str, ...]
    partial: bool = False
    moves: bool = False
    base: DataFrame | None = None
    history: DataFrame | None = None
    key_moves: Reading | None = None
    table: str = ""
    metadata: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns by whose values rows are told apart: metadata columns describe changes, not rows."""
        return tuple(name for name in self.names if name not in self.metadata)

    @property
    def may_move(self) -> bool:
        """Whether some change may have a new key."""
        return self.moves or self.history is not None


def fold_changes(source: FoldInput) -> Folded:
    """Return the folded changes, kept and counted, in one Spark job where no change is partial or late."""
    changes, context = source.changes, None
    touched = changes.select(*columns(source.keys)).distinct()
    if source.history is not None:
        touched = with_linked_keys(touched, source.history, source)
        context = changes.unionByName(source.history)
        changes = changes.unionByName(_gathered(having_keys(source.history, touched, keys=source.keys), source))
    if source.base is not None:
        rows = _gathered(having_keys(source.base, touched, keys=source.keys), source)
        changes = changes.unionByName(as_base(rows, source.names))
        context = context.unionByName(as_base(source.base, source.names)) if context is not None else None
    if source.may_move:
        changes = with_moves_finished(changes, source, context)
    if source.rows <= ONE_TASK:
        changes = changes.coalesce(1)
    # Earlier changes may be partial even where the op's own are not.
    if source.partial or source.base is not None or source.history is not None:
        folded = fold(changes, keys=source.keys, names=source.names)
    else:
        folded = latest_per_key(changes, keys=source.keys).select(S.OPERATION, *columns(source.names))
    return materialize(source.workspace, folded, source.keys)


def _gathered(rows: DataFrame, source: FoldInput) -> DataFrame:
    """Gather a few rows of a large table after the search: a single task would have to scan all of it."""
    return rows.repartition(1) if source.rows <= ONE_TASK else rows


def materialize(workspace: Workspace, rows: DataFrame, keys: Sequence[str]) -> Folded:
    """Compute and keep folded rows: only then is their size known to Spark, which can broadcast them."""
    rows = workspace.keep(rows)
    bounds = [_bound(rows, key, function) for key in keys for function in (F.min, F.max)]
    any_null = [F.max(column(key).isNull()) for key in keys]
    counts = [F.count(F.lit(1)), F.coalesce(F.sum(is_delete().cast("long")), F.lit(0))]
    found = rows.agg(*counts, *bounds, *any_null).collect()[0]
    total, deletes, values = found[0], found[1], found[2:]
    ranges = {key: (values[2 * at], values[2 * at + 1]) for at, key in enumerate(keys)}
    nulls = values[2 * len(keys) :]
    # A key column with a null has no range that its values stay within.
    known = {key: ranges[key] for key, null in zip(keys, nulls, strict=True) if not null}
    return Folded(rows, writes=total - deletes, deletes=deletes, bounds=known)


def _bound(rows: DataFrame, key: str, function: Callable[[Column], Column]) -> Column:
    """Return a key's smallest or greatest value; an instant as text, as Python would convert it to local time."""
    value = function(column(key))
    is_instant = isinstance(rows.schema[key].dataType, TimestampType)
    return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") if is_instant else value


def fold_keyless(source: FoldInput, order_by: OrderBy | None) -> Folded:
    """Return the rows to append to a table without a key; a change sequence identifies repeats."""
    changes, history = source.changes, source.history
    if order_by is OrderBy.SEQUENCE:
        repeated = changes.filter(column(S.SEQUENCE).isNotNull())
        once = latest_per_key(repeated, keys=[S.SEQUENCE])
        if history is not None:
            once = lacking_keys(once, history.select(S.SEQUENCE).distinct(), keys=[S.SEQUENCE])
        changes = once.unionByName(changes.filter(column(S.SEQUENCE).isNull()))
    return materialize(source.workspace, changes.select(S.OPERATION, *columns(source.names)), ())


def rows_once_per_key(workspace: Workspace, rows: DataFrame, keys: Sequence[str], count: int) -> tuple[DataFrame, int]:
    """Return a load's rows with each key once, the last in the order of parts and rows, and their number.

    Repeats are rare, so that they are searched for by key alone first.
    """
    if not keys:
        return rows, count
    times = f"{S.PREFIX}times"
    repeated = rows.groupBy(*columns(keys)).agg(F.count(F.lit(1)).alias(times)).filter(column(times) > 1)
    if not repeated.take(1):
        return rows, count
    unique = workspace.keep(latest_per_key(rows.withColumn(S.FILE, sortable_load_part()), keys=keys))
    return unique, unique.count()


def with_linked_keys(touched: DataFrame, history: DataFrame, source: FoldInput) -> DataFrame:
    """Return the touched keys and all keys that exchange values with them through moves.

    A long chain is not followed link by link: after a few rounds all keys that moves connect are taken.
    """
    settle = source.workspace.settle
    moves = settle(links(history.unionByName(source.changes), keys=source.keys))
    if not moves.take(1):
        return touched
    touched = settle(touched)
    for _ in range(_LINK_ROUNDS):
        found = linked_keys(touched, moves, keys=source.keys)
        new = settle(lacking_keys(found, touched, keys=source.keys))
        if not new.take(1):
            return touched
        touched = settle(touched.union(new))
    rest = lacking_keys(all_linked_keys(moves, keys=source.keys), touched, keys=source.keys)
    return settle(touched.union(rest))


def with_moves_finished(changes: DataFrame, source: FoldInput, context: DataFrame | None = None) -> DataFrame:
    """Return the changes in a form that can be read in order: rows that share a key within a commit are kept apart.

    ``context`` are changes and rows among which moves find their counterpart, if not ``changes`` themselves.

    Raises:
        DataError: nothing shows whether changes of some key belong to the same commit, and it matters.
    """
    changes = source.workspace.settle(changes)
    if not changes.filter(is_arrival()).take(1):
        return changes
    outcome = source.workspace.settle(_arranged(changes, source, context))
    if outcome.filter(column(DOUBT)).take(1):
        outcome = _with_evidence(changes, outcome, source, context)
    counted = standing(outcome)
    if not counted.filter(is_unfinished()).take(1):
        return counted
    rows = source.workspace.settle(carried(outcome, names=source.names))
    while rows.filter(column(PARENT).isNotNull()).take(1):
        rows = source.workspace.settle(followed(rows, names=source.names))
    return source.workspace.settle(finished(counted, rows, names=source.names))


def _arranged(
    changes: DataFrame, source: FoldInput, context: DataFrame | None, evidence: DataFrame | None = None
) -> DataFrame:
    found = events(changes, keys=source.keys, names=source.compared, arrivals=context, evidence=evidence)
    return with_decisions(found, source.key_moves)


def _with_evidence(changes: DataFrame, seen: DataFrame, source: FoldInput, context: DataFrame | None) -> DataFrame:
    """Decide again with the evidence of the moves' other keys; raise DataError where that does not decide either."""
    if context is not None:
        touched = changes.select(*columns(source.keys)).distinct()
        moves = links(context, keys=source.keys, only_unfinished=False)
        near = touched.union(linked_keys(touched, moves, keys=source.keys)).distinct()
        related = source.workspace.settle(having_keys(context, near, keys=source.keys))
        seen = source.workspace.settle(_arranged(related, source, context))
    outcome = source.workspace.settle(_arranged(changes, source, context, seen))
    if found := outcome.filter(column(DOUBT)).limit(_SHOWN_DOUBTS).collect():
        raise _undecided(source, found)
    return outcome


def _undecided(source: FoldInput, found: Sequence[Row]) -> DataError:
    shown = "\n  ".join(
        f"key {', '.join(f'{key}={row[key]!r}' for key in source.keys)}: {row[S.FILE]}, row {row[S.ROW]}"
        for row in found
    )
    msg = (
        f"{source.table}: key changes can be read in two ways with different results, as one commit in which rows take "
        f"each other's keys or one after the other, and the rows' contents do not show which is right:\n  {shown}"
    )
    hint = (
        "set key_moves: set if changes of one commit time are one commit, or key_moves: single if each change stands "
        "alone; before images of all columns decide it by themselves, see docs/dms-setup.md"
    )
    return DataError(msg, hint=hint)
