"""Runs on a cluster, in a process of its own: python -m tests.cluster.process FOLDER.

Reads FOLDER/lakeward.yaml, and from standard input one run per line: ["TABLE", "STEP", PID, SECONDS]. So many seconds
after the table passes the step for the first time, the worker with this process id is killed together with its
executors. Prints each report as one line.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from lakeward import Lakeward
from tests.servers.spark_cluster import kill_tree


class Loss:
    """A worker that is lost at a step."""

    def __init__(self, table: str, step: str, pid: int, seconds: float) -> None:
        self._at, self._pid, self._seconds = (table, step), pid, seconds
        self.killed = False

    def observe_step(self, table: str, step: str) -> None:
        if (table, step) != self._at or self.killed:
            return
        self.killed = True
        timer = threading.Timer(self._seconds, kill_tree, [self._pid])
        timer.start()
        if not self._seconds:
            timer.join()


def main(folder: Path) -> None:
    losses: list[Loss] = []

    def observe_step(table: str, step: str) -> None:
        losses[-1].observe_step(table, step)

    with Lakeward.open(folder / "lakeward.yaml", on_step=observe_step) as lake:
        for line in sys.stdin:
            losses.append(Loss(*json.loads(line)))
            report = lake.run()
            print(json.dumps({"killed": losses[-1].killed, **report.to_dict()}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
