"""The rows that a table had one after another, each with the time in which it held.

In other words a slowly changing dimension of type 2. Events are base rows and changes in the form of record frames,
with the generation they count in. They may be partial; what a change does not speak of is what the row had before it.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import KIND_BASE, is_delete, is_from_load, is_spoken, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

LOADED = "L"
# When an event begins to count; null: from the beginning.
AT = f"{S.PREFIX}at"
# Up to when an event's generation is the table; null: it still is.
UNTIL = f"{S.PREFIX}until"
VALID_FROM = f"{S.PREFIX}valid_from"
VALID_TO = f"{S.PREFIX}valid_to"
IS_CURRENT = f"{S.PREFIX}is_current"
_NEXT = f"{S.PREFIX}next"
_BEFORE = f"{S.PREFIX}before"
_LAST = f"{S.PREFIX}last"
_STARTS = f"{S.PREFIX}starts"


def is_load_row() -> Column:
    """Tell rows of a load, also those that were set aside and put back, from changes that followed it."""
    return (column(S.KIND) == KIND_BASE) | is_from_load()


def shown_operation() -> Column:
    """Return what made a row what it is: I, U, D, or L for the load."""
    return F.when(is_load_row(), F.lit(LOADED)).otherwise(column(S.OPERATION))


def values_after(names: Sequence[str], upto: WindowSpec) -> list[Column]:
    """Return each column as it stands after an event, where the window holds all events up to it.

    Every column has the value of the last event, by place, that speaks of it; a delete speaks of all and leaves none.
    """
    return [F.max_by(_spoken_value(name), _spoken_place(name)).over(upto).alias(name) for name in names]


def operation_after(upto: WindowSpec) -> Column:
    """Return the operation that stands after an event, where the window holds all events up to it."""
    return F.max_by(shown_operation(), place()).over(upto)


def versions(events: DataFrame, *, keys: Sequence[str], names: Sequence[str], track: Sequence[str]) -> DataFrame:
    """Return every version of every row: its columns, from when to when it was valid, and what made it.

    A version goes on while the tracked columns stay the same, and shows all others as they were at its start.
    """
    return _merged(_states(events, keys=keys, names=names), keys=keys, names=names, track=track)


def _states(events: DataFrame, *, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return each row after every moment at which something happened to it, as far as it existed then."""
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
        # Of several events at one moment only the state after the last was ever seen.
        (is_last | ~next_at.eqNullSafe(column(AT))).alias(_NEXT),
        operation_after(upto).alias(S.OPERATION),
        *values_after(others, upto),
    )
    return folded.filter(column(_NEXT) & ~is_delete()).drop(_NEXT)


def _merged(states: DataFrame, *, keys: Sequence[str], names: Sequence[str], track: Sequence[str]) -> DataFrame:
    """Join states that follow each other without a gap and in which nothing that is tracked differs."""
    row = Window.partitionBy(*columns(keys))
    ordered = row.orderBy(column(S.GENERATION), column(VALID_FROM).asc_nulls_first())
    before = F.lag(column(VALID_TO)).over(ordered)
    same = [F.lag(column(name)).over(ordered).eqNullSafe(column(name)) for name in track if name not in keys]
    # A state without an end is a row's last: where there is one before, it has an end.
    goes_on = reduce(lambda one, other: one & other, same, before.eqNullSafe(column(VALID_FROM)) & before.isNotNull())
    whole = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    marked = states.withColumns(
        {_STARTS: ~goes_on, _BEFORE: before, _LAST: F.last(column(VALID_TO)).over(whole)}
    ).filter(column(_STARTS))
    ends = F.coalesce(F.lead(column(_BEFORE)).over(ordered), column(_LAST))
    return marked.withColumn(VALID_TO, ends).select(
        *columns(names), VALID_FROM, VALID_TO, column(VALID_TO).isNull().alias(IS_CURRENT), S.OPERATION
    )


def _spoken_value(name: str) -> Column:
    return F.when(~is_delete(), column(name))


def _spoken_place(name: str) -> Column:
    return F.when(is_spoken(name) | is_delete(), place())
