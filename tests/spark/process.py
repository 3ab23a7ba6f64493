"""A run in a process of its own: python -m tests.spark.process FOLDER kill|stop TABLE STEP [TABLE STEP …].

Reads FOLDER/lakeward.yaml. Each table is held at its step until all of them have come to theirs. Then ``kill`` ends
the whole process group without a chance to tidy up, Spark's JVM included; ``stop`` prints the steps and waits for a
line. Prints the report as one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from lakeward import Lakeward

# Only reached when a table does not come to its step.
_PATIENCE_SECONDS = 300


def main(folder: Path, mode: str, *stops: str) -> None:
    wanted = dict(zip(stops[::2], stops[1::2], strict=True))

    def act() -> None:
        if mode == "kill":
            os.killpg(0, signal.SIGKILL)
        print(*wanted.values(), flush=True)
        sys.stdin.readline()

    all_there = threading.Barrier(len(wanted), action=act, timeout=_PATIENCE_SECONDS)

    def observe_step(passing: str, passed: str) -> None:
        if wanted.get(passing) == passed:
            all_there.wait()

    with Lakeward.open(folder / "lakeward.yaml", on_step=observe_step) as lake:
        print(json.dumps(lake.run().to_dict()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
