"""The whole of ``lakeward.yaml`` as frozen, typed models. Relative paths count from the file."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from lakeward.config.access import FileAccess, LinkPolicy
from lakeward.config.base import NameList, Settings
from lakeward.config.clusters import ClusterSettings
from lakeward.config.monitoring import MetricsSettings, NotifySettings
from lakeward.config.s3 import S3Settings
from lakeward.config.tables import TableDefaults, TableSettings
from lakeward.config.watching import WatchSettings
from lakeward.model import TableId


class LakeSettings(Settings):
    """Where mirrors and changelogs live."""

    catalog: str = Field("sqlite:///lake/catalog.db", description="sqlite:///…, hadoop:///…, rest+https://…, glue://")
    warehouse: str = Field("./lake/data", description="folder or URI of data files")
    properties: dict[str, str] = Field(
        {}, repr=False, description="further properties of the Iceberg catalog; env:NAME reads one"
    )


class SparkSettings(Settings):
    """The Spark application that does the work."""

    master: str = Field("local[*]", description="local[*], spark://host:port, yarn, k8s://…")
    conf: dict[str, str] = Field({}, repr=False, description="further Spark settings, which win over Lakeward's own")


class RetrySettings(Settings):
    """How often a passing fault is tried again within a run, and how long it waits."""

    attempts: int = Field(5, ge=0, description="further attempts per table and run")
    first_delay: float = Field(1.0, gt=0, description="seconds before the first, doubled for each that follows")
    max_delay: float = Field(60.0, gt=0, description="longest wait in seconds")


class Config(Settings):
    """The whole of ``lakeward.yaml``, with ``base`` as the folder that relative paths count from."""

    landing: str = Field("./landing", description="folder tree that the capture tool writes")
    transactions: str | None = Field(None, description="folder of CDC_TXN files under landing (DMS CdcPath)")
    landing_symlinks: LinkPolicy = Field(
        "refuse", description="symbolic links in a local landing that leave it: stop their table, or follow them"
    )
    lake: LakeSettings = Field(LakeSettings(), description="where mirrors and changelogs live")
    s3: S3Settings = Field(S3Settings(), description="how s3:// locations are reached")
    state: str = Field(
        "sqlite:///lakeward.db",
        repr=False,
        description="run history, registry, leases, ledger cache: sqlite:///…, postgresql://…, dynamodb://…",
    )
    file_access: FileAccess = Field(
        "private",
        description="files and folders made for a state or catalog in SQLite: for this user alone, or as umask says",
    )
    spark: SparkSettings = Field(SparkSettings(), description="the Spark application that does the work")
    parallel: int = Field(4, ge=1, description="tables that run at one time")
    retry: RetrySettings = Field(RetrySettings(), description="how passing faults are tried again")
    lease_seconds: float = Field(
        30, ge=1, le=30, description="a table's writer that is not heard of for so long loses the table"
    )
    watch: WatchSettings = Field(WatchSettings(), description="what wakes lakeward watch")
    history_days: int = Field(90, ge=1, description="days after which a run leaves the history")
    metrics: MetricsSettings = Field(MetricsSettings(), description="where Prometheus finds figures")
    notify: NotifySettings | None = Field(None, description="who is told when tables fail and recover")
    timezone: str = Field("UTC", description="time zone of days and times that commands are given without one")
    include: NameList = Field(("*",), description="patterns of tables that discovery looks at")
    exclude: NameList = Field((), description="patterns of tables that discovery leaves out")
    defaults: TableDefaults = Field(TableDefaults(), description="settings of every table that does not say otherwise")
    clusters: dict[str, ClusterSettings] = Field({}, description="Cassandra clusters and Keyspaces, by name")
    tables: dict[str, TableSettings] = Field({}, description="settings of each table, by schema.table")
    base: Path = Field(default_factory=Path.cwd, exclude=True)

    def resolve(self, location: str) -> str:
        """Make a local path absolute, counted from the configuration file; leave URIs alone."""
        if "://" in location:
            return location
        return str((self.base / location).resolve())

    def declared(self) -> dict[TableId, TableSettings]:
        """Tables named in the file."""
        return {TableId.parse(name): settings for name, settings in self.tables.items()}
