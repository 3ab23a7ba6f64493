"""Spark sessions: the application's root, one per lake, one per table operation.

A process has one Spark application, but its catalogs belong to sessions: :func:`session_for` gives another lake its
own session of the same application, and :func:`open_session` is the way in that does whatever is needed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.catalog import CATALOG_KEY, CATALOG_NAME, catalog_conf, is_on_s3
from lakeward.lake.iceberg.jars import require_s3_classes, resolve_jars
from lakeward.lake.iceberg.java import require_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config import Config

ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
# Level of Spark's own log, read by log4j2.properties too.
LOG_VARIABLE = "LAKEWARD_SPARK_LOG"
_EXTENSIONS_KEY = "spark.sql.extensions"
_JAVA_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_DEFAULT_CATALOG_KEY = "spark.sql.defaultCatalog"
_CLASS_PATH_KEY = "spark.driver.extraClassPath"
_JAR_KEYS = ("spark.jars", "spark.jars.packages", _CLASS_PATH_KEY)

_GIB = 1 << 30
# The driver of a local master does all the work: a quarter of the machine, within reason.
_MEMORY_SHARE, _MIN_MEMORY_GIB, _MAX_MEMORY_GIB = 4, 1, 8
_LOCAL_MASTER = re.compile(r"^local(?:\[(?P<cores>\d+|\*)(?:,\d+)?\])?$")

# Settings that every lake session needs, whoever started the application.
_SQL_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Rows per Arrow batch between Spark and Python: wide rows must not make one batch large.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    _DEFAULT_CATALOG_KEY: CATALOG_NAME,
}


def open_session(config: Config, *, app_name: str = "lakeward") -> SparkSession:
    """Give a session whose catalog ``lake`` is the configured one.

    Starts the application if there is none; in a running one, opens a session of its own for this lake.
    """
    active = _active_session()
    return build_session(config, app_name=app_name) if active is None else session_for(active, config)


def build_session(config: Config, *, app_name: str = "lakeward") -> SparkSession:
    """Start the Spark application, or reuse the running one if it has this very lake.

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
    _quiet_query_errors()
    with _own_interpreter(config):
        session = builder.getOrCreate()
    if is_submitted():
        _require_iceberg(session)
    return session


def is_submitted() -> bool:
    """Tell whether ``spark-submit`` started this process: then master, memory and jars are what it was given."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session_for(root: SparkSession, config: Config) -> SparkSession:
    """Open a session in a running application, with the configured lake as its catalog ``lake``.

    A session loads a catalog at its first use, from its own settings: set before that, they give each session
    a lake of its own.
    """
    _require_extensions(root)
    if is_on_s3(config):
        require_s3_classes(root)
    session = root.newSession()
    wanted = {**_SQL_CONF, **catalog_conf(config), **_settable(session, config.spark.conf)}
    for key in _of_catalog(session.conf.getAll).keys() - wanted.keys():
        session.conf.unset(key)
    for key, value in wanted.items():
        session.conf.set(key, value)
    return session


def table_session(root: SparkSession) -> SparkSession:
    """Open the session of one table's operation on the same lake: exact column names, UTC, ANSI, views of its own."""
    session = root.newSession()
    # A new session starts from the application's settings, not from those of the session it comes from.
    inherited, wanted = session.conf.getAll, root.conf.getAll
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
    """Tell whether the session's application still runs: its JVM may be gone without anybody having stopped it."""
    try:
        java = session.sparkContext._jsc
        return java is not None and not java.sc().isStopped()
    except (Py4JError, OSError):
        return False


def load_catalog(session: SparkSession) -> None:
    """Let a session connect to its lake now instead of at its first use, with its own settings."""
    # Spark takes the settings from the session that is active in the calling thread.
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)
    session._jsparkSession.sessionState().catalogManager().catalog(CATALOG_NAME)


def session_conf(config: Config) -> dict[str, str]:
    """Give every setting of a new application; what the user configured wins over all but the catalog's name."""
    user = config.spark.conf
    _require_catalog_name(user)
    conf = {
        # Each op runs the same few dozen generated classes; Spark keeps a hundred and would compile them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark shows settings in its UI and event log: the catalog's keys and credentials among them must not be.
        "spark.redaction.regex": "(?i)secret|password|token|access[.-]?key|credential|authorization",
        # Tables run at one time: a small one shall not wait until a large one's tasks are all done.
        "spark.scheduler.mode": "FAIR",
        **(_local_conf(config.spark.master) if is_local(config.spark.master) and not is_submitted() else {}),
        **_SQL_CONF,
        **catalog_conf(config),
        **user,
        **_jar_conf(config),
    }
    conf[_EXTENSIONS_KEY] = _with_iceberg(user.get(_EXTENSIONS_KEY, ""))
    conf[_JAVA_OPTIONS_KEY] = f"{_log_option()} {user.get(_JAVA_OPTIONS_KEY, '')}".strip()
    return conf


def is_local(master: str) -> bool:
    """Whether the master runs everything in one process on this machine."""
    return _LOCAL_MASTER.match(master) is not None


def _jar_conf(config: Config) -> dict[str, str]:
    """Add Lakeward's jars to the user's, unless those hold Iceberg already."""
    user = config.spark.conf
    if is_submitted() or any("iceberg-spark-runtime" in user.get(key, "") for key in _JAR_KEYS):
        return {}
    jars = [str(path) for path in resolve_jars(config)]
    if is_local(config.spark.master):
        # On the class path they are used in place; as spark.jars, 60 MB would be copied at every start.
        return {_CLASS_PATH_KEY: os.pathsep.join([*jars, *filter(None, [user.get(_CLASS_PATH_KEY)])])}
    return {"spark.jars": ",".join([*jars, *filter(None, [user.get("spark.jars")])])}


def _local_conf(master: str) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{_driver_memory_gib(_machine_memory())}g",
        # One machine talks to itself: no name service, no open port to the outside.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Enough to use every core; more would only make small batches wait for empty tasks.
        "spark.sql.shuffle.partitions": str(max(4, 2 * _local_cores(master))),
        # Spark makes this folder for a catalog that Lakeward does not use; keep it out of the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), f"lakeward-{os.getuid()}", "unused")),
    }


def _local_cores(master: str) -> int:
    match = _LOCAL_MASTER.match(master)
    cores = match["cores"] if match else None
    if cores == "*":
        return os.cpu_count() or 1
    return int(cores or 1)


def _machine_memory() -> int:
    """Bytes that this process may use: the machine's, or its container's if that is less."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _driver_memory_gib(machine_bytes: int) -> int:
    return min(max(machine_bytes // _MEMORY_SHARE // _GIB, _MIN_MEMORY_GIB), _MAX_MEMORY_GIB)


def _log_option() -> str:
    return f"-Dlog4j2.configurationFile={Path(str(files('lakeward.lake.iceberg') / 'log4j2.properties')).as_uri()}"


def _with_iceberg(extensions: str) -> str:
    names = [name.strip() for name in extensions.split(",") if name.strip()]
    return ",".join(names if ICEBERG_EXTENSIONS in names else [*names, ICEBERG_EXTENSIONS])


def _quiet_query_errors() -> None:
    """Keep pyspark from printing each failed query as a page of JSON: the exception says it all."""
    if LOG_VARIABLE not in os.environ:
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _own_interpreter(config: Config) -> Iterator[None]:
    """While Spark starts locally: its Python workers run this interpreter, and its jars are those of this pyspark."""
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
    """Keep the settings that a running application still takes; Spark does not know those of catalogs by name."""
    return {
        key: value
        for key, value in conf.items()
        if key.startswith("spark.sql.catalog.") or session.conf.isModifiable(key)
    }


def _require_catalog_name(user: Mapping[str, str]) -> None:
    for key in (CATALOG_KEY, _DEFAULT_CATALOG_KEY):
        if key in user:
            msg = f"spark.conf sets {key}; Lakeward's catalog is {CATALOG_NAME!r} and is described under lake:"
            raise ConfigurationError(msg, hint=f"remove {key}, and give properties in lake.properties")


def _require_extensions(session: SparkSession) -> None:
    if ICEBERG_EXTENSIONS not in (session.conf.get(_EXTENSIONS_KEY, "") or ""):
        msg = f"the running Spark application lacks {_EXTENSIONS_KEY}={ICEBERG_EXTENSIONS}"
        raise ConfigurationError(msg, hint="stop it and let Lakeward start Spark, or start it with Iceberg")


def _require_iceberg(session: SparkSession) -> None:
    """Refuse a submitted application without Iceberg now: Spark itself would only warn, and fail oddly later."""
    java: Any = session._jvm
    try:
        java.java.lang.Thread.currentThread().getContextClassLoader().loadClass(ICEBERG_EXTENSIONS)
    except Py4JError as error:
        msg = "spark-submit was given no Iceberg: its class IcebergSparkSessionExtensions is not on the class path"
        hint = "spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 … (docs/deploy.md)"
        raise ConfigurationError(msg, hint=hint) from error


def _require_same_lake(active: SparkSession, config: Config) -> None:
    _require_extensions(active)
    found, wanted = _of_catalog(active.conf.getAll), _of_catalog({**catalog_conf(config), **config.spark.conf})
    different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if different:
        # Values may hold credentials: only the names are shown.
        msg = f"the running Spark application has another lake: {', '.join(different)} differ"
        raise ConfigurationError(msg, hint="use session_for(spark, config), or stop the application first")
