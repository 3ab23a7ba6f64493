"""A diff applied to the past: the result is the current side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from lakeward import schemas as S
from lakeward.arguments import FLAG, FRAME, NONE, takes
from lakeward.diffing.comparing import comparator_for
from lakeward.diffing.flattening import FlatDiff, JoinedByKey
from lakeward.diffing.options import COLUMN_NAMES, OPTIONS
from lakeward.diffing.reading_diffs import read_diff
from lakeward.diffing.refusals import refuse_unless
from lakeward.diffing.widening import common_type
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.reading_diffs import ReadDiff, SideValue

_MISFIT = "; the diff was made of another table, or was applied before"


@takes(past=FRAME, diff=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS, strict=FLAG)
def patch(
    past: DataFrame,
    diff: DataFrame,
    keys: str | Sequence[str] | None = None,
    options: DiffOptions | None = None,
    *,
    strict: bool = True,
) -> DataFrame:
    """Apply a diff to the past and give the current side.

    Columns that the diff brings come in, those that it has on the left only leave, and types are those of its right
    side. Keys must identify one row each, in the past and in the diff; None: the columns that belong to neither side.

    With ``strict``, a row that is to be inserted must not be there, one that is to be changed or deleted must be, with
    the values that the diff has on its left: otherwise the diff belongs to another table or was applied before, and the
    job fails naming the key (:func:`lakeward.diffing.refusals.refusals` puts that into words). Without it, rows are
    inserted, replaced and deleted whatever is there.

    Raises:
        RefusedInputError: the diff does not hold all current values (left-side mode; sparse without a list of changes),
            or it speaks of other columns than the past has, or nothing tells the keys.
    """
    return patched(past, read_diff(diff, keys, options), strict=strict)


def patched(past: DataFrame, diff: ReadDiff, *, strict: bool, result: StructType | None = None) -> DataFrame:
    """Apply a diff that was taken apart; ``result`` has the columns of the current side where a manifest tells them."""
    _require_complete(diff)
    _require_fitting(past, diff, strict=strict)
    wanted = result if result is not None else _result_schema(past, diff)
    return _Patching(past, diff).rows(wanted, strict=strict)


def _require_complete(diff: ReadDiff) -> None:
    """Refuse a diff that lacks current values."""
    options = diff.options
    if diff.right is None:
        msg = f"a diff in {options.diff_mode} mode cannot be applied: it does not have the current values"
        raise RefusedInputError(msg, hint="make the diff in any other mode")
    if options.sparse_mode and options.change_column is None:
        msg = "a sparse diff without a change column cannot be applied: a change to null looks like no change in it"
        raise RefusedInputError(msg, hint="make the diff with a change column, or not sparse")


def _require_fitting(past: DataFrame, diff: ReadDiff, *, strict: bool) -> None:
    """Refuse a diff that does not speak of this table's columns."""
    present = {diff.fold(one.name): one.dataType for one in past.schema.fields}
    if missing := [name for name in diff.key_names if diff.fold(name) not in present]:
        msg = f"the past has no key column {', '.join(missing)}; it has {', '.join(past.columns)}"
        raise RefusedInputError(msg)
    for one in (*(diff.left or ()), *(diff.right or ())):
        own = present.get(diff.fold(one.name), one.type)
        if common_type(own, one.type, fields_differ=True) is None and not _is_now_text(one, own, diff):
            raise _two_types(one, own, diff)
    if strict and diff.left is not None:
        _require_same_columns(past, diff, diff.left)


def _is_now_text(one: SideValue, past: DataType, diff: ReadDiff) -> bool:
    """Tell whether an ignored column became a text: rows that did not change then have their value as a text."""
    return _is_ignored(one, diff) and isinstance(one.type, StringType) and isinstance(past, AtomicType)


def _is_ignored(one: SideValue, diff: ReadDiff) -> bool:
    return diff.fold(one.name) in {diff.fold(name) for name in diff.options.ignore_columns}


def _two_types(one: SideValue, past: DataType, diff: ReadDiff) -> RefusedInputError:
    types = f"column {one.name} is {past.simpleString()} in the past, {one.type.simpleString()} in the diff"
    if _is_ignored(one, diff):
        msg = f"{types}, which ignores it: rows that did not change have no value of the new type"
        return RefusedInputError(msg, hint="make the diff of sides that both have the column in one type, or lack it")
    msg = f"the diff was made of another table than this past: {types}"
    return RefusedInputError(msg, hint="apply it to the table that it was made of")


def _require_same_columns(past: DataFrame, diff: ReadDiff, left: Sequence[SideValue]) -> None:
    told = {diff.fold(name) for name in (*diff.key_names, *(one.name for one in (*left, *(diff.right or ()))))}
    present = {diff.fold(name) for name in past.columns}
    facts = {
        "columns that the diff does not know": [name for name in past.columns if diff.fold(name) not in told],
        "columns of the diff that are missing": [one.name for one in left if diff.fold(one.name) not in present],
    }
    if any(facts.values()):
        shown = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts.items() if names)
        msg = f"the diff was made of another table than this past: {shown}"
        raise RefusedInputError(msg, hint="apply it to the table that it was made of")


def _result_schema(past: DataFrame, diff: ReadDiff) -> StructType:
    """Give the current side's columns: those of the past that stay in their order, then those that come in."""
    coming = {diff.fold(one.name): StructField(one.name, one.type) for one in diff.right or ()}
    keys = {diff.fold(one.name): StructField(one.name, one.dataType) for one in diff.keys}
    leaving = {diff.fold(one.name) for one in diff.left or ()} - set(coming)
    stays = {**coming, **keys}
    fields = []
    for one in past.schema.fields:
        name = diff.fold(one.name)
        if name in stays:
            fields.append(stays.pop(name))
        elif diff.left is not None and name not in leaving:
            # A column that the diff knows nothing of stays; a diff of one side names all that are to stay.
            fields.append(StructField(one.name, one.dataType))
    return StructType([*fields, *stays.values()])


class _Patching:
    """Past and diff brought together by key."""

    def __init__(self, past: DataFrame, diff: ReadDiff) -> None:
        self._diff = diff
        self._flat = FlatDiff(diff, "diff")
        keys = {diff.fold(name): name for name in diff.key_names}
        self._places = {
            diff.fold(name): keys.get(diff.fold(name), f"{S.PREFIX}past{at}") for at, name in enumerate(past.columns)
        }
        renamed = past.select(*[column(name).alias(self._places[diff.fold(name)]) for name in past.columns])
        self._both = JoinedByKey(renamed, self._flat.frame(unchanged=False), diff.key_names)

    def rows(self, wanted: StructType, *, strict: bool) -> DataFrame:
        """Give the rows that the current side has."""
        found = self._both.frame
        if strict:
            found = found.filter(self._fits())
        stays = ~self._both.has_right | self._both.right(self._flat.has_right)
        return found.filter(stays).select(*[self._value(one) for one in wanted.fields])

    def _value(self, field: StructField) -> Column:
        """Give a column of the result: the diff's value where it has one, else the past's."""
        keys = {self._diff.fold(name): name for name in self._diff.key_names}
        if (key := keys.get(self._diff.fold(field.name))) is not None:
            return self._both.key(key).cast(field.dataType).alias(field.name)
        past, place = self._past(field.name, field.dataType), self._flat.right(field.name)
        if place is None:
            return past.alias(field.name)
        is_told, new = self._is_told(self._both.right(place), field.name), self._both.right_as(place, field.dataType)
        return F.when(is_told, new).otherwise(past).alias(field.name)

    def _past(self, name: str, wanted: DataType) -> Column:
        place = self._places.get(self._diff.fold(name))
        return self._both.left_as(place, wanted) if place is not None else F.lit(None).cast(wanted)

    def _is_told(self, new: Column, name: str) -> Column:
        """Tell whether the diff has a row's current value; a sparse one has those that changed, and whole new rows."""
        told = self._both.has_right
        if not self._diff.options.sparse_mode:
            return told
        return told & (~self._both.has_left | self._is_listed(name) | new.isNotNull())

    def _is_listed(self, name: str) -> Column:
        return F.coalesce(F.array_contains(self._both.right(self._flat.changed), name), F.lit(False))

    def _fits(self) -> Column:
        """Give a condition that makes the job fail at the first row that the diff does not fit."""
        silent, there = ~self._both.has_right, self._both.has_left
        expected, key = self._both.right(self._flat.has_left), self._both.key_text()
        return (
            refuse_unless(silent | expected | ~there, "the diff inserts ", key, f", which the past has{_MISFIT}")
            & refuse_unless(
                silent | ~expected | there, "the diff changes or deletes ", key, f", which the past lacks{_MISFIT}"
            )
            & refuse_unless(
                silent | ~expected | self._has_left_values(),
                "the diff has other past values for ", key, f" than the past{_MISFIT}",
            )
        )  # fmt: skip

    def _has_left_values(self) -> Column:
        """Tell whether the past has the values that the diff has on its left, as far as it has them."""
        compared = [one for one in self._diff.left or () if not _is_ignored(one, self._diff)]
        return all_of([self._is_as_told(one) for one in compared])

    def _is_as_told(self, one: SideValue) -> Column:
        options = self._diff.options
        comparator = comparator_for(one.name, one.type, options, self._diff.fold)
        place = self._flat.left(one.name)
        assert place is not None
        told, found = self._both.right(place), self._past(one.name, one.type)
        equal = comparator.equal(comparator.prepared(told, one.type), comparator.prepared(found, one.type))
        if not options.sparse_mode:
            return equal
        # Where nothing is told, a deleted row's value is null, a changed one's may be anything.
        is_deleted = ~self._both.right(self._flat.has_right)
        return equal | ~(is_deleted | self._is_listed(one.name))
