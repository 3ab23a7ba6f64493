"""Diffs applied, reversed and composed."""

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
from lakeward.diffing.frames.parsed_diff import FlatDiff, JoinedByKey, parse_diff
from lakeward.diffing.frames.refusals import refuse_unless
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of, normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakeward.diffing.frames.parsed_diff import ParsedDiff, SideValue


_MISFIT = "; the diff was made from another table, or was applied before"


@takes(past=FRAME, diff=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS, strict=FLAG)
def patch(
    past: DataFrame,
    diff: DataFrame,
    keys: str | Sequence[str] | None = None,
    options: DiffOptions | None = None,
    *,
    strict: bool = True,
) -> DataFrame:
    """Apply a diff to the past and return the current side.

    Columns that only the right side of the diff has are added, those that only its left side has are removed, and types
    are those of its right side. Keys must identify one row each, in the past and in the diff; None: the columns that
    belong to neither side.

    With ``strict``, a row to insert must not exist yet, and a row to change or delete must exist, with the values that
    the diff has on its left. Otherwise the diff belongs to another table or was applied before, and the job fails
    naming the key (:func:`lakeward.diffing.frames.refusals.refusals` turns that into an error). Without ``strict``,
    rows are inserted, replaced and deleted whatever the past has.

    Raises:
        RefusedInputError: the diff does not hold all current values (left-side mode; sparse without a list of changes),
            or it has other columns than the past, or its keys cannot be determined.
    """
    return patched(past, parse_diff(diff, keys, options), strict=strict)


def patched(past: DataFrame, diff: ParsedDiff, *, strict: bool, result: StructType | None = None) -> DataFrame:
    """Apply a parsed diff; ``result`` has the columns of the current side where a manifest lists them."""
    _require_complete(diff)
    _require_fitting(past, diff, strict=strict)
    wanted = result if result is not None else _result_schema(past, diff)
    return _Patching(past, diff).rows(wanted, strict=strict)


def _require_complete(diff: ParsedDiff) -> None:
    """Refuse a diff that lacks current values."""
    options = diff.options
    if diff.right is None:
        msg = f"a diff in {options.diff_mode} mode cannot be applied: it does not have the current values"
        raise RefusedInputError(msg, hint="make the diff in any other mode")
    if options.sparse_mode and options.change_column is None:
        msg = "a sparse diff without a change column cannot be applied: a change to null looks like no change in it"
        raise RefusedInputError(msg, hint="make the diff with a change column, or not sparse")


def _require_fitting(past: DataFrame, diff: ParsedDiff, *, strict: bool) -> None:
    """Refuse a diff whose columns are not those of this table."""
    present = {diff.fold(field.name): field.dataType for field in past.schema.fields}
    if missing := [name for name in diff.key_names if diff.fold(name) not in present]:
        msg = f"the past has no key column {', '.join(missing)}; it has {', '.join(past.columns)}"
        raise RefusedInputError(msg)
    for value in (*(diff.left or ()), *(diff.right or ())):
        own = present.get(diff.fold(value.name), value.type)
        if common_type(own, value.type, fields_differ=True) is None and not _is_now_text(value, own, diff):
            raise _two_types(value, own, diff)
    if strict and diff.left is not None:
        _require_same_columns(past, diff, diff.left)


def _is_now_text(value: SideValue, past: DataType, diff: ParsedDiff) -> bool:
    """Whether an ignored column became a text: rows that did not change then have their value as a text."""
    return _is_ignored(value, diff) and isinstance(value.type, StringType) and isinstance(past, AtomicType)


def _is_ignored(value: SideValue, diff: ParsedDiff) -> bool:
    return diff.fold(value.name) in {diff.fold(name) for name in diff.options.ignore_columns}


def _two_types(value: SideValue, past: DataType, diff: ParsedDiff) -> RefusedInputError:
    types = f"column {value.name} is {past.simpleString()} in the past, {value.type.simpleString()} in the diff"
    if _is_ignored(value, diff):
        msg = f"{types}, which ignores it: rows that did not change have no value of the new type"
        return RefusedInputError(msg, hint="make the diff of sides that both have the column in one type, or lack it")
    msg = f"the diff was made from another table than this past: {types}"
    return RefusedInputError(msg, hint="apply it to the table that it was made from")


def _require_same_columns(past: DataFrame, diff: ParsedDiff, left: Sequence[SideValue]) -> None:
    known = {diff.fold(name) for name in (*diff.key_names, *(value.name for value in (*left, *(diff.right or ()))))}
    present = {diff.fold(name) for name in past.columns}
    facts = {
        "columns that the diff does not have": [name for name in past.columns if diff.fold(name) not in known],
        "columns of the diff that are missing": [value.name for value in left if diff.fold(value.name) not in present],
    }
    if any(facts.values()):
        shown = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts.items() if names)
        msg = f"the diff was made from another table than this past: {shown}"
        raise RefusedInputError(msg, hint="apply it to the table that it was made from")


def _result_schema(past: DataFrame, diff: ParsedDiff) -> StructType:
    """Return the current side's columns: those of the past that stay, in their order, then the added ones."""
    coming = {diff.fold(value.name): StructField(value.name, value.type) for value in diff.right or ()}
    keys = {diff.fold(key.name): StructField(key.name, key.dataType) for key in diff.keys}
    leaving = {diff.fold(value.name) for value in diff.left or ()} - set(coming)
    stays = {**coming, **keys}
    fields = []
    for field in past.schema.fields:
        name = diff.fold(field.name)
        if name in stays:
            fields.append(stays.pop(name))
        elif diff.left is not None and name not in leaving:
            # A column that the diff does not have stays; a diff of one side has all columns that are to stay.
            fields.append(StructField(field.name, field.dataType))
    return StructType([*fields, *stays.values()])


class _Patching:
    """The past joined with a diff by key."""

    def __init__(self, past: DataFrame, diff: ParsedDiff) -> None:
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
        has_value = self._has_value(self._both.right(place), field.name)
        new = self._both.right_as(place, field.dataType)
        return F.when(has_value, new).otherwise(past).alias(field.name)

    def _past(self, name: str, wanted: DataType) -> Column:
        place = self._places.get(self._diff.fold(name))
        return self._both.left_as(place, wanted) if place is not None else F.lit(None).cast(wanted)

    def _has_value(self, new: Column, name: str) -> Column:
        """Whether the diff has a row's current value; a sparse diff has changed values, and whole new rows."""
        in_diff = self._both.has_right
        if not self._diff.options.sparse_mode:
            return in_diff
        return in_diff & (~self._both.has_left | self._is_listed(name) | new.isNotNull())

    def _is_listed(self, name: str) -> Column:
        return F.coalesce(F.array_contains(self._both.right(self._flat.changed), name), F.lit(False))

    def _fits(self) -> Column:
        """Return a condition that makes the job fail at the first row that the diff does not fit."""
        not_in_diff, in_past = ~self._both.has_right, self._both.has_left
        expected, key = self._both.right(self._flat.has_left), self._both.key_text()
        return (
            refuse_unless(not_in_diff | expected | ~in_past, "the diff inserts ", key, f", which the past has{_MISFIT}")
            & refuse_unless(
                not_in_diff | ~expected | in_past,
                "the diff changes or deletes ", key, f", which the past lacks{_MISFIT}",
            )
            & refuse_unless(
                not_in_diff | ~expected | self._has_left_values(),
                "the diff has other past values for ", key, f" than the past{_MISFIT}",
            )
        )  # fmt: skip

    def _has_left_values(self) -> Column:
        """Return whether the past has the values that the diff has on its left, as far as it has them."""
        compared = [value for value in self._diff.left or () if not _is_ignored(value, self._diff)]
        return all_of([self._has_left_value(value) for value in compared])

    def _has_left_value(self, side_value: SideValue) -> Column:
        options = self._diff.options
        comparator = comparator_for(side_value.name, side_value.type, options, self._diff.fold)
        place = self._flat.left(side_value.name)
        assert place is not None
        expected, found = self._both.right(place), self._past(side_value.name, side_value.type)
        equal = comparator.equal(
            comparator.prepared(expected, side_value.type), comparator.prepared(found, side_value.type)
        )
        if not options.sparse_mode:
            return equal
        # A sparse diff lists the values that changed; those of a deleted row are all there, null included.
        is_deleted = ~self._both.right(self._flat.has_right)
        return equal | ~(is_deleted | self._is_listed(side_value.name))


@takes(diff=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def reverse(diff: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None) -> DataFrame:
    """Return the diff from current to past: inserted rows become deleted ones, and the sides change places.

    It has the mode, the names and the list of changes of the diff, also where that is sparse. Without keys, the columns
    that belong to neither side are the keys.

    Raises:
        RefusedInputError: the diff has the values of one side only, or its keys cannot be determined.
    """
    return reversed_diff(parse_diff(diff, keys, options))


def reversed_diff(diff: ParsedDiff) -> DataFrame:
    """Return the reverse of a parsed diff."""
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


def _swapped(diff: ParsedDiff) -> list[Column]:
    assert diff.left is not None
    assert diff.right is not None
    left, right = diff.options.left_column_prefix, diff.options.right_column_prefix
    if diff.options.diff_mode is DiffMode.STRUCTS:
        return [column(right).alias(left), column(left).alias(right)]
    new_left = {value.name: value.value.alias(f"{left}_{value.name}") for value in diff.right}
    new_right = {value.name: value.value.alias(f"{right}_{value.name}") for value in diff.left}
    if diff.options.diff_mode is DiffMode.SIDE_BY_SIDE:
        return [*new_left.values(), *new_right.values()]
    names = dict.fromkeys(name for name in _in_order(diff))
    return [side[name] for name in names for side in (new_left, new_right) if name in side]


def _in_order(diff: ParsedDiff) -> list[str]:
    """Return the names of the value columns as the diff has them, each at its first place."""
    places = {value.container: value.name for side in (diff.left, diff.right) for value in side or ()}
    return [places[name] for name in diff.frame.columns if name in places]


_TOLERANT = (Epsilon, Duration, Whitespace)


@takes(first=FRAME, second=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def compose(
    first: DataFrame, second: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None
) -> DataFrame:
    """Return the diff from the first one's past to the second one's current side.

    A row that was inserted and then changed is inserted, a row that was inserted and then deleted is left out, and so
    on; a row that has its first values again is unchanged. Where the second diff does not follow the first one (a row
    is inserted twice, deleted twice, or has other values in between), the job fails naming the key. Without keys, the
    columns that belong to neither side are the keys.

    Raises:
        RefusedInputError: a diff has one side only, is sparse, ignores columns or tolerates differences: then it does
            not hold all that the diff of the ends would show.
    """
    options = options or DiffOptions()
    return composed(parse_diff(first, keys, options), parse_diff(second, keys, options), options)


def composed(first: ParsedDiff, second: ParsedDiff, options: DiffOptions) -> DataFrame:
    """Compose parsed diffs; the options determine the layout of the result."""
    for diff in (first, second):
        if reason := why_not_composable(diff):
            msg = f"the diffs cannot be composed: {reason}"
            raise RefusedInputError(msg, hint="apply them one after the other, or make them in full")
    if first.key_names != second.key_names:
        msg = f"the diffs have different keys: {', '.join(first.key_names)} and {', '.join(second.key_names)}"
        raise RefusedInputError(msg)
    return shaped(_Composition(first, second, options).pairs(), options)


def why_not_composable(diff: ParsedDiff) -> str | None:
    """Return why a diff cannot be composed with another; None where it can."""
    options = diff.options
    if diff.left is None or diff.right is None:
        return f"in {options.diff_mode} mode a diff has the values of one side only"
    if options.sparse_mode:
        return "a sparse diff does not have the values that did not change"
    if not is_exact(options):
        return "a diff that ignores columns or tolerates differences does not show all that changed"
    return None


def have_common_ends(first: ParsedDiff, second: ParsedDiff) -> bool:
    """Whether each column of the first diff's past and the second diff's current side has a common type.

    A column that was dropped in between and came back in another type has none.
    """
    ends = {first.fold(value.name): value.type for value in first.left or ()}
    later = [(ends.get(first.fold(value.name)), value.type) for value in second.right or ()]
    return all(
        earlier is None or common_type(earlier, other, fields_differ=True) is not None for earlier, other in later
    )


def is_exact(options: DiffOptions) -> bool:
    """Whether every difference of a value counts: no column is ignored and no comparator tolerates any."""
    comparators = (options.default_comparator, *options.type_comparators.values(), *options.column_comparators.values())
    return not options.ignore_columns and not any(isinstance(comparator, _TOLERANT) for comparator in comparators)


class _Composition:
    """The rows of two diffs, joined by key."""

    def __init__(self, first: ParsedDiff, second: ParsedDiff, options: DiffOptions) -> None:
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
        for at, aligned in enumerate(self._alignment.columns):
            if aligned.is_key:
                key = self._both.key(aligned.name).cast(aligned.type)
                values += [F.when(has_left, key).alias(left_name(at)), F.when(has_right, key).alias(right_name(at))]
                continue
            left = self._past(self._first.left(aligned.name), self._second.left(aligned.name), aligned.type)
            right = self._current(self._first.right(aligned.name), self._second.right(aligned.name), aligned.type)
            values += [left.alias(left_name(at)), right.alias(right_name(at))]
        rows = self._both.frame.filter(self._follows())
        ends = rows.select(has_left.alias(HAS_LEFT), has_right.alias(HAS_RIGHT), *values)
        return Pairs(ends.filter(column(HAS_LEFT) | column(HAS_RIGHT)), self._alignment, is_whole=False)

    def _past(self, early: str | None, late: str | None, data_type: DataType | None = None) -> Column:
        """Return what the first diff has on its left or, for a row that it does not have, the second."""
        return F.when(self._both.has_left, self._early(early, data_type)).otherwise(self._late(late, data_type))

    def _current(self, early: str | None, late: str | None, data_type: DataType | None = None) -> Column:
        """Return what the second diff has on its right or, for a row that it does not have, the first."""
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
        """Return a condition that makes the job fail at a row where the second diff does not follow the first."""
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
        """Whether both diffs have the same values in between, as a column."""
        early = {self._first.diff.fold(value.name): value for value in self._first.diff.right or ()}
        met = []
        for late in self._second.diff.left or ():
            early_value = early.get(self._first.diff.fold(late.name))
            common = common_type(early_value.type, late.type, fields_differ=True) if early_value is not None else None
            if common is not None:
                places = self._first.right(late.name), self._second.left(late.name)
                values = self._early(places[0], common), self._late(places[1], common)
                met.append([normalised(value, common) for value in values])
        return all_of([left.eqNullSafe(right) for left, right in met])


def _side_schema(diff: ParsedDiff, values: Sequence[SideValue] | None) -> StructType:
    """Return the columns of one side of a diff: as its struct has them, else keys first."""
    if values and diff.options.diff_mode is DiffMode.STRUCTS:
        struct = diff.frame.schema[values[0].container].dataType
        assert isinstance(struct, StructType)
        return struct
    return StructType([*diff.keys, *[StructField(value.name, value.type) for value in values or ()]])
