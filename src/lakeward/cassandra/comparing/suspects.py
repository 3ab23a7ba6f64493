"""Rows that differed when both tables were looked at: only these are judged by the next look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.diffing.comparison import Comparison
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.cassandra.comparing.staging import Stage
    from lakeward.diffing.inputs.sides import Side
    from lakeward.diffing.options import DiffOptions

_KEY = f"{S.PREFIX}key_"


@dataclass(frozen=True)
class Suspects:
    """Keys of rows that differ, in files of their own."""

    keys: DataFrame
    count: int

    @classmethod
    def of(cls, sides: Sequence[Side], options: DiffOptions, stage: Stage, look: int) -> Suspects | None:
        """Compare two sides and keep the keys that differ; None where there are none."""
        names = sides[0].primary_key
        path = stage.store.for_spark(f"{stage.folder}/look-{look}/keys")
        with Comparison(sides[0], sides[1], names, options) as comparison, comparison.translated_errors():
            keys = comparison.frame.select(*columns(names)).toDF(*_renamed(names))
            keys.write.options(**stage.store.options).parquet(path)
            differs = not comparison.summary().is_same
        if not differs:
            return None
        found = stage.spark.read.options(**stage.store.options).schema(keys.schema).parquet(path)
        return cls(found, found.count())

    def only(self, side: Side) -> Side:
        """Give the rows of a side that are suspect."""
        pairs = zip(side.primary_key, _renamed(side.primary_key), strict=True)
        same = reduce(and_, [column(name).eqNullSafe(column(renamed)) for name, renamed in pairs])
        frame = side.frame.join(self.keys, same, "left_semi")
        return replace(side, frame=frame, rows=frame.count())


def _renamed(names: Sequence[str]) -> list[str]:
    return [f"{_KEY}{at}" for at in range(len(names))]
