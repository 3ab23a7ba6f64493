"""The checks of ``lakeward doctor``: everything that a run needs, each with a remedy."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakeward.api.opened import OpenedLake, silently
from lakeward.arguments import FLAG, NONE, PATH, instance, takes
from lakeward.config import Config, load_config
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.redaction import redact
from lakeward.text import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.api.opened import During

Status = Literal["ok", "problem", "skipped"]
_CONFIG = PATH | instance("a Config", Config) | NONE


@dataclass(frozen=True)
class Check(Document):
    """The result of one check; ``remedy`` is what to do about a problem."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None


@takes(config=_CONFIG, start_spark=FLAG)
def doctor(
    config: str | Path | Config | None = None, *, start_spark: bool = True, during: During | None = None
) -> list[Check]:
    """Check everything that a run needs; what depends on a broken part is skipped.

    Args:
        config: a configuration or its file; None: ``lakeward.yaml``.
        start_spark: write and read a table of the lake.
        during: called with what takes time, as for :class:`lakeward.Lakeward`.
    """
    checks = [_look("pyspark", _pyspark), _look("java", _java)]
    configuration, found = _configuration(config)
    checks.append(configuration)
    if found is None:
        names = ("jars", "landing", "warehouse", "state", "tables", "clusters", "spark")
        return [*checks, *[Check(name, "skipped", "needs a configuration") for name in names]]
    checks += [
        _look("jars", partial(_jars, found)),
        Check("landing", "skipped", "not configured")
        if _has_clusters_only(found)
        else _look("landing", partial(_landing, found)),
        _look("warehouse", partial(_warehouse, found)),
        _look("state", partial(_state, found)),
    ]
    lacking = {check.name for check in checks if check.status != "ok"}
    checks.append(
        Check("tables", "skipped", "needs landing and state")
        if lacking & {"landing", "state"}
        else _look("tables", partial(_tables, found))
    )
    during = during or silently
    checks += _clusters(found, during)
    checks.append(_spark(found, checks, during) if start_spark else Check("spark", "skipped", "--no-spark"))
    return [*checks, *_snapshots(found, checks)]


def _spark(config: Config, checks: list[Check], during: During) -> Check:
    needed = {"pyspark", "java", "jars", "warehouse"}
    if any(check.status == "problem" and check.name in needed for check in checks):
        return Check("spark", "skipped", "needs what is missing above")
    return _look("spark", partial(_round_trip, config, during))


def _snapshots(config: Config, checks: list[Check]) -> list[Check]:
    """Check that no scheduled snapshot is overdue, where a table has a schedule."""
    settings = (config.defaults, *config.tables.values())
    if not any(table.snapshots.every is not None for table in settings):
        return []
    if any(check.status != "ok" and check.name in {"landing", "state", "spark"} for check in checks):
        return [Check("snapshots", "skipped", "needs landing, state and spark")]
    return [_look("snapshots", partial(_schedules, config))]


def _schedules(config: Config) -> str:
    from lakeward.api.snapshots import Snapshots

    with closing(OpenedLake(config)) as lake:
        if not any(known.active and known.settings.snapshots.every is not None for known in lake.tables()):
            return "no active table has a schedule"
        found = Snapshots(lake).schedule()
    overdue = [schedule for schedule in found if schedule.overdue]
    if overdue:
        first, others = overdue[0], f" (and {len(overdue) - 1} more tables)" if len(overdue) > 1 else ""
        reason = f": {first.waits}" if first.waits else ""
        msg = f"{first.table}: the snapshot {first.due[0]} has been due since {first.due_since}{reason}{others}"
        raise ConfigurationError(msg, hint=f"lakeward run {first.table}")
    return f"none is overdue in {count(len(found), 'table')} with a schedule"


def _look(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", redact(look()))
    except (LakewardError, OSError) as error:
        return _problem(name, error)


def _problem(name: str, error: LakewardError | OSError) -> Check:
    if isinstance(error, LakewardError):
        return Check(name, "problem", error.message, error.hint)
    return Check(name, "problem", redact(str(error)), "check the path and its permissions")


def _pyspark() -> str:
    import importlib.metadata

    from lakeward.session.jars import iceberg_runtime

    version = importlib.metadata.version("pyspark")
    return f"{version}, with {iceberg_runtime(version).coordinate}"


def _java() -> str:
    from lakeward.session.launching import java_program, require_java

    return f"Java {require_java()} ({java_program()})"


def _configuration(config: str | Path | Config | None) -> tuple[Check, Config | None]:
    try:
        found = config if isinstance(config, Config) else load_config(config)
    except (LakewardError, OSError) as error:
        return _problem("config", error), None
    detail = f"valid, {len(found.tables):,} declared tables, paths are relative to {found.base}"
    return Check("config", "ok", redact(detail)), found


def _jars(config: Config) -> str:
    from lakeward.session.jars import resolve_jars

    jars = resolve_jars(config)
    others = f" and {len(jars) - 3} more" if len(jars) > 3 else ""
    return f"{', '.join(jar.name for jar in jars[:3])}{others} in {jars[0].parent}"


def _has_clusters_only(config: Config) -> bool:
    """Whether a project copies tables of clusters and configures no files that land."""
    return bool(config.clusters) and not config.tables and not {"landing", "transactions"} & config.model_fields_set


def _landing(config: Config) -> str:
    from lakeward.model import TableId
    from lakeward.runner.tables import landed_tables, require_landing
    from lakeward.storage.landing import open_landing

    storage = open_landing(config.resolve(config.landing), config.s3, config.landing_symlinks)
    require_landing(config, storage)
    found = list(landed_tables(config, storage, config.declared()))
    skipped = [folder for folder in found if not isinstance(folder, TableId)]
    left_out = f"; {count(len(skipped), 'folder')} left out: lakeward discover names them" if skipped else ""
    return f"{config.landing} holds {count(len(found) - len(skipped), 'table')}{left_out}"


def _warehouse(config: Config) -> str:
    """Check that files can be written: in S3 by writing one, elsewhere by permissions; the round trip writes."""
    from lakeward.session.catalog import probe_s3_warehouse, s3_warehouse

    if in_s3 := s3_warehouse(config):
        probe_s3_warehouse(config, in_s3)
        return f"{in_s3} can be written, read, listed and cleaned up"
    location = config.resolve(config.lake.warehouse)
    if "://" in location:
        return f"{location} is checked by the round trip"
    folder = Path(location)
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        msg = f"{existing} is not a writable folder"
        raise ConfigurationError(msg, hint="correct lake.warehouse in lakeward.yaml, or the folder's permissions")
    return f"{config.lake.warehouse} is writable"


def _state(config: Config) -> str:
    from lakeward.state.base import open_state

    store = open_state(config.state, config.base, config.file_access)
    try:
        registered = sum(1 for _ in store.registered())
    finally:
        store.close()
    return f"open, {registered:,} registered tables"


def _tables(config: Config) -> str:
    """Compare the settings of active tables with their files; loads are not read."""
    from lakeward.api.opened import TableRegistry

    with closing(OpenedLake(config)) as lake:
        active = [known for known in lake.tables() if known.active]
        findings = TableRegistry(lake).check(active, check_data=False)
    if errors := [finding for finding in findings if finding.is_error]:
        first, others = errors[0], f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        msg = f"{first.table}: {first.setting}: {first.message}{others}"
        raise ConfigurationError(msg, hint="lakeward tables check")
    warned = f", {len(findings):,} warnings: lakeward tables check" if findings else ""
    return f"the settings of {len(active):,} active tables fit their files{warned}"


def _clusters(config: Config, during: During) -> list[Check]:
    """Check every configured cluster: whether it answers, accepts the login, and can be read by token ranges."""
    checks = []
    for name in config.clusters:
        with during(f"connecting to cluster {name}"):
            checks.append(_look(f"cluster {name}", partial(_cluster, config, name)))
    return checks


def _cluster(config: Config, name: str) -> str:
    from lakeward.cassandra.clusters import find_cluster
    from lakeward.cassandra.tables import check_cluster

    return check_cluster(find_cluster(config, None, name))


def _round_trip(config: Config, during: During) -> str:
    """Create a table in the lake, write and read it, and remove it again."""
    from lakeward.session.sessions import open_session
    from lakeward.spark.errors import any_failure, spark_faults, translated

    namespace = f"lake.lakeward_doctor_{uuid.uuid4().hex[:8]}"
    hint = "lakeward doctor --debug shows the log of Spark"
    unknown = any_failure(ConfigurationError, "Spark failed", hint=hint)
    with translated(*spark_faults("the lake"), unknown, bridge=True):
        with during("starting Spark"):
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
