"""A diff applied to the past: the result is the current side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from lakeward import schemas as S
from lakeward.arguments import FLAG, FRAME, NONE, takes
from lakeward.diffing.frames.alignment import align, common_type
from lakeward.diffing.frames.comparators import Duration, Epsilon, Whitespace, comparator_for
from lakeward.diffing.frames.joining import is_case_sensitive
from lakeward.diffing.frames.options import COLUMN_NAMES, OPTIONS, DiffMode, DiffOptions
from lakeward.diffing.frames.pairs import HAS_LEFT, HAS_RIGHT, Pairs, left_name, right_name, shaped
from lakeward.diffing.frames.refusals import refuse_unless
from lakeward.diffing.frames.taken_apart import FlatDiff, JoinedByKey, read_diff
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of, normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakeward.diffing.frames.taken_apart import ReadDiff, SideValue


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
    job fails naming the key (:func:`lakeward.diffing.frames.refusals.refusals` puts that into words). Without it, rows
    are inserted, replaced and deleted whatever is there.

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
    present = {diff.fold(field.name): field.dataType for field in past.schema.fields}
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
    """Return whether an ignored column became a text: rows that did not change then have their value as a text."""
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
    """Return the current side's columns: those of the past that stay in their order, then those that come in."""
    coming = {diff.fold(one.name): StructField(one.name, one.type) for one in diff.right or ()}
    keys = {diff.fold(key.name): StructField(key.name, key.dataType) for key in diff.keys}
    leaving = {diff.fold(one.name) for one in diff.left or ()} - set(coming)
    stays = {**coming, **keys}
    fields = []
    for field in past.schema.fields:
        name = diff.fold(field.name)
        if name in stays:
            fields.append(stays.pop(name))
        elif diff.left is not None and name not in leaving:
            # A column that the diff knows nothing of stays; a diff of one side names all that are to stay.
            fields.append(StructField(field.name, field.dataType))
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
        """Return the rows that the current side has."""
        found = self._both.frame
        if strict:
            found = found.filter(self._fits())
        stays = ~self._both.has_right | self._both.right(self._flat.has_right)
        return found.filter(stays).select(*[self._value(field) for field in wanted.fields])

    def _value(self, field: StructField) -> Column:
        """Return a column of the result: the diff's value where it has one, else the past's."""
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
        """Whether the diff has a row's current value; a sparse one has those that changed, and whole new rows."""
        told = self._both.has_right
        if not self._diff.options.sparse_mode:
            return told
        return told & (~self._both.has_left | self._is_listed(name) | new.isNotNull())

    def _is_listed(self, name: str) -> Column:
        return F.coalesce(F.array_contains(self._both.right(self._flat.changed), name), F.lit(False))

    def _fits(self) -> Column:
        """Return a condition that makes the job fail at the first row that the diff does not fit."""
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
        """Return whether the past has the values that the diff has on its left, as far as it has them."""
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


# A diff the other way round: what leads from current back to past.


@takes(diff=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def reverse(diff: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None) -> DataFrame:
    """Return the diff from current to past: inserted rows are deleted ones, and each side takes the other's place.

    It has the mode, the names and the list of changes of the diff, also where that is sparse. Without keys, those
    columns are keys that belong to neither side.

    Raises:
        RefusedInputError: the diff has one side only, so that the other one's values are not known; or nothing tells
            the keys.
    """
    return reversed_diff(read_diff(diff, keys, options))


def reversed_diff(diff: ReadDiff) -> DataFrame:
    """Return a diff that was taken apart the other way round."""
    options = diff.options
    if diff.left is None or diff.right is None:
        missing = "past" if diff.left is None else "current"
        msg = f"a diff in {options.diff_mode} mode cannot be reversed: it does not have the {missing} values"
        raise RefusedInputError(msg, hint="make the diff in column-by-column, side-by-side or structs mode")
    action = (
        F.when(diff.action == F.lit(options.insert_value), F.lit(options.delete_value))
        .when(diff.action == F.lit(options.delete_value), F.lit(options.insert_value))
        .otherwise(diff.action)
    )
    own = [action.alias(options.diff_column), *([diff.changed] if diff.changed is not None else [])]
    keys = [column(name) for name in diff.key_names]
    return diff.rows(unchanged=True).select(*own, *keys, *_swapped(diff))


def _swapped(diff: ReadDiff) -> list[Column]:
    assert diff.left is not None
    assert diff.right is not None
    left, right = diff.options.left_column_prefix, diff.options.right_column_prefix
    if diff.options.diff_mode is DiffMode.STRUCTS:
        return [column(right).alias(left), column(left).alias(right)]
    new_left = {one.name: one.value.alias(f"{left}_{one.name}") for one in diff.right}
    new_right = {one.name: one.value.alias(f"{right}_{one.name}") for one in diff.left}
    if diff.options.diff_mode is DiffMode.SIDE_BY_SIDE:
        return [*new_left.values(), *new_right.values()]
    names = dict.fromkeys(name for name in _in_order(diff))
    return [side[name] for name in names for side in (new_left, new_right) if name in side]


def _in_order(diff: ReadDiff) -> list[str]:
    """Return the names of the value columns as the diff has them, each at its first place."""
    places = {one.container: one.name for side in (diff.left, diff.right) for one in side or ()}
    return [places[name] for name in diff.frame.columns if name in places]


# Two diffs, one after the other, as the diff of their ends.


_TOLERANT = (Epsilon, Duration, Whitespace)


@takes(first=FRAME, second=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def compose(
    first: DataFrame, second: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None
) -> DataFrame:
    """Return the diff from the first one's past to the second one's current side.

    A row that was inserted and then changed is an inserted one, one that was inserted and then deleted is none, and so
    on; a row that is back to what it was is unchanged. Where the second diff does not follow the first one (a row is
    inserted twice, deleted twice, or has other values in between), the job fails naming the key. Without keys, those
    columns are keys that belong to neither side.

    Raises:
        RefusedInputError: a diff has one side only, is sparse, ignores columns or tolerates differences: then it does
            not hold all that the diff of the ends would show.
    """
    options = options or DiffOptions()
    return composed(read_diff(first, keys, options), read_diff(second, keys, options), options)


def composed(first: ReadDiff, second: ReadDiff, options: DiffOptions) -> DataFrame:
    """Compose diffs that were taken apart; the result is laid out as the options say."""
    for one in (first, second):
        if reason := why_not_composable(one):
            msg = f"the diffs cannot be made one: {reason}"
            raise RefusedInputError(msg, hint="apply them one after the other, or make them in full")
    if first.key_names != second.key_names:
        msg = f"the diffs have different keys: {', '.join(first.key_names)} and {', '.join(second.key_names)}"
        raise RefusedInputError(msg)
    return shaped(_Composition(first, second, options).pairs(), options)


def why_not_composable(diff: ReadDiff) -> str | None:
    """Return why a diff cannot be made one with another, None where it can."""
    options = diff.options
    if diff.left is None or diff.right is None:
        return f"in {options.diff_mode} mode one has only one side's values"
    if options.sparse_mode:
        return "a sparse one does not have the values that did not change"
    if not is_exact(options):
        return "one ignores columns or tolerates differences, so that it does not show all that changed"
    return None


def have_common_ends(first: ReadDiff, second: ReadDiff) -> bool:
    """Return whether one type holds each column of the first diff's past and the second one's current side.

    It does not where a column was dropped in between and came back in another type.
    """
    ends = {first.fold(one.name): one.type for one in first.left or ()}
    later = [(ends.get(first.fold(one.name)), one.type) for one in second.right or ()]
    return all(one is None or common_type(one, other, fields_differ=True) is not None for one, other in later)


def is_exact(options: DiffOptions) -> bool:
    """Return whether every difference of a value counts: no column is ignored and no comparator tolerates any."""
    comparators = (options.default_comparator, *options.type_comparators.values(), *options.column_comparators.values())
    return not options.ignore_columns and not any(isinstance(comparator, _TOLERANT) for comparator in comparators)


class _Composition:
    """Rows of two diffs, brought together by key."""

    def __init__(self, first: ReadDiff, second: ReadDiff, options: DiffOptions) -> None:
        self._first, self._second = FlatDiff(first, "first"), FlatDiff(second, "second")
        unchanged = options.include_unchanged
        self._both = JoinedByKey(
            self._first.frame(unchanged=unchanged), self._second.frame(unchanged=unchanged), first.key_names
        )
        ends = _side_schema(first, first.left), _side_schema(second, second.right)
        case_sensitive = is_case_sensitive(first.frame.sparkSession)
        self._alignment = align(*ends, first.key_names, options, evolve=True, case_sensitive=case_sensitive)

    def pairs(self) -> Pairs:
        """Return the rows of both ends."""
        has_left = self._past(self._first.has_left, self._second.has_left)
        has_right = self._current(self._first.has_right, self._second.has_right)
        values = []
        for at, one in enumerate(self._alignment.columns):
            if one.is_key:
                key = self._both.key(one.name).cast(one.type)
                values += [F.when(has_left, key).alias(left_name(at)), F.when(has_right, key).alias(right_name(at))]
                continue
            left = self._past(self._first.left(one.name), self._second.left(one.name), one.type)
            right = self._current(self._first.right(one.name), self._second.right(one.name), one.type)
            values += [left.alias(left_name(at)), right.alias(right_name(at))]
        rows = self._both.frame.filter(self._follows())
        ends = rows.select(has_left.alias(HAS_LEFT), has_right.alias(HAS_RIGHT), *values)
        return Pairs(ends.filter(column(HAS_LEFT) | column(HAS_RIGHT)), self._alignment, is_whole=False)

    def _past(self, early: str | None, late: str | None, data_type: DataType | None = None) -> Column:
        """Return what the first diff has on its left, or, where it does not speak of the row, the second."""
        return F.when(self._both.has_left, self._early(early, data_type)).otherwise(self._late(late, data_type))

    def _current(self, early: str | None, late: str | None, data_type: DataType | None = None) -> Column:
        """Return what the second diff has on its right, or, where it does not speak of the row, the first."""
        return F.when(self._both.has_right, self._late(late, data_type)).otherwise(self._early(early, data_type))

    def _early(self, place: str | None, data_type: DataType | None = None) -> Column:
        if place is None:
            return F.lit(None).cast(data_type) if data_type is not None else F.lit(None)
        return self._both.left_as(place, data_type) if data_type is not None else self._both.left(place)

    def _late(self, place: str | None, data_type: DataType | None = None) -> Column:
        if place is None:
            return F.lit(None).cast(data_type) if data_type is not None else F.lit(None)
        return self._both.right_as(place, data_type) if data_type is not None else self._both.right(place)

    def _follows(self) -> Column:
        """Return a condition that makes the job fail at the first row that the first diff leaves otherwise."""
        both, key = self._both, self._both.key_text()
        apart = ~both.has_left | ~both.has_right
        left, found = both.left(self._first.has_right), both.right(self._second.has_left)
        misfit = "the second diff does not follow the first: "
        return refuse_unless(
            apart | (left == found), misfit, F.when(left, "the first leaves ").otherwise("the first deletes "), key,
            F.when(found, ", which the second changes or deletes").otherwise(", which the second inserts"),
        ) & refuse_unless(
            apart | ~left | self._meets(), misfit, "it has other past values for ", key, " than the first leaves there"
        )  # fmt: skip

    def _meets(self) -> Column:
        """Return whether the values between the two diffs are the same in both."""
        early = {self._first.diff.fold(one.name): one for one in self._first.diff.right or ()}
        met = []
        for late in self._second.diff.left or ():
            one = early.get(self._first.diff.fold(late.name))
            common = common_type(one.type, late.type, fields_differ=True) if one is not None else None
            if common is not None:
                places = self._first.right(late.name), self._second.left(late.name)
                values = self._early(places[0], common), self._late(places[1], common)
                met.append([normalised(value, common) for value in values])
        return all_of([left.eqNullSafe(right) for left, right in met])


def _side_schema(diff: ReadDiff, values: Sequence[SideValue] | None) -> StructType:
    """Return the columns of one side of a diff: as its struct has them, else keys first."""
    if values and diff.options.diff_mode is DiffMode.STRUCTS:
        struct = diff.frame.schema[values[0].container].dataType
        assert isinstance(struct, StructType)
        return struct
    return StructType([*diff.keys, *[StructField(value.name, value.type) for value in values or ()]])
