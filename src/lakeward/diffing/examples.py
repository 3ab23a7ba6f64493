"""Examples: the first differences of each kind, as texts for display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.diffing.frames.pairs import (
    ACTION,
    CHANGED,
    CHANGED_ROW,
    DELETED,
    HAS_LEFT,
    HAS_RIGHT,
    INSERTED,
    UNCHANGED,
    classified,
)
from lakeward.documents import Document
from lakeward.transforms.columns import column
from lakeward.transforms.compare import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, Row

    from lakeward.diffing.frames.alignment import AlignedColumn
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import Pairs

_NTH = f"{S.PREFIX}nth"
# Longer values are cut off when they are shown.
_SHOWN_LENGTH = 200


@dataclass(frozen=True)
class Example(Document, renamed={"left": "past", "right": "current"}, if_set=("left", "right")):
    """A difference: what happened to a row, its key, and its values on each side; a side without the row is None.

    ``action`` is ``I``, ``C`` or ``D`` whatever labels the diff has. ``changed`` names the columns that differ.
    """

    action: str
    key: dict[str, str | None]
    left: dict[str, str | None] | None
    right: dict[str, str | None] | None
    changed: tuple[str, ...]


def examples(pairs: Pairs, options: DiffOptions, limit: int) -> list[Example]:
    """Return up to ``limit`` changed, inserted and deleted rows each, the first ones by key."""
    if limit <= 0:
        return []
    alignment = pairs.alignment
    found = classified(pairs, options).filter(column(ACTION) != UNCHANGED)
    order = [_sortable(pairs, key).asc_nulls_first() for key in alignment.keys]
    nth = F.row_number().over(Window.partitionBy(column(ACTION)).orderBy(*order))
    # Each Spark task keeps only its first rows before they are combined.
    first = found.select("*", nth.alias(_NTH)).filter(column(_NTH) <= limit)
    sides = [F.struct(*_texts(pairs, side, alignment.columns)).alias(side) for side in ("left", "right")]
    own = [column(name) for name in (ACTION, CHANGED, HAS_LEFT, HAS_RIGHT, _NTH)]
    rows = first.select(*own, *sides).collect()
    names = [aligned.name for aligned in alignment.columns]
    keys = [key.name for key in alignment.keys]
    rank = {CHANGED_ROW: 0, INSERTED: 1, DELETED: 2}
    ordered = sorted(rows, key=lambda row: (rank[row[ACTION]], row[_NTH]))
    return [_example(row, names, keys) for row in ordered]


def _example(row: Row, names: Sequence[str], keys: Sequence[str]) -> Example:
    left = dict(zip(names, row["left"], strict=True)) if row[HAS_LEFT] else None
    right = dict(zip(names, row["right"], strict=True)) if row[HAS_RIGHT] else None
    known = left if left is not None else right
    assert known is not None
    return Example(
        action=row[ACTION],
        key={name: known[name] for name in keys},
        left=_without(left, keys),
        right=_without(right, keys),
        changed=tuple(row[CHANGED] or ()),
    )


def _without(side: dict[str, str | None] | None, keys: Sequence[str]) -> dict[str, str | None] | None:
    return None if side is None else {name: value for name, value in side.items() if name not in keys}


def _sortable(pairs: Pairs, aligned: AlignedColumn) -> Column:
    value = F.when(column(HAS_LEFT), pairs.left(aligned)).otherwise(pairs.right(aligned))
    return normalised(value, aligned.type)


def _texts(pairs: Pairs, side: str, shown: Sequence[AlignedColumn]) -> list[Column]:
    """Return one side's values as texts, named by position: column names may hold any character."""
    is_left = side == "left"
    values = [
        (pairs.left(aligned) if is_left else pairs.right(aligned), aligned.shown_type(is_left=is_left))
        for aligned in shown
    ]
    return [_text(*value).alias(f"c{at}") for at, value in enumerate(values)]


def _text(value: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.BinaryType):
        text = F.concat(F.lit("0x"), F.hex(value))
    elif isinstance(data_type, T.StructType | T.ArrayType | T.MapType):
        text = F.to_json(value, {"ignoreNullFields": "false"})
    else:
        text = value.cast("string")
    cut = F.concat(F.substring(text, 1, _SHOWN_LENGTH), F.lit("…"))
    return F.when(F.length(text) > _SHOWN_LENGTH, cut).otherwise(text)
