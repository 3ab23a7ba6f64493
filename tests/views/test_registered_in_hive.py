"""Publications registered in a real Hive metastore, which only a Spark application of its own can have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak

CONFIGURATION = """
spark:
  master: "local[2]"
  conf:
    spark.sql.shuffle.partitions: "2"
    spark.ui.enabled: "false"
    spark.sql.catalogImplementation: hive
    spark.sql.warehouse.dir: {folder}/hive
    spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName={folder}/metastore;create=true"
tables:
  shop.flat:
    primary_key: id
    schema: "id int, name string"
    publish: {{to: ./out, register: true}}
  shop.parted:
    primary_key: id
    schema: "id int, dept string"
    publish: {{to: ./out, register: now.parted, partition_by: dept}}
"""
ROWS = "SELECT * FROM spark_catalog.{} ORDER BY id"
SCRIPT = f"""
import json, sys
from pathlib import Path
from lakeward import Lakeward

landing = Path("landing/shop")
states = []
with Lakeward.open("lakeward.yaml") as lake:
    def look():
        report = lake.run()
        assert not report.failed, [table.message for table in report.tables]
        found = {{}}
        for name in ("default.flat_current", "now.parted"):
            lake.spark.sql(f"REFRESH TABLE spark_catalog.{{name}}")
            found[name] = [list(row) for row in lake.spark.sql({ROWS!r}.format(name)).collect()]
        states.append(found)
    look()
    (landing / "flat/20240101-000000000.csv").write_text("D,1,NULL\\nI,3,three\\n")
    (landing / "parted/20240101-000000000.csv").write_text('U,1,"8"\\nI,3,"a/b"\\n')
    look()
    lake.spark.sql("ALTER TABLE lake.shop.flat ALTER COLUMN name COMMENT 'as it''s sold'")
    (landing / "flat/20240102-000000000.csv").write_text("I,4,four\\n")
    look()
    described = lake.spark.sql("DESCRIBE spark_catalog.default.flat_current").collect()
    print(json.dumps([states, [list(row) for row in described]]))
"""


def test_tables_follow_the_newest_version(tmp_path: Path) -> None:
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION.format(folder=tmp_path))
    for table, text in (("flat", "I,1,one\nI,2,two\n"), ("parted", 'I,1,"007"\nI,2,NULL\n')):
        folder = tmp_path / "landing/shop" / table
        folder.mkdir(parents=True)
        (folder / "LOAD00000001.csv").write_text(text)
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    states, described = json.loads(done.stdout.splitlines()[-1])
    assert [state["default.flat_current"] for state in states] == [
        [[1, "one"], [2, "two"]], [[2, "two"], [3, "three"]], [[2, "two"], [3, "three"], [4, "four"]],
    ]  # fmt: skip
    assert [state["now.parted"] for state in states] == [
        [[1, "007"], [2, None]], [[1, "8"], [2, None], [3, "a/b"]], [[1, "8"], [2, None], [3, "a/b"]],
    ]  # fmt: skip
    assert described == [["id", "int", None], ["name", "string", "as it's sold"]]
