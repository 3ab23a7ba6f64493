"""The entry script as spark-submit starts it: the master and the jars are spark-submit's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from lakeward.aws.job import run_job
from lakeward.session.jars import resolve_jars

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SCHEMA = "id int, name string"
TABLES = {name: {"schema": SCHEMA, "primary_key": "id"} for name in ("sales.product", "sales.customer")}


def project(folder: Path, **settings: Any) -> Path:
    for name in TABLES:
        place = folder / "landing" / name.replace(".", "/")
        place.mkdir(parents=True)
        (place / "LOAD00000001.csv").write_text("1,one\n")
    config = folder / "lakeward.yaml"
    # A master that cannot be reached: it must not be used.
    config.write_text(json.dumps({"tables": TABLES, "spark": {"master": "spark://nowhere:1"}, **settings}))
    return config


def submit(*arguments: str, jars: str = "") -> subprocess.CompletedProcess[str]:
    home = Path(pyspark.__file__).parent
    command = [
        str(home / "bin/spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
        "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.host=127.0.0.1",
        *(["--driver-class-path", jars] if jars else []),
        "scripts/lakeward_job.py", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_spark_submit_runs_the_tables_that_are_named(tmp_path: Path, lake_config: Callable[..., Any]) -> None:
    config = project(tmp_path)
    jars = ":".join(str(path) for path in resolve_jars(lake_config(tmp_path)))
    done = submit("--config", str(config), "--table", "sales.product", jars=jars)
    assert done.returncode == 0, done.stderr[-3000:]
    [table] = json.loads(done.stdout.splitlines()[-1])["tables"]
    assert (table["table"], table["outcome"], table["mirror_rows"]) == ("sales.product", "done", 1)


def test_spark_submit_without_iceberg_reports_what_is_missing(tmp_path: Path) -> None:
    done = submit("--config", str(project(tmp_path)))
    assert done.returncode == 2, done.stderr[-3000:]
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert "lacks Iceberg" in error["message"] and "--packages" in error["hint"]


def test_a_running_session_is_used_and_files_choose_their_table(scene: Scene) -> None:
    config = project(scene.folder)
    first = scene.folder / "landing/sales/product/LOAD00000001.csv"
    report = run_job(str(config), files=[first.as_uri()])
    assert [(table.table, table.outcome) for table in report.tables] == [("sales.product", "done")]
    assert {table.outcome for table in run_job(str(config)).tables} == {"idle", "done"}
