"""A process that was stopped (SIGSTOP) until its lease had ended goes on: it must not publish over the new owner."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from lakeward.iceberg.define import changelog_of, mirror_of
from lakeward.mirror.op.report import Outcome
from lakeward.model import TableId
from tests.spark.fixtures import SPARK_SETTINGS
from tests.spark.scene import TABLE
from tests.spark.source import Source, check_books

if TYPE_CHECKING:
    from tests.spark.scene import Scene

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PRODUCT = TableId.parse(TABLE)


# Without a pause, writers that lost their lease are stopped at both steps in tests/spark/test_concurrency.py.
@pytest.mark.parametrize("step", ["apply.append", pytest.param("log.append", marks=pytest.mark.soak)])
def test_process_paused_past_its_lease_does_not_publish(scene: Scene, step: str) -> None:
    source = Source(scene)
    source.load("LOAD00000001.csv", *(f"{key},row {key},x,1.00" for key in range(1, 11)))
    scene.run()
    # Long enough for a starved machine to renew it, and no longer than a test may wait for its end.
    scene.configure(lease_seconds=8)
    source.change("20240101-000000000.csv", "U,1,changed,y,2.00", "D,2,,,0", "I,20,new,y,3.00")
    config = {**scene._settings, "state": "sqlite:///state.db", "spark": SPARK_SETTINGS}
    (scene.folder / "lakeward.yaml").write_text(json.dumps(config))
    helper = [sys.executable, "-m", "tests.spark.process", str(scene.folder), "stop", TABLE, step]
    with subprocess.Popen(helper, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as paused:
        try:
            assert paused.stdout is not None
            assert paused.stdout.readline() == f"{step}\n"
            _send(paused.pid, signal.SIGSTOP)
            # It lives on this host: only the end of its lease frees the table.
            owner = scene.lakeward.run(wait=120).tables[0]
            assert owner.outcome is Outcome.DONE
            published = _heads(scene)
            _send(paused.pid, signal.SIGCONT)
            report, _ = paused.communicate("go on\n", timeout=600)
        finally:
            _send(paused.pid, signal.SIGCONT)
            paused.kill()
    assert _heads(scene) == published, "the paused writer published over the new owner's work"
    assert json.loads(report)["tables"][0]["outcome"] in ("idle", "locked")
    assert scene.rows() == source.rows()
    check_books(scene)


def _send(pid: int, number: signal.Signals) -> None:
    """Signal the process and Spark's JVM, which would go on writing otherwise."""
    try:
        process = psutil.Process(pid)
        for child in (process, *process.children(recursive=True)):
            child.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _heads(scene: Scene) -> tuple[int, int]:
    spark = scene.lakeward.spark
    return mirror_of(spark, PRODUCT).require_head().id, changelog_of(spark, PRODUCT).require_head().id
