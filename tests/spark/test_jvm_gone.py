"""The JVM is killed in the middle of a run: its tables fail at once, in words, and the next run is whole."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from tests.spark.fixtures import SPARK_SETTINGS


def kill_jvm(process: psutil.Process) -> None:
    for child in process.children(recursive=True):
        if child.name() == "java":
            child.kill()


@pytest.mark.slow
def test_a_killed_jvm_fails_its_tables_at_once_and_in_words(tmp_path) -> None:
    tables = {name: {"primary_key": "id", "schema": "id int, name string"} for name in ("s.t", "s.u")}
    settings = {"spark": SPARK_SETTINGS, "tables": tables, "parallel": 1, "retry": {"attempts": 5, "first_delay": 60}}
    (tmp_path / "lakeward.yaml").write_text(json.dumps(settings))
    for name in ("t", "u"):
        (tmp_path / "landing/s" / name).mkdir(parents=True)
        (tmp_path / "landing/s" / name / "LOAD00000001.csv").write_text("1,a\n")
    command = [sys.executable, "-m", "lakeward.cli.main", "run", "--output", "json", "--log-format", "json"]
    output = []
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:
            output.append(line)
            if '"op.step"' in line:
                kill_jvm(psutil.Process(run.pid))
        report = json.loads(run.stdout.read())
    assert run.returncode == 3, output
    assert "tables" in report, (report, output)
    assert [(table["outcome"], table["error_kind"]) for table in report["tables"]] == [("failed", "spark")] * 2
    assert all("the JVM of Spark was killed (SIGKILL)" in table["message"] for table in report["tables"])
    assert "Traceback" not in "".join(output) and "incubator" not in "".join(output)
    assert "the usual reason is a lack of memory" in output[-1]
