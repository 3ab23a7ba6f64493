"""Chosen files of a table read by Iceberg's own reader, for as long as a workspace lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.diffing.plans.iceberg_positions import FILE, POSITION
from lakeward.diffing.widening import as_type
from lakeward.lake.iceberg.staging import staged_data, staged_deletes
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.workspace import Workspace


@dataclass(frozen=True)
class StagedRead:
    """How a side's files are read: ``names`` gives today's name of each column that the side had."""

    table: IcebergTable
    snapshot_id: int
    names: Mapping[str, str]
    struct: StructType
    workspace: Workspace

    def at(self, positions: DataFrame) -> DataFrame:
        """Read the snapshot, and keep the rows at positions."""
        pinned = self.table.spark.read.option("versionAsOf", str(self.snapshot_id)).table(self.table.identifier)
        rows = pinned.select(*columns(self.struct.names), "_file", "_pos")
        same = (rows["_file"] == positions[FILE]) & (rows["_pos"] == positions[POSITION])
        return rows.join(positions, same, "left_semi").drop("_file", "_pos")

    def whole(self, paths: Collection[str]) -> DataFrame:
        """Read all rows of files that are not deleted at the snapshot, with the names and types of that day."""
        staged = staged_data(self.table, self.snapshot_id, paths)
        if not staged.tasks:
            return self.table.spark.createDataFrame([], self.struct)
        read = self.workspace.hold(staged).read()
        return read.select(*[self._of_that_day(read, one).alias(one.name) for one in self.struct.fields])

    def _of_that_day(self, read: DataFrame, one: StructField) -> Column:
        name = self.names[one.name]
        return as_type(column(name), read.schema[name].dataType, one.dataType)


def staged_positions(
    table: IcebergTable, snapshot_id: int, paths: Collection[str], workspace: Workspace
) -> DataFrame | None:
    """Read deleted positions from chosen delete files of a snapshot; None where there are none."""
    found = None
    for staged in staged_deletes(table, snapshot_id, paths) if paths else ():
        part = workspace.hold(staged).read().select(FILE, POSITION)
        found = part if found is None else found.unionByName(part)
    return found
