"""Both sides brought together by key in one full outer join, with keys that come twice found on the way.

Null is a key like any other: rows with a null key match each other. A float key is the same whether 0.0 or -0.0, and
whichever NaN it is. A key that only one side has is null on the other. Each key is joined as a column that is never
null, with another value in the place of a null; numbers beside them say which of a row's keys are nulls. Exchange and
sort are shared by the join and the count of each key's rows. A sort by one number is the fastest that Spark has: beside
a single key the nulls are no part of it.

The values travel in structs, which every operator passes on as they are: counting rows costs little then, and two
structs are compared faster than their fields one by one. What is in a struct is taken out where a row is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from lakeward import schemas as S
from lakeward.arguments import FRAME, takes
from lakeward.diffing.frames.alignment import align, as_type
from lakeward.diffing.frames.comparators import surely_equal
from lakeward.diffing.frames.options import COLUMN_NAMES, OPTIONS, DiffOptions, DuplicateKeys, column_names
from lakeward.diffing.frames.pairs import HAS_LEFT, HAS_RIGHT, SURPLUS, Pairs, left_name, right_name, shaped
from lakeward.diffing.frames.refusals import duplicate_failure
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import all_of, holds_map, normalised, uncomparable_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.pairs import JoinCounts


# The number that tells whether a single key is null is one, and this bit if it is. So the sum over a key's rows tells
# how many there are with a value and how many with a null; Spark holds less than 2^31 at once.
_NULL_SHIFT = 32
# How many of several keys have their bits, from the second one upwards, in one such number.
_KEYS_OF_A_NUMBER = 62


def joined(past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, *, whole: bool) -> Pairs:
    """Pair the rows of both sides by key; without ``whole`` rows that are equal on both sides are left out.

    A key that comes twice on a side ends the query with an error that
    :func:`lakeward.diffing.frames.refusals.duplicate_key_in` finds, or (``DuplicateKeys.REPORT``) its rows are paired
    in the order of their values; none is ever multiplied.
    """
    numbered = options.duplicate_keys is DuplicateKeys.REPORT
    left, right = (_Side(alignment, is_left=is_left, numbered=numbered) for is_left in (True, False))
    both = left.unique_rows(past).join(right.unique_rows(current), _is_pair(left, right), "full_outer")
    if not whole:
        # Surplus rows are counted, equal or not.
        surplus = [column(side.number) > 1 for side in (left, right)] if numbered else []
        both = both.filter(~(_is_equal(left, right, alignment) & all_of([~surplu for surplu in surplus])))
    present = [left.is_present().alias(HAS_LEFT), right.is_present().alias(HAS_RIGHT)]
    counted = [_surplus(left, right).alias(SURPLUS)] if numbered else []
    rows = both.select(*present, *left.values(), *right.values(), *counted)
    is_tolerant = any(one.comparator.is_tolerant for one in alignment.compared)
    return Pairs(rows, alignment, is_whole=whole, is_differing=not (whole or numbered or is_tolerant))


def joined_and_counted(past: DataFrame, current: DataFrame, alignment: Alignment, counts: JoinCounts) -> Pairs:
    """Pair the rows that differ; whether all keys are unique is known only when ``counts`` are asked afterwards.

    This spares the count of every key's rows: only keys of rows that differ are counted in the query.
    """
    left, right = (_Side(alignment, is_left=is_left, numbered=False) for is_left in (True, False))
    past, current = counts.sides(past, current)
    both = left.rows(past).join(right.rows(current), _is_pair(left, right), "full_outer")
    counted = counts.pairs(both, left.is_present(), right.is_present())
    differing = counted.filter(~_is_equal(left, right, alignment))
    present = [left.is_present().alias(HAS_LEFT), right.is_present().alias(HAS_RIGHT)]
    unique = _once(differing, left, right, alignment)
    return Pairs(unique.select(*present, *left.values(), *right.values()), alignment, is_whole=False)


def _once(differing: DataFrame, left: _Side, right: _Side, alignment: Alignment) -> DataFrame:
    """Fail where a key comes twice among rows that differ."""
    times = f"{S.PREFIX}times"
    names = zip([*left.key_names, *left.nulls], [*right.key_names, *right.nulls], strict=True)
    same = Window.partitionBy(*[F.coalesce(column(one), column(other)) for one, other in names])
    failures = [
        duplicate_failure(side, [(key.name, rows.value(key)) for key in alignment.keys])
        for side, rows in (("past", left), ("current", right))
    ]
    is_first = F.when(column(times) == 1, F.lit(True)).when(left.is_present(), failures[0]).otherwise(failures[1])
    return differing.withColumn(times, F.count(F.lit(1)).over(same)).filter(is_first).drop(times)


def _is_pair(left: _Side, right: _Side) -> Column:
    """Return whether two rows have the same key."""
    same = [column(key) == column(other) for key, other in zip(left.join_keys, right.join_keys, strict=True)]
    for null, other in zip(left.nulls, right.nulls, strict=True):
        if null not in left.join_keys:
            # Not as an equality of two columns, which would become a key of the exchange and the sort.
            same.append(column(null).bitwiseXOR(column(other)) == 0)
    return all_of(same[1:]) & same[0]


def _surplus(left: _Side, right: _Side) -> Column:
    """Count the rows of a pair whose key came before on their side."""
    each = [F.coalesce(column(side.number) > 1, F.lit(False)).cast("int") for side in (left, right)]
    return each[0] + each[1]


def _is_equal(left: _Side, right: _Side, alignment: Alignment) -> Column:
    """Return whether both sides have a row and their compared columns are equal, by plain equality at least."""
    others = [one for one in alignment.compared if not _is_comparable_in_struct(one)]
    equal = [surely_equal(left.value(other), right.value(other), other) for other in others]
    if len(others) < len(alignment.compared):
        equal.insert(0, column(left.plain).eqNullSafe(column(right.plain)))
    return left.is_present() & right.is_present() & all_of(equal)


def _is_comparable_in_struct(one: AlignedColumn) -> bool:
    """Return whether a column's values can be compared by Spark's own equality, along with others."""
    is_on_both = one.left_type is not None and one.right_type is not None
    return (
        is_on_both and not one.is_key and not one.is_ignored and not one.comparator.is_finer and not holds_map(one.type)
    )


class _Side:
    """One side's columns, all with names of their own: the sides may well come from one frame."""

    def __init__(self, alignment: Alignment, *, is_left: bool, numbered: bool) -> None:
        self._alignment = alignment
        self._is_left = is_left
        self._numbered = numbered
        self._name: Callable[[int], str] = left_name if is_left else right_name
        letter = "l" if is_left else "r"
        self.number, self.plain, self._rest = (f"{S.PREFIX}{what}_{letter}" for what in ("number", "plain", "rest"))
        # Which keys may be null, with the number that says which are and their bits in it.
        nullable = [key for key in alignment.keys if not _is_wrapped(key.type) and self._may_be_null(key)]
        is_single = len(alignment.keys) == 1
        first = _NULL_SHIFT if is_single else 1
        self._bits = {
            one: (f"{S.PREFIX}nulls{at // _KEYS_OF_A_NUMBER}_{letter}", 1 << (first + at % _KEYS_OF_A_NUMBER))
            for at, one in enumerate(nullable)
        }
        self.nulls = list(dict.fromkeys(name for name, _ in self._bits.values()))
        self.key_names = [f"{self._name(at)}_key" for at in range(len(alignment.keys))]
        self._group_names = [*self.key_names, *(self.nulls if numbered or not is_single else [])]
        self.join_keys = [*self._group_names, *([self.number] if numbered else [])]

    def _may_be_null(self, one: AlignedColumn) -> bool:
        """Ask both schemas, as both sides must be joined by the same columns."""
        if one.in_left is None or one.in_right is None:
            return True
        return self._alignment.left[one.in_left].nullable or self._alignment.right[one.in_right].nullable

    def is_present(self) -> Column:
        """Return whether this side has a row."""
        return column(self.key_names[0]).isNotNull()

    def value(self, one: AlignedColumn) -> Column:
        """Return an aligned column's value on this side of the join."""
        position = self._alignment.columns.index(one)
        if _is_in_key(one):
            return self._key(position, one)
        if self._source(one) is None:
            return self._nothing(one)
        return column(self._struct_of(one)).getField(_field(position))

    def values(self) -> list[Column]:
        """Return all values under their names in a pair."""
        return [self.value(one).alias(self._name(at)) for at, one in enumerate(self._alignment.columns)]

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the side's rows with their join keys."""
        keys = [
            self._joined_key(key).alias(name) for key, name in zip(self._alignment.keys, self.key_names, strict=True)
        ]
        return frame.select(*keys, *self._null_flags(), *self._structs())

    def unique_rows(self, frame: DataFrame) -> DataFrame:
        """Return the side's rows with their join keys: numbered, or with a key that comes twice as an error."""
        keyed = self.rows(frame)
        group = Window.partitionBy(*columns(self._group_names))
        if self._numbered:
            return keyed.withColumn(self.number, F.row_number().over(group.orderBy(*self._order())))
        total = column(self.number)
        if self.nulls and self.nulls[0] not in self._group_names:
            # A null and the value in its place are two keys, each of which may come once.
            rows = keyed.withColumn(self.number, F.sum(column(self.nulls[0])).over(group))
            with_null = F.shiftright(total, _NULL_SHIFT)
            times = F.when(column(self.nulls[0]) == 1, total % 2**_NULL_SHIFT - with_null).otherwise(with_null)
        else:
            rows, times = keyed.withColumn(self.number, F.count(F.lit(1)).over(group)), total
        shown = [(key.name, self.value(key)) for key in self._alignment.keys]
        failure = duplicate_failure("past" if self._is_left else "current", shown)
        # A filter, as a column that nobody asks for would be cut away with its error.
        return rows.filter(F.when(times == 1, F.lit(True)).otherwise(failure)).drop(self.number)

    def _structs(self) -> list[Column]:
        """Return the columns that the joined keys do not give back: those compared at once, and the others."""
        fields: dict[str, list[Column]] = {}
        for position, one in enumerate(self._alignment.columns):
            value = self._source(one)
            if value is not None and not _is_in_key(one):
                fields.setdefault(self._struct_of(one), []).append(value.alias(_field(position)))
        return [F.struct(*values).alias(name) for name, values in fields.items()]

    def _struct_of(self, one: AlignedColumn) -> str:
        return self.plain if _is_comparable_in_struct(one) else self._rest

    def _joined_key(self, one: AlignedColumn) -> Column:
        value, stand_in = self._key_source(one), _stand_in(one.type)
        if stand_in is None:
            # In an array of one a null is equal to a null.
            return F.array(normalised(value, one.type))
        return F.coalesce(value, stand_in) if one in self._bits else value

    def _null_flags(self) -> list[Column]:
        found = {name: F.lit(1).cast("bigint") for name in self.nulls}
        for key, (name, bit) in self._bits.items():
            own = F.when(self._key_source(key).isNull(), F.lit(bit)).otherwise(F.lit(0)).cast("bigint")
            found[name] = found[name].bitwiseOR(own)
        return [value.alias(name) for name, value in found.items()]

    def _key(self, position: int, one: AlignedColumn) -> Column:
        """Give back the key from the column by which it is joined."""
        found = column(self.key_names[position])
        if _is_wrapped(one.type):
            return found.getItem(0)
        if one not in self._bits:
            return found
        name, bit = self._bits[one]
        return F.when(column(name).bitwiseAND(F.lit(bit).cast("bigint")) == 0, found)

    def _order(self) -> list[Column]:
        """Return an order of rows by their values that is the same on both sides: compared columns come first."""
        ignored = [value for value in self._alignment.values if value.is_ignored]
        others = [one for one in ignored if uncomparable_part(self._type(one)) is None]
        ordered = [one for one in (*self._alignment.compared, *others) if self._source(one) is not None]
        return [normalised(self.value(one), self._type(one)).asc_nulls_first() for one in ordered] or [F.lit(1)]

    def _source(self, one: AlignedColumn) -> Column | None:
        """Return the column as the side's frame has it, in the aligned type; None: it has none."""
        name = one.in_left if self._is_left else one.in_right
        if name is None:
            return None
        own = one.left_type if self._is_left else one.right_type
        assert own is not None
        return as_type(column(name), own, self._type(one))

    def _key_source(self, one: AlignedColumn) -> Column:
        """Return a key as the side's frame has it; null where it has none."""
        found = self._source(one)
        return found if found is not None else self._nothing(one)

    def _nothing(self, one: AlignedColumn) -> Column:
        return F.lit(None).cast(self._type(one))

    def _type(self, one: AlignedColumn) -> DataType:
        return one.shown_type(is_left=self._is_left)


def _is_in_key(one: AlignedColumn) -> bool:
    """Return whether the column by which a key is joined gives it back: a map in it is there in another form."""
    return one.is_key and not holds_map(one.type)


def _field(position: int) -> str:
    return f"v{position}"


def _is_wrapped(data_type: DataType) -> bool:
    """Return whether a key is joined as an array of one: there is no other value of its type to stand for a null."""
    return _stand_in(data_type) is None


def _stand_in(data_type: DataType) -> Column | None:
    """Return some value of a type for the place of a null."""
    if isinstance(data_type, NumericType):
        return F.lit(0).cast(data_type)
    if isinstance(data_type, (StringType, BinaryType)):
        return F.lit("").cast(data_type)
    if isinstance(data_type, BooleanType):
        return F.lit(False)
    is_time = isinstance(data_type, (DateType, TimestampType, TimestampNTZType))
    return F.lit("1970-01-01").cast(data_type) if is_time else None


# The diff of two frames.


@takes(past=FRAME, current=FRAME, keys=COLUMN_NAMES, options=OPTIONS)
def diff(
    past: DataFrame, current: DataFrame, keys: str | Sequence[str] = (), options: DiffOptions | None = None
) -> DataFrame:
    """Return what changed between two frames: a row for each key that was inserted, changed or deleted.

    Without keys all columns identify a row, so that it is inserted or deleted, never changed. Nothing is read before
    the result is: a key that comes twice is found then, and ends the query.
    """
    chosen = options or DiffOptions()
    case_sensitive = is_case_sensitive(past.sparkSession)
    names = column_names(keys)
    alignment = align(past.schema, current.schema, names, chosen, evolve=chosen.evolve, case_sensitive=case_sensitive)
    return shaped(joined(past, current, alignment, chosen, whole=chosen.include_unchanged), chosen)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether a session holds two spellings of a column's name for two columns."""
    return spark.conf.get("spark.sql.caseSensitive") == "true"
