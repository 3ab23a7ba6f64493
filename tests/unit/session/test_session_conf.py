"""Settings of a new Spark application, without starting one."""

import os
from pathlib import Path
from urllib.request import url2pathname

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.session import sessions
from lakeward.session.sessions import ICEBERG_EXTENSIONS, is_local, session_conf


@pytest.fixture(autouse=True)
def jars(monkeypatch):
    monkeypatch.setattr(sessions, "resolve_jars", lambda config: [Path("/jars/a.jar"), Path("/jars/b.jar")])


def conf_of(base, master="local[2]", **conf):
    return session_conf(parse_config({"spark": {"master": master, "conf": conf}}, base=base))


def test_a_lake_session_is_utc_ansi_and_uses_the_lake_by_default(tmp_path):
    conf = conf_of(tmp_path)
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.ansi.enabled"] == "true"
    assert conf["spark.sql.defaultCatalog"] == "lake"
    assert conf["spark.sql.extensions"] == ICEBERG_EXTENSIONS
    assert conf["spark.ui.enabled"] == "false"
    assert "spark.sql.caseSensitive" not in conf


def test_settings_of_the_user_win(tmp_path):
    conf = conf_of(tmp_path, **{"spark.ui.enabled": "true", "spark.driver.memory": "3g"})
    assert (conf["spark.ui.enabled"], conf["spark.driver.memory"]) == ("true", "3g")


def test_the_catalogs_name_cannot_be_changed(tmp_path):
    with pytest.raises(ConfigurationError, match=r"spark\.conf sets spark\.sql\.defaultCatalog"):
        conf_of(tmp_path, **{"spark.sql.defaultCatalog": "other"})


def test_the_users_extensions_java_options_and_class_path_are_kept(tmp_path):
    conf = conf_of(
        tmp_path,
        **{
            "spark.sql.extensions": "my.Extension",
            "spark.driver.extraJavaOptions": "-Dmine=1",
            "spark.driver.extraClassPath": "/mine.jar",
        },
    )
    assert conf["spark.sql.extensions"] == f"my.Extension,{ICEBERG_EXTENSIONS}"
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert conf["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar:/mine.jar"


def test_a_cluster_is_sent_the_jars_and_keeps_its_settings(tmp_path):
    conf = conf_of(tmp_path, master="spark://host:7077", **{"spark.jars": "/mine.jar"})
    assert conf["spark.jars"] == "/jars/a.jar,/jars/b.jar,/mine.jar"
    assert conf.keys().isdisjoint({"spark.driver.memory", "spark.sql.shuffle.partitions", "spark.driver.host"})


def test_a_user_who_brings_iceberg_gets_no_second_one(tmp_path):
    conf = conf_of(tmp_path, **{"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"})
    assert conf.keys().isdisjoint({"spark.jars", "spark.driver.extraClassPath"})


def test_the_log_settings_exist_where_spark_is_configured_to_read_them(tmp_path):
    option = conf_of(tmp_path)["spark.driver.extraJavaOptions"]
    assert Path(url2pathname(option.removeprefix("-Dlog4j2.configurationFile=file://"))).is_file()


@pytest.mark.parametrize(
    ("master", "local", "partitions"),
    [
        ("local", True, "4"),
        ("local[1]", True, "4"),
        ("local[8]", True, "16"),
        ("local[3,2]", True, "6"),
        ("local[*]", True, str(max(4, 2 * (os.cpu_count() or 1)))),
        ("local-cluster[2,1,1024]", False, None),
        ("yarn", False, None),
    ],
)
def test_partitions_follow_the_cores_of_a_local_master(tmp_path, master, local, partitions):
    assert is_local(master) is local
    assert conf_of(tmp_path, master=master).get("spark.sql.shuffle.partitions") == partitions


@pytest.mark.parametrize(("machine_gib", "driver_gib"), [(1, 1), (8, 2), (23, 5), (256, 8)])
def test_the_driver_takes_a_quarter_of_the_machine_within_limits(machine_gib, driver_gib):
    assert sessions._driver_memory_gib(machine_gib << 30) == driver_gib


def test_the_environment_is_put_back_after_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/somebody/elses/spark")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with sessions._own_interpreter(parse_config({}, base=tmp_path)):
        assert os.environ["PYSPARK_PYTHON"]
        assert os.environ["SPARK_HOME"] != "/somebody/elses/spark"
    assert os.environ["SPARK_HOME"] == "/somebody/elses/spark"
    assert "PYSPARK_PYTHON" not in os.environ


def test_under_spark_submit_master_memory_and_jars_are_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    conf = session_conf(parse_config({}, base=tmp_path))
    assert not [key for key in conf if "jars" in key or "ClassPath" in key or key.startswith("spark.driver.host")]
    assert "spark.driver.memory" not in conf
    assert "IcebergSparkSessionExtensions" in conf["spark.sql.extensions"]
