"""The rows of ranges of a live table, put into files so that they are compared as they were at one reading."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.comparing.widths import fitted_frame
from lakeward.cassandra.exports.groups import Group, is_group_file, read_groups
from lakeward.cassandra.exports.places import place_of
from lakeward.cassandra.exports.publishing import Staged
from lakeward.cassandra.ranges import grouped
from lakeward.cassandra.snapshot_columns import snapshot_struct
from lakeward.diffing.inputs.addresses import absolute
from lakeward.diffing.inputs.sides import Side
from lakeward.errors import ConfigurationError
from lakeward.lake.ownership import remove_files
from lakeward.lake.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.cassandra.ranges import TokenRange
    from lakeward.cassandra.reading.plan import ReadPlan
    from lakeward.cassandra.schema import TableSchema
    from lakeward.config import Config
    from lakeward.lake.stores import Store

LIVE = "live"


@dataclass(frozen=True)
class Stage:
    """Where the rows of live tables are put, and by how many tasks they are read."""

    spark: SparkSession
    store: Store
    folder: str
    tasks: int

    def remove(self) -> None:
        """Remove what was put there."""
        present = self.store.files(self.folder)
        remove_files(self.store, self.folder, [path for path in present if is_group_file(path)])

    def side(self, plan: ReadPlan, shown: TableSchema, ranges: Sequence[TokenRange], name: str) -> Side:
        """Read ranges of a table into a folder of that name and give them as a side of a comparison.

        ``shown`` is the table with the types in which its values are compared.

        Raises:
            RetriableError: the cluster did not answer.
        """
        started = datetime.now(UTC)
        folder = f"{self.folder}/{name}"
        groups = [Group(number, part) for number, part in enumerate(grouped(ranges, self.tasks))]
        read = read_groups(self.spark, plan, place_of(self.store, folder), groups, tasks=self.tasks)
        staged = Staged(self.store, folder, tuple(read), snapshot_struct(plan.schema), plan.schema.primary_key)
        identity = live_identity(replace(plan, schema=shown), started, datetime.now(UTC))
        frame = fitted_frame(staged.read(self.spark), shown)
        return Side(str(identity["location"]), frame, plan.schema.primary_key, rows=staged.rows, identity=identity)


@contextmanager
def open_stage(spark: SparkSession, config: Config, place: str | None, tasks: int | None) -> Iterator[Stage]:
    """Yield a stage in a folder below ``place``, by default a temporary one; it is removed afterwards.

    Raises:
        ConfigurationError: no place is named, and Spark runs on more machines than this one.
    """
    if place is None and not str(spark.sparkContext.master).startswith("local"):
        msg = "Spark runs on other machines too, and nothing says where rows can be put so that all of them see them"
        raise ConfigurationError(msg, hint="--staging URI")
    with tempfile.TemporaryDirectory(prefix="lakeward-compare-", ignore_cleanup_errors=True) as temporary:
        folder = f"{absolute(place or temporary)}/.compare-{uuid.uuid4().hex[:12]}"
        parallelism = tasks or max(spark.sparkContext.defaultParallelism, 1)
        stage = Stage(spark, open_store(spark, config, folder), folder, parallelism)
        try:
            yield stage
        finally:
            stage.remove()


def live_identity(plan: ReadPlan, started: datetime, ended: datetime) -> dict[str, Any]:
    """Say what a side is: a table of a cluster at a time, with all that applying its rows elsewhere needs."""
    name = plan.schema.name
    return {
        "kind": LIVE,
        "location": f"{plan.address.name}/{name}",
        "table": str(name),
        "created": started.isoformat(),
        "cassandra": {
            "cluster": plan.address.name,
            "keyspace": name.keyspace,
            "table": name.table,
            "schema": plan.schema.to_document(),
            "started": started.isoformat(),
            "ended": ended.isoformat(),
            "consistency": plan.address.settings.consistency,
            "writetime": False,
            "ttl": False,
            "where": None,
            "columns": [],
        },
    }
