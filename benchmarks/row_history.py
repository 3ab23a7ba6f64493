"""The history of one key in a large changelog, before and after it is sorted by key."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cpu import measured
from benchmarks.peer import require_done
from lakeward.config import parse_config
from lakeward.lake import Lakeward

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "bench.orders"
_PER_FILE = 250_000
_START = datetime(2024, 1, 1, tzinfo=UTC)
_KEYS = (7, 4_711, 99_999)


def run_row_history(folder: Path, changes: int) -> dict[str, Any]:
    """Log changes of a million keys, a quarter of a million in each op, and ask for some keys' history."""
    config = parse_config(
        {
            "tables": {
                TABLE: {
                    "primary_key": "id",
                    "timestamp_column": "cdc_timestamp",
                    "max_files": 1,
                    "schema": "id bigint, name string, amount bigint, note string",
                    "maintenance": {"slice_bytes": 4 << 30},
                }
            },
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "6g"}},
        },
        base=folder,
    )
    landing = folder / "landing" / "bench" / "orders"
    landing.mkdir(parents=True)
    for number in range(max(1, changes // _PER_FILE)):
        _write(landing, number, min(_PER_FILE, changes))
    with Lakeward(config) as lakeward:
        require_done(lakeward.run())
        before = _asked(lakeward)
        with measured() as clustering:
            require_done(lakeward.maintain(only="cluster"))
        after = _asked(lakeward)
    if before[0] != after[0]:
        msg = f"histories differ: {before[0]} before and {after[0]} after: the measurement is void"
        raise AssertionError(msg)
    return {
        "changes": changes,
        "changes_of_the_keys": sum(before[0]),
        "unsorted_cpu": round(before[1], 2),
        "sorted_cpu": round(after[1], 2),
        "unsorted_over_sorted": round(before[1] / after[1], 2),
        "sorting_cpu": round(clustering.cpu, 1),
    }


def _asked(lakeward: Lakeward) -> tuple[list[int], float]:
    """Return how many changes some keys have, and the median CPU of one question."""
    counts, spent = [], []
    for key in (_KEYS[0], *_KEYS):
        with measured() as one:
            counts.append(len(lakeward.history.row(TABLE, {"id": key}).changes))
        spent.append(one.cpu)
    return counts[1:], statistics.median(spent[1:])


def _write(landing: Path, number: int, changes: int) -> None:
    chance = np.random.default_rng(number)
    keys = chance.integers(0, 1_000_000, changes)
    moment = _START + timedelta(minutes=number)
    table = pa.table(
        {
            "Op": pa.array(np.where(chance.random(changes) < 0.1, "D", "U")),
            "cdc_timestamp": pa.array([f"{moment:%Y-%m-%d %H:%M:%S}.000000"] * changes),
            "id": pa.array(keys, pa.int64()),
            "name": pa.array(np.char.add("name ", keys.astype(str))),
            "amount": pa.array(chance.integers(0, 1 << 40, changes), pa.int64()),
            "note": pa.array(np.char.add(f"change {number} of ", keys.astype(str))),
        }
    )
    pq.write_table(table, landing / f"{moment:%Y%m%d-%H%M%S}000.parquet")
