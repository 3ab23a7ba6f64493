"""Spark sessions: the application's root with its settings, one session per lake, one per table operation.

A process has one Spark application, but its catalogs belong to sessions: :func:`session_for` opens a session of the
same application for another lake. :func:`open_session` does whichever is needed.
"""

from __future__ import annotations

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
from pyspark.sql import SparkSession

from lakeward.errors import ConfigurationError
from lakeward.session.catalog import CATALOG_KEY, CATALOG_NAME, catalog_conf, is_on_s3
from lakeward.session.jars import resolve_jars
from lakeward.session.launching import require_java, start_jvm
from lakeward.spark.jvm import has_class, quiet_accumulators, starting_jvm
from lakeward.spark.versions import all_settings, quiet_query_errors
from lakeward.storage.s3 import require_s3_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config import Config


ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
EXTENSIONS_KEY = "spark.sql.extensions"
_JAVA_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_DEFAULT_CATALOG_KEY = "spark.sql.defaultCatalog"
_CLASS_PATH_KEY = "spark.driver.extraClassPath"
_JAR_KEYS = ("spark.jars", "spark.jars.packages", _CLASS_PATH_KEY)
# Spark shows settings in its UI, its event log and by SET. Any catalog property may be a credential.
_SECRET_NAMES = (
    r"(?i)secret|passw|passphrase|token|access[._-]?key|api[._-]?key|credential|authorization|spark\.sql\.catalog\."
)

_GIB = 1 << 30
# The driver of a local master does all the work: it gets a quarter of the memory, within limits.
_MEMORY_SHARE, _MIN_MEMORY_GIB, _MAX_MEMORY_GIB = 4, 1, 8
_LOCAL_MASTER = re.compile(r"^local(?:\[(?P<cores>\d+|\*)(?:,\d+)?\])?$")

# Settings that every lake session needs, whoever started the application.
SQL_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Rows per Arrow batch between Spark and Python, few enough for wide rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    _DEFAULT_CATALOG_KEY: CATALOG_NAME,
    # The event log contains the settings of a session that differ from those of its application.
    "spark.sql.redaction.options.regex": f"{_SECRET_NAMES}|url",
}


def session_conf(config: Config) -> dict[str, str]:
    """Return all settings of a new application; the user's override all others except the catalog's name."""
    user = config.spark.conf
    _require_catalog_name(user)
    conf = {
        # An op uses the same few dozen generated classes each time; Spark's default cache is too small for many tables.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # For each use of a column, pyspark would ask the JVM five times to note the line of Python that it is from.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.redaction.regex": _SECRET_NAMES,
        # Tables run in parallel: a small one must not wait for all tasks of a large one.
        "spark.scheduler.mode": "FAIR",
        **(_local_conf(config.spark.master) if is_local(config.spark.master) and not is_submitted() else {}),
        **SQL_CONF,
        **catalog_conf(config),
        **user,
        **_jar_conf(config),
    }
    conf[EXTENSIONS_KEY] = _with_iceberg(user.get(EXTENSIONS_KEY, ""))
    conf[_JAVA_OPTIONS_KEY] = f"{_log_option()} {user.get(_JAVA_OPTIONS_KEY, '')}".strip()
    return conf


def is_submitted() -> bool:
    """Whether ``spark-submit`` started this process, and so decided on master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """Whether the master runs everything in one process on this machine."""
    return _LOCAL_MASTER.match(master) is not None


def _jar_conf(config: Config) -> dict[str, str]:
    """Return the settings that add Lakeward's jars to the user's, unless those include Iceberg."""
    user = config.spark.conf
    if is_submitted() or any("iceberg-spark-runtime" in user.get(key, "") for key in _JAR_KEYS):
        return {}
    jars = [str(path) for path in resolve_jars(config)]
    if is_local(config.spark.master):
        # On the class path jars are used in place; by spark.jars, 60 MB would be copied at every start.
        return {_CLASS_PATH_KEY: os.pathsep.join([*jars, *filter(None, [user.get(_CLASS_PATH_KEY)])])}
    return {"spark.jars": ",".join([*jars, *filter(None, [user.get("spark.jars")])])}


def _local_conf(master: str) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{_driver_memory_gib(_machine_memory())}g",
        # All communication is local: no name lookup, and no port that is open to other machines.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Enough to use every core; more would only slow down small batches by empty tasks.
        "spark.sql.shuffle.partitions": str(max(4, 2 * _local_cores(master))),
        # Spark creates this folder for a catalog that Lakeward does not use; keep it out of the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), f"lakeward-{os.getuid()}", "unused")),
    }


def _local_cores(master: str) -> int:
    match = _LOCAL_MASTER.match(master)
    cores = match["cores"] if match else None
    if cores == "*":
        return os.cpu_count() or 1
    return int(cores or 1)


def _machine_memory() -> int:
    """Return the memory limit of this process in bytes: that of the machine, or of its container if less."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _driver_memory_gib(machine_bytes: int) -> int:
    return min(max(machine_bytes // _MEMORY_SHARE // _GIB, _MIN_MEMORY_GIB), _MAX_MEMORY_GIB)


def _log_option() -> str:
    return f"-Dlog4j2.configurationFile={Path(str(files('lakeward.session') / 'log4j2.properties')).as_uri()}"


def _with_iceberg(extensions: str) -> str:
    names = [name.strip() for name in extensions.split(",") if name.strip()]
    return ",".join(names if ICEBERG_EXTENSIONS in names else [*names, ICEBERG_EXTENSIONS])


def _require_catalog_name(user: Mapping[str, str]) -> None:
    for key in (CATALOG_KEY, _DEFAULT_CATALOG_KEY):
        if key in user:
            msg = f"spark.conf sets {key}; Lakeward's catalog is {CATALOG_NAME!r} and is described under lake:"
            raise ConfigurationError(msg, hint=f"remove {key}, and set properties in lake.properties")


def open_session(config: Config) -> SparkSession:
    """Return a session whose catalog ``lake`` is the configured one.

    Starts the application if there is none; otherwise opens a new session in it.
    """
    active = _active_session()
    return build_session(config) if active is None else session_for(active, config)


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
