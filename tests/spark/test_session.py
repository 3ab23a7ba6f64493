"""What a session promises: settings, quiet output, and one lake per session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.session.sessions import build_session, open_session, session_for, table_session


def create_table(session: SparkSession, value: int) -> None:
    session.sql("CREATE NAMESPACE shop")
    session.sql("CREATE TABLE shop.item (Id INT) USING iceberg")
    session.sql(f"INSERT INTO shop.item VALUES ({value})")


def values(session: SparkSession) -> list[int]:
    return [row[0] for row in session.sql("SELECT * FROM shop.item").collect()]


def test_two_folders_are_two_lakes_in_one_application(lake_session, tmp_path):
    first, second = lake_session(tmp_path / "first"), lake_session(tmp_path / "second")
    create_table(first, 1)
    create_table(second, 2)
    assert (values(first), values(second)) == ([1], [2])
    assert values(lake_session(tmp_path / "first")) == [1]
    assert list((tmp_path / "first" / "lake" / "data").rglob("*.parquet"))


def test_lakes_with_catalogs_of_different_kinds_do_not_mix_their_settings(lake_session, tmp_path):
    session = lake_session(tmp_path, lake={"catalog": "hadoop:///files"})
    create_table(session, 3)
    assert values(session) == [3]
    assert (tmp_path / "files" / "shop" / "item").is_dir()
    assert session.conf.get("spark.sql.catalog.lake.uri", None) is None


def test_table_session_sees_the_lake_of_the_session_it_comes_from(lake_session, tmp_path):
    session = lake_session(tmp_path)
    create_table(session, 4)
    assert values(table_session(session)) == [4]


def test_table_session_of_a_hadoop_lake_does_not_fall_back_to_the_applications_catalog(lake_session, tmp_path):
    session = lake_session(tmp_path, lake={"catalog": "hadoop:///files"})
    create_table(session, 5)
    assert values(table_session(session)) == [5]


def test_only_table_sessions_distinguish_column_names_by_case(lake_session, tmp_path):
    session = lake_session(tmp_path)
    create_table(session, 6)
    assert session.sql("SELECT ID FROM shop.item").first()[0] == 6
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        table_session(session).sql("SELECT ID FROM shop.item")


def test_table_session_keeps_views_to_itself(lake_session, tmp_path):
    session = lake_session(tmp_path)
    table_session(session).range(1).createOrReplaceTempView("only_here")
    assert not session.catalog.tableExists("only_here")


def test_another_session_sees_a_branch_made_after_it_read_the_table(lake_session, tmp_path):
    writer, reader = lake_session(tmp_path), lake_session(tmp_path)
    create_table(writer, 7)
    assert values(reader) == [7]
    writer.sql("ALTER TABLE shop.item CREATE BRANCH fresh")
    assert reader.sql("SELECT * FROM shop.item VERSION AS OF 'fresh'").first()[0] == 7


def test_sessions_compute_in_utc_and_ansi_whatever_the_machine_is_set_to(lake_session, tmp_path):
    for session in (lake_session(tmp_path), table_session(lake_session(tmp_path))):
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
        assert session.conf.get("spark.sql.ansi.enabled") == "true"


def test_user_settings_reach_a_later_session(spark, tmp_path):
    config = parse_config({"spark": {"conf": {"spark.sql.shuffle.partitions": "3"}}}, base=tmp_path)
    assert session_for(spark, config).conf.get("spark.sql.shuffle.partitions") == "3"


def test_open_session_joins_the_running_application(spark, tmp_path):
    session = open_session(parse_config({}, base=tmp_path))
    assert session is not spark
    assert session.sparkContext is spark.sparkContext


def test_build_session_refuses_another_lake_in_a_running_application(spark, tmp_path):
    config = parse_config({"lake": {"properties": {"token": "confidential"}}}, base=tmp_path)
    with pytest.raises(ConfigurationError, match=r"another lake: .*lake\.token") as refused:
        build_session(config)
    assert "confidential" not in str(refused.value)


def test_python_workers_run_the_interpreter_of_the_driver(spark):
    interpreter = F.udf(lambda _: sys.executable)
    assert spark.range(1).select(interpreter("id")).first()[0] == sys.executable


STARTUP = """
import json, sys
from pathlib import Path
import psutil
from pyspark.sql import functions as F
from lakeward.config import parse_config
from lakeward.session.sessions import open_session
settings = {
    "spark": {
        "master": "local[1]",
        "conf": {
            "spark.driver.memory": "700m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": Path("events").absolute().as_uri(),
            "spark.hadoop.fs.s3a.secret.key": "CONFIDENTIAL-1",
            "spark.lakeward.text": "=a \\\\ b: #é🙂 ",
        },
    },
    "lake": {"properties": {"credential": "env:CREDENTIAL", "header.x-name": "env:HEADER", "x": "CONFIDENTIAL-4"}},
}
config = parse_config(settings, base=Path("here"))
spark = open_session(config)
spark.sql("SELECT 1").collect()
spark.range(1).select(F.udf(lambda value: value)("id")).collect()
try:
    spark.sql("SELECT nothing")
except Exception as error:
    failure = type(error).__name__
found = {
    "heap": spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory(),
    "failure": failure,
    "stdin": sys.stdin.read(),
    "processes": [
        Path(f"/proc/{process.pid}/cmdline").read_text().split("\\0")
        for process in psutil.Process().children(recursive=True)
    ],
    "shown": [list(row) for row in spark.sql("SET").collect()],
    "header": spark.conf.get("spark.sql.catalog.lake.header.x-name"),
    "text": spark.conf.get("spark.lakeward.text"),
}
# A session of a lake in a running application: its settings are modified ones, which the event log names.
open_session(config).sql("SELECT 2").collect()
spark.stop()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_new_application_is_quiet_leaves_no_litter_shows_no_secret_and_takes_the_configured_memory(tmp_path):
    secrets = {"CREDENTIAL": "CONFIDENTIAL-2", "HEADER": "CONFIDENTIAL-3"}
    events, temporary = tmp_path / "events", tmp_path / "tmp"
    events.mkdir()
    temporary.mkdir()
    outcome = subprocess.run(
        [sys.executable, "-c", STARTUP],
        cwd=tmp_path,
        env={**os.environ, **secrets, "TMPDIR": str(temporary)},
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found["failure"] == "AnalysisException"
    assert 600 << 20 < found["heap"] <= 700 << 20
    assert outcome.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "here", "tmp"]
    assert sorted(path.name for path in Path(tmp_path, "here", "lake").iterdir()) == ["catalog.db", "data"]
    # The JVM and a Python worker ran, and have what they need; what others see of them holds no secret.
    assert {Path(command[0]).name for command in found["processes"]} >= {"java"}
    assert any("pyspark.daemon" in command for command in found["processes"])
    assert (found["header"], found["text"]) == ("CONFIDENTIAL-3", "=a \\ b: #é🙂 ")
    written = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in written)
    assert "CONFIDENTIAL" not in json.dumps([found["processes"], found["shown"], written])
    assert [path.name for path in temporary.rglob("*.properties")] == []
