"""The same run on a Spark standalone cluster, and with workers that are killed under it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config import load_config
from lakeward.lake import Lakeward
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.servers.spark_cluster import Cluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with spark_cluster(folder) as started:
        yield started


class Source:
    """A simulated source whose files are run on a cluster, and whose mirrors are compared on this machine."""

    def __init__(self, folder: Path, cluster: Cluster, spark: SparkSession) -> None:
        self.folder = folder
        self._spark = spark
        options = SimulatorOptions(seed=5, tables=2, keyless=True, changes=400, batches=12, stages=3, overlap=5)
        self.simulation = Simulation(options)
        config = self.simulation.configuration()
        config["defaults"]["rewrite_share"] = 10
        config |= {"state": "sqlite:///state.db", "spark": cluster.settings(), "retry": {"first_delay": 0.1}}
        (folder / "lakeward.yaml").write_text(json.dumps(config))

    def table(self, *, keyed: bool) -> str:
        return next(str(table.id) for table in self.simulation.tables if bool(table.key) == keyed)

    def land(self, stage: int) -> None:
        self.simulation.stages()[stage].land(self.folder / "landing")

    @contextmanager
    def application(self) -> Iterator[subprocess.Popen[str]]:
        """An application on the cluster that makes one run after another."""
        command = [sys.executable, "-m", "tests.cluster.process", str(self.folder)]
        with (self.folder / "application.log").open("w") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        with process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, application: subprocess.Popen[str], *loss: object) -> None:
        """Make a run in which a worker is lost: table, step, process id, seconds."""
        assert application.stdin is not None and application.stdout is not None
        application.stdin.write(json.dumps(loss) + "\n")
        application.stdin.flush()
        line = application.stdout.readline()
        assert line, (self.folder / "application.log").read_text()[-3000:]
        report: dict[str, Any] = json.loads(line)
        assert {table["outcome"] for table in report["tables"]} == {"done"}, report
        assert report["killed"]

    def compare(self, stage: int) -> None:
        config = load_config(self.folder / "lakeward.yaml")
        with Lakeward(config, spark=session_for(self._spark, config)) as lake:
            for spec in self.simulation.tables:
                rows = [row.asDict() for row in lake.sql(f"SELECT * FROM {spec.id}").collect()]
                truth = self.simulation.truth_after(stage)[spec.id]
                assert_same_rows(rows, truth, key=spec.key, label=str(spec.id))


# A worker is lost while files are read; what was read and kept on one is lost before it is folded and logged; one is
# lost in the middle of the mirror's attempt.
LOSSES = ((False, "choose.files", 0.3), (False, "check.read", 0.0), (True, "apply.delete", 0.0))


@pytest.mark.parametrize("losses", [LOSSES[1:], pytest.param(LOSSES, marks=pytest.mark.soak)], ids=["two", "all"])
def test_run_on_a_cluster_is_exact_whichever_worker_is_lost(
    tmp_path: Path, cluster: Cluster, spark: SparkSession, losses: tuple[tuple[bool, str, float], ...]
) -> None:
    source, workers = Source(tmp_path, cluster, spark), [cluster.start_worker(), cluster.start_worker()]
    with source.application() as application:
        for stage, (keyed, step, seconds) in enumerate(losses):
            source.land(stage)
            source.run(application, source.table(keyed=keyed), step, workers.pop(0), seconds)
            source.compare(stage)
            workers.append(cluster.start_worker())
