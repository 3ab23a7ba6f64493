"""One Spark application for all tests; each test has lakes of its own in it. Loaded for every folder of tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

from lakeward.config import Config, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# Of the application alone, and of no lake. What tests leave in old space and metaspace grows to a gigabyte: a JVM that
# starts with it need not collect all its garbage at each step on the way. Descriptions of plans and of past queries
# are for the user interface, which is off. Python workers are forked with their modules imported. Plans are many and
# tables small: to interpret a plan costs a fifth less than to compile it.
_FOR_MANY_TESTS = {
    "spark.driver.extraJavaOptions": "-Xms1g -Xmn512m -XX:MetaspaceSize=320m",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.worker_daemon",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
}

# Settings of a lake whose plans are compiled, as those of every user are. Processes that tests start have them anyway.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


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
    settings = {**SPARK_SETTINGS, "conf": {**SPARK_SETTINGS["conf"], **_FOR_MANY_TESTS, **class_path}}
    _remember_java_names()
    session = build_session(_lake_config(folder, spark=settings), app_name="lakeward-tests")
    yield session
    session.stop()


def _remember_java_names() -> None:
    """Ask the JVM once for each class, package and static method: it looks for an unknown name in every jar."""
    for kind in (JVMView, JavaPackage, JavaClass):
        kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def remembered(holder: Any, name: str) -> Any:
        found = look_up(holder, name)
        if isinstance(found, (JavaPackage, JavaClass, JavaMember)):
            # From now on it is an ordinary attribute, for which Python does not come here.
            vars(holder)[name] = found
        return found

    return remembered


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
