"""The process is killed at each main step; what it left is finished by the next run, at once and exactly."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakeward.config import load_config
from lakeward.iceberg.attempt import BRANCH_PREFIX
from lakeward.iceberg.define import changelog_of, mirror_of
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.spark.fixtures import SPARK_SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakeward.testing.simulator import TableSpec

# Kills of the same load, then one in each stage of changes: at steps that leave something behind, another one for
# each table. The others are crashed at in test_crashes.
LOAD_KILLS = ({"keyless": "load.append", "keyed": "load.publish"}, {"keyless": "load.publish"})
CHANGE_KILLS = (
    {"keyed": "log.append", "keyless": "log.publish"},
    {"keyed": "apply.delete", "keyless": "apply.append"},
    {"keyed": "apply.publish", "keyless": "log.append"},
)


Kills = tuple[dict[str, str], ...]


class Killing:
    """A simulated source whose lake is written by processes that are killed and finished by this one."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self._spark = spark
        options = SimulatorOptions(seed=5, tables=2, keyless=True, changes=80, batches=8, stages=4, overlap=5)
        self.simulation = Simulation(options)
        config = self.simulation.configuration()
        config["defaults"]["rewrite_share"] = 10
        config |= {"state": "sqlite:///state.db", "spark": SPARK_SETTINGS}
        (folder / "lakeward.yaml").write_text(json.dumps(config))

    def table(self, kind: str) -> TableSpec:
        return next(table for table in self.simulation.tables if bool(table.key) == (kind == "keyed"))

    def land(self, stage: int) -> None:
        self.simulation.stages()[stage].land(self.folder / "landing")

    def kill_at(self, steps: dict[str, str]) -> None:
        stops = [word for kind, step in steps.items() for word in (str(self.table(kind).id), step)]
        command = [sys.executable, "-m", "tests.spark.process", str(self.folder), "kill", *stops]
        done = subprocess.run(
            command, start_new_session=True, capture_output=True, text=True, timeout=600, check=False
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, f"{steps} were not reached: {done.stdout}{done.stderr}"
        assert self.leases() >= len(steps), "the dead process must have left its leases"

    def leases(self) -> int:
        state = sqlite3.connect(self.folder / "state.db")
        try:
            return int(state.execute("SELECT count(*) FROM lakeward_leases").fetchone()[0])
        finally:
            state.close()

    def recover(self, stage: int) -> None:
        config = load_config(self.folder / "lakeward.yaml")
        with Lakeward(config, spark=session_for(self._spark, config)) as lake:
            report = lake.run()
            # Had the dead owner's lease to be waited for, its table would be locked.
            assert {table.outcome for table in report.tables} <= {Outcome.DONE, Outcome.IDLE}, report
            for spec in self.simulation.tables:
                rows = [row.asDict() for row in lake.sql(f"SELECT * FROM {spec.id}").collect()]
                truth = self.simulation.truth_after(stage)[spec.id]
                assert_same_rows(rows, truth, key=spec.key, label=str(spec.id))
                for table in (mirror_of(lake.spark, spec.id), changelog_of(lake.spark, spec.id)):
                    assert not [name for name in table.branches() if name.startswith(BRANCH_PREFIX)]
        assert self.leases() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load_kills", "change_kills"),
    [(LOAD_KILLS[:1], CHANGE_KILLS[:2]), pytest.param(LOAD_KILLS, CHANGE_KILLS, marks=pytest.mark.soak)],
    ids=["once", "twice"],
)
def test_killed_process_is_recovered_from_at_every_main_step(
    tmp_path: Path, spark: SparkSession, load_kills: Kills, change_kills: Kills
) -> None:
    killing = Killing(tmp_path, spark)
    killing.land(0)
    for steps in load_kills:
        killing.kill_at(steps)
    killing.recover(0)
    for stage, steps in enumerate(change_kills, 1):
        killing.land(stage)
        killing.kill_at(steps)
        killing.recover(stage)
