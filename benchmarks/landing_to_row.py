"""How long a file that lands takes to be rows of the mirror, with a watcher that is warm."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from lakeward.config import parse_config
from lakeward.lake import Lakeward

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "bench.events"
_WARM_UP = 8


class _Published:
    """Wakes whoever waits for the next run."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def run_finished(self, _report: object) -> None:
        self.event.set()


def run_landing_to_row(folder: Path, count: int) -> dict[str, Any]:
    """Land ``count`` files one after another, each when the one before is visible; give the median and 95 %."""
    settings = {"primary_key": "id", "schema": "id int, name string"}
    config = parse_config({"tables": {TABLE: settings}, "spark": {"master": "local[2]"}}, base=folder)
    landing = folder / "landing" / "bench" / "events"
    landing.mkdir(parents=True)
    (landing / "LOAD00000001.csv").write_text("".join(f"{key},load\n" for key in range(1000)))
    with Lakeward(config) as lakeward:
        heard = _Published()
        watcher = lakeward.watch(observers=[heard])
        thread = threading.Thread(target=watcher.run)
        thread.start()
        heard.event.wait(120)
        seconds = [_land(lakeward, landing, number, heard) for number in range(_WARM_UP + count)][_WARM_UP:]
        watcher.stop()
        thread.join()
    seconds.sort()
    return {
        "files": count,
        "p50_seconds": round(seconds[len(seconds) // 2], 2),
        "p95_seconds": round(seconds[int(len(seconds) * 0.95)], 2),
    }


def _land(lakeward: Lakeward, landing: Path, number: int, heard: _Published) -> float:
    """Land one file and wait until a query shows its row."""
    time.sleep(0.5)
    heard.event.clear()
    text, began = f"file {number}", time.monotonic()
    (landing / f"20240101-00{number // 60:02}{number % 60:02}000.csv").write_text(f"U,7,{text}\n")
    if not heard.event.wait(120):
        msg = f"{text} was not published in two minutes"
        raise AssertionError(msg)
    found = lakeward.sql(f"SELECT name FROM {TABLE} WHERE id = 7").collect()[0][0]
    took = time.monotonic() - began
    if found != text:
        msg = f"the mirror shows {found}, expected {text}: the measurement is void"
        raise AssertionError(msg)
    return took
