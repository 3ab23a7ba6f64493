"""Key changes whose new row leaves columns unspoken: those take their values from the old key's row.

A move is two linked changes of one file row: the old key's delete (step 0) and the new key's write (step 1).
Where the write is a full image nothing needs the link. Where it is partial, the old key's history up to the
move must be folded first; chains of moves are finished one link per call.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import fold, is_delete, is_partial
from lakeward.transforms.order import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_OLD = f"{S.PREFIX}old_"
_TOUCHED = f"{S.PREFIX}touched_"
_IMAGE = f"{S.PREFIX}image_"
_MOVE = f"{S.PREFIX}move"
_UNTIL = f"{S.PREFIX}until"
_READY = f"{S.PREFIX}ready"


def is_unfinished() -> Column:
    """Tell whether a change writes a row under a new key and takes columns from the old key's row."""
    return column(S.STEP).eqNullSafe(F.lit(S.STEP_MOVED_HERE)) & is_partial()


def links(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Give (old key, new key) of every unfinished move."""
    arrived = changes.filter(is_unfinished()).select(_move_id(), *columns(keys))
    return arrived.join(_departures(changes, keys).drop(_UNTIL), on=_MOVE, how="inner").drop(_MOVE)


def linked_keys(touched: DataFrame, moves: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Give the keys one link away from ``touched``, in either direction."""
    known = touched.select(*_renamed(keys, _TOUCHED))
    from_old = moves.join(known, _matches(keys, _OLD, _TOUCHED), "left_semi").select(*columns(keys))
    from_new = moves.join(known, _matches(keys, "", _TOUCHED), "left_semi")
    return from_old.union(from_new.select(*[column(_OLD + key).alias(key) for key in keys])).distinct()


def finish_moves(changes: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Complete every move whose old key has no unfinished move before it."""
    arrivals = changes.filter(is_unfinished()).select(_move_id())
    moves = _departures(changes, keys).join(arrivals, on=_MOVE, how="left_semi")
    history = changes.join(moves, _matches(keys, "", _OLD), "inner").filter(place() < column(_UNTIL))
    blocked = history.filter(is_unfinished()).select(_MOVE).distinct()
    # A move whose old key's row was erased has no beginning: there is nothing to wait for, and nothing to take over.
    ready = arrivals.join(blocked, on=_MOVE, how="left_anti")
    images = fold(history.join(ready, on=_MOVE, how="left_semi"), keys=[_MOVE], names=[_MOVE, *names])
    return _filled(changes, ready, images, names)


def _filled(changes: DataFrame, ready: DataFrame, images: DataFrame, names: Sequence[str]) -> DataFrame:
    """Lay the old rows' values into the moves that are ready; a row that was gone gives nulls."""
    gone_is_null = [F.when(~is_delete(), column(name)).alias(_IMAGE + name) for name in names]
    known = ready.withColumn(_READY, F.lit(True)).join(images.select(_MOVE, *gone_is_null), on=_MOVE, how="left")
    moves = changes.filter(is_unfinished()).withColumn(_MOVE, _move_id()).join(known, on=_MOVE, how="left")
    done = F.coalesce(column(_READY), F.lit(False))
    record = [column(field.name) for field in S.RECORD_FIELDS if field.name != S.UNCHANGED]
    values = [
        F.when(done & F.array_contains(column(S.UNCHANGED), name), column(_IMAGE + name))
        .otherwise(column(name))
        .alias(name)
        for name in names
    ]
    finished = moves.select(*record, F.when(~done, column(S.UNCHANGED)).alias(S.UNCHANGED), *values)
    return changes.filter(~is_unfinished()).unionByName(finished)


def _departures(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Give the deletes that moves begin with: move, place and old key."""
    leaving = changes.filter((column(S.STEP) == S.STEP_MOVED_AWAY) & is_delete())
    return leaving.select(_move_id(), place().alias(_UNTIL), *_renamed(keys, _OLD))


def _move_id() -> Column:
    return F.struct(column(S.FILE), column(S.ROW)).alias(_MOVE)


def _renamed(keys: Sequence[str], prefix: str) -> list[Column]:
    return [column(key).alias(prefix + key) for key in keys]


def _matches(keys: Sequence[str], left: str, right: str) -> Column:
    conditions = [column(left + key).eqNullSafe(column(right + key)) for key in keys]
    return reduce(lambda one, other: one & other, conditions)
