"""Starting the JVM: its settings are in a private file, not in its arguments."""

import logging
import os
import shlex
import stat
from pathlib import Path

import pytest

from lakeward.session import launching
from lakeward.session.launching import properties_text, start_jvm


@pytest.fixture
def launched(monkeypatch):
    """What spark-submit would see: its arguments, and the file they name with its mode."""
    found = {}

    class Context:
        @staticmethod
        def _ensure_initialized():
            found["arguments"] = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
            file = Path(found["arguments"][found["arguments"].index("--properties-file") + 1])
            found["mode"] = stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)
            found["file"], found["text"] = file, file.read_text()

    monkeypatch.setattr(launching, "SparkContext", Context)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return found


def test_settings_are_in_a_private_file_that_does_not_stay(launched):
    start_jvm({"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.memory": "1g"})
    assert launched["mode"] == (0o600, 0o700)
    assert launched["text"] == "spark.hadoop.fs.s3a.secret.key=hush\nspark.driver.memory=1g\n"
    assert launched["arguments"] == ["--properties-file", str(launched["file"]), "pyspark-shell"]
    assert not launched["file"].parent.exists()
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_settings_of_catalogs_are_in_no_file():
    assert properties_text({"spark.sql.catalog.lake": "C", "spark.sql.catalog.lake.token": "t"}) == ""


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("spark.a", "C:\\x\ny", r"spark.a=C:\\x\ny"),
        ("spark.a b=c:d", " x ", r"spark.a\ b\=c\:d=\ x "),
        ("spark.a", "é🙂\x01", r"spark.a=\u00e9\ud83d\ude42\u0001"),
    ],
)
def test_values_are_written_so_that_java_reads_them_back(key, value, line):
    assert properties_text({key: value}) == f"{line}\n"


def test_settings_that_spark_reads_by_default_still_count_and_come_first(launched, monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\\")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    start_jvm({"spark.b": "2"})
    assert launched["text"] == "spark.a 1\\\n\nspark.b=2\n"


@pytest.mark.parametrize("form", ["--properties-file {}", "--properties-file={}"])
def test_a_file_that_the_user_named_is_taken_over_with_their_other_arguments(launched, monkeypatch, tmp_path, form):
    file = tmp_path / "mine.conf"
    file.write_text("spark.a=1\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--verbose {form.format(file)} 'pyspark-shell'")
    start_jvm({"spark.b": "2"})
    assert launched["text"] == "spark.a=1\n\n\nspark.b=2\n"
    assert launched["arguments"][2:] == ["--verbose", "pyspark-shell"]
    assert os.environ["PYSPARK_SUBMIT_ARGS"].startswith("--verbose --properties-file")


def test_a_password_among_java_options_is_warned_of_without_showing_it(launched, caplog):
    with caplog.at_level(logging.WARNING):
        start_jvm({"spark.driver.extraJavaOptions": "-Da=1 -Djavax.net.ssl.trustStorePassword=hush"})
    assert "javax.net.ssl.trustStorePassword" in caplog.text
    assert "hush" not in caplog.text
