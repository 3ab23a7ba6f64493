"""A diff's rows with columns named by number, so that they can be joined with any table or with another diff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.diffing.alignment import AlignedColumn, Alignment
from lakeward.diffing.joining import joined
from lakeward.diffing.options import DiffOptions
from lakeward.diffing.pairs import HAS_LEFT, HAS_RIGHT
from lakeward.diffing.widening import as_type, common_type
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from lakeward.diffing.pairs import Pairs
    from lakeward.diffing.reading_diffs import ReadDiff, SideValue


@dataclass(frozen=True)
class FlatDiff:
    """A diff, and the names of its columns in :attr:`frame`; keys keep theirs."""

    diff: ReadDiff
    tag: str

    @property
    def has_left(self) -> str:
        """The column that tells whether the past has the row."""
        return f"{S.PREFIX}{self.tag}_has_left"

    @property
    def has_right(self) -> str:
        """The column that tells whether the current side has the row."""
        return f"{S.PREFIX}{self.tag}_has_right"

    @property
    def changed(self) -> str:
        """The column that lists what changed; there is one only if the diff has it."""
        return f"{S.PREFIX}{self.tag}_changed"

    def left(self, name: str) -> str | None:
        """Give the column of a past value, None where the diff has none."""
        return self._place("left", self.diff.left, name)

    def right(self, name: str) -> str | None:
        """Give the column of a current value, None where the diff has none."""
        return self._place("right", self.diff.right, name)

    def frame(self, *, unchanged: bool) -> DataFrame:
        """Give keys, what the action says, and the values of both sides; unchanged rows only where asked for."""
        diff = self.diff
        own = [diff.has_left.alias(self.has_left), diff.has_right.alias(self.has_right)]
        own += [diff.changed.alias(self.changed)] if diff.changed is not None else []
        values = [one.value.alias(f"{S.PREFIX}{self.tag}_left{at}") for at, one in enumerate(diff.left or ())]
        values += [one.value.alias(f"{S.PREFIX}{self.tag}_right{at}") for at, one in enumerate(diff.right or ())]
        return diff.rows(unchanged=unchanged).select(*[column(name) for name in diff.key_names], *own, *values)

    def _place(self, side: str, values: Sequence[SideValue] | None, name: str) -> str | None:
        fold = self.diff.fold
        places = [at for at, one in enumerate(values or ()) if fold(one.name) == fold(name)]
        return f"{S.PREFIX}{self.tag}_{side}{places[0]}" if places else None


class JoinedByKey:
    """Two frames that share nothing but their keys, brought together; rows of one side only are there too.

    A key that comes twice on a side makes the job fail: it does not say which row is meant.
    """

    def __init__(self, left: DataFrame, right: DataFrame, keys: Sequence[str]) -> None:
        alignment = Alignment(tuple(_aligned(left.schema, right.schema, keys)), left.schema, right.schema)
        self._columns = {one.name: one for one in alignment.columns}
        self._keys = tuple(keys)
        self._pairs: Pairs = joined(left, right, alignment, DiffOptions(), whole=True)
        self.has_left, self.has_right = column(HAS_LEFT), column(HAS_RIGHT)

    @property
    def frame(self) -> DataFrame:
        """The joined rows."""
        return self._pairs.frame

    def left(self, name: str) -> Column:
        """Give a column of the left frame; null where it has no row."""
        return self._pairs.left(self._columns[name])

    def right(self, name: str) -> Column:
        """Give a column of the right frame; null where it has no row."""
        return self._pairs.right(self._columns[name])

    def left_as(self, name: str, wanted: DataType) -> Column:
        """Give a column of the left frame in another type."""
        return as_type(self.left(name), self._columns[name].type, wanted)

    def right_as(self, name: str, wanted: DataType) -> Column:
        """Give a column of the right frame in another type."""
        return as_type(self.right(name), self._columns[name].type, wanted)

    def key(self, name: str) -> Column:
        """Give a part of the key, from whichever side has the row."""
        one = self._columns[name]
        return F.when(self.has_left, self._pairs.left(one)).otherwise(self._pairs.right(one))

    def key_text(self) -> Column:
        """Give the key as JSON, for messages."""
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
    for one in left.fields:
        if one.name not in keys:
            yield AlignedColumn(one.name, one.dataType, one.dataType, None)
    for one in right.fields:
        if one.name not in keys:
            yield AlignedColumn(one.name, one.dataType, None, one.dataType)
