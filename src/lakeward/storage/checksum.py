"""Checksums of rows, which depend neither on their order nor on how they are stored.

They add up: the sum of the parts' checksums is that of the whole. Manifests of published versions name the version of
the checksum they hold:

=======  =======================================================================================================
version  text
=======  =======================================================================================================
1        rows, exclusive-or and sum of one 64-bit hash per row, ``rows:hex:decimal``; read and compared only
2        rows and the sums of two 64-bit hashes per row, ``rows:`` and 32 hexadecimal digits; what is written now
=======  =======================================================================================================

A manifest without a version holds version 1. Snapshot sets, exports and change sets have always had version 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.transforms.columns import column
from lakeward.transforms.compare import row_hash_lanes, uncomparable_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

CHECKSUM_VERSION = 2
ROWS = f"{S.PREFIX}rows"
_HALVES = tuple(f"{S.PREFIX}{lane}_{half}" for lane in ("first", "second") for half in ("high", "low"))
_HALF_BITS, _LANE_BITS = 32, 64
# The lower half is centred around zero, as the upper one is: sums of billions of rows then fit into a long.
_MIDDLE = 1 << (_HALF_BITS - 1)
_LANE = (1 << _LANE_BITS) - 1
_FIRST_VERSION = f"{S.PREFIX}first_version"


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
        """Rows and digits, as manifests hold them for a whole table."""
        return f"{self.rows}:{self.digits}"

    @classmethod
    def of(cls, rows: int, digits: str) -> Checksum:
        """Return the checksum with the given rows and :attr:`digits`."""
        return cls(rows, int(digits[:16], 16), int(digits[16:], 16))


def total(parts: Iterable[Checksum]) -> Checksum:
    """Return the checksum of all parts together."""
    return sum(parts, Checksum())


def checksum_columns(schema: StructType, names: Sequence[str] | None = None) -> list[Column]:
    """Return the aggregates that :func:`read_checksum` reads; columns count in the order of their names.

    Columns whose values cannot be compared, such as variants, are left out: they have no hash either.
    """
    all_names = schema.names if names is None else names
    wanted = sorted(name for name in all_names if uncomparable_part(schema[name].dataType) is None)
    sums = []
    for lane in row_hash_lanes([schema[name] for name in wanted]):
        sums.append(F.sum(F.shiftright(lane, _HALF_BITS)))
        sums.append(F.sum(lane.bitwiseAND(F.lit((1 << _HALF_BITS) - 1)) - F.lit(_MIDDLE)))
    counted = F.count(F.lit(1)).alias(ROWS)
    return [counted, *[half.alias(name) for half, name in zip(sums, _HALVES, strict=True)]]


def read_checksum(row: Mapping[str, Any]) -> Checksum:
    """Return the checksum from a row, or an observation, of :func:`checksum_columns`."""
    rows = int(row[ROWS])
    high_first, low_first, high_second, low_second = (int(row[name] or 0) for name in _HALVES)
    lanes = ((high_first, low_first), (high_second, low_second))
    first, second = (((high << _HALF_BITS) + low + rows * _MIDDLE) & _LANE for high, low in lanes)
    return Checksum(rows, first, second)


def checksum_of(rows: DataFrame, names: Sequence[str] | None = None) -> Checksum:
    """Read a frame and return the checksum of its columns, all of them by default."""
    found = rows.agg(*checksum_columns(rows.schema, names)).first()
    assert found is not None  # an aggregate of all rows is one row
    return read_checksum(found.asDict())


class ChecksumForm(Protocol):
    """One version of the checksum, as manifests hold it."""

    def columns(self, schema: StructType, names: Sequence[str] | None = None) -> list[Column]:
        """Return the aggregates that :meth:`text` reads."""

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the checksum of the aggregated rows as a manifest holds it."""


def checksum_form(version: int) -> ChecksumForm:
    """Return the form of the checksums in a manifest by the version it names.

    Raises:
        DataError: no such version is known.
    """
    form = _FORMS.get(version)
    if form is None:
        msg = f"checksums of version {version} are unknown; expected {' or '.join(map(str, _FORMS))}"
        raise DataError(msg, hint="a later version of Lakeward wrote them: use that one")
    return form


class _FirstForm:
    """Version 1: the exclusive-or and the sum of one hash; the sum detects rows that occur twice."""

    def columns(self, schema: StructType, names: Sequence[str] | None = None) -> list[Column]:
        wanted = sorted(schema.names if names is None else names)
        # Spark's hash skips nulls: the last part has their positions.
        nulls = F.concat_ws("", *[column(name).isNull().cast("int").cast("string") for name in wanted])
        each = F.xxhash64(*[column(name) for name in wanted], nulls)
        whole = F.coalesce(F.sum(each.cast("decimal(38,0)")), F.lit(0).cast("decimal(38,0)"))
        mixed = F.coalesce(F.bit_xor(each), F.lit(0).cast("bigint"))
        wrapped = F.pmod(whole, F.lit(str(1 << _LANE_BITS)).cast("decimal(38,0)"))
        parts = (F.count(F.lit(1)).cast("string"), F.lower(F.hex(mixed)), wrapped.cast("string"))
        return [F.concat_ws(":", *parts).alias(_FIRST_VERSION)]

    def text(self, row: Mapping[str, Any]) -> str:
        return str(row[_FIRST_VERSION])


class _SecondForm:
    """Version 2: :class:`Checksum`."""

    def columns(self, schema: StructType, names: Sequence[str] | None = None) -> list[Column]:
        return checksum_columns(schema, names)

    def text(self, row: Mapping[str, Any]) -> str:
        return read_checksum(row).text


_FORMS: dict[int, ChecksumForm] = {1: _FirstForm(), CHECKSUM_VERSION: _SecondForm()}
