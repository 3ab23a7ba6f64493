"""A table as of one day after a checkpoint, against computing it anew from the load and all change files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from benchmarks.cpu import cost
from benchmarks.data import SCHEMA, change_file_name, write_batch, write_load
from benchmarks.peer import require_done
from lakeward.config import parse_config
from lakeward.iceberg.define import mirror_of
from lakeward.lake import Lakeward
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.model import TableId
from lakeward.runner.workbench import Workbench
from lakeward.spark.workspace import Workspace
from lakeward.storage.checksum import checksum_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TABLE = "bench.orders"
_HOURS = 6
# Batches are numbered by their hour after 2024-01-01.
_DAYS = 31
_CHECKPOINT_DAY, _ASKED = 29, "2024-01-30"
_TIMES = 3


def run_asof(folder: Path, rows: int) -> dict[str, Any]:
    """Change 1 % of the rows every six hours for a month; ask for the 30th, with a tag at the end of the 29th."""
    settings = {"primary_key": "id", "timestamp_column": "cdc_timestamp", "undo_window": "0s"}
    config = parse_config(
        {"tables": {TABLE: settings}, "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "6g"}}},
        base=folder,
    )
    landing = folder / "landing" / "bench" / "orders"
    write_load(landing, rows)
    with Lakeward(config) as lakeward:
        require_done(lakeward.run())
        for number in range(_HOURS, _DAYS * 24, _HOURS):
            write_batch(landing / change_file_name(number), rows=rows, changes=max(10, rows // 100), number=number)
            require_done(lakeward.run())
            if number + _HOURS == _CHECKPOINT_DAY * 24:
                require_done(lakeward.maintain(only="compact"))
                mirror = mirror_of(lakeward.spark, TableId.parse(TABLE))
                mirror.create_tag("checkpoint", mirror.require_head().id)
        # Only the tag is left to start from.
        require_done(lakeward.maintain(only="expire"))
        _require_equal(lakeward, landing)
        as_of = min(cost(lambda: _as_of(lakeward, _consume)) for _ in range(_TIMES))
        recomputed = min(cost(lambda: _recomputed(lakeward.spark, landing, _consume)) for _ in range(_TIMES))
    return {
        "rows": rows,
        "changes": (_DAYS * 24 // _HOURS - 1) * max(10, rows // 100),
        "as_of_cpu": round(as_of, 2),
        "recomputed_cpu": round(recomputed, 2),
        "recomputed_over_as_of": round(recomputed / as_of, 2),
    }


def _require_equal(lakeward: Lakeward, landing: Path) -> None:
    """Hold the two states against each other, outside the clock."""
    states: list[str] = []

    def hashed(rows: DataFrame) -> None:
        states.append(checksum_of(rows, SCHEMA.names).text)

    _as_of(lakeward, hashed)
    _recomputed(lakeward.spark, landing, hashed)
    if states[0] != states[1]:
        msg = f"the states differ: {states}: the measurement is void"
        raise AssertionError(msg)


def _consume(rows: DataFrame) -> None:
    """Compute every value and keep none: what is then done with a state costs both ways the same."""
    rows.write.format("noop").mode("overwrite").save()


def _as_of(lakeward: Lakeward, consume: Callable[[DataFrame], None]) -> None:
    bench = Workbench(lakeward.config, lakeward.spark, lakeward.storage, lakeward.state)
    context = bench.context(lakeward.table(TABLE))
    with Workspace() as workspace:
        consume(rows_as_of(context, workspace, parse_moment(_ASKED)).rows)


def _recomputed(spark: SparkSession, landing: Path, consume: Callable[[DataFrame], None]) -> None:
    """Read the load and all change files; keep each key's last change up to the day, and the load's other rows."""
    load = spark.read.parquet(str(landing / "LOAD*")).select(*SCHEMA.names)
    files = spark.read.parquet(str(landing / "2024*")).withColumn("file", F.input_file_name())
    counted = files.filter(F.to_timestamp("cdc_timestamp") < F.expr(f"date'{_ASKED}' + 1"))
    newest = Window.partitionBy("id").orderBy(F.col("cdc_timestamp").desc(), F.col("file").desc())
    last = counted.withColumn("number", F.row_number().over(newest)).filter("number = 1")
    writes = last.filter("Op <> 'D'").select(*SCHEMA.names)
    consume(load.join(last.select("id"), "id", "left_anti").select(*SCHEMA.names).unionByName(writes))
