"""Fold one op's changes into the rows that the mirror must have for every key they touch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from lakeward import schemas as S
from lakeward.model import OrderBy
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import fold, is_delete
from lakeward.transforms.keys import having_keys, lacking_keys
from lakeward.transforms.moves import finish_moves, is_unfinished, linked_keys, links
from lakeward.transforms.order import as_base, latest_per_key, sortable_load_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.pipeline.workspace import Workspace

# Up to this many changes one task does everything: shuffling them would cost more than a second task saves.
ONE_TASK = 50_000


@dataclass
class Folded:
    """The rows an op leaves behind, kept in Spark. ``bounds`` are the smallest and greatest touched key values."""

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
    """What folding starts from.

    ``base`` gives full images: the mirror where the op only goes forward, the load branch where it reaches back.
    ``history`` gives the generation's earlier changes, where the op reaches back.
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

    @property
    def may_move(self) -> bool:
        """Whether some change may take columns from the row of another key."""
        return self.moves or self.history is not None


def fold_changes(source: FoldInput) -> Folded:
    """Fold, keep the result and count it, in one Spark job where no change is partial or late."""
    changes = source.changes
    touched = changes.select(*columns(source.keys)).distinct()
    if source.history is not None:
        touched = closed_over_links(touched, source.history, source) if source.may_move else touched
        changes = changes.unionByName(_gathered(having_keys(source.history, touched, keys=source.keys), source))
    if source.base is not None:
        rows = _gathered(having_keys(source.base, touched, keys=source.keys), source)
        changes = changes.unionByName(as_base(rows, source.names))
    if source.may_move:
        changes = with_moves_finished(changes, source)
    if source.rows <= ONE_TASK:
        changes = changes.coalesce(1)
    # Earlier changes may be partial even where the op's own are not.
    if source.partial or source.base is not None or source.history is not None:
        folded = fold(changes, keys=source.keys, names=source.names)
    else:
        folded = latest_per_key(changes, keys=source.keys).select(S.OPERATION, *columns(source.names))
    return kept(source.workspace, folded, source.keys)


def _gathered(rows: DataFrame, source: FoldInput) -> DataFrame:
    """Bring a few rows of a large table together after they were looked for: one task would have to scan all of it."""
    return rows.repartition(1) if source.rows <= ONE_TASK else rows


def kept(workspace: Workspace, rows: DataFrame, keys: Sequence[str]) -> Folded:
    """Materialise folded rows: only then does Spark know their size and can send them to every task."""
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
    """Give a key's smallest or greatest value; an instant as text, as Python would move it to its own time zone."""
    value = function(column(key))
    is_instant = isinstance(rows.schema[key].dataType, TimestampType)
    return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX") if is_instant else value


def fold_keyless(source: FoldInput, order_by: OrderBy | None) -> Folded:
    """Give the rows to append to a table without a key; a change sequence tells repeats apart."""
    changes, history = source.changes, source.history
    if order_by is OrderBy.SEQUENCE:
        repeated = changes.filter(column(S.SEQUENCE).isNotNull())
        once = latest_per_key(repeated, keys=[S.SEQUENCE])
        if history is not None:
            once = lacking_keys(once, history.select(S.SEQUENCE).distinct(), keys=[S.SEQUENCE])
        changes = once.unionByName(changes.filter(column(S.SEQUENCE).isNull()))
    return kept(source.workspace, changes.select(S.OPERATION, *columns(source.names)), ())


def rows_once_per_key(workspace: Workspace, rows: DataFrame, keys: Sequence[str], count: int) -> tuple[DataFrame, int]:
    """Give a load's rows with each key once, the last in the order of parts and rows, and their number.

    Repeats are rare and looked for by key alone.
    """
    if not keys:
        return rows, count
    times = f"{S.PREFIX}times"
    repeated = rows.groupBy(*columns(keys)).agg(F.count(F.lit(1)).alias(times)).filter(column(times) > 1)
    if not repeated.take(1):
        return rows, count
    unique = workspace.keep(latest_per_key(rows.withColumn(S.FILE, sortable_load_part()), keys=keys))
    return unique, unique.count()


def closed_over_links(touched: DataFrame, history: DataFrame, source: FoldInput) -> DataFrame:
    """Add keys that exchange values with touched ones through moves, until no more are found."""
    settle = source.workspace.settle
    moves = settle(links(history.unionByName(source.changes), keys=source.keys))
    if not moves.take(1):
        return touched
    touched = settle(touched)
    while True:
        found = linked_keys(touched, moves, keys=source.keys)
        new = settle(lacking_keys(found, touched, keys=source.keys))
        if not new.take(1):
            return touched
        touched = settle(touched.union(new))


def with_moves_finished(changes: DataFrame, source: FoldInput) -> DataFrame:
    """Finish moves link by link: as many rounds as the longest chain has links."""
    changes = source.workspace.settle(changes)
    while changes.filter(is_unfinished()).take(1):
        changes = source.workspace.settle(finish_moves(changes, keys=source.keys, names=source.names))
    return changes
