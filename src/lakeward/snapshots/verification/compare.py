"""Hold the rows that a table must have against those that its mirror has, at one pinned snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.errors import ConfigurationError
from lakeward.schemas import spark_type
from lakeward.snapshots.verification.report import RowFinding
from lakeward.storage.checksum import checksum_of
from lakeward.transforms import compare
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import DataType

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.workspace import Workspace
    from lakeward.snapshots.verification.report import VerifyOptions


@dataclass(frozen=True)
class Counts:
    """How many rows differ, and each column in how many of them."""

    missing: int
    extra: int
    different: int
    columns: dict[str, int]

    @property
    def total(self) -> int:
        """Rows that differ in any way."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True)
class Comparison:
    """What came of comparing. ``left`` are the rows that do not come equally often on both sides, kept in Spark."""

    left: DataFrame
    expected: DataFrame
    counts: Counts
    rows_expected: int
    rows_found: int
    content_hash: str
    findings: tuple[RowFinding, ...]


def compare_rows(
    workspace: Workspace,
    expected: DataFrame,
    found: DataFrame,
    *,
    keys: Sequence[str],
    names: Sequence[str],
    limit: int,
) -> Comparison:
    """Compare two frames that have the same columns of the same types."""
    left = workspace.keep(compare.leftovers(expected, found, names=names))
    pairs = compare.by_key(left, keys=keys, names=names) if keys else compare.unpaired(left, names=names)
    counts = _counts(pairs, keys, names)
    content = checksum_of(found, names)
    return Comparison(
        left=left,
        expected=expected,
        counts=counts,
        rows_expected=content.rows + counts.missing - counts.extra,
        rows_found=content.rows,
        content_hash=content.text,
        findings=tuple(_findings(pairs, keys, names, limit)) if counts.total else (),
    )


def chosen_keys(context: TableContext, bases: Bases, options: VerifyOptions) -> SparkColumn | None:
    """Give the condition of the part of the table that is looked at; None: all of it.

    Raises:
        ConfigurationError: a range names a column that is not in the key, or a value that does not fit it.
    """
    keys = context.settings.primary_key
    conditions = [_in_range(context, bases, one.column, one.low, one.high) for one in options.ranges]
    if options.sample is not None:
        conditions.append(compare.in_sample(options.sample, keys or sorted(one.name for one in bases.columns)))
    return compare.all_of(conditions) if conditions else None


def _in_range(context: TableContext, bases: Bases, name: str, low: str | None, high: str | None) -> SparkColumn:
    keys = context.settings.primary_key
    if name not in keys:
        have = f"its key is {', '.join(keys)}" if keys else "it has no key"
        msg = f"{context.table}: --key-range names {name!r}, and {have}"
        raise ConfigurationError(msg)
    lake_type = spark_type(next(one.lake_type for one in bases.columns if one.name == name))
    ends = [_as_type(end, lake_type) if end is not None else None for end in (low, high)]
    _require_values(context, name, [(text, end) for text, end in zip((low, high), ends, strict=True) if text])
    conditions = []
    if ends[0] is not None:
        conditions.append(column(name) >= ends[0])
    if ends[1] is not None:
        conditions.append(column(name) <= ends[1])
    return compare.all_of(conditions)


def _as_type(text: str, wanted: DataType) -> SparkColumn:
    """Give a text as a value, null where it is none; a function of SQL, as Spark 3.5 has no other."""
    literal = text.replace("\\", "\\\\").replace("'", "\\'")
    return F.expr(f"try_cast('{literal}' AS {wanted.simpleString()})")


def _require_values(context: TableContext, name: str, ends: Sequence[tuple[str, Any]]) -> None:
    values = context.spark.range(1).select(*[end.isNull().alias(f"e{at}") for at, (_, end) in enumerate(ends)])
    for (text, _), is_bad in zip(ends, values.collect()[0], strict=True):
        if is_bad:
            msg = f"{context.table}: --key-range {name}: {text!r} is not a value of the column"
            raise ConfigurationError(msg)


def _counts(pairs: DataFrame, keys: Sequence[str], names: Sequence[str]) -> Counts:
    missing, extra, different, *each = pairs.agg(*compare.totals(keys=keys, names=names)).collect()[0]
    values = [name for name in names if name not in keys]
    differing = {name: number for name, number in zip(values, each, strict=True) if number}
    return Counts(missing, extra, different, differing)


def _findings(pairs: DataFrame, keys: Sequence[str], names: Sequence[str], limit: int) -> Iterator[RowFinding]:
    if not limit:
        return
    order = [column(key).asc_nulls_first() for key in keys] or [
        F.coalesce(column(compare.EXPECTED), column(compare.FOUND)).asc_nulls_first()
    ]
    shown = pairs.orderBy(*order).limit(limit)
    rows = shown.select(
        *columns((compare.EXPECTED_TIMES, compare.FOUND_TIMES)),
        compare.as_texts(pairs, compare.EXPECTED, names),
        compare.as_texts(pairs, compare.FOUND, names),
        compare.differing_columns(keys=keys, names=names),
    )
    given = 0
    for row in rows.collect():
        for finding in _of_pair(row, keys, names):
            if given == limit:
                return
            given += 1
            yield finding


def _of_pair(row: Row, keys: Sequence[str], names: Sequence[str]) -> Iterator[RowFinding]:
    expected_times, found_times = row[0], row[1]
    expected, found = (dict(zip(names, side, strict=True)) for side in (row[2], row[3]))
    key = {name: (expected if expected_times else found)[name] for name in keys}
    for name in row[4]:
        yield RowFinding("different", key, name, expected[name], found[name])
    if expected_times > found_times:
        yield RowFinding("missing", key, row=expected, times=expected_times - found_times)
    if found_times > expected_times:
        yield RowFinding("extra", key, row=found, times=found_times - expected_times)
