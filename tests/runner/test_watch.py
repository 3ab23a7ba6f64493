"""Watching for real: files on disk and messages of a queue become rows."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from tests.runner.watching import PATIENCE, watching
from tests.s3.bucket import Bucket
from tests.servers.moto import CREDENTIALS, REGION, moto_client
from tests.spark.fixtures import SPARK_SETTINGS
from tests.spark.scene import SCHEMA, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

OTHER = "sales.customer"
BODY = {"schema": SCHEMA, "primary_key": "id"}


def test_files_become_rows_as_they_land_and_only_their_tables_run(scene: Scene) -> None:
    scene.configure({TABLE: BODY, OTHER: BODY})
    for table in (TABLE, OTHER):
        scene.land("LOAD00000001.csv", "1,one,a,1.00", folder=table.replace(".", "/"))
    # Files of a burst that a starved machine writes are further apart than usual.
    with watching(scene.lakeward, settle=3) as runs:
        start = runs.next()
        assert [table.outcome for table in start.tables] == [Outcome.DONE, Outcome.DONE], "what landed before is run"
        scene.land("20240101-000000001.csv", "I,2,two,b,2.00")
        [first] = runs.next().tables
        assert (first.table, first.rows_in) == (TABLE, 1)
        assert scene.names() == {1: "one", 2: "two"}
        for number in range(20):
            scene.land(f"20240102-0000000{number:02}.csv", f"I,{10 + number},n,b,1.00")
            time.sleep(0.02)
        [burst] = runs.next().tables
        assert (burst.table, sum(op.files for op in burst.ops)) == (TABLE, 20), "a burst is one run"
        scene.land("20240101-000000001.csv", "1,x", folder="sales/unheard")
        assert runs.none_for(4.0)
        assert [str(table.table) for table in scene.lakeward.tables() if not table.active] == ["sales.unheard"]
    assert len(scene.names()) == 22


def test_a_failing_table_does_not_end_watching_and_a_load_that_settles_is_run_by_itself(scene: Scene) -> None:
    scene.configure({TABLE: BODY, OTHER: {**BODY, "load_settle": 12}})
    scene.land("LOAD00000001.csv", "1,one,a,1.00")
    with watching(scene.lakeward) as runs:
        runs.until(TABLE, Outcome.DONE)
        bad = scene.land("20240101-000000001.csv", "I,two,two,b,2.00")
        assert "two" in (runs.until(TABLE, Outcome.FAILED)[-1].table(TABLE).message or "")
        scene.land("LOAD00000001.csv", "1,one,a,1.00", folder="sales/customer")
        waited = runs.until(OTHER, Outcome.DONE)
        assert waited[0].table(OTHER).outcome is Outcome.WAITING, "nothing lands, and yet it runs again"
        bad.write_text("I,2,two,b,2.00\n")
        runs.until(TABLE, Outcome.DONE)
    assert scene.names() == {1: "one", 2: "two"}
    assert len(scene.rows(OTHER)) == 1


def test_a_table_held_up_at_a_step_delays_no_other_and_what_lands_meanwhile_is_not_forgotten(scene: Scene) -> None:
    scene.configure({TABLE: BODY, OTHER: BODY})
    for table in (TABLE, OTHER):
        scene.land("LOAD00000001.csv", "1,one,a,1.00", folder=table.replace(".", "/"))
    is_held, gate = threading.Event(), threading.Event()

    def hold(table: str, step: str) -> None:
        if (table, step) == (TABLE, "check.read") and not gate.is_set():
            is_held.set()
            assert gate.wait(PATIENCE)

    with watching(scene.lakeward) as runs:
        runs.next()
        scene.on_step = hold
        try:
            scene.land("20240101-000000001.csv", "I,2,two,b,2.00")
            assert is_held.wait(PATIENCE)
            scene.land("20240101-000000002.csv", "I,3,three,b,2.00")
            for number in (2, 3):
                name, line = f"20240101-00000000{number}.csv", f"I,{number},n,b,1.00"
                scene.land(name, line, folder="sales/customer")
                [one] = runs.next().tables
                assert (one.table, one.outcome, len(scene.rows(OTHER))) == (OTHER, Outcome.DONE, number)
            assert scene.names() == {1: "one"}, "still held up"
        finally:
            gate.set()
        reports = [table for _ in range(2) for table in runs.next().tables]
        assert [report.table for report in reports] == [TABLE, TABLE], "run again for what landed after its listing"
    assert scene.names() == {1: "one", 2: "two", 3: "three"}


class Landing:
    """A landing folder in S3 whose events S3 itself sends to a queue."""

    def __init__(self, endpoint: str, settings: dict[str, Any]) -> None:
        from lakeward.config.services import S3Settings

        self.name = f"land-{uuid.uuid4().hex[:8]}"
        self.sqs = moto_client("sqs", endpoint)
        self.url = self.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self.bucket = Bucket(self.name, moto_client("s3", endpoint), S3Settings(**settings))
        self.bucket.client.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})
        arn = f"arn:aws:sqs:{REGION}:123456789012:{self.name}"
        events = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
        self.bucket.client.put_bucket_notification_configuration(Bucket=self.name, NotificationConfiguration=events)

    def put(self, table: str, name: str, *lines: str) -> None:
        text = "".join(f"{line}\n" for line in lines)
        self.bucket.put(f"from dms/{table.replace('.', '/')}/{name}", text.encode())

    def messages(self) -> tuple[int, int]:
        """Messages that wait and messages in work."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def close(self) -> None:
        self.sqs.close()
        self.bucket.client.close()


@pytest.fixture
def landing(scene: Scene, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Landing]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    keys = {"access_key": "env:AWS_ACCESS_KEY_ID", "secret_key": "env:AWS_SECRET_ACCESS_KEY"}
    settings = {"endpoint": moto_endpoint, "region": REGION, **keys}
    found = Landing(moto_endpoint, settings)
    scene.configure({TABLE: BODY, OTHER: BODY}, landing=f"s3://{found.name}/from dms", s3=settings)
    yield found
    found.close()


def test_a_message_is_deleted_after_the_commit_and_kept_when_its_table_fails(scene: Scene, landing: Landing) -> None:
    landing.put(TABLE, "LOAD00000001.csv", "1,one,a,1.00")
    landing.put(OTHER, "LOAD00000001.csv", "1,one,a,1.00")
    seen: list[tuple[int, int]] = []
    scene.on_step = lambda _table, step: seen.append(landing.messages()) if step == "apply.publish" else None
    with watching(scene.lakeward, queue=landing.url) as runs:
        runs.until(TABLE, Outcome.DONE)
        runs.until(TABLE, Outcome.IDLE)
        _wait_for(lambda: landing.messages() == (0, 0))
        seen.clear()
        landing.put(TABLE, "20240101-000000001.csv", "I,2,two,b,2.00")
        # The other table's round for the message of its load may end in between.
        run = runs.until(TABLE, Outcome.DONE)[-1]
        assert [table.table for table in run.tables] == [TABLE]
        assert seen and set(seen) == {(0, 1)}, "in work until the commit"
        _wait_for(lambda: landing.messages() == (0, 0))
        landing.put(OTHER, "20240101-000000001.csv", "I,bad,two,b,2.00")
        runs.until(OTHER, Outcome.FAILED)
        time.sleep(0.3)
        assert sum(landing.messages()) == 1
    assert sum(landing.messages()) == 1
    assert scene.names() == {1: "one", 2: "two"}


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sigterm_ends_the_command_in_the_middle_of_an_op_with_130(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "landing/sales/product"
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.csv").write_text("1,one,a,1.00\n")
    config = {"tables": {TABLE: BODY}, "state": "sqlite:///state.db", "spark": SPARK_SETTINGS}
    (tmp_path / "lakeward.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "lakeward.cli.main", "watch", "--output", "json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        start = json.loads(process.stdout.readline())
        assert start["tables"][0]["outcome"] == "done"
        (folder / "20240101-000000001.csv").write_text("I,2,two,b,2.00\n")
        _wait_for(lambda: _leases(tmp_path) == 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors and "interrupted" in errors
    assert _leases(tmp_path) == 0
    parsed = parse_config(config, base=tmp_path)
    with Lakeward(parsed, spark=session_for(spark, parsed)) as lake:
        assert lake.run().exit_code == 0
        assert sorted(row.id for row in lake.sql(f"SELECT id FROM {TABLE}").collect()) == [1, 2]


def _leases(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "state.db", timeout=30)) as state:
        return int(state.execute("SELECT count(*) FROM lakeward_leases").fetchone()[0])
