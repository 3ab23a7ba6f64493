"""Nothing that grows with the data comes to the driver: a load, a batch and a verification pass where little may."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROWS, CHANGES = 120_000, 12_000
LIMIT = "400k"
CONFIGURATION = f"""
spark:
  master: "local[2]"
  conf:
    spark.driver.maxResultSize: {LIMIT}
    spark.driver.memory: 1g
    spark.sql.shuffle.partitions: "4"
tables:
  sales.narrow: {{primary_key: [id], schema: "id int, value int"}}
"""
# Prints whether the limit holds at all, then what came of the load, the batch and the verification.
PROGRAM = """
import json, sys
from lakeward import Lakeward
with Lakeward.open(sys.argv[1]) as lake:
    try:
        lake.spark.range(1_000_000).selectExpr("uuid()").collect()
        limited = "no"
    except Exception as error:
        limited = "maxResultSize" in str(error)
    run = lake.run()
    verified = lake.verify()
    print(json.dumps([limited, run.to_dict(), verified.to_dict()]))
"""


@pytest.mark.slow
def test_a_driver_with_little_memory_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "landing/sales/narrow"
    folder.mkdir(parents=True)
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION)
    numbers = np.random.default_rng(5).permutation(ROWS).astype("int32")
    pq.write_table(pa.table({"id": numbers, "value": numbers}), folder / "LOAD00000001.parquet")
    changed = numbers[:CHANGES]
    operations = np.where(changed % 10 == 0, "D", "U")
    changes = pa.table({"Op": operations, "id": changed, "value": changed + 1})
    pq.write_table(changes, folder / "20240101-000000000.parquet")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "lakeward.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    limited, run, verified = json.loads(done.stdout.splitlines()[-1])
    assert limited is True, "spark.driver.maxResultSize does not limit anything here"
    [table] = run["tables"]
    assert table["outcome"] == "done", table["message"]
    assert table["rows_applied"] == ROWS + CHANGES
    [found] = verified["tables"]
    deleted = int(np.count_nonzero(changed % 10 == 0))
    assert (found["verdict"], found["basis"], found["rows_found"]) == ("clean", "files", ROWS - deleted), found
