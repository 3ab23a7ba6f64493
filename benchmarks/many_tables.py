"""Two hundred small tables: one run at a time against several, and what a table costs that has nothing to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.cpu import measured
from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.mirror.op.report import RunReport

_SCHEMA = "id int, name string, amount decimal(10,2)"
_ROWS, _CHANGES = 1_000, 100


def run_many_tables(folder: Path, count: int) -> dict[str, Any]:
    """Load all tables, then change them twice: run at one time, then one after the other. Then run idle."""
    names = [f"bench.t{number:03}" for number in range(count)]
    tables = {name: {"primary_key": "id", "schema": _SCHEMA} for name in names}
    config = parse_config({"tables": tables, "spark": {"master": "local[2]"}}, base=folder)
    landing = folder / "landing" / "bench"
    for name in names:
        path = landing / name.partition(".")[2] / "LOAD00000001.csv"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{key},load,1.00\n" for key in range(_ROWS)))
    with Lakeward(config) as lakeward:
        _require(lakeward.run(), Outcome.DONE)
        # The warmer second measurement is that of the peer.
        _land_changes(landing, 1)
        all_wall, all_cpu = _timed(lakeward, parallel=None, expected=Outcome.DONE)
        _land_changes(landing, 2)
        one_wall, one_cpu = _timed(lakeward, parallel=1, expected=Outcome.DONE)
        idle = min(_timed(lakeward, parallel=1, expected=Outcome.IDLE)[0] for _ in range(3))
        rows = lakeward.sql(f"SELECT count(*) FROM {names[-1]}").collect()[0][0]
    if rows != _ROWS:
        msg = f"{names[-1]} has {rows} rows, expected {_ROWS}: the measurement is void"
        raise AssertionError(msg)
    return {
        "tables": count,
        "one_by_one_wall": round(one_wall, 1),
        "one_by_one_cpu": round(one_cpu, 1),
        "parallel_wall": round(all_wall, 1),
        "parallel_cpu": round(all_cpu, 1),
        "wall_ratio": round(one_wall / all_wall, 2),
        "idle_table_ms": round(1000 * idle / count, 1),
    }


def _land_changes(landing: Path, number: int) -> None:
    for folder in landing.iterdir():
        text = "".join(f"U,{key},round {number},2.00\n" for key in range(_CHANGES))
        (folder / f"20240101-0000{number:02}000.csv").write_text(text)


def _timed(lakeward: Lakeward, *, parallel: int | None, expected: Outcome) -> tuple[float, float]:
    """Return wall and CPU seconds of one run."""
    began = time.monotonic()
    with measured() as spent:
        _require(lakeward.run(parallel=parallel), expected)
    return time.monotonic() - began, spent.cpu


def _require(report: RunReport, outcome: Outcome) -> None:
    if {table.outcome for table in report.tables} != {outcome}:
        raise AssertionError([table.message for table in report.tables if table.outcome is not outcome])
