"""One Spark application for all tests; each test has lakes of its own in it. Loaded for every folder of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config import Config, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

SPARK_SETTINGS: dict[str, Any] = {
    "master": "local[2]",
    "conf": {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
    },
}


def _lake_config(folder: Path, **settings: Any) -> Config:
    return parse_config({"spark": SPARK_SETTINGS, **settings}, base=folder)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The application's root session, with a lake that no test should count on and jars for lakes on S3 too."""
    from lakeward.errors import ConfigurationError
    from lakeward.session.jars import resolve_jars
    from lakeward.session.launching import require_java
    from lakeward.session.sessions import build_session

    folder = tmp_path_factory.mktemp("root")
    try:
        require_java()
        on_s3 = resolve_jars(_lake_config(folder, lake={"warehouse": "s3://bucket/lake"}))
    except ConfigurationError as missing:
        pytest.skip(missing.message)
    class_path = {"spark.driver.extraClassPath": ":".join(str(path) for path in on_s3)}
    settings = {**SPARK_SETTINGS, "conf": {**SPARK_SETTINGS["conf"], **class_path}}
    session = build_session(_lake_config(folder, spark=settings), app_name="lakeward-tests")
    yield session
    session.stop()


@pytest.fixture
def lake_config() -> Callable[..., Config]:
    """Return a function that describes a folder's lake as a user would get it: ``lake_config(tmp_path, landing=…)``."""
    return _lake_config


@pytest.fixture
def lake_session(spark: SparkSession) -> Callable[..., SparkSession]:
    """Return a function that opens a session on the lake of a folder: ``lake_session(tmp_path)``."""
    from lakeward.session.sessions import session_for

    def open_lake(folder: Path, **settings: Any) -> SparkSession:
        return session_for(spark, _lake_config(folder, **settings))

    return open_lake


@pytest.fixture
def scene(tmp_path: Path, spark: SparkSession) -> Iterator[Scene]:
    """A small pipeline in a folder of its own."""
    from tests.spark.scene import Scene

    stage = Scene(tmp_path, spark)
    yield stage
    stage.close()
