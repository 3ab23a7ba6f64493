"""What maintenance costs and saves: scans after many small batches, and batches with it against MERGE with its own."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.apply import StepClock
from benchmarks.cpu import measured
from benchmarks.data import SCHEMA, change_file_name, write_batch, write_load
from benchmarks.peer import PEER, make_peer, merge, require_done, require_equal
from lakeward.config import parse_config
from lakeward.lake import Lakeward

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WORN, TABLE, FRESH = "bench.worn", "bench.orders", "bench.fresh"
_SCANS = 5
# As Lakeward does it: files of a good size are left alone, small ones merged.
_PEER_OPTIONS = "map('target-file-size-bytes', '134217728', 'min-file-size-bytes', '16777216', 'min-input-files', '5')"


def run_maintenance(folder: Path, rows: int, batches: int, cadence: int) -> dict[str, Any]:
    """Change 0.1 % of the rows in each batch; maintain after every ``cadence`` of them, or only at the end."""
    clock = StepClock()
    settings = {"primary_key": "id", "timestamp_column": "cdc_timestamp", "undo_window": "0s"}
    limits = {"delete_files": cadence, "small_files": cadence, "snapshots": 3 * cadence}
    config = parse_config(
        {
            "tables": {WORN: settings, TABLE: {**settings, "maintain": "auto", "maintenance": limits}},
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "6g"}},
        },
        base=folder,
    )
    for name in (WORN, TABLE):
        write_load(_landing(folder, name), rows)
    with Lakeward(config, on_step=clock) as lakeward:
        require_done(lakeward.run())
        scans = _scans(lakeward, folder, rows, batches)
        return {"rows": rows, "batches": batches, **scans, **_batches(lakeward, clock, folder, rows, batches, cadence)}


def _scans(lakeward: Lakeward, folder: Path, rows: int, batches: int) -> dict[str, Any]:
    """Scan a mirror after many batches, then maintained, and a copy written anew."""
    for number in range(1, batches + 1):
        _land(folder, WORN, rows, number)
        require_done(lakeward.run([WORN]))
    worn = _scan(lakeward.spark, WORN)
    with measured() as maintenance:
        require_done(lakeward.maintain([WORN]))
    maintained = _scan(lakeward.spark, WORN)
    lakeward.spark.sql(f"CREATE TABLE {FRESH} USING iceberg AS SELECT * FROM {WORN}")
    fresh = _scan(lakeward.spark, FRESH)
    return {
        "scan_worn_cpu": round(worn, 2),
        "scan_maintained_cpu": round(maintained, 2),
        "scan_fresh_cpu": round(fresh, 2),
        "worn_over_fresh": round(worn / fresh, 2),
        "maintained_over_fresh": round(maintained / fresh, 2),
        "maintenance_at_the_end_cpu": round(maintenance.cpu, 1),
    }


def _scan(spark: SparkSession, table: str) -> float:
    """Return the CPU of reading every column of every row."""
    query = f"SELECT count(*), bit_xor(xxhash64({', '.join(SCHEMA.names)})) FROM {table}"
    spent = []
    for _ in range(2 + _SCANS):
        with measured() as one:
            spark.sql(query).collect()
        spent.append(one.cpu)
    return statistics.median(spent[2:])


def _batches(
    lakeward: Lakeward, clock: StepClock, folder: Path, rows: int, batches: int, cadence: int
) -> dict[str, Any]:
    spark = lakeward.spark
    make_peer(spark, TABLE)
    whole = apply = own = merged = theirs = 0.0
    for number in range(1, batches + 1):
        file = _land(folder, TABLE, rows, number)
        clock.start()
        with measured() as spent:
            require_done(lakeward.run([TABLE]))
        whole += spent.cpu
        apply += _spent(clock, "apply.")
        own += _spent(clock, "maintain.")
        with measured() as spent:
            merge(spark, file)
        merged += spent.cpu
        if number % cadence == 0:
            with measured() as spent:
                _maintain_peer(spark)
            theirs += spent.cpu
    require_equal(spark, TABLE, PEER, WORN)
    return {
        "cadence": cadence,
        "whole_runs_cpu": round(whole, 1),
        "apply_cpu": round(apply, 1),
        "maintain_cpu": round(own, 1),
        "merge_cpu": round(merged, 1),
        "merge_maintain_cpu": round(theirs, 1),
        "merge_over_apply": round((merged + theirs) / (apply + own), 2),
        "merge_over_whole": round((merged + theirs) / whole, 2),
    }


def _spent(clock: StepClock, prefix: str) -> float:
    """Return the CPU of all steps of one kind, of as many slices as there were."""
    return sum(after - before for (_, before), (step, after) in pairwise(clock.marks) if step.startswith(prefix))


def _maintain_peer(spark: SparkSession) -> None:
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{PEER}', options => {_PEER_OPTIONS})").collect()
    spark.sql(f"CALL lake.system.rewrite_position_delete_files(table => '{PEER}')").collect()
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{PEER}', older_than => now(), retain_last => 1)").collect()


def _land(folder: Path, table: str, rows: int, number: int) -> Path:
    file = _landing(folder, table) / change_file_name(number)
    write_batch(file, rows=rows, changes=max(10, rows // 1000), number=number)
    return file


def _landing(folder: Path, table: str) -> Path:
    return folder / "landing" / table.replace(".", "/")
