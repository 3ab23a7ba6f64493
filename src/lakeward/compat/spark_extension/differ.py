"""The calls of spark-extension and their options, translated into calls of :func:`lakeward.diff`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

import lakeward
from lakeward.arguments import FLAG, FRAME, NONE, OPTIONAL_TEXT, TEXT, check_fields, instance, takes
from lakeward.compat.spark_extension.comparators import DATA_TYPE, DefaultDiffComparator, DiffComparator, translated
from lakeward.diffing.frames.alignment import folding
from lakeward.diffing.frames.joining import is_case_sensitive
from lakeward.diffing.frames.options import with_free_names
from lakeward.errors import ConfigurationError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class DiffMode(Enum):
    """The layout of the two sides of a row."""

    ColumnByColumn = "ColumnByColumn"
    SideBySide = "SideBySide"
    LeftSide = "LeftSide"
    RightSide = "RightSide"
    Default = ColumnByColumn


_MODES = {
    DiffMode.ColumnByColumn: lakeward.DiffMode.COLUMN_BY_COLUMN,
    DiffMode.SideBySide: lakeward.DiffMode.SIDE_BY_SIDE,
    DiffMode.LeftSide: lakeward.DiffMode.LEFT_SIDE,
    DiffMode.RightSide: lakeward.DiffMode.RIGHT_SIDE,
}


_COMPARATOR = instance("a DiffComparator", DiffComparator)
_MODE = instance("a DiffMode", DiffMode)
_BY_TYPE, _BY_NAME = "data_type_comparators", "column_name_comparators"


@dataclass(frozen=True)
class DiffOptions:
    """Names, labels, layout and comparison of a diff; each ``with_…`` method returns changed options.

    duplicate_keys: the one option that spark-extension does not have, see :class:`lakeward.DuplicateKeys`. Without id
        columns ``lakeward.DuplicateKeys.REPORT`` lets equal rows occur more than once.
    """

    diff_column: str = "diff"
    left_column_prefix: str = "left"
    right_column_prefix: str = "right"
    insert_diff_value: str = "I"
    change_diff_value: str = "C"
    delete_diff_value: str = "D"
    nochange_diff_value: str = "N"
    change_column: str | None = None
    diff_mode: DiffMode = DiffMode.Default
    sparse_mode: bool = False
    default_comparator: DiffComparator = field(default_factory=DefaultDiffComparator)
    data_type_comparators: Mapping[DataType, DiffComparator] = field(default_factory=dict)
    column_name_comparators: Mapping[str, DiffComparator] = field(default_factory=dict)
    duplicate_keys: lakeward.DuplicateKeys = lakeward.DuplicateKeys.FAIL

    def __post_init__(self) -> None:
        """Refuse values of the wrong type."""
        check_fields(self, **dict.fromkeys(_TEXTS, TEXT), change_column=OPTIONAL_TEXT, sparse_mode=FLAG)
        check_fields(self, diff_mode=_MODE, default_comparator=_COMPARATOR)
        for name, key in ((_BY_TYPE, DATA_TYPE), (_BY_NAME, TEXT)):
            found = getattr(self, name)
            if not isinstance(found, Mapping) or not all(
                key.accepts(chosen) and _COMPARATOR.accepts(comparator) for chosen, comparator in found.items()
            ):
                msg = f"DiffOptions: {name} must be a mapping of {key.expected} to a DiffComparator, found {found!r}"
                raise ConfigurationError(msg)

    def with_diff_column(self, diff_column: str) -> Self:
        """Return options with another name of the column that has the label of each row."""
        return replace(self, diff_column=diff_column)

    def with_left_column_prefix(self, left_column_prefix: str) -> Self:
        """Return options with another prefix of the left frame's columns."""
        return replace(self, left_column_prefix=left_column_prefix)

    def with_right_column_prefix(self, right_column_prefix: str) -> Self:
        """Return options with another prefix of the right frame's columns."""
        return replace(self, right_column_prefix=right_column_prefix)

    def with_insert_diff_value(self, insert_diff_value: str) -> Self:
        """Return options with another label of inserted rows."""
        return replace(self, insert_diff_value=insert_diff_value)

    def with_change_diff_value(self, change_diff_value: str) -> Self:
        """Return options with another label of changed rows."""
        return replace(self, change_diff_value=change_diff_value)

    def with_delete_diff_value(self, delete_diff_value: str) -> Self:
        """Return options with another label of deleted rows."""
        return replace(self, delete_diff_value=delete_diff_value)

    def with_nochange_diff_value(self, nochange_diff_value: str) -> Self:
        """Return options with another label of unchanged rows."""
        return replace(self, nochange_diff_value=nochange_diff_value)

    def with_change_column(self, change_column: str) -> Self:
        """Return options with a column that lists the columns that changed."""
        return replace(self, change_column=change_column)

    def without_change_column(self) -> Self:
        """Return options without a column that lists the columns that changed."""
        return replace(self, change_column=None)

    def with_diff_mode(self, diff_mode: DiffMode) -> Self:
        """Return options with another layout."""
        return replace(self, diff_mode=diff_mode)

    def with_sparse_mode(self, sparse_mode: bool) -> Self:
        """Return options by which values that are the same on both sides are shown as null, or are not."""
        return replace(self, sparse_mode=sparse_mode)

    def with_duplicate_keys(self, duplicate_keys: lakeward.DuplicateKeys) -> Self:
        """Return options with another way to treat keys that occur twice on a side."""
        return replace(self, duplicate_keys=duplicate_keys)

    def with_default_comparator(self, comparator: DiffComparator) -> Self:
        """Return options with another comparator of the columns that have none of their own."""
        return replace(self, default_comparator=comparator)

    def with_data_type_comparator(self, comparator: DiffComparator, *data_type: DataType) -> Self:
        """Return options with a comparator of the columns of some types, which must have none yet."""
        return self._with(_BY_TYPE, comparator, {chosen: _shown(chosen) for chosen in data_type})

    def with_column_name_comparator(self, comparator: DiffComparator, *column_name: str) -> Self:
        """Return options with a comparator of some columns, which must have none yet."""
        return self._with(_BY_NAME, comparator, {chosen: chosen for chosen in column_name})

    def _with(self, name: str, comparator: DiffComparator, chosen: Mapping[Any, str]) -> Self:
        present: Mapping[Any, DiffComparator] = getattr(self, name)
        if taken := sorted(shown for key, shown in chosen.items() if key in present):
            kind = "data type" if name == _BY_TYPE else "column"
            msg = f"There is a comparator already for {kind} {', '.join(taken)}"
            raise ConfigurationError(msg)
        changed: dict[str, Any] = {name: {**present, **dict.fromkeys(chosen, comparator)}}
        return replace(self, **changed)

    def comparator_for(self, column: StructField) -> DiffComparator:
        """Return a column's comparator: that of its name, else that of its type, else the default."""
        found = _chosen(self, column)
        return self.default_comparator if found is None else found


_TEXTS = (
    "diff_column", "left_column_prefix", "right_column_prefix",
    "insert_diff_value", "change_diff_value", "delete_diff_value", "nochange_diff_value",
)  # fmt: skip


def _shown(data_type: object) -> str:
    return data_type.simpleString() if isinstance(data_type, DataType) else repr(data_type)


def _chosen(options: DiffOptions, column: StructField) -> DiffComparator | None:
    """Return the comparator that was chosen for a column's name or type; None where the default counts."""
    by_name = options.column_name_comparators.get(column.name)
    return options.data_type_comparators.get(column.dataType) if by_name is None else by_name


def _for_lakeward(options: DiffOptions, left: StructType, ignored: tuple[str, ...]) -> lakeward.DiffOptions:
    """Return options as Lakeward's, without comparators of columns that the frame lacks: Lakeward refuses those."""
    named = {field.name: chosen for field in left.fields if (chosen := _chosen(options, field)) is not None}
    return lakeward.DiffOptions(
        diff_column=options.diff_column,
        left_column_prefix=options.left_column_prefix,
        right_column_prefix=options.right_column_prefix,
        insert_value=options.insert_diff_value,
        change_value=options.change_diff_value,
        delete_value=options.delete_diff_value,
        nochange_value=options.nochange_diff_value,
        change_column=options.change_column,
        diff_mode=_MODES[options.diff_mode],
        sparse_mode=options.sparse_mode,
        include_unchanged=True,
        ignore_columns=ignored,
        duplicate_keys=options.duplicate_keys,
        default_comparator=translated(options.default_comparator),
        column_comparators={name: translated(comparator) for name, comparator in named.items()},
    )


class Differ:
    """Diffs by the same options.

    Columns are named in one of two ways: the id columns one by one, or id columns and ignored columns as two lists.
    Without id columns all columns that are not ignored identify a row.
    """

    @takes(options=instance("DiffOptions", DiffOptions) | NONE)
    def __init__(self, options: DiffOptions | None = None) -> None:
        self._options = options or DiffOptions()

    @takes(left=FRAME, right=FRAME)
    def diff(self, left: DataFrame, right: DataFrame, *id_or_ignore_columns: str | Iterable[str]) -> DataFrame:
        """Return a row for each key of either frame, labelled as inserted, changed, deleted or unchanged."""
        ids, ignored = _columns_named(id_or_ignore_columns)
        return lakeward.diff(left, right, ids, _for_lakeward(self._options, left.schema, ignored))

    @takes(left=FRAME, right=FRAME)
    def diffwith(self, left: DataFrame, right: DataFrame, *id_or_ignore_columns: str | Iterable[str]) -> DataFrame:
        """Return the label of each row, and its two sides as structs; null where a side has no row.

        Each struct has the id columns, then the compared columns in the left frame's order, then the ignored ones.
        """
        ids, ignored = _columns_named(id_or_ignore_columns)
        asked = _for_lakeward(self._options, left.schema, ignored)
        structs = replace(asked, diff_mode=lakeward.DiffMode.STRUCTS, change_column=None)
        free = with_free_names(structs, ids, [*left.columns, *right.columns])
        rows = lakeward.diff(left, right, ids, free)
        fold = folding(case_sensitive=is_case_sensitive(left.sparkSession))
        ordered = [*ids, *(name for name in left.columns if fold(name) not in map(fold, ignored)), *ignored]
        names = list(dict.fromkeys(map(fold, ordered)))
        return rows.select(
            column(free.diff_column).alias(asked.diff_column),
            _side(rows, free.left_column_prefix, ids, names, fold).alias(asked.left_column_prefix),
            _side(rows, free.right_column_prefix, ids, names, fold).alias(asked.right_column_prefix),
        )


def _side(rows: DataFrame, side: str, ids: tuple[str, ...], names: list[str], fold: Callable[[str], str]) -> Column:
    """Return a side's struct with its fields in the order of ``names``, and id columns under the names of ``ids``."""
    struct = rows.schema[side].dataType
    assert isinstance(struct, StructType)
    asked = {fold(name): name for name in ids}
    own = sorted(struct.names, key=lambda name: names.index(fold(name)))
    fields = [column(side).getField(name).alias(asked.get(fold(name), name)) for name in own]
    return F.when(column(side).isNotNull(), F.struct(*fields))


def _columns_named(found: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return id columns and ignored columns."""
    if all(isinstance(name, str) for name in found):
        return found, ()
    lists = [tuple(names) for names in found if isinstance(names, Iterable) and not isinstance(names, str)]
    if len(lists) == len(found) == 2 and all(isinstance(name, str) for names in lists for name in names):
        return lists[0], lists[1]
    kinds = ", ".join(type(argument).__name__ for argument in found)
    msg = (
        f"Columns must be texts, or two lists of texts (ids, then ignored ones), and options come first: found {kinds}"
    )
    raise ConfigurationError(msg, hint='left.diff(right, options, "id"), or left.diff(right, ["id"], ["ignored"])')


def _options_first(found: tuple[Any, ...]) -> tuple[Differ, tuple[str | Iterable[str], ...]]:
    """Return a differ by the options that come first, if they do, and the other arguments."""
    if found and isinstance(found[0], DiffOptions):
        return Differ(found[0]), found[1:]
    return Differ(), found


def diff(self: DataFrame, other: DataFrame, *options_or_columns: DiffOptions | str | Iterable[str]) -> DataFrame:
    """Return a row for each key of either frame; options, if any, come before the columns. See :class:`Differ`."""
    differ, columns = _options_first(options_or_columns)
    return differ.diff(self, other, *columns)


def diffwith(self: DataFrame, other: DataFrame, *options_or_columns: DiffOptions | str | Iterable[str]) -> DataFrame:
    """Return the label of each row, and its two sides as structs; options, if any, come before the columns."""
    differ, columns = _options_first(options_or_columns)
    return differ.diffwith(self, other, *columns)


def diff_with_options(
    self: DataFrame, other: DataFrame, options: DiffOptions, *columns: str | Iterable[str]
) -> DataFrame:
    """Return what :func:`diff` does, which takes options too: this name is deprecated, as it is in spark-extension."""
    warnings.warn("diff takes options too: left.diff(right, options, …)", DeprecationWarning, stacklevel=2)
    return Differ(options).diff(self, other, *columns)


def diffwith_with_options(
    self: DataFrame, other: DataFrame, options: DiffOptions, *columns: str | Iterable[str]
) -> DataFrame:
    """Return what :func:`diffwith` does, which takes options too: this name is deprecated, as in spark-extension."""
    warnings.warn("diffwith takes options too: left.diffwith(right, options, …)", DeprecationWarning, stacklevel=2)
    return Differ(options).diffwith(self, other, *columns)
