"""The settings of a new Spark application: Lakeward's own, the lake's catalog and jars, the user's."""

from __future__ import annotations

import os
import re
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lakeward.errors import ConfigurationError
from lakeward.session.catalog import CATALOG_KEY, CATALOG_NAME, catalog_conf
from lakeward.session.jars import resolve_jars

if TYPE_CHECKING:
    from collections.abc import Mapping

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
