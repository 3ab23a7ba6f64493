"""Two diffs, one after the other, as the diff of their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakeward.arguments import FRAME, NONE, takes
from lakeward.diffing.alignment import align
from lakeward.diffing.comparators import Duration, Epsilon, Whitespace
from lakeward.diffing.flattening import FlatDiff, JoinedByKey
from lakeward.diffing.frames import is_case_sensitive
from lakeward.diffing.options import COLUMN_NAMES, OPTIONS, DiffMode, DiffOptions
from lakeward.diffing.pairs import HAS_LEFT, HAS_RIGHT, Pairs, left_name, right_name
from lakeward.diffing.reading_diffs import read_diff
from lakeward.diffing.refusals import refuse_unless
from lakeward.diffing.shaping import shaped
from lakeward.diffing.widening import common_type
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of
from lakeward.transforms.normalising import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakeward.diffing.reading_diffs import ReadDiff, SideValue

_TOLERANT = (Epsilon, Duration, Whitespace)


@takes(first=FRAME, second=FRAME, keys=COLUMN_NAMES | NONE, options=OPTIONS)
def compose(
    first: DataFrame, second: DataFrame, keys: str | Sequence[str] | None = None, options: DiffOptions | None = None
) -> DataFrame:
    """Give the diff from the first one's past to the second one's current side.

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
    """Say why a diff cannot be made one with another, None where it can."""
    options = diff.options
    if diff.left is None or diff.right is None:
        return f"in {options.diff_mode} mode one has only one side's values"
    if options.sparse_mode:
        return "a sparse one does not have the values that did not change"
    if not is_exact(options):
        return "one ignores columns or tolerates differences, so that it does not show all that changed"
    return None


def have_common_ends(first: ReadDiff, second: ReadDiff) -> bool:
    """Tell whether one type holds each column of the first diff's past and the second one's current side.

    It does not where a column was dropped in between and came back in another type.
    """
    ends = {first.fold(one.name): one.type for one in first.left or ()}
    later = [(ends.get(first.fold(one.name)), one.type) for one in second.right or ()]
    return all(one is None or common_type(one, other, fields_differ=True) is not None for one, other in later)


def is_exact(options: DiffOptions) -> bool:
    """Tell whether every difference of a value counts: no column is ignored and no comparator tolerates any."""
    comparators = (options.default_comparator, *options.type_comparators.values(), *options.column_comparators.values())
    return not options.ignore_columns and not any(isinstance(one, _TOLERANT) for one in comparators)


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
        """Give the rows of both ends."""
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
        """Give what the first diff has on its left, or, where it does not speak of the row, the second."""
        return F.when(self._both.has_left, self._early(early, data_type)).otherwise(self._late(late, data_type))

    def _current(self, early: str | None, late: str | None, data_type: DataType | None = None) -> Column:
        """Give what the second diff has on its right, or, where it does not speak of the row, the first."""
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
        """Give a condition that makes the job fail at the first row that the first diff leaves otherwise."""
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
        """Tell whether the values between the two diffs are the same in both."""
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
    """Give the columns of one side of a diff: as its struct has them, else keys first."""
    if values and diff.options.diff_mode is DiffMode.STRUCTS:
        struct = diff.frame.schema[values[0].container].dataType
        assert isinstance(struct, StructType)
        return struct
    return StructType([*diff.keys, *[StructField(one.name, one.type) for one in values or ()]])
