"""Pairs of rows with the same key: the result of every plan, from which diff and counts are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.diffing.frames.comparators import equal_values, plainly_equal
from lakeward.diffing.frames.options import DiffMode, DuplicateKeys, side_columns, value_columns
from lakeward.documents import Document
from lakeward.transforms.columns import column
from lakeward.transforms.compare import all_of, uncomparable_part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from lakeward.diffing.frames.alignment import AlignedColumn, Alignment
    from lakeward.diffing.frames.options import DiffOptions


HAS_LEFT, HAS_RIGHT = f"{S.PREFIX}has_left", f"{S.PREFIX}has_right"
# How many rows of a pair (0, 1 or 2) repeat a key of their side; only where duplicate keys are reported.
SURPLUS = f"{S.PREFIX}surplus"


def left_name(position: int) -> str:
    """Return the name of an aligned column's past value: a number, as column names may hold any character."""
    return f"{S.PREFIX}l{position}"


def right_name(position: int) -> str:
    """Return the name of an aligned column's current value."""
    return f"{S.PREFIX}r{position}"


@dataclass(frozen=True)
class Pairs:
    """A frame of ``HAS_LEFT``, ``HAS_RIGHT`` (booleans, never null), then all past and all current values.

    Values have the aligned types. The frame has every row that differs, by any comparator; it may have equal ones, and
    has all of them with ``is_whole``, none with ``is_differing``.
    """

    frame: DataFrame
    alignment: Alignment
    is_whole: bool
    is_differing: bool = False

    def left(self, aligned: AlignedColumn) -> Column:
        """Return a column's past value; null where the past has no row."""
        return column(left_name(self.alignment.columns.index(aligned)))

    def right(self, aligned: AlignedColumn) -> Column:
        """Return a column's current value; null where the current side has no row."""
        return column(right_name(self.alignment.columns.index(aligned)))


ACTION, CHANGED = f"{S.PREFIX}action", f"{S.PREFIX}changed"
INSERTED, CHANGED_ROW, DELETED, UNCHANGED = "I", "C", "D", "N"


def classified(pairs: Pairs, options: DiffOptions) -> DataFrame:  # noqa: ARG001 (as every step that makes output)
    """Return pairs with the action of each (``ACTION``: I, C, D or N) and the columns that changed (``CHANGED``).

    The columns are an array of names in the order of the past: empty for an unchanged row, null for a row of one side.
    """
    compared = pairs.alignment.compared
    equal = [equal_values(pairs.left(aligned), pairs.right(aligned), aligned) for aligned in compared]
    # Not a filter over an array: Spark does not compile queries with a lambda.
    none = F.array().cast("array<string>")
    names = [
        F.when(same, none).otherwise(F.array(F.lit(aligned.name)))
        for aligned, same in zip(compared, equal, strict=True)
    ]
    is_paired = column(HAS_LEFT) & column(HAS_RIGHT)
    changed = F.when(is_paired, F.concat(*names) if names else none)
    action = (
        F.when(~column(HAS_LEFT), F.lit(INSERTED))
        .when(~column(HAS_RIGHT), F.lit(DELETED))
        .when(F.lit(False) if pairs.is_differing else all_of(equal), F.lit(UNCHANGED))
        .otherwise(F.lit(CHANGED_ROW))
    )
    rows = pairs.frame if SURPLUS in pairs.frame.columns else pairs.frame.withColumn(SURPLUS, F.lit(0))
    return rows.withColumn(CHANGED, changed).withColumn(ACTION, action)


def shaped(pairs: Pairs, options: DiffOptions) -> DataFrame:
    """Return the diff in the chosen mode; unchanged rows only where the options include them."""
    return shaped_from(classified(pairs, options), pairs, options)


def shaped_from(rows: DataFrame, pairs: Pairs, options: DiffOptions) -> DataFrame:
    """Return the diff from classified pairs, which may have been observed or limited since."""
    if not options.include_unchanged:
        rows = rows.filter(column(ACTION) != UNCHANGED)
    keys = [F.coalesce(pairs.left(key), pairs.right(key)).alias(key.name) for key in pairs.alignment.keys]
    return rows.select(*_labels(options), *keys, *_values(pairs, options))


def _labels(options: DiffOptions) -> list[Column]:
    labels = {
        INSERTED: options.insert_value,
        DELETED: options.delete_value,
        CHANGED_ROW: options.change_value,
    }
    label = F.lit(options.nochange_value)
    for action, text in labels.items():
        label = F.when(column(ACTION) == action, F.lit(text)).otherwise(label)
    changed = [] if options.change_column is None else [column(CHANGED).alias(options.change_column)]
    return [label.alias(options.diff_column), *changed]


def _values(pairs: Pairs, options: DiffOptions) -> list[Column]:
    if options.diff_mode is DiffMode.STRUCTS:
        return [
            _struct(pairs, options, is_left=True).alias(options.left_column_prefix),
            _struct(pairs, options, is_left=False).alias(options.right_column_prefix),
        ]
    return [
        _shown(pairs, value_column.column, options, is_left=value_column.is_left).alias(value_column.name)
        for value_column in value_columns(pairs.alignment, options)
    ]


def _struct(pairs: Pairs, options: DiffOptions, *, is_left: bool) -> Column:
    fields = []
    for side_column in side_columns(pairs.alignment, is_left=is_left):
        name = side_column.in_left if is_left else side_column.in_right
        assert name is not None
        fields.append(_shown(pairs, side_column, options, is_left=is_left).alias(name))
    return F.when(column(HAS_LEFT if is_left else HAS_RIGHT), F.struct(*fields))


def _shown(pairs: Pairs, aligned: AlignedColumn, options: DiffOptions, *, is_left: bool) -> Column:
    """Return a value as it is shown: in sparse mode, null where the other side has the same."""
    value = pairs.left(aligned) if is_left else pairs.right(aligned)
    if not options.sparse_mode or aligned.is_key or not _is_blankable(aligned):
        return value
    return F.when(~plainly_equal(pairs.left(aligned), pairs.right(aligned), aligned), value)


def _is_blankable(aligned: AlignedColumn) -> bool:
    """Whether two values can be the same: both sides have the column, in a type that can be compared."""
    is_on_both = aligned.left_type is not None and aligned.right_type is not None
    return is_on_both and aligned.has_one_type and uncomparable_part(aligned.type) is None


@dataclass(frozen=True)
class Summary(Document):
    """Counts of rows.

    ``columns`` is the number of changed rows in which each column differs, ``duplicates`` the number of rows that
    repeat a key of their side. All are counted in the pass that makes the diff.
    """

    past_rows: int
    current_rows: int
    inserted: int
    changed: int
    deleted: int
    unchanged: int
    columns: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.inserted or self.changed or self.deleted)


def summary_columns(alignment: Alignment, options: DiffOptions) -> list[Column]:
    """Return aggregates over classified pairs, for ``DataFrame.observe`` or ``agg``.

    :func:`read_summary` reads them.
    """
    actions = {"inserted": INSERTED, "changed": CHANGED_ROW, "deleted": DELETED, "unchanged": UNCHANGED}
    is_changed = column(ACTION) == CHANGED_ROW
    surplus = column(SURPLUS) if options.duplicate_keys is DuplicateKeys.REPORT else F.lit(0)
    return [
        *(F.count(F.when(column(ACTION) == label, F.lit(1))).alias(name) for name, label in actions.items()),
        *(
            F.count(F.when(is_changed & F.array_contains(column(CHANGED), aligned.name), F.lit(1))).alias(_counter(at))
            for at, aligned in enumerate(alignment.compared)
        ),
        F.coalesce(F.sum(surplus), F.lit(0)).cast("bigint").alias("duplicates"),
    ]


def read_summary(
    found: Row | Mapping[str, Any], alignment: Alignment, *, past_rows: int | None, current_rows: int | None
) -> Summary:
    """Read what was counted.

    A side's rows are None where all pairs were counted. Where equal pairs were left out, both numbers are needed, and
    the number of unchanged rows follows from them.
    """
    counts = found if isinstance(found, Mapping) else found.asDict()
    inserted, changed, deleted = counts["inserted"], counts["changed"], counts["deleted"]
    unchanged = counts["unchanged"] if past_rows is None else past_rows - changed - deleted
    return Summary(
        past_rows=unchanged + changed + deleted,
        current_rows=unchanged + changed + inserted if current_rows is None else current_rows,
        inserted=inserted,
        changed=changed,
        deleted=deleted,
        unchanged=unchanged,
        columns={aligned.name: counts[_counter(at)] for at, aligned in enumerate(alignment.compared)},
        duplicates=counts["duplicates"],
    )


def _counter(position: int) -> str:
    """Return the name of a column's counter, by its position: column names may hold any character."""
    return f"column_{position}"


# Counting the rows that pass through a join shows afterwards whether a key came twice. For a key with ``a`` rows on one
# side and ``b`` on the other, a join returns ``a · b`` pairs. It returns as many past rows as it was given exactly if
# no key that both sides have occurs twice among the current rows, and the other way round. Keys that only one side has
# are among the rows that differ, where they are counted.


_ROWS, _LEFT, _RIGHT = "rows", "left_rows", "right_rows"


@dataclass(frozen=True)
class JoinCounts:
    """The numbers of input and output rows of a join, known once its result was read.

    Counting takes a tenth of the join's time, so sides whose number of rows is known are not counted.
    """

    past_rows: int | None = None
    current_rows: int | None = None
    _past: Observation = field(default_factory=Observation)
    _current: Observation = field(default_factory=Observation)
    _paired: Observation = field(default_factory=Observation)

    def sides(self, past: DataFrame, current: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Count the rows that go in, where their number is not known."""
        counted = F.count(F.lit(1)).alias(_ROWS)
        return (
            past if self.past_rows is not None else past.observe(self._past, counted),
            current if self.current_rows is not None else current.observe(self._current, counted),
        )

    def pairs(self, both: DataFrame, has_left: Column, has_right: Column) -> DataFrame:
        """Count the output rows."""
        left, right = (F.count(F.when(flag, F.lit(1))) for flag in (has_left, has_right))
        return both.observe(self._paired, left.alias(_LEFT), right.alias(_RIGHT))

    def duplicated_side(self) -> str | None:
        """Return the side on which a key came more than once, ``past`` or ``current``, after the result was read."""
        past, current = self.rows()
        if int(self._paired.get[_LEFT]) != past:
            return "current"
        return "past" if int(self._paired.get[_RIGHT]) != current else None

    def rows(self) -> tuple[int, int]:
        """Return the number of past and of current rows, after the result was read."""
        return (
            int(self._past.get[_ROWS]) if self.past_rows is None else self.past_rows,
            int(self._current.get[_ROWS]) if self.current_rows is None else self.current_rows,
        )


JOIN, HASH, BUCKETS, ICEBERG = "join", "hash", "buckets", "iceberg"
PLANS = (JOIN, HASH, BUCKETS, ICEBERG)


@dataclass(frozen=True)
class PlannedPairs:
    """Pairs by a plan of :data:`PLANS`; ``reason`` is why it was chosen.

    ``past_rows`` and ``current_rows`` are set where they are known without counting. ``counts``, where set, must be
    checked after the pairs were read: only they show whether every key was unique.
    """

    pairs: Pairs
    name: str
    reason: str
    past_rows: int | None = None
    current_rows: int | None = None
    counts: JoinCounts | None = None
