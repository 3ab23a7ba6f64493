"""Ten thousand small change files of one table: what listing, planning and consuming them costs."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from benchmarks.cpu import measured
from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.report import Outcome

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "bench.events"
_SCHEMA = "id int, name string, amount decimal(10,2)"


def run_many_files(folder: Path, count: int) -> dict[str, Any]:
    """Land ``count`` files of three changes each, then plan and run them in batches of at most 1,000 files."""
    config = parse_config(
        {"tables": {TABLE: {"primary_key": "id", "schema": _SCHEMA}}, "spark": {"master": "local[2]"}}, base=folder
    )
    _write_files(folder / "landing" / "bench" / "events", count)
    with Lakeward(config) as lakeward:
        lakeward.spark.range(1).count()
        with measured() as planning:
            plan = lakeward.plan()[0]
        with measured() as running:
            report = lakeward.run(options=RunOptions()).tables[0]
        if report.outcome is not Outcome.DONE:
            raise AssertionError(report.message)
        rows = lakeward.sql(f"SELECT count(*), sum(amount) FROM {TABLE}").collect()[0]
    _require_exact(count, rows)
    return {
        "files": count,
        "files_in_plan": len(plan.files),
        "plan_cpu": round(planning.cpu, 2),
        "run_cpu": round(running.cpu, 2),
        "run_cpu_per_file_ms": round(1000 * running.cpu / count, 2),
        "ops": len(report.ops),
        "driver_python_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _write_files(folder: Path, count: int) -> None:
    """Write file n with an insert of n, an update of n and a delete of every tenth key."""
    folder.mkdir(parents=True)
    for number in range(count):
        time = f"{number // 3600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}"
        last = f"D,{number},x,0.00" if number % 10 == 0 else f"U,{number},z,2.00"
        text = f"I,{number},x,0.00\nU,{number},y,1.00\n{last}\n"
        (folder / f"20240101-{time}000.csv").write_text(text)


def _require_exact(count: int, found: Any) -> None:
    expected = count - len(range(0, count, 10))
    if found[0] != expected or found[1] != 2 * expected:
        msg = f"the mirror has {found}, expected {expected} rows of 2.00: the measurement is void"
        raise AssertionError(msg)
