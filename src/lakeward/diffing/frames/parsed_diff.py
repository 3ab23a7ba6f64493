"""A parsed diff: which rows the two sides had, and the values of each side, whatever mode the diff was written in.

Names are never guessed. Where a manifest lists the columns of both sides, they are looked up. Otherwise each column
that is neither the action, the list of changes nor a key begins with one of the two prefixes, which is removed once,
at the beginning: ``right_copyright_year`` is the current ``copyright_year``. The session decides whether case matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakeward import schemas as S
from lakeward.columns import quote_name
from lakeward.diffing.frames.alignment import AlignedColumn, Alignment, as_type, common_type, folding
from lakeward.diffing.frames.joining import is_case_sensitive, joined
from lakeward.diffing.frames.options import DiffMode, DiffOptions, column_names
from lakeward.diffing.frames.pairs import HAS_LEFT, HAS_RIGHT
from lakeward.diffing.frames.refusals import refusal
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

    from lakeward.diffing.frames.alignment import Fold
    from lakeward.diffing.frames.pairs import Pairs


@dataclass(frozen=True)
class SideValue:
    """A column of one side of a diff: the table's name for it, its type, and where the diff has it.

    ``container`` is the column of the diff that holds it: itself, or the side's struct.
    """

    name: str
    type: DataType
    value: Column
    container: str


@dataclass(frozen=True)
class ParsedDiff:
    """A diff with the columns of its two sides; a side that its mode leaves out is None."""

    frame: DataFrame
    keys: tuple[StructField, ...]
    left: tuple[SideValue, ...] | None
    right: tuple[SideValue, ...] | None
    options: DiffOptions
    fold: Fold

    @property
    def action(self) -> Column:
        """The label of a row's action."""
        return column(self.options.diff_column)

    @property
    def has_left(self) -> Column:
        """Whether the past has the row."""
        return self.action != F.lit(self.options.insert_value)

    @property
    def has_right(self) -> Column:
        """Whether the current side has the row."""
        return self.action != F.lit(self.options.delete_value)

    @property
    def changed(self) -> Column | None:
        """The names of the columns that changed, where the diff lists them."""
        return column(self.options.change_column) if self.options.change_column else None

    @property
    def left_names(self) -> list[str]:
        """The diff's columns that hold past values."""
        return list(dict.fromkeys(value.container for value in self.left or ()))

    @property
    def right_names(self) -> list[str]:
        """The diff's columns that hold current values."""
        return list(dict.fromkeys(value.container for value in self.right or ()))

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(key.name for key in self.keys)

    def rows(self, *, unchanged: bool) -> DataFrame:
        """Return its rows, unchanged ones only with ``unchanged``.

        A row with an unknown label makes the job fail.
        """
        own = self.options
        labels = (own.insert_value, own.change_value, own.delete_value, own.nochange_value)
        found = F.coalesce(self.action.cast("string"), F.lit("null"))
        unknown = refusal("the diff has the action ", found, f"; known are {', '.join(labels)}")
        wanted = F.when(self.action.isin(*labels[:3]), F.lit(True))
        return self.frame.filter(wanted.when(self.action == F.lit(labels[3]), F.lit(unchanged)).otherwise(unknown))


def parse_diff(
    frame: DataFrame,
    keys: str | Sequence[str] | None,
    options: DiffOptions | None = None,
    *,
    past: StructType | None = None,
    current: StructType | None = None,
) -> ParsedDiff:
    """Parse a diff; ``past`` and ``current`` are the schemas of both sides, where a manifest has them.

    An empty list of keys means that all columns but the action and the list of changes are keys, as in a diff that was
    made without keys. None means that those columns are keys that belong to neither side.

    Raises:
        RefusedInputError: a column is missing, or has none of the two prefixes.
    """
    options = options or DiffOptions()
    own = [options.diff_column, *([options.change_column] if options.change_column else [])]
    diff_columns = _DiffColumns(frame, options, folding(case_sensitive=is_case_sensitive(frame.sparkSession)))
    _ = [diff_columns.field(name) for name in own]
    key_names = diff_columns.implied_keys(diff_columns.without(own)) if keys is None else column_names(keys)
    fields = tuple(diff_columns.field(name) for name in key_names or diff_columns.without(own))
    names = [field.name for field in fields]
    if past is not None and current is not None:
        left, right = diff_columns.known(names, past, current)
    else:
        left, right = diff_columns.parsed(names, diff_columns.without([*own, *names]))
    return ParsedDiff(frame, fields, left, right, options, diff_columns.fold)


_Values = tuple[SideValue, ...]


@dataclass(frozen=True)
class _DiffColumns:
    """A diff's columns, found by name."""

    frame: DataFrame
    options: DiffOptions
    fold: Fold

    def field(self, name: str) -> StructField:
        """Find a column."""
        found = [field for field in self.frame.schema.fields if self.fold(field.name) == self.fold(name)]
        if not found:
            msg = f"the diff has no column {name}; it has {', '.join(self.frame.columns)}"
            raise RefusedInputError(msg, hint="check the keys, and the names that the diff was made with")
        return found[0]

    def without(self, names: Sequence[str]) -> list[str]:
        """Return the columns other than these."""
        left_out = {self.fold(name) for name in names}
        return [name for name in self.frame.columns if self.fold(name) not in left_out]

    def implied_keys(self, names: Sequence[str]) -> list[str]:
        """Return the columns that belong to neither side.

        A column of one side that the other side lacks may as well be a key of such a name: then this is refused.
        """
        sides = self.fold(self.options.left_column_prefix), self.fold(self.options.right_column_prefix)
        if self.options.diff_mode is DiffMode.STRUCTS:
            return [name for name in names if self.fold(name) not in sides]
        left, right = ({name for name in names if self.fold(name).startswith(f"{side}_")} for side in sides)
        ends = [{self.fold(name)[len(side) :] for name in own} for side, own in zip(sides, (left, right), strict=True)]
        keys = [name for name in names if name not in left | right]
        is_one_sided = self.options.diff_mode in (DiffMode.LEFT_SIDE, DiffMode.RIGHT_SIDE)
        if is_one_sided or not keys or ends[0] != ends[1]:
            msg = f"the key columns of the diff cannot be determined; it has {', '.join(names)}"
            raise RefusedInputError(msg, hint='name them: keys=["id"]')
        return keys

    def known(
        self, keys: Sequence[str], past: StructType, current: StructType
    ) -> tuple[_Values | None, _Values | None]:
        """Look up the columns of each side by the schemas that the manifest has."""
        mode = self.options.diff_mode
        left, right = self.options.left_column_prefix, self.options.right_column_prefix
        return (
            self._of_schema(past, keys, left) if mode is not DiffMode.RIGHT_SIDE else None,
            self._of_schema(current, keys, right) if mode is not DiffMode.LEFT_SIDE else None,
        )

    def parsed(self, keys: Sequence[str], rest: Sequence[str]) -> tuple[_Values | None, _Values | None]:
        """Find the columns of each side by their prefixes."""
        mode = self.options.diff_mode
        left, right = self.options.left_column_prefix, self.options.right_column_prefix
        if mode is DiffMode.STRUCTS:
            return self._fields(left, keys), self._fields(right, keys)
        if mode is DiffMode.LEFT_SIDE:
            return tuple(self._column(name, name) for name in rest), None
        if mode is DiffMode.RIGHT_SIDE:
            return None, tuple(self._column(name, name) for name in rest)
        _require_prefixes(rest, f"{left}_", f"{right}_")
        return self._prefixed(f"{left}_", rest), self._prefixed(f"{right}_", rest)

    def _of_schema(self, struct: StructType, keys: Sequence[str], prefix: str) -> _Values:
        key_names = {self.fold(name) for name in keys}
        names = [field.name for field in struct.fields if self.fold(field.name) not in key_names]
        if self.options.diff_mode is DiffMode.STRUCTS:
            return self._fields(prefix, keys)
        is_one_sided = self.options.diff_mode in (DiffMode.LEFT_SIDE, DiffMode.RIGHT_SIDE)
        return tuple(self._column(name, name if is_one_sided else f"{prefix}_{name}") for name in names)

    def _prefixed(self, prefix: str, names: Sequence[str]) -> _Values:
        return tuple(self._column(name[len(prefix) :], name) for name in names if name.startswith(prefix))

    def _column(self, name: str, holder: str) -> SideValue:
        found = self.field(holder)
        return SideValue(name, found.dataType, column(found.name), found.name)

    def _fields(self, holder: str, keys: Sequence[str]) -> _Values:
        found = self.field(holder)
        struct = found.dataType
        if not isinstance(struct, StructType):
            msg = f"the column {holder} of the diff is {struct.simpleString()}, expected a struct"
            raise RefusedInputError(msg, hint="name the mode that the diff was made in")
        key_names = {self.fold(name) for name in keys}
        return tuple(
            SideValue(
                field.name, field.dataType, F.col(f"{quote_name(found.name)}.{quote_name(field.name)}"), found.name
            )
            for field in struct.fields
            if self.fold(field.name) not in key_names
        )


def _require_prefixes(names: Sequence[str], left: str, right: str) -> None:
    """Refuse columns that cannot be assigned to one side."""
    neither = [name for name in names if not name.startswith((left, right))]
    both = [name for name in names if name.startswith(left) and name.startswith(right)]
    if neither:
        msg = f"columns of the diff that begin neither with {left} nor with {right}: {', '.join(neither)}"
        raise RefusedInputError(msg, hint="are they keys? Name all keys, and the prefixes that the diff was made with")
    if both:
        msg = f"columns of the diff that begin with {left} and with {right}: {', '.join(both)}"
        raise RefusedInputError(msg, hint="choose prefixes of which none begins with the other")


@dataclass(frozen=True)
class FlatDiff:
    """A diff with columns named by number, so that it can be joined with any table or diff; keys keep their names."""

    diff: ParsedDiff
    tag: str

    @property
    def has_left(self) -> str:
        """The column that is true where the past has the row."""
        return f"{S.PREFIX}{self.tag}_has_left"

    @property
    def has_right(self) -> str:
        """The column that is true where the current side has the row."""
        return f"{S.PREFIX}{self.tag}_has_right"

    @property
    def changed(self) -> str:
        """The column that lists what changed, where the diff has such a list."""
        return f"{S.PREFIX}{self.tag}_changed"

    def left(self, name: str) -> str | None:
        """Return the column of a past value, None where the diff has none."""
        return self._place("left", self.diff.left, name)

    def right(self, name: str) -> str | None:
        """Return the column of a current value, None where the diff has none."""
        return self._place("right", self.diff.right, name)

    def frame(self, *, unchanged: bool) -> DataFrame:
        """Return keys, which sides have the row, and the values of both; unchanged rows only with ``unchanged``."""
        diff = self.diff
        own = [diff.has_left.alias(self.has_left), diff.has_right.alias(self.has_right)]
        own += [diff.changed.alias(self.changed)] if diff.changed is not None else []
        values = [value.value.alias(f"{S.PREFIX}{self.tag}_left{at}") for at, value in enumerate(diff.left or ())]
        values += [value.value.alias(f"{S.PREFIX}{self.tag}_right{at}") for at, value in enumerate(diff.right or ())]
        return diff.rows(unchanged=unchanged).select(*[column(name) for name in diff.key_names], *own, *values)

    def _place(self, side: str, values: Sequence[SideValue] | None, name: str) -> str | None:
        fold = self.diff.fold
        places = [at for at, value in enumerate(values or ()) if fold(value.name) == fold(name)]
        return f"{S.PREFIX}{self.tag}_{side}{places[0]}" if places else None


class JoinedByKey:
    """A full outer join of two frames that share nothing but their keys.

    A key that occurs twice on a side makes the job fail, as it does not identify a row.
    """

    def __init__(self, left: DataFrame, right: DataFrame, keys: Sequence[str]) -> None:
        alignment = Alignment(tuple(_aligned(left.schema, right.schema, keys)), left.schema, right.schema)
        self._columns = {aligned.name: aligned for aligned in alignment.columns}
        self._keys = tuple(keys)
        self._pairs: Pairs = joined(left, right, alignment, DiffOptions(), whole=True)
        self.has_left, self.has_right = column(HAS_LEFT), column(HAS_RIGHT)

    @property
    def frame(self) -> DataFrame:
        """The joined rows."""
        return self._pairs.frame

    def left(self, name: str) -> Column:
        """Return a column of the left frame; null where it has no row."""
        return self._pairs.left(self._columns[name])

    def right(self, name: str) -> Column:
        """Return a column of the right frame; null where it has no row."""
        return self._pairs.right(self._columns[name])

    def left_as(self, name: str, wanted: DataType) -> Column:
        """Return a column of the left frame in another type."""
        return as_type(self.left(name), self._columns[name].type, wanted)

    def right_as(self, name: str, wanted: DataType) -> Column:
        """Return a column of the right frame in another type."""
        return as_type(self.right(name), self._columns[name].type, wanted)

    def key(self, name: str) -> Column:
        """Return a part of the key, from whichever side has the row."""
        aligned = self._columns[name]
        return F.when(self.has_left, self._pairs.left(aligned)).otherwise(self._pairs.right(aligned))

    def key_text(self) -> Column:
        """Return the key as JSON, for messages."""
        named = [self.key(name).alias(name) for name in self._keys]
        return F.to_json(F.struct(*named), {"ignoreNullFields": "false"})


def _aligned(left: StructType, right: StructType, keys: Sequence[str]) -> Iterator[AlignedColumn]:
    for name in keys:
        data_type = common_type(left[name].dataType, right[name].dataType)
        if data_type is None:
            types = f"{left[name].dataType.simpleString()} and {right[name].dataType.simpleString()}"
            msg = f"the key column {name} has types that do not fit each other: {types}"
            raise RefusedInputError(msg)
        yield AlignedColumn(name, data_type, left[name].dataType, right[name].dataType, is_key=True)
    for field in left.fields:
        if field.name not in keys:
            yield AlignedColumn(field.name, field.dataType, field.dataType, None)
    for field in right.fields:
        if field.name not in keys:
            yield AlignedColumn(field.name, field.dataType, None, field.dataType)
