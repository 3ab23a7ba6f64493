"""The versions of a table's rows, each with the time in which it was valid: a slowly changing dimension of type 2.

Events are base rows and changes in the form of record frames, with the generation they belong to. They may be partial:
a column that a change does not set keeps its value.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import KIND_BASE, is_delete, is_from_load, is_set, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

LOADED = "L"
# When an event takes effect; null: from the beginning.
AT = f"{S.PREFIX}at"
# Until when an event's generation is current; null: it still is.
UNTIL = f"{S.PREFIX}until"
VALID_FROM = f"{S.PREFIX}valid_from"
VALID_TO = f"{S.PREFIX}valid_to"
IS_CURRENT = f"{S.PREFIX}is_current"
_NEXT = f"{S.PREFIX}next"
_BEFORE = f"{S.PREFIX}before"
_LAST = f"{S.PREFIX}last"
_STARTS = f"{S.PREFIX}starts"


def is_load_row() -> Column:
    """Whether a row belongs to a load, also if it was set aside and put back, and is not a change after it."""
    return (column(S.KIND) == KIND_BASE) | is_from_load()


def shown_operation() -> Column:
    """Return the operation that produced a row: I, U, D, or L for the load."""
    return F.when(is_load_row(), F.lit(LOADED)).otherwise(column(S.OPERATION))


def values_after(names: Sequence[str], upto: WindowSpec) -> list[Column]:
    """Return each column's value after an event, where the window holds all events up to it.

    Every column has the value of the last event, by place, that sets it; a delete sets all columns to null.
    """
    return [F.max_by(_set_value(name), _set_place(name)).over(upto).alias(name) for name in names]


def operation_after(upto: WindowSpec) -> Column:
    """Return the last operation after an event, where the window holds all events up to it."""
    return F.max_by(shown_operation(), place()).over(upto)


def versions(events: DataFrame, *, keys: Sequence[str], names: Sequence[str], track: Sequence[str]) -> DataFrame:
    """Return every version of every row: its columns, when it was valid, and the operation that produced it.

    A version lasts while the tracked columns stay the same, and shows all others as they were at its start.
    """
    return _merged(_states(events, keys=keys, names=names), keys=keys, names=names, track=track)


def _states(events: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return each row after every moment at which it changed, if it existed then."""
    # One shuffle serves both windows: the second is over all generations of a key.
    by_key = events.repartition(*columns(keys))
    row = Window.partitionBy(*columns(keys), column(S.GENERATION))
    ordered = row.orderBy(column(AT).asc_nulls_first(), place().asc_nulls_first())
    upto = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    others = [name for name in names if name not in keys]
    next_at, is_last = F.lead(column(AT)).over(ordered), F.lead(F.lit(1)).over(ordered).isNull()
    folded = by_key.select(
        *columns(keys),
        column(S.GENERATION),
        column(AT).alias(VALID_FROM),
        F.when(is_last, column(UNTIL)).otherwise(next_at).alias(VALID_TO),
        # Of several events at one moment only the state after the last was ever visible.
        (is_last | ~next_at.eqNullSafe(column(AT))).alias(_NEXT),
        operation_after(upto).alias(S.OPERATION),
        *values_after(others, upto),
    )
    return folded.filter(column(_NEXT) & ~is_delete()).drop(_NEXT)


def _merged(states: DataFrame, *, keys: Sequence[str], names: Sequence[str], track: Sequence[str]) -> DataFrame:
    """Join states that follow each other without a gap and have the same tracked columns."""
    row = Window.partitionBy(*columns(keys))
    ordered = row.orderBy(column(S.GENERATION), column(VALID_FROM).asc_nulls_first())
    before = F.lag(column(VALID_TO)).over(ordered)
    same = [F.lag(column(name)).over(ordered).eqNullSafe(column(name)) for name in track if name not in keys]
    # Only a row's last state has no end: an earlier one always has.
    continues = reduce(
        lambda left, right: left & right, same, before.eqNullSafe(column(VALID_FROM)) & before.isNotNull()
    )
    whole = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    marked = states.withColumns(
        {_STARTS: ~continues, _BEFORE: before, _LAST: F.last(column(VALID_TO)).over(whole)}
    ).filter(column(_STARTS))
    ends = F.coalesce(F.lead(column(_BEFORE)).over(ordered), column(_LAST))
    return marked.withColumn(VALID_TO, ends).select(
        *columns(names), VALID_FROM, VALID_TO, column(VALID_TO).isNull().alias(IS_CURRENT), S.OPERATION
    )


def _set_value(name: str) -> Column:
    return F.when(~is_delete(), column(name))


def _set_place(name: str) -> Column:
    return F.when(is_set(name) | is_delete(), place())
