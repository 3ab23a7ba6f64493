"""One Spark application for all tests; each test has lakes of its own in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeward.config import Config, parse_config
from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.java import require_java
from lakeward.lake.iceberg.session import build_session, session_for
from tests.spark.scene import Scene

SPARK_SETTINGS = {
    "master": "local[2]",
    "conf": {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
    },
}
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.spark)


def _lake_config(folder: Path, **settings: Any) -> Config:
    return parse_config({"spark": SPARK_SETTINGS, **settings}, base=folder)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The application's root session, with a lake that no test should count on."""
    try:
        require_java()
    except ConfigurationError as missing:
        pytest.skip(missing.message)
    session = build_session(_lake_config(tmp_path_factory.mktemp("root")), app_name="lakeward-tests")
    yield session
    session.stop()


@pytest.fixture
def lake_config() -> Callable[..., Config]:
    """Give a function that describes a folder's lake as a user would get it: ``lake_config(tmp_path, landing=…)``."""
    return _lake_config


@pytest.fixture
def lake_session(spark: SparkSession) -> Callable[..., SparkSession]:
    """Give a function that opens a session on the lake of a folder: ``lake_session(tmp_path)``."""

    def open_lake(folder: Path, **settings: Any) -> SparkSession:
        return session_for(spark, _lake_config(folder, **settings))

    return open_lake


@pytest.fixture
def scene(tmp_path: Path, spark: SparkSession) -> Iterator[Scene]:
    """A small pipeline in a folder of its own."""
    stage = Scene(tmp_path, spark)
    yield stage
    stage.close()
