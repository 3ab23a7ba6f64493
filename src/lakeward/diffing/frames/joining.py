"""The diff of two frames, by one full outer join on the key that also finds keys that occur twice.

Null is a key like any other: rows with a null key match each other. A float key is the same whether 0.0 or -0.0, and
all NaNs are the same key. A key column that only one side has is null on the other. Each key is joined as a column that
is never null, with a stand-in for nulls; a number beside it has a bit for each key that is null. The join and the count
of each key's rows share one exchange and one sort. Spark sorts fastest by a single number, so the null bits of a single
key are not part of the sort.

The values are kept in structs, which operators pass on without unpacking them: counting rows is then cheap, and two
structs are compared faster than their fields one by one. Fields are extracted where a row is shown.
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


# For a single key, the null number is one, plus this bit if the key is null. The sum over a key's rows is then the
# number of rows, plus the number of nulls from this bit on; Spark buffers fewer than 2^31 rows.
_NULL_SHIFT = 32
# How many of several keys have their bits, from the second bit on, in one such number.
_KEYS_OF_A_NUMBER = 62


def joined(past: DataFrame, current: DataFrame, alignment: Alignment, options: DiffOptions, *, whole: bool) -> Pairs:
    """Pair the rows of both sides by key; without ``whole`` rows that are equal on both sides are left out.

    A key that occurs twice on a side ends the query with an error that
    :func:`lakeward.diffing.frames.refusals.duplicate_key_in` finds, or (``DuplicateKeys.REPORT``) its rows are paired
    in the order of their values; none is ever multiplied.
    """
    numbered = options.duplicate_keys is DuplicateKeys.REPORT
    left, right = (_Side(alignment, is_left=is_left, numbered=numbered) for is_left in (True, False))
    both = left.unique_rows(past).join(right.unique_rows(current), _is_pair(left, right), "full_outer")
    if not whole:
        # Surplus rows are counted, equal or not.
        surplus = [column(side.number) > 1 for side in (left, right)] if numbered else []
        both = both.filter(~(_is_equal(left, right, alignment) & all_of([~is_surplus for is_surplus in surplus])))
    present = [left.is_present().alias(HAS_LEFT), right.is_present().alias(HAS_RIGHT)]
    counted = [_surplus(left, right).alias(SURPLUS)] if numbered else []
    rows = both.select(*present, *left.values(), *right.values(), *counted)
    is_tolerant = any(aligned.comparator.is_tolerant for aligned in alignment.compared)
    return Pairs(rows, alignment, is_whole=whole, is_differing=not (whole or numbered or is_tolerant))


def joined_and_counted(past: DataFrame, current: DataFrame, alignment: Alignment, counts: JoinCounts) -> Pairs:
    """Pair the rows that differ; whether all keys are unique must be checked with ``counts`` afterwards.

    This avoids counting the rows of every key: the query counts only keys of rows that differ.
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
    """Return the rows that differ; the query fails where a key occurs twice among them."""
    times = f"{S.PREFIX}times"
    names = zip([*left.key_names, *left.nulls], [*right.key_names, *right.nulls], strict=True)
    same = Window.partitionBy(*[F.coalesce(column(name), column(other)) for name, other in names])
    failures = [
        duplicate_failure(side, [(key.name, rows.value(key)) for key in alignment.keys])
        for side, rows in (("past", left), ("current", right))
    ]
    is_first = F.when(column(times) == 1, F.lit(True)).when(left.is_present(), failures[0]).otherwise(failures[1])
    return differing.withColumn(times, F.count(F.lit(1)).over(same)).filter(is_first).drop(times)


def _is_pair(left: _Side, right: _Side) -> Column:
    """Return the condition that two rows have the same key."""
    same = [column(key) == column(other) for key, other in zip(left.join_keys, right.join_keys, strict=True)]
    for null, other in zip(left.nulls, right.nulls, strict=True):
        if null not in left.join_keys:
            # Not as an equality of two columns, which would become a key of the exchange and the sort.
            same.append(column(null).bitwiseXOR(column(other)) == 0)
    return all_of(same[1:]) & same[0]


def _surplus(left: _Side, right: _Side) -> Column:
    """Return the number of rows of a pair that repeat a key of their side."""
    each = [F.coalesce(column(side.number) > 1, F.lit(False)).cast("int") for side in (left, right)]
    return each[0] + each[1]


def _is_equal(left: _Side, right: _Side, alignment: Alignment) -> Column:
    """Return the condition that both sides have a row and their compared columns are plainly equal."""
    others = [aligned for aligned in alignment.compared if not _is_comparable_in_struct(aligned)]
    equal = [surely_equal(left.value(other), right.value(other), other) for other in others]
    if len(others) < len(alignment.compared):
        equal.insert(0, column(left.plain).eqNullSafe(column(right.plain)))
    return left.is_present() & right.is_present() & all_of(equal)


def _is_comparable_in_struct(aligned: AlignedColumn) -> bool:
    """Whether a column's values can be compared by Spark's own equality, along with others."""
    is_on_both = aligned.left_type is not None and aligned.right_type is not None
    return (
        is_on_both
        and not aligned.is_key
        and not aligned.is_ignored
        and not aligned.comparator.is_finer
        and not holds_map(aligned.type)
    )


class _Side:
    """One side's columns, under names that the other side does not use: both may come from the same frame."""

    def __init__(self, alignment: Alignment, *, is_left: bool, numbered: bool) -> None:
        self._alignment = alignment
        self._is_left = is_left
        self._numbered = numbered
        self._name: Callable[[int], str] = left_name if is_left else right_name
        letter = "l" if is_left else "r"
        self.number, self.plain, self._rest = (f"{S.PREFIX}{what}_{letter}" for what in ("number", "plain", "rest"))
        # The keys that may be null, with the column that holds their bits, and the bit of each.
        nullable = [key for key in alignment.keys if not _is_wrapped(key.type) and self._may_be_null(key)]
        is_single = len(alignment.keys) == 1
        first = _NULL_SHIFT if is_single else 1
        self._bits = {
            key: (f"{S.PREFIX}nulls{at // _KEYS_OF_A_NUMBER}_{letter}", 1 << (first + at % _KEYS_OF_A_NUMBER))
            for at, key in enumerate(nullable)
        }
        self.nulls = list(dict.fromkeys(name for name, _ in self._bits.values()))
        self.key_names = [f"{self._name(at)}_key" for at in range(len(alignment.keys))]
        self._group_names = [*self.key_names, *(self.nulls if numbered or not is_single else [])]
        self.join_keys = [*self._group_names, *([self.number] if numbered else [])]

    def _may_be_null(self, aligned: AlignedColumn) -> bool:
        """Whether a key may be null on either side: both sides must be joined by the same columns."""
        if aligned.in_left is None or aligned.in_right is None:
            return True
        return self._alignment.left[aligned.in_left].nullable or self._alignment.right[aligned.in_right].nullable

    def is_present(self) -> Column:
        """Return the condition that this side has a row."""
        return column(self.key_names[0]).isNotNull()

    def value(self, aligned: AlignedColumn) -> Column:
        """Return an aligned column's value on this side of the join."""
        position = self._alignment.columns.index(aligned)
        if _is_in_key(aligned):
            return self._key(position, aligned)
        if self._source(aligned) is None:
            return self._nothing(aligned)
        return column(self._struct_of(aligned)).getField(_field(position))

    def values(self) -> list[Column]:
        """Return all values under their names in a pair."""
        return [self.value(aligned).alias(self._name(at)) for at, aligned in enumerate(self._alignment.columns)]

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the side's rows with their join keys."""
        keys = [
            self._joined_key(key).alias(name) for key, name in zip(self._alignment.keys, self.key_names, strict=True)
        ]
        return frame.select(*keys, *self._null_flags(), *self._structs())

    def unique_rows(self, frame: DataFrame) -> DataFrame:
        """Return the side's rows with their join keys: numbered, or with a key that occurs twice as an error."""
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
        # A filter, because Spark would remove an unused column together with its error.
        return rows.filter(F.when(times == 1, F.lit(True)).otherwise(failure)).drop(self.number)

    def _structs(self) -> list[Column]:
        """Return the columns that cannot be restored from the joined keys: those compared at once, and others."""
        fields: dict[str, list[Column]] = {}
        for position, aligned in enumerate(self._alignment.columns):
            value = self._source(aligned)
            if value is not None and not _is_in_key(aligned):
                fields.setdefault(self._struct_of(aligned), []).append(value.alias(_field(position)))
        return [F.struct(*values).alias(name) for name, values in fields.items()]

    def _struct_of(self, aligned: AlignedColumn) -> str:
        return self.plain if _is_comparable_in_struct(aligned) else self._rest

    def _joined_key(self, aligned: AlignedColumn) -> Column:
        value, stand_in = self._key_source(aligned), _stand_in(aligned.type)
        if stand_in is None:
            # Inside an array of one element, null equals null.
            return F.array(normalised(value, aligned.type))
        return F.coalesce(value, stand_in) if aligned in self._bits else value

    def _null_flags(self) -> list[Column]:
        found = {name: F.lit(1).cast("bigint") for name in self.nulls}
        for key, (name, bit) in self._bits.items():
            own = F.when(self._key_source(key).isNull(), F.lit(bit)).otherwise(F.lit(0)).cast("bigint")
            found[name] = found[name].bitwiseOR(own)
        return [value.alias(name) for name, value in found.items()]

    def _key(self, position: int, aligned: AlignedColumn) -> Column:
        """Return the key, restored from the column by which it is joined."""
        found = column(self.key_names[position])
        if _is_wrapped(aligned.type):
            return found.getItem(0)
        if aligned not in self._bits:
            return found
        name, bit = self._bits[aligned]
        return F.when(column(name).bitwiseAND(F.lit(bit).cast("bigint")) == 0, found)

    def _order(self) -> list[Column]:
        """Return an order of rows by their values that is the same on both sides: compared columns come first."""
        ignored = [value for value in self._alignment.values if value.is_ignored]
        others = [aligned for aligned in ignored if uncomparable_part(self._type(aligned)) is None]
        ordered = [aligned for aligned in (*self._alignment.compared, *others) if self._source(aligned) is not None]
        return [normalised(self.value(aligned), self._type(aligned)).asc_nulls_first() for aligned in ordered] or [
            F.lit(1)
        ]

    def _source(self, aligned: AlignedColumn) -> Column | None:
        """Return the column of the side's frame in the aligned type; None where the side lacks it."""
        name = aligned.in_left if self._is_left else aligned.in_right
        if name is None:
            return None
        own = aligned.left_type if self._is_left else aligned.right_type
        assert own is not None
        return as_type(column(name), own, self._type(aligned))

    def _key_source(self, aligned: AlignedColumn) -> Column:
        """Return a key column of the side's frame; null where the side lacks it."""
        found = self._source(aligned)
        return found if found is not None else self._nothing(aligned)

    def _nothing(self, aligned: AlignedColumn) -> Column:
        return F.lit(None).cast(self._type(aligned))

    def _type(self, aligned: AlignedColumn) -> DataType:
        return aligned.shown_type(is_left=self._is_left)


def _is_in_key(aligned: AlignedColumn) -> bool:
    """Whether a key can be restored from the column by which it is joined: a map in it has another form there."""
    return aligned.is_key and not holds_map(aligned.type)


def _field(position: int) -> str:
    return f"v{position}"


def _is_wrapped(data_type: DataType) -> bool:
    """Whether a key is joined as an array of one element: its type has no value that can represent null."""
    return _stand_in(data_type) is None


def _stand_in(data_type: DataType) -> Column | None:
    """Return the value of a type that stands in for a null; None for a type without one."""
    if isinstance(data_type, NumericType):
        return F.lit(0).cast(data_type)
    if isinstance(data_type, (StringType, BinaryType)):
        return F.lit("").cast(data_type)
    if isinstance(data_type, BooleanType):
        return F.lit(False)
    is_time = isinstance(data_type, (DateType, TimestampType, TimestampNTZType))
    return F.lit("1970-01-01").cast(data_type) if is_time else None


@takes(past=FRAME, current=FRAME, keys=COLUMN_NAMES, options=OPTIONS)
def diff(
    past: DataFrame, current: DataFrame, keys: str | Sequence[str] = (), options: DiffOptions | None = None
) -> DataFrame:
    """Return what changed between two frames: a row for each key that was inserted, changed or deleted.

    Without keys all columns identify a row, so that it is inserted or deleted, never changed. The frames are read when
    the result is read; a key that occurs twice makes that query fail.
    """
    chosen = options or DiffOptions()
    case_sensitive = is_case_sensitive(past.sparkSession)
    names = column_names(keys)
    alignment = align(past.schema, current.schema, names, chosen, evolve=chosen.evolve, case_sensitive=case_sensitive)
    return shaped(joined(past, current, alignment, chosen, whole=chosen.include_unchanged), chosen)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether a session treats names that differ in case as different columns."""
    return spark.conf.get("spark.sql.caseSensitive") == "true"
