"""One op of Lakeward against one Iceberg merge-on-read MERGE statement, on the same table and batches."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.cpu import measured, tree_cpu
from benchmarks.data import change_file_name, write_batch, write_load
from benchmarks.peer import PEER, make_peer, merge, require_done, require_equal
from lakeward.config import parse_config
from lakeward.lake import Lakeward

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = "bench.orders"
WARM_UP = 12


@dataclass
class Measured:
    """CPU-seconds per batch, one entry a batch."""

    rows: int
    changes: int
    whole: list[float] = field(default_factory=list)
    apply: list[float] = field(default_factory=list)
    merge: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return medians and the ratios that the goals speak of."""
        whole, apply, merge = (statistics.median(one) for one in (self.whole, self.apply, self.merge))
        return {
            "rows": self.rows,
            "changes": self.changes,
            "batches": len(self.whole),
            "merge_cpu": round(merge, 2),
            "apply_cpu": round(apply, 2),
            "whole_op_cpu": round(whole, 2),
            "merge_over_apply": round(merge / apply, 2),
            "whole_over_merge": round(whole / merge, 2),
            "spark_jobs_per_batch": statistics.median(self.jobs),
            "steps_cpu": {name: round(statistics.median(cpu), 3) for name, cpu in self.steps.items()},
        }


class StepClock:
    """Attributes CPU to the steps that an op passes."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float]] = []

    def __call__(self, _table: str, step: str) -> None:
        self.marks.append((step, tree_cpu()))

    def start(self) -> None:
        self.marks = [("start", tree_cpu())]

    def spent(self) -> dict[str, float]:
        """Return CPU per step of the first op, and what came after it as the run's end."""
        found: dict[str, float] = {}
        for (_, before), (step, after) in zip(self.marks, self.marks[1:], strict=False):
            name = step if step not in found else "idle check"
            found[name] = found.get(name, 0.0) + after - before
        return found


def run_apply(folder: Path, rows: int, batch_sizes: tuple[int, ...], batches: int) -> list[Measured]:
    """Load a table of ``rows`` rows, then measure batches of each size on it and on its twin."""
    clock = StepClock()
    config = parse_config(
        {
            "tables": {TABLE: {"primary_key": "id", "timestamp_column": "cdc_timestamp"}},
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "6g"}},
        },
        base=folder,
    )
    landing = folder / "landing" / "bench" / "orders"
    write_load(landing, rows)
    results = []
    with Lakeward(config, on_step=clock) as lakeward:
        require_done(lakeward.run())
        make_peer(lakeward.spark, TABLE)
        number = 0
        for changes in batch_sizes:
            result = Measured(rows, changes)
            for at in range(WARM_UP + batches):
                number += 1
                write_batch(landing / change_file_name(number), rows=rows, changes=changes, number=number)
                _one_batch(lakeward, clock, landing / change_file_name(number), result if at >= WARM_UP else None)
            results.append(result)
        require_equal(lakeward.spark, TABLE, PEER)
    return results


def _one_batch(lakeward: Lakeward, clock: StepClock, file: Path, result: Measured | None) -> None:
    spark = lakeward.spark
    jobs_before = _jobs(spark)
    clock.start()
    with measured() as whole:
        require_done(lakeward.run())
    jobs, steps = _jobs(spark) - jobs_before, clock.spent()
    with measured() as merged:
        merge(spark, file)
    if result is not None:
        result.whole.append(whole.cpu)
        result.merge.append(merged.cpu)
        result.jobs.append(jobs)
        result.apply.append(sum(cpu for step, cpu in steps.items() if step.startswith("apply.")))
        for step, cpu in steps.items():
            result.steps.setdefault(step, []).append(cpu)


def _jobs(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def growth_exponent(small: Measured, large: Measured) -> float:
    """Return how the whole op's cost grows with the table: cost ~ rows ^ exponent."""
    ratio = statistics.median(large.whole) / statistics.median(small.whole)
    return round(math.log(ratio) / math.log(large.rows / small.rows), 2)
