"""Both tables read range by range: how many rows each range has, and their digest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.cassandra.comparing.digests import RangeDigest
from lakeward.cassandra.comparing.widths import fitted_batch
from lakeward.cassandra.connecting import task_session
from lakeward.cassandra.ranges import grouped
from lakeward.cassandra.snapshot_columns import snapshot_arrow_schema
from lakeward.spark.errors import task_error, translated
from lakeward.spark.marks import marked_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakeward.cassandra.ranges import TokenRange
    from lakeward.cassandra.reading.plan import ReadPlan
    from lakeward.cassandra.schema import TableSchema


@dataclass(frozen=True)
class Looked:
    """What a range of a table holds."""

    rows: int
    digest: str


def look(
    spark: SparkSession,
    plans: Sequence[ReadPlan],
    shown: Sequence[TableSchema],
    ranges: Sequence[TokenRange],
    tasks: int,
) -> list[dict[TokenRange, Looked]]:
    """Give for each of the tables what every range holds; all are read in one job, so that they are read together.

    ``shown`` are the tables with the types in which they are compared.

    Raises:
        RetriableError: a cluster did not answer.
    """
    groups = grouped(ranges, tasks)
    # Side by side: a range of one table is read when that of the other is.
    work = [(at, group) for group in groups for at in range(len(plans))]
    found: list[dict[TokenRange, Looked]] = [{} for _ in plans]
    if work:
        with translated(task_error()):
            looks = spark.sparkContext.parallelize(work, len(work)).flatMap(partial(_in_task, plans, shown)).collect()
        for at, one, looked in looks:
            found[at][one] = looked
    return found


def differing(looks: Sequence[Mapping[TokenRange, Looked]]) -> list[TokenRange]:
    """Give the ranges that do not hold the same everywhere."""
    first, *others = looks
    return [one for one, looked in first.items() if any(other[one] != looked for other in others)]


def _in_task(
    plans: Sequence[ReadPlan], shown: Sequence[TableSchema], work: tuple[int, tuple[TokenRange, ...]]
) -> list[tuple[int, TokenRange, Looked]]:
    from lakeward.cassandra.reading.ranges import read_ranges

    at, ranges = work
    plan, schema = plans[at], snapshot_arrow_schema(shown[at])
    digests = {one: digest_for(plan, plans[0]) for one in ranges}
    with marked_errors():
        for one, batch in read_ranges(task_session(plan.address), plan, ranges):
            digests[one].add(fitted_batch(batch, schema))
    return [(at, one, Looked(digest.rows, digest.text())) for one, digest in digests.items()]


def digest_for(plan: ReadPlan, first: ReadPlan) -> RangeDigest:
    """Begin the digest of a range; columns count in the order of the first table."""
    clustering = plan.schema.clustering
    return RangeDigest([one.name for one in first.selected], clustering[0].name if clustering else None)
