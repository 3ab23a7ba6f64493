"""Key changes: which row moves to which key, and what the new row takes over from the old one.

A move is two linked changes of one file row: the old key's delete (step 0, the departure) and the new key's write
(step 1, the arrival). :func:`events` describes what each change does to its key. What only
happened between two changes of one commit is then dropped (:mod:`lakeward.transforms.occupants`), so that the rest can
be applied in order. A partial arrival takes its missing columns from the row that its departure removed. Chains of such
moves are resolved by doubling: :func:`carried` finds the row of every move, and each :func:`followed` step doubles how
far back a move looks.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import KIND_BASE, fold, is_delete, is_from_load, is_partial, is_set, place
from lakeward.transforms.occupants import EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

DOUBT = f"{S.PREFIX}doubt"
PARENT = f"{S.PREFIX}parent"
_OLD = f"{S.PREFIX}old_"
_TOUCHED = f"{S.PREFIX}touched_"
_IMAGE = f"{S.PREFIX}image_"
_MOVE = f"{S.PREFIX}move"
_TAKEN = f"{S.PREFIX}taken"
_KEPT = f"{S.PREFIX}kept"
_FOUND = f"{S.PREFIX}found"
_UNSET = f"{S.PREFIX}unset"
FIRST, _KIND, _COMMIT, _KNOWN, _TOKEN, _CONTENT, _ARRIVED, _TAKES, _LANDED, CONCERNED = (
    f"{S.PREFIX}event_{name}"
    for name in (
        "first", "kind", "commit", "known", "token", "content", "arrived", "takes", "landed", "concerned",
    )
)  # fmt: skip
EVENT = (_KIND, _COMMIT, _KNOWN, _TOKEN, _CONTENT, _ARRIVED, _TAKES, _LANDED)
DECIDED = (
    T.StructField(_KEPT, T.BooleanType()),
    T.StructField(_TAKEN, T.StructType([T.StructField(S.FILE, T.StringType()), T.StructField(S.ROW, T.LongType())])),
    T.StructField(_FOUND, T.BooleanType()),
    T.StructField(DOUBT, T.BooleanType()),
)
# A change sequence, unlike a commit time, is different for every change.
_SEQUENCE = r"^[0-9]+$"


def is_arrival() -> Column:
    """Whether a change writes a row under a new key."""
    return column(S.STEP).eqNullSafe(F.lit(S.STEP_MOVED_HERE))


def is_unfinished() -> Column:
    """Whether a change writes a row under a new key and takes columns from the old key's row."""
    return is_arrival() & is_partial()


def links(changes: DataFrame, *, keys: Sequence[str], only_unfinished: bool = True) -> DataFrame:
    """Return (old key, new key) of every move, or of those alone that take columns from the old key's row."""
    arrived = changes.filter(is_unfinished() if only_unfinished else is_arrival()).select(_move(), *columns(keys))
    return arrived.join(_departures(changes, keys), on=_MOVE, how="inner").drop(_MOVE)


def linked_keys(touched: DataFrame, moves: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return the keys one link away from ``touched``, in either direction."""
    known = touched.select(*_renamed(keys, _TOUCHED))
    from_old = moves.join(known, _matches(keys, _OLD, _TOUCHED), "left_semi").select(*columns(keys))
    from_new = moves.join(known, _matches(keys, "", _TOUCHED), "left_semi")
    return from_old.union(from_new.select(*[column(_OLD + key).alias(key) for key in keys])).distinct()


def all_linked_keys(moves: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Return every key that some link has at one of its ends."""
    old = moves.select(*[column(_OLD + key).alias(key) for key in keys])
    return moves.select(*columns(keys)).union(old).distinct()


def events(
    changes: DataFrame,
    *,
    keys: Sequence[str],
    names: Sequence[str],
    arrivals: DataFrame | None = None,
    evidence: DataFrame | None = None,
) -> DataFrame:
    """Return the changes with the ``EVENT`` columns, which describe what each does to its key, key by key in order.

    ``FIRST`` marks the first change of a key, ``CONCERNED`` the keys that rows move to or from. ``arrivals`` are the
    changes in which every departure has its arrival, if not ``changes`` themselves. ``evidence`` is what was decided
    earlier on these keys and those they exchange rows with: it may settle what is in doubt.
    """
    others = [name for name in names if name not in keys]
    known = _with_arrivals(changes, arrivals if arrivals is not None else changes, others)
    key = Window.partitionBy(*columns(keys))
    ordered = _with_evidence(known, evidence).withColumns(
        {
            FIRST: F.row_number().over(key.orderBy(place().asc_nulls_first())) == 1,
            CONCERNED: F.max(column(_KIND).isin(int(EventKind.ARRIVE), int(EventKind.LEAVE))).over(key),
        }
    )
    return ordered.select(*columns(changes.columns), *columns((*EVENT, FIRST, CONCERNED)))


def standing(decided: DataFrame) -> DataFrame:
    """Return the changes that count when applied in order."""
    return decided.filter(column(_KEPT)).drop(*(decision.name for decision in DECIDED))


def carried(decided: DataFrame, *, names: Sequence[str]) -> DataFrame:
    """Return, for each unfinished move, the row that its departure removed, as far as that key alone shows.

    ``PARENT`` is the move by which the row had come to the key, if that move was partial too.
    """
    wanted = decided.filter(is_unfinished()).select(_move())
    taken = decided.filter(column(_TAKEN).isNotNull()).withColumn(_MOVE, column(_TAKEN))
    taken = taken.join(wanted, on=_MOVE, how="left_semi")
    values = fold(taken, keys=[_MOVE], names=[_MOVE, *names]).drop(S.OPERATION)
    unset = F.array_compact(F.array(*[F.when(~F.max(is_set(name)), F.lit(name)) for name in names]))
    came = F.min_by(F.when(is_unfinished(), _move_id()), place())
    chained = taken.groupBy(_MOVE).agg(unset.alias(_UNSET), came.alias(PARENT))
    parent = F.when(F.size(column(_UNSET)) > 0, column(PARENT)).alias(PARENT)
    return values.join(chained.select(_MOVE, _UNSET, parent), on=_MOVE, how="inner")


def followed(rows: DataFrame, *, names: Sequence[str]) -> DataFrame:
    """Return the rows with what each move still lacks taken from the move before it: it reaches back twice as far."""
    before = rows.select(
        column(_MOVE).alias(PARENT),
        column(PARENT).alias(f"{PARENT}_next"),
        column(_UNSET).alias(f"{_UNSET}_next"),
        *[column(name).alias(_IMAGE + name) for name in names],
    )
    joined = rows.join(before, on=PARENT, how="left")
    lacks = {name: F.array_contains(column(_UNSET), name) for name in names}
    values = [F.when(lacks[name], column(_IMAGE + name)).otherwise(column(name)).alias(name) for name in names]
    rest = F.coalesce(F.array_intersect(column(_UNSET), column(f"{_UNSET}_next")), column(_UNSET))
    return joined.select(_MOVE, column(f"{PARENT}_next").alias(PARENT), rest.alias(_UNSET), *values)


def finished(changes: DataFrame, rows: DataFrame, *, names: Sequence[str]) -> DataFrame:
    """Return the changes with arrivals completed by the rows that moves removed; without a row they take nulls."""
    images = rows.select(_MOVE, *[column(name).alias(_IMAGE + name) for name in names])
    moves = changes.filter(is_unfinished()).withColumn(_MOVE, _move_id()).join(images, on=_MOVE, how="left")
    values = {
        name: F.when(F.array_contains(column(S.UNCHANGED), name), column(_IMAGE + name)).otherwise(column(name))
        for name in names
    }
    nothing = F.lit(None).cast(T.ArrayType(T.StringType()))
    complete = {**{name: column(name) for name in changes.columns}, **values, S.UNCHANGED: nothing}
    done = moves.select(*[complete[name].alias(name) for name in changes.columns])
    return changes.filter(~is_unfinished()).unionByName(done)


def _with_arrivals(changes: DataFrame, arrivals: DataFrame, others: Sequence[str]) -> DataFrame:
    """Return the changes with what each does to its key, and for departures what their row became."""
    became = arrivals.filter(is_arrival()).select(
        column(S.FILE).alias(f"{_ARRIVED}_{S.FILE}"),
        column(S.ROW).alias(f"{_ARRIVED}_{S.ROW}"),
        _set_content(others).alias(_ARRIVED),
        is_partial().alias(_TAKES),
    )
    # A move is logged at most once per generation; a file read again for the next generation has the same rows.
    became = became.dropDuplicates([f"{_ARRIVED}_{S.FILE}", f"{_ARRIVED}_{S.ROW}"])
    is_removal = is_delete() & (column(S.STEP) == S.STEP_MOVED_AWAY)
    same = (column(S.FILE) == column(f"{_ARRIVED}_{S.FILE}")) & (column(S.ROW) == column(f"{_ARRIVED}_{S.ROW}"))
    joined = changes.join(became, is_removal & same, "left").drop(f"{_ARRIVED}_{S.FILE}", f"{_ARRIVED}_{S.ROW}")
    leaves = column(_ARRIVED).isNotNull()
    kind = (
        F.when(column(S.KIND) == KIND_BASE, int(EventKind.BASE))
        .when(leaves, int(EventKind.LEAVE))
        .when(is_delete(), int(EventKind.DELETE))
        .when(is_arrival(), int(EventKind.ARRIVE))
        .when(column(S.OPERATION) == "I", int(EventKind.INSERT))
        .otherwise(int(EventKind.WRITE))
    )
    # A delete may hold only its key: then it describes no row.
    described = reduce(lambda left, right: left | right, [column(name).isNotNull() for name in others], F.lit(False))
    content = F.when(~is_delete() | described, _set_content(others))
    token = F.when(
        column(S.SEQUENCE).rlike(_SEQUENCE), F.concat_ws(":", column(S.SEQUENCE), column(S.STEP).cast("string"))
    )
    transaction = F.get_json_object(column(S.DETAIL), "$.transaction")
    moment = F.when(~is_from_load(), F.unix_micros(column(S.COMMIT_TIME)).cast("string"))
    origin = F.when(is_from_load(), F.concat_ws(":", F.lit("load"), column(S.KIND)))
    return joined.withColumns(
        {
            _KIND: kind.cast("int"),
            _COMMIT: F.coalesce(origin, F.concat(F.lit("id:"), transaction), moment),
            _KNOWN: transaction.isNotNull(),
            _TOKEN: token,
            _CONTENT: content,
        }
    )


def _with_evidence(events: DataFrame, evidence: DataFrame | None) -> DataFrame:
    """Return the events with whether the row of a departure was under its new key already."""
    if evidence is None:
        return events.withColumn(_LANDED, F.lit(None).cast("boolean"))
    seen = evidence.filter(is_arrival()).groupBy(S.FILE, S.ROW).agg(F.max(column(_FOUND)).alias(_LANDED))
    own = seen.select(column(S.FILE).alias(f"{_FOUND}_{S.FILE}"), column(S.ROW).alias(f"{_FOUND}_{S.ROW}"), _LANDED)
    same = (column(S.FILE) == column(f"{_FOUND}_{S.FILE}")) & (column(S.ROW) == column(f"{_FOUND}_{S.ROW}"))
    return events.join(own, same, "left").drop(f"{_FOUND}_{S.FILE}", f"{_FOUND}_{S.ROW}")


def _set_content(others: Sequence[str]) -> Column:
    """Return a number per column that is equal for equal values, null where the change does not set the column."""
    numbers = [F.when(is_set(name), F.xxhash64(F.lit(name), column(name))) for name in others]
    return F.array(*numbers).cast("array<bigint>")


def _departures(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the deletes that moves begin with: move and old key."""
    leaving = changes.filter((column(S.STEP) == S.STEP_MOVED_AWAY) & is_delete())
    return leaving.select(_move(), *_renamed(keys, _OLD))


def _move_id() -> Column:
    return F.struct(column(S.FILE), column(S.ROW))


def _move() -> Column:
    return _move_id().alias(_MOVE)


def _renamed(keys: Sequence[str], prefix: str) -> list[Column]:
    return [column(key).alias(prefix + key) for key in keys]


def _matches(keys: Sequence[str], left: str, right: str) -> Column:
    conditions = [column(left + key).eqNullSafe(column(right + key)) for key in keys]
    return reduce(lambda left, right: left & right, conditions)
