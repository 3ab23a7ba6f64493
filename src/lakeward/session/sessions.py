"""Spark sessions: the application's root, one per lake, one per table operation.

A process has one Spark application, but its catalogs belong to sessions: :func:`session_for` opens a session of the
same application for another lake. :func:`open_session` does whichever is needed.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakeward.errors import ConfigurationError
from lakeward.session.application import (
    EXTENSIONS_KEY,
    ICEBERG_EXTENSIONS,
    SQL_CONF,
    is_local,
    is_submitted,
    session_conf,
)
from lakeward.session.catalog import CATALOG_KEY, CATALOG_NAME, catalog_conf, is_on_s3
from lakeward.session.launching import require_java, start_jvm
from lakeward.spark.jvm import has_class, quiet_accumulators, starting_jvm
from lakeward.spark.versions import all_settings, quiet_query_errors
from lakeward.storage.hadoop import require_s3_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config import Config


def open_session(config: Config, *, app_name: str = "lakeward") -> SparkSession:
    """Return a session whose catalog ``lake`` is the configured one.

    Starts the application if there is none; otherwise opens a new session in it.
    """
    active = _active_session()
    return build_session(config, app_name=app_name) if active is None else session_for(active, config)


def build_session(config: Config, *, app_name: str = "lakeward") -> SparkSession:
    """Start the Spark application, or return the session of the running one if it has the same lake.

    Raises:
        ConfigurationError: Java or a jar is missing, or the running application has another lake.
    """
    active = _active_session()
    if active is not None:
        _require_same_lake(active, config)
        return active
    conf = session_conf(config)
    builder = SparkSession.builder.appName(app_name)
    if not is_submitted():
        require_java()
        builder = builder.master(config.spark.master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    quiet_query_errors()
    with _own_interpreter(config), starting_jvm():
        if not is_submitted():
            start_jvm({**conf, "spark.master": config.spark.master, "spark.app.name": app_name})
        session = builder.getOrCreate()
    quiet_accumulators(session.sparkContext)
    if is_submitted():
        _require_iceberg(session)
    return session


def session_for(root: SparkSession, config: Config) -> SparkSession:
    """Open a session in a running application, with the configured lake as its catalog ``lake``.

    A session loads a catalog at its first use, from its own settings. As these are set before, each session can have
    a different lake.
    """
    _require_extensions(root)
    if is_on_s3(config):
        require_s3_classes(root)
    session = root.newSession()
    wanted = {**SQL_CONF, **catalog_conf(config), **_settable(session, config.spark.conf)}
    for key in _of_catalog(all_settings(session)).keys() - wanted.keys():
        session.conf.unset(key)
    for key, value in wanted.items():
        session.conf.set(key, value)
    return session


def table_session(root: SparkSession) -> SparkSession:
    """Open a session for an op on one table: same lake, case-sensitive names, UTC, ANSI mode, separate views."""
    session = root.newSession()
    # A new session has the settings of the application, not of the session it was created from.
    inherited, wanted = all_settings(session), all_settings(root)
    changed = {key: value for key, value in wanted.items() if inherited.get(key) != value}
    for key, value in _settable(session, changed).items():
        session.conf.set(key, value)
    for key in _of_catalog(inherited).keys() - wanted.keys():
        session.conf.unset(key)
    session.conf.set("spark.sql.caseSensitive", "true")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    return session


def is_alive(session: SparkSession) -> bool:
    """Whether the session's application still runs: its JVM may have died."""
    try:
        java = session.sparkContext._jsc
        return java is not None and not java.sc().isStopped()
    except (Py4JError, OSError):
        return False


def load_catalog(session: SparkSession) -> None:
    """Connect a session to its lake now, with its own settings, instead of at the first use."""
    # Spark uses the settings of the session that is active in the calling thread.
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    session._jsparkSession.sessionState().catalogManager().catalog(CATALOG_NAME)


@contextmanager
def _own_interpreter(config: Config) -> Iterator[None]:
    """Make a local Spark start its workers with this interpreter and use the jars of this pyspark."""
    chosen = config.spark.conf.get("spark.pyspark.python")
    changes: dict[str, str | None] = {}
    if is_submitted():
        yield
        return
    if chosen or is_local(config.spark.master):
        changes["PYSPARK_PYTHON"] = changes["PYSPARK_DRIVER_PYTHON"] = chosen or sys.executable
    home = Path(pyspark.__file__).parent
    if is_local(config.spark.master) and (home / "jars").is_dir():
        changes["SPARK_HOME"] = str(home)
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _active_session() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _of_catalog(conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if key == CATALOG_KEY or key.startswith(f"{CATALOG_KEY}.")}


def _settable(session: SparkSession, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that can be changed in a running application; Spark does not list those of catalogs."""
    return {
        key: value
        for key, value in conf.items()
        if key.startswith("spark.sql.catalog.") or session.conf.isModifiable(key)
    }


def _require_extensions(session: SparkSession) -> None:
    if ICEBERG_EXTENSIONS not in (session.conf.get(EXTENSIONS_KEY, "") or ""):
        msg = f"the running Spark application lacks {EXTENSIONS_KEY}={ICEBERG_EXTENSIONS}"
        raise ConfigurationError(msg, hint="stop it so that Lakeward starts Spark, or start it with Iceberg")


def _require_iceberg(session: SparkSession) -> None:
    """Refuse a submitted application without Iceberg: Spark would only warn now, and fail later."""
    if not has_class(session, ICEBERG_EXTENSIONS):
        msg = "spark-submit lacks Iceberg: its class IcebergSparkSessionExtensions is not on the class path"
        hint = "spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 … (docs/deploy.md)"
        raise ConfigurationError(msg, hint=hint)


def _require_same_lake(active: SparkSession, config: Config) -> None:
    _require_extensions(active)
    found, wanted = _of_catalog(all_settings(active)), _of_catalog({**catalog_conf(config), **config.spark.conf})
    different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if different:
        # Values may hold credentials: only the names are shown.
        msg = f"the running Spark application has another lake: {', '.join(different)} differ"
        raise ConfigurationError(msg, hint="use session_for(spark, config), or stop the application first")
