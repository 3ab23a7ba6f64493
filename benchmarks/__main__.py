"""`make bench`: measure, compare with the goals, print one table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.apply import Measured, growth_exponent, run_apply
from benchmarks.asof import run_asof
from benchmarks.diff import CASES as DIFF_CASES
from benchmarks.diff import run_diff
from benchmarks.landing_to_row import run_landing_to_row
from benchmarks.maintenance import run_maintenance
from benchmarks.many_files import run_many_files
from benchmarks.many_tables import run_many_tables
from benchmarks.row_history import run_row_history

BATCH_SIZES = (300, 30_000)
_PARTS = ["apply", "files", "tables", "latency", "maintenance", "asof", "history", "diff"]
_SCALE = float(os.environ.get("BENCH_SCALE", "1"))
_SHOWN = ("merge_cpu", "apply_cpu", "whole_op_cpu", "merge_over_apply", "whole_over_merge", "spark_jobs_per_batch")


def main() -> int:
    """Run the measurements that the arguments choose and write them as JSON too."""
    options = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-", dir=options.folder))
    try:
        results: dict[str, Any] = {}
        if "apply" in options.only:
            measured = [
                one
                for rows in options.rows
                for one in run_apply(folder / str(rows), rows, BATCH_SIZES, options.batches)
            ]
            results["apply"] = [one.summary() for one in measured]
            results["growth_exponent"] = _growth(measured)
        if "files" in options.only:
            results["many_files"] = run_many_files(folder / "files", options.files)
        if "tables" in options.only:
            results["many_tables"] = run_many_tables(folder / "tables", options.tables)
        if "latency" in options.only:
            results["landing_to_row"] = run_landing_to_row(folder / "latency", options.landings)
        if "maintenance" in options.only:
            results["maintenance"] = run_maintenance(
                folder / "maintenance", options.rows[0], options.small_batches, options.cadence
            )
        if "asof" in options.only:
            results["asof"] = run_asof(folder / "asof", options.rows[0])
        if "history" in options.only:
            results["history"] = run_row_history(folder / "history", int(options.changes * _SCALE))
        if "diff" in options.only:
            results["diff"] = run_diff(folder / "diff", int(options.diff_rows * _SCALE), options.diff_cases)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(results)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000_000, 12_000_000])
    parser.add_argument("--batches", type=int, default=7, help="measured batches of each size, after warming up")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--landings", type=int, default=40)
    parser.add_argument("--small-batches", type=int, default=100, help="batches of 0.1 %% each, for maintenance")
    parser.add_argument("--cadence", type=int, default=20, help="small batches between maintenance")
    parser.add_argument("--changes", type=int, default=10_000_000, help="changes of the history, times BENCH_SCALE")
    parser.add_argument("--diff-rows", type=int, default=3_000_000, help="rows of a snapshot, times BENCH_SCALE")
    parser.add_argument("--diff-cases", nargs="+", choices=DIFF_CASES, default=list(DIFF_CASES))
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--folder", type=Path, default=None, help="where the tables are made; some GB for 12 M rows")
    parser.add_argument("--json", type=Path, default=Path(".cache/bench.json"))
    return parser.parse_args()


def _growth(measured: list[Measured]) -> dict[str, float]:
    """Return the growth exponent per batch size, from the smallest table to the largest."""
    found = {}
    for changes in BATCH_SIZES:
        same = sorted((one for one in measured if one.changes == changes), key=lambda one: one.rows)
        if len(same) > 1:
            found[str(changes)] = growth_exponent(same[0], same[-1])
    return found


def _print(results: dict[str, Any]) -> None:
    console = Console(file=sys.stdout, width=120)
    table = Table(title="CPU-seconds per batch, median, whole process tree")
    for name in ("rows", "changes", "MERGE", "delete+append", "whole op", "MERGE / d+a", "whole / MERGE", "jobs"):
        table.add_column(name, justify="right")
    for result in results.get("apply", []):
        table.add_row(f"{result['rows']:,}", f"{result['changes']:,}", *(str(result[key]) for key in _SHOWN))
    console.print(table)
    console.print("goals: MERGE / d+a ≥ 2.5 at 3 M and ≥ 4 at 12 M; whole / MERGE < 1 at 3 M and ≤ 0.4 at 12 M")
    console.print("goals: wall_ratio ≥ 1.6 on 2 cores, idle_table_ms ≤ 30, p50_seconds ≤ 3")
    console.print(
        "goals: maintained_over_fresh ≤ 1.3, merge with maintenance ≥ 2 times ours, recomputed_over_as_of ≥ 5"
    )
    console.print("goals of diff, times less than spark-extension: join ≥ 1, sets ≥ 2.5, identical and iceberg ≥ 20")
    for name in (
        "growth_exponent", "many_files", "many_tables", "landing_to_row", "maintenance", "asof", "history", "diff",
    ):  # fmt: skip
        if name in results:
            console.print(f"{name}: {results[name]}")


if __name__ == "__main__":
    sys.exit(main())
