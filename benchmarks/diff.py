"""What changed between two snapshots: spark-extension against each of our plans, and what reading both sides costs."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from benchmarks.cpu import cost
from benchmarks.data import change_file_name, write_batch, write_load
from lakeward.config import parse_config
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.frames.pairs import shaped
from lakeward.diffing.plans.planner import planned_pairs
from lakeward.diffing.stored.addresses import FoundSet, IcebergState, Side
from lakeward.iceberg.define import mirror_of
from lakeward.lake import Lakeward
from lakeward.model import TableId
from lakeward.spark.workspace import Workspace
from lakeward.storage.checksum import checksum_of
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.sets import write_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

CASES = ("plain", "sets", "identical", "iceberg", "growth", "wide")
TABLE = "bench.orders"
_KEY = "id"
_WARM_UP, _TIMES = 3, 3
_SMALL_BATCH = 300
_WIDE_COLUMNS, _WIDE_SHARE = 100, 10


@dataclass(frozen=True)
class Snapshots:
    """Two snapshots, each as plain Parquet and as a set."""

    past: Side
    current: Side
    past_set: Side
    current_set: Side


def run_diff(folder: Path, rows: int, cases: list[str]) -> dict[str, Any]:
    """Measure the chosen cases on 1 % changed, 0.1 % deleted and 0.1 % inserted rows."""
    settings = {"primary_key": _KEY, "timestamp_column": "cdc_timestamp", "undo_window": "0s"}
    spark_conf = {"spark.driver.memory": "6g", "spark.ui.enabled": "false"}
    config = parse_config(
        {"tables": {TABLE: settings}, "spark": {"master": "local[2]", "conf": spark_conf}}, base=folder
    )
    landing = folder / "landing" / "bench" / "orders"
    write_load(landing, rows)
    results: dict[str, Any] = {"rows": rows}
    with Lakeward(config) as lakeward:
        spark = lakeward.spark
        load = spark.read.parquet(str(landing))
        if {"plain", "sets", "identical"} & set(cases):
            made = _snapshots(load, folder / "narrow")
            results |= _compared(made, cases)
        if "growth" in cases:
            results["growth"] = _growth(load, folder / "growth", rows)
        if "wide" in cases:
            results["wide"] = _wide(load, folder / "wide", rows // _WIDE_SHARE)
        if "iceberg" in cases:
            results["iceberg"] = _iceberg(lakeward, landing, rows)
    return results


def _compared(made: Snapshots, cases: list[str]) -> dict[str, Any]:
    peer = _median(lambda: _consume(spark_extension(made.past.frame, made.current.frame)))
    found: dict[str, Any] = {
        "reading_both_cpu": _rounded(_median(lambda: [_consume(one.frame) for one in (made.past, made.current)])),
        "spark_extension_cpu": _rounded(peer),
    }
    if "plain" in cases:
        for plan in ("join", "hash"):
            found |= _against(plan, peer, made.past, made.current, plan)
    if "sets" in cases:
        found |= _against("sets", peer, made.past_set, made.current_set, "buckets")
    if "identical" in cases:
        copy = _as_set(made.past.frame, f"{made.past_set.label}-again")
        # Spark cannot tell two frames of one reading apart.
        again = _plain(made.past.frame.sparkSession, made.past.label).frame
        same = _median(lambda: _consume(spark_extension(made.past.frame, again)))
        found |= _against("identical", same, made.past_set, copy, "buckets")
    return found


def _wide(load: DataFrame, folder: Path, rows: int) -> dict[str, Any]:
    """Return each row a hundred columns, of the types and lengths of the narrow table's."""
    others = [name for name in load.columns if name != _KEY]
    more = [
        F.col(others[at % len(others)]).alias(f"{others[at % len(others)]}_{at // len(others)}")
        for at in range(len(others), _WIDE_COLUMNS - 1)
    ]
    made = _snapshots(load.filter(F.col(_KEY) < rows).select("*", *more), folder)
    return {"rows": rows, "columns": len(made.past.frame.columns), **_compared(made, ["plain", "sets"])}


def _growth(load: DataFrame, folder: Path, rows: int) -> dict[str, Any]:
    """Compare sets of a quarter of the rows and of all: an exponent of 1 is linear."""
    costs = {}
    for share in (4, 1):
        made = _snapshots(load.filter(F.col(_KEY) < rows // share), folder / str(share))
        costs[rows // share] = _median(lambda one=made: _ours(one.past_set, one.current_set, "buckets"))
    small, large = costs.values()
    exponent = math.log(large / small) / math.log(4)
    return {"cpu": {count: _rounded(cpu) for count, cpu in costs.items()}, "exponent": round(exponent, 2)}


def _iceberg(lakeward: Lakeward, landing: Path, rows: int) -> dict[str, Any]:
    """Compare the mirror before and after a small batch."""
    _run(lakeward)
    mirror = mirror_of(lakeward.spark, TableId.parse(TABLE))
    before = mirror.require_head().id
    write_batch(landing / change_file_name(1), rows=rows, changes=_SMALL_BATCH, number=1)
    _run(lakeward)
    disk = LocalFileSystem()
    past, current = (
        Side(f"{TABLE}@{head}", mirror.read(head), (_KEY,), iceberg=IcebergState(mirror, head, disk), format="iceberg")
        for head in (before, mirror.require_head().id)
    )
    peer = _median(lambda: _consume(spark_extension(past.frame, current.frame)))
    return {"spark_extension_cpu": _rounded(peer), **_against("iceberg", peer, past, current, "iceberg")}


def _run(lakeward: Lakeward) -> None:
    report = lakeward.run()
    if report.exit_code != 0:
        raise AssertionError(report)


def _snapshots(past: DataFrame, folder: Path) -> Snapshots:
    """Write a frame and what became of it, each as plain files and as a set."""
    chance = F.pmod(F.xxhash64(F.col(_KEY)), F.lit(1000))
    is_changed = chance.between(0, 9)
    kept = past.filter(chance != 999).select(
        *[
            F.when(is_changed, F.concat(F.col(name), F.lit("!"))).otherwise(F.col(name)).alias(name)
            if name == "name"
            else F.col(name)
            for name in past.columns
        ]
    )
    new = past.filter(chance == 998).withColumn(_KEY, F.col(_KEY) + (1 << 40))
    plain = []
    for name, rows in (("past", past), ("current", kept.unionByName(new))):
        target = f"{folder}/{name}"
        rows.repartition(8).write.parquet(target)
        plain.append(_plain(past.sparkSession, target))
    sets = [_as_set(one.frame, f"{one.label}-set") for one in plain]
    return Snapshots(*plain, *sets)


def _plain(spark: SparkSession, folder: str) -> Side:
    frame = spark.read.parquet(folder)
    # The footers tell it, as they do when a folder is opened by its path.
    return Side(folder, frame, (_KEY,), rows=frame.count(), format="parquet")


def _as_set(rows: DataFrame, folder: str) -> Side:
    layout = write_set(rows, LocalFileSystem(), folder, [_KEY])
    frame = rows.sparkSession.read.parquet(folder)
    found = FoundSet(LocalFileSystem(), folder, layout)
    return Side(folder, frame, (_KEY,), found, rows=layout.rows, checksum=layout.checksum, format="parquet")


def spark_extension(past: DataFrame, current: DataFrame) -> DataFrame:
    """Return the diff as spark-extension makes it, without unchanged rows."""
    from gresearch.spark.diff import diff

    return diff(past, current, _KEY).filter(F.col("diff") != "N")


def _ours(past: Side, current: Side, plan: str, consume: Callable[[DataFrame], None] | None = None) -> None:
    options = DiffOptions()
    alignment = align(past.frame.schema, current.frame.schema, [_KEY], options, evolve=False)
    with Workspace() as workspace:
        planned = planned_pairs(past, current, alignment, options, plan=plan, workspace=workspace)
        (consume or _consume)(shaped(planned.pairs, options))
        if planned.counts is not None and planned.counts.duplicated_side():
            msg = "a key comes twice: the measurement is void"
            raise AssertionError(msg)


def _against(name: str, peer: float, past: Side, current: Side, plan: str) -> dict[str, Any]:
    """Hold a plan's result against spark-extension's, outside the clock; then give its cost."""
    hashes: list[str] = []

    def hashed(rows: DataFrame) -> None:
        hashes.append(checksum_of(rows).text)

    _ours(past, current, plan, hashed)
    hashed(spark_extension(past.frame, current.frame))
    if hashes[0] != hashes[1]:
        msg = f"{name}: the diffs differ: {hashes}: the measurement is void"
        raise AssertionError(msg)
    own = _median(lambda: _ours(past, current, plan))
    return {f"{name}_cpu": _rounded(own), f"spark_extension_over_{name}": round(peer / own, 2)}


def _consume(rows: DataFrame) -> None:
    """Compute every value and keep none."""
    rows.write.format("noop").mode("overwrite").save()


def _median(work: Callable[[], object]) -> float:
    """Return the CPU-seconds of the process tree, the median after the JVM has warmed up."""
    for _ in range(_WARM_UP):
        work()
    return statistics.median(cost(work) for _ in range(_TIMES))


def _rounded(seconds: float) -> float:
    return round(seconds, 2)
