"""Count the rows of a live table, and find its largest partitions, by tasks that read its ranges once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.conditions import parse_condition, sql_value
from lakeward.cassandra.partitions import BY_BYTES, BY_ROWS, MEASURES, PartitionTally, largest
from lakeward.cassandra.scans import examine, folded, read_column, rows_frame
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.clusters import LiveTable
    from lakeward.cassandra.partitions import PartitionSize, TaskPartitions
    from lakeward.cassandra.read_plan import TokenRange
    from lakeward.cassandra.scans import LiveScan
    from lakeward.cassandra.schema import TableSchema


@dataclass(frozen=True)
class CountReport(Document):
    """The rows of a table: those with a complete key, and those of them that meet the condition, if there is one.

    ``partitions`` includes those that have only static values; it is not known where there is a condition.
    ``read_units`` are Keyspaces' RCU. The count is exact if nobody writes to the table meanwhile.
    """

    table: str
    rows: int
    partitions: int | None
    where: str | None
    matching: int | None
    ranges: int
    partitioner: str
    read_units: float
    seconds: float


@dataclass(frozen=True)
class PartitionsReport(Document):
    """The largest partitions of a table, by rows or by the bytes of their values; rows and partitions are of all."""

    table: str
    by: str
    largest: tuple[PartitionSize, ...]
    rows: int
    partitions: int
    ranges: int
    partitioner: str
    read_units: float
    seconds: float


@dataclass(frozen=True)
class CountRequest:
    """The table to count; ``where`` is a condition in SQL, ``tasks`` how many read at one time."""

    table: LiveTable
    where: str | None = None
    limits: RateLimits = field(default_factory=RateLimits)
    tasks: int | None = None


def count_table(spark: SparkSession, request: CountRequest, *, on_progress: OnProgress | None = None) -> CountReport:
    """Count the rows of a table, and those that meet a condition; only the columns of the condition are read.

    Raises:
        ConfigurationError: there is no such table, or the condition is not valid.
        RefusedInputError: a value does not fit the type in which the condition compares it.
        RetriableError: the cluster did not answer.
    """
    began, scan = time.monotonic(), examine(spark, request.table, request.tasks)
    found = _tallied(spark, scan, request.limits, on_progress) if request.where is None else None
    if found is not None:
        partitions, units = found
        rows, matching = sum(part.rows for part in partitions), None
    else:
        rows, matching, units = _matching(spark, scan, request, on_progress)
    return CountReport(
        table=str(request.table),
        rows=rows,
        partitions=None if found is None else sum(part.partitions for part in found[0]),
        where=request.where,
        matching=matching,
        ranges=scan.ranges,
        partitioner=scan.partitioner,
        read_units=round(units, 1),
        seconds=round(time.monotonic() - began, 3),
    )


def _matching(
    spark: SparkSession, scan: LiveScan, request: CountRequest, on_progress: OnProgress | None
) -> tuple[int, int, float]:
    """Return how many rows there are, how many of them meet the condition, and the read units."""
    condition, name = parse_condition(spark, scan.schema, str(request.where)), read_column(scan.schema)
    with scan.budget(spark, request.limits, on_progress) as (budget, limited):
        rows = rows_frame(spark, limited(scan.plan(condition.columns)), scan.groups)
        typed = rows.filter(column(name).isNull()).select(
            *[sql_value(scan.schema.column(own)).alias(own) for own in condition.columns]
        )
        with condition.errors(str(request.table)):
            found = typed.agg(F.count(F.lit(1)), F.count_if(condition.holds)).first()
        assert found is not None
        return int(found[0]), int(found[1]), budget.totals().read_units


def _tallied(
    spark: SparkSession,
    scan: LiveScan,
    limits: RateLimits,
    on_progress: OnProgress | None,
    *,
    limit: int = 0,
    by: str = BY_ROWS,
) -> tuple[list[TaskPartitions], float]:
    """Return what each task found, and the read units."""
    statics = [own.name for own in scan.schema.statics]
    # A partition that has only static values is returned if one of them is read.
    plan = scan.plan([own.name for own in scan.schema.values] if by == BY_BYTES else statics)
    with scan.budget(spark, limits, on_progress) as (budget, limited):
        found = folded(spark, limited(plan), scan.groups, partial(_tally, scan.schema, limit, by))
        return found, budget.totals().read_units


def _tally(
    schema: TableSchema, limit: int, by: str, batches: Iterator[tuple[TokenRange, pa.RecordBatch]]
) -> TaskPartitions:
    tally = PartitionTally(schema, limit, by)
    for place, batch in batches:
        tally.add(place, batch)
    return tally.result()


@dataclass(frozen=True)
class PartitionsRequest:
    """The table whose ``limit`` largest partitions are wanted, ``by`` rows or bytes."""

    table: LiveTable
    limit: int = 10
    by: str = BY_ROWS
    limits: RateLimits = field(default_factory=RateLimits)
    tasks: int | None = None

    def __post_init__(self) -> None:
        """Check the limit and the measure.

        Raises:
            ConfigurationError: the measure is not known, or no partition is wanted.
        """
        if self.by not in MEASURES or self.limit < 1:
            msg = f"the largest {self.limit} partitions by {self.by!r}; expected 1 or more, by {' or '.join(MEASURES)}"
            raise ConfigurationError(msg)


def top_partitions(
    spark: SparkSession, request: PartitionsRequest, *, on_progress: OnProgress | None = None
) -> PartitionsReport:
    """Return the largest partitions of a table. By rows, only keys and static columns are read; by bytes, all columns.

    Raises:
        ConfigurationError: there is no such table.
        RetriableError: the cluster did not answer.
    """
    began, scan = time.monotonic(), examine(spark, request.table, request.tasks)
    found, units = _tallied(spark, scan, request.limits, on_progress, limit=request.limit, by=request.by)
    return PartitionsReport(
        table=str(request.table),
        by=request.by,
        largest=tuple(largest([size for part in found for size in part.largest], request.limit, request.by)),
        rows=sum(part.rows for part in found),
        partitions=sum(part.partitions for part in found),
        ranges=scan.ranges,
        partitioner=scan.partitioner,
        read_units=round(units, 1),
        seconds=round(time.monotonic() - began, 3),
    )
