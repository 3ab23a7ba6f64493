"""A run in a process of its own: python -m tests.spark.process FOLDER kill|stop TABLE STEP.

Reads FOLDER/lakeward.yaml. At the step, ``kill`` ends the whole process group without a chance to tidy up, Spark's
JVM included; ``stop`` prints the step and waits for a line. Prints the report as one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from lakeward import Lakeward


def main(folder: Path, mode: str, table: str, step: str) -> None:
    def hear(passing: str, passed: str) -> None:
        if (passing, passed) != (table, step):
            return
        if mode == "kill":
            os.killpg(0, signal.SIGKILL)
        print(step, flush=True)
        sys.stdin.readline()

    with Lakeward.open(folder / "lakeward.yaml", on_step=hear) as lake:
        print(json.dumps(lake.run().to_dict()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
