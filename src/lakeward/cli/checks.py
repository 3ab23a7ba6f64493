"""What ``lakeward doctor`` looks at, each as one check with a remedy."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakeward.cli.output import count
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cli.progress import Progress
    from lakeward.config import Config

Status = Literal["ok", "problem", "skipped"]


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None


def examine(config_file: str | None, progress: Progress, *, start_spark: bool) -> list[Check]:
    """Look at everything; what depends on a broken part is skipped."""
    checks = [_look("pyspark", _pyspark), _look("java", _java)]
    configuration, config = _configuration(config_file)
    checks.append(configuration)
    if config is None:
        names = ("jars", "landing", "warehouse", "state", "tables", "clusters", "spark")
        return [*checks, *[Check(name, "skipped", "needs a configuration") for name in names]]
    checks += [
        _look("jars", lambda: _jars(config)),
        Check("landing", "skipped", "not configured")
        if _has_clusters_only(config)
        else _look("landing", lambda: _landing(config)),
        _look("warehouse", lambda: _warehouse(config)),
        _look("state", lambda: _state(config)),
    ]
    lacking = {check.name for check in checks if check.status != "ok"}
    checks.append(
        Check("tables", "skipped", "needs landing and state")
        if lacking & {"landing", "state"}
        else _look("tables", lambda: _tables(config))
    )
    checks += _clusters(config, progress)
    needed = {"pyspark", "java", "jars", "warehouse"}
    if not start_spark:
        return [*checks, Check("spark", "skipped", "--no-spark")]
    if any(check.status == "problem" and check.name in needed for check in checks):
        return [*checks, Check("spark", "skipped", "needs what is missing above")]
    with progress.during("starting Spark"):
        return [*checks, _look("spark", lambda: _round_trip(config))]


def _look(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", redact(look()))
    except LakewardError as error:
        return Check(name, "problem", error.message, error.hint)
    except OSError as error:
        return Check(name, "problem", redact(str(error)), "check the path and its permissions")


def _pyspark() -> str:
    import importlib.metadata

    from lakeward.lake.iceberg.jars import iceberg_runtime

    version = importlib.metadata.version("pyspark")
    return f"{version}, with {iceberg_runtime(version).coordinate}"


def _java() -> str:
    from lakeward.lake.iceberg.java import java_program, require_java

    return f"Java {require_java()} ({java_program()})"


def _configuration(config_file: str | None) -> tuple[Check, Config | None]:
    from lakeward.config import load_config

    found: list[Config] = []

    def load() -> str:
        config = load_config(config_file)
        found.append(config)
        return f"valid, {len(config.tables):,} declared tables, paths count from {config.base}"

    check = _look("config", load)
    return check, found[0] if found else None


def _jars(config: Config) -> str:
    from lakeward.lake.iceberg.jars import resolve_jars

    jars = resolve_jars(config)
    others = f" and {len(jars) - 3} more" if len(jars) > 3 else ""
    return f"{', '.join(jar.name for jar in jars[:3])}{others} in {jars[0].parent}"


def _has_clusters_only(config: Config) -> bool:
    """Tell whether a project copies tables of clusters, and says nothing of files that land."""
    return bool(config.clusters) and not config.tables and not {"landing", "transactions"} & config.model_fields_set


def _landing(config: Config) -> str:
    from lakeward.controller.discovery import landed_tables, require_landing
    from lakeward.model import TableId
    from lakeward.sources.storage import open_storage

    storage = open_storage(config.resolve(config.landing), config.s3, config.landing_symlinks)
    require_landing(config, storage)
    found = list(landed_tables(config, storage, config.declared()))
    skipped = [one for one in found if not isinstance(one, TableId)]
    left_out = f"; {count(len(skipped), 'folder')} left out: lakeward discover names them" if skipped else ""
    return f"{config.landing} holds {count(len(found) - len(skipped), 'table')}{left_out}"


def _warehouse(config: Config) -> str:
    """Look whether files can be written: in S3 by writing one, elsewhere without, as the round trip does that."""
    from lakeward.lake.probe import probe_s3_warehouse, s3_warehouse

    if in_s3 := s3_warehouse(config):
        probe_s3_warehouse(config, in_s3)
        return f"{in_s3} can be written, read, listed and tidied up"
    location = config.resolve(config.lake.warehouse)
    if "://" in location:
        return f"{location} is looked at by the round trip"
    folder = Path(location)
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        msg = f"{existing} is not a folder that can be written"
        raise ConfigurationError(msg, hint="correct lake.warehouse in lakeward.yaml, or the folder's permissions")
    return f"{config.lake.warehouse} can be written"


def _state(config: Config) -> str:
    from lakeward.state.open import open_state

    store = open_state(config.state, config.base, config.file_access)
    try:
        registered = sum(1 for _ in store.registered())
    finally:
        store.close()
    return f"open, {registered:,} registered tables"


def _tables(config: Config) -> str:
    """Hold the settings of active tables against their files; loads are not read."""
    from lakeward.api import Lakeward

    with Lakeward(config) as lake:
        active = [str(one.table) for one in lake.tables() if one.active]
        findings = lake.check_tables(active, check_data=False) if active else []
    if errors := [one for one in findings if one.is_error]:
        first, others = errors[0], f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        msg = f"{first.table}: {first.setting}: {first.message}{others}"
        raise ConfigurationError(msg, hint="lakeward tables check")
    warned = f", {len(findings):,} warnings: lakeward tables check" if findings else ""
    return f"the settings of {len(active):,} active tables fit their files{warned}"


def _clusters(config: Config, progress: Progress) -> list[Check]:
    """Look at every configured cluster: whether it answers, takes the login, and can be read by token ranges."""
    checks = []
    for name in config.clusters:
        with progress.during(f"connecting to cluster {name}"):
            checks.append(_look(f"cluster {name}", partial(_cluster, config, name)))
    return checks


def _cluster(config: Config, name: str) -> str:
    from lakeward import CassandraClient

    with CassandraClient(config) as client:
        return client.check(name)


def _round_trip(config: Config) -> str:
    """Create a table in the lake, write and read it, and remove it again."""
    from lakeward.cli.process import keep_interrupts
    from lakeward.lake.iceberg.session import open_session
    from lakeward.spark.errors import any_failure, spark_faults, translated

    namespace = f"lake.lakeward_doctor_{uuid.uuid4().hex[:8]}"
    hint = "lakeward doctor --debug shows the log of Spark"
    unknown = any_failure(ConfigurationError, "Spark failed", hint=hint)
    with translated(*spark_faults("the lake"), unknown, bridge=True):
        with keep_interrupts():
            spark = open_session(config)
        try:
            spark.sql(f"CREATE NAMESPACE {namespace}")
            spark.sql(f"CREATE TABLE {namespace}.probe (id INT) USING iceberg")
            spark.sql(f"INSERT INTO {namespace}.probe VALUES (42)")
            found = [row[0] for row in spark.sql(f"SELECT id FROM {namespace}.probe").collect()]
        finally:
            spark.sql(f"DROP TABLE IF EXISTS {namespace}.probe PURGE")
            spark.sql(f"DROP NAMESPACE IF EXISTS {namespace}")
    if found != [42]:
        msg = f"wrote 42 to a table of the lake and read {found}"
        raise ConfigurationError(msg, hint="check lake.catalog and lake.warehouse")
    return f"Spark {spark.version} wrote and read a table of the lake"
