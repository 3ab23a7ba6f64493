"""Checksums of many rows that do not depend on their order, and that add up: those of parts give that of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.transforms.hashing import row_hash_lanes
from lakeward.transforms.normalising import uncomparable_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pyspark.sql import Column
    from pyspark.sql.types import StructType

ROWS = f"{S.PREFIX}rows"
_HALVES = tuple(f"{S.PREFIX}{lane}_{half}" for lane in ("first", "second") for half in ("high", "low"))
_HALF_BITS, _LANE_BITS = 32, 64
# The lower half is counted from its middle, as the upper one is: sums of billions of rows then stay within a long.
_MIDDLE = 1 << (_HALF_BITS - 1)
_LANE = (1 << _LANE_BITS) - 1


@dataclass(frozen=True)
class Checksum:
    """The number of rows, and the sums of their two 64-bit hashes."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(
            self.rows + other.rows, (self.first + other.first) & _LANE, (self.second + other.second) & _LANE
        )

    @property
    def digits(self) -> str:
        """Both sums as 32 hexadecimal digits."""
        return f"{self.first:016x}{self.second:016x}"

    @property
    def text(self) -> str:
        """Rows and digits, as manifests have them of a whole table."""
        return f"{self.rows}:{self.digits}"

    @classmethod
    def of(cls, rows: int, digits: str) -> Checksum:
        """Read what :attr:`digits` wrote."""
        return cls(rows, int(digits[:16], 16), int(digits[16:], 16))


def total(parts: Iterable[Checksum]) -> Checksum:
    """Give the checksum of all parts together."""
    return sum(parts, Checksum())


def checksum_columns(schema: StructType, names: Sequence[str] | None = None) -> list[Column]:
    """Give the aggregates that :func:`read_checksum` reads; columns count in the order of their names.

    Columns of which no two values can be compared, such as variants, are left out: they have no hash either.
    """
    all_names = schema.names if names is None else names
    wanted = sorted(name for name in all_names if uncomparable_part(schema[name].dataType) is None)
    sums = []
    for lane in row_hash_lanes([schema[name] for name in wanted]):
        sums.append(F.sum(F.shiftright(lane, _HALF_BITS)))
        sums.append(F.sum(lane.bitwiseAND(F.lit((1 << _HALF_BITS) - 1)) - F.lit(_MIDDLE)))
    counted = F.count(F.lit(1)).alias(ROWS)
    return [counted, *[one.alias(name) for one, name in zip(sums, _HALVES, strict=True)]]


def read_checksum(row: Mapping[str, Any]) -> Checksum:
    """Give the checksum from a row, or an observation, of :func:`checksum_columns`."""
    rows = int(row[ROWS])
    high_first, low_first, high_second, low_second = (int(row[name] or 0) for name in _HALVES)
    lanes = ((high_first, low_first), (high_second, low_second))
    first, second = (((high << _HALF_BITS) + low + rows * _MIDDLE) & _LANE for high, low in lanes)
    return Checksum(rows, first, second)


def checksum_text(row: Mapping[str, Any]) -> str:
    """Give the checksum from a row of :func:`checksum_columns` as text."""
    return read_checksum(row).text
