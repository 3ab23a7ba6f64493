"""A run on a cluster, in a process of its own: python -m tests.cluster.process FOLDER [TABLE STEP PID SECONDS].

Reads FOLDER/lakeward.yaml. So many seconds after the table passes the step for the first time, the worker with this
process id is killed together with its executors. Prints the report as one line.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from lakeward import Lakeward
from tests.servers.spark_cluster import kill_tree


def main(folder: Path, table: str = "", step: str = "", pid: str = "0", seconds: str = "0") -> None:
    killed: list[str] = []

    def hear(passing: str, passed: str) -> None:
        if (passing, passed) == (table, step) and not killed:
            killed.append(pid)
            timer = threading.Timer(float(seconds), kill_tree, [int(pid)])
            timer.start()
            if not float(seconds):
                timer.join()

    with Lakeward.open(folder / "lakeward.yaml", on_step=hear) as lake:
        report = lake.run()
    print(json.dumps({"killed": killed, **report.to_dict()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
