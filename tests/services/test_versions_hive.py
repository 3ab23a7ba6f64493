"""A table over all versions in a Hive metastore, which needs a Spark application of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
@pytest.mark.spark
def test_a_table_over_all_versions_in_a_hive_metastore(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.services.hive_versions", str(tmp_path)]
    repository = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    first = [["a", "1", "2020-01-01", None], ["a", "2", "None", None]]
    second, third = [["b", "1", "2020-01-01", "m"]], [["c", "3", "2020-01-02", "n"]]
    assert (found["new"], found["added"]) == (first, first + second)
    assert found["widened"] == first + second + third
    renewed = [["b", "9", "None", "o"]]
    assert (found["renewed"], found["removed"]) == (first + renewed + third, renewed + third)
    assert found["types"] == [["id", "bigint"], ["name", "string"], ["More", "string"]]
    assert found["files"] == 2, "files went with their partitions"
