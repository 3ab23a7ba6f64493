"""The S3 server is killed during a run, at several steps: nothing is lost or doubled, and the run reports the cause."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from lakeward.config.services import S3Settings
from lakeward.mirror.op.report import Outcome
from tests.s3.bucket import Bucket
from tests.s3.conftest import settings_of
from tests.s3.scene import S3Scene, rest_lake
from tests.servers.s3 import TABLE_BUCKETS, S3Server
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = tuple(f"{key},row {key},x,1.00" for key in range(1, 21))
# At the first landing files are about to be read; from then on the lake is written.
STEPS = ("choose.files", "log.append", "log.publish", "apply.delete", "apply.append")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of this module's own, to be killed."""
    with S3Server(tmp_path_factory.mktemp("mortal")) as server:
        yield server


@pytest.fixture
def bucket(mortal: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr("lakeward.storage.s3._ATTEMPTS", 1)
    settings = S3Settings(**settings_of(mortal, monkeypatch))
    with Bucket.create(mortal, f"outage-{uuid.uuid4().hex[:8]}", settings) as made:
        yield made


def at_step(scene: S3Scene, step: str, act: object) -> list[str]:
    """Act once, when a step is passed for the first time; give the steps passed."""
    passed: list[str] = []

    def observe_step(_table: str, name: str) -> None:
        passed.append(name)
        if name == step and passed.count(step) == 1:
            act()  # type: ignore[operator]

    scene.on_step = observe_step
    return passed


def change(source: Source, number: int) -> None:
    key = number % 15 + 1
    lines = (f"U,{key},update {number},y,2.00", f"D,{key + 2},,,0", f"I,{number + 40},new {number},y,3.00")
    source.change(f"202401{number:02}-000000000.csv", *lines)


def test_server_killed_at_any_step_is_a_passing_fault_and_the_next_run_is_exact(
    tmp_path: Path, spark: SparkSession, bucket: Bucket, mortal: S3Server
) -> None:
    # The REST catalog is gone with it; under the others Iceberg itself waits for metadata, for a minute and a half.
    scene = S3Scene(tmp_path, spark, bucket, **rest_lake(mortal, TABLE_BUCKETS[0]))
    scene.table(rewrite_share=10).configure(retry={"attempts": 0})
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    scene.run()
    for number, step in enumerate(STEPS, 1):
        before = source.rows()
        change(source, number)
        at_step(scene, step, mortal.kill)
        report = scene.try_run().tables[0]
        scene.on_step = None
        mortal.start()
        assert (report.outcome, report.error_kind) == (Outcome.FAILED, "retriable"), (step, report.message)
        assert scene.rows() in (before, source.rows()), f"readers see half an op after {step}"
        if number % 2:
            scene.forget_state()
        scene.run()
        assert scene.rows() == source.rows(), step
    check_books(scene)
    scene.close()


def test_server_killed_and_restarted_during_a_run_does_not_end_it(s3_scene: S3Scene, mortal: S3Server) -> None:
    scene = s3_scene
    scene.table(rewrite_share=10).configure(retry={"attempts": 500, "first_delay": 0.2, "max_delay": 0.5})
    source = Source(scene)
    source.load("LOAD00000001.csv", *ROWS)
    for number, step in enumerate(("load.append", "choose.files", "apply.delete"), 1):
        revival = threading.Timer(1, mortal.start)

        def strike(revival: threading.Timer = revival) -> None:
            mortal.kill()
            revival.start()

        passed = at_step(scene, step, strike)
        scene.run()
        revival.join()
        assert step in passed
        assert scene.rows() == source.rows(), step
        change(source, number)
    scene.on_step = None
    scene.run()
    assert scene.rows() == source.rows()
    check_books(scene)
