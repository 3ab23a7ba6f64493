"""``lakeward.yaml`` as frozen, typed models.

The file comes first, the environment (``LAKEWARD_LANDING``, ``LAKEWARD_STATE``, ``LAKEWARD_LAKE__WAREHOUSE`` …)
overrides it. Unknown keys are refused with the nearest known one. Relative paths count from the file.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from lakeward.datatypes import Column, parse_ddl
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.monitoring import MetricsSettings, NotifySettings
from lakeward.s3 import S3Settings
from lakeward.watch import WatchSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_FILE = "lakeward.yaml"
ENVIRONMENT_PREFIX = "LAKEWARD_"
# Read by other parts of Lakeward, not configuration keys.
_OTHER_VARIABLES = {"LAKEWARD_JARS", "LAKEWARD_CACHE", "LAKEWARD_CONFIG"}

BadRowPolicy = Literal["fail", "quarantine"]
NameList = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CsvSettings(_Model):
    """How a table's CSV files are written."""

    header: bool = Field(False, description="first record of every file names the columns")
    delimiter: str = Field(",", min_length=1, max_length=1, description="field delimiter")
    quote: str = Field('"', min_length=1, max_length=1, description="quote character, doubled inside quotes")
    null: str | None = Field("NULL", description="unquoted text that means NULL; '' for the empty field")
    unchanged: str | None = Field(None, description="text that means: this column is not spoken of")
    binary: Literal["hex", "base64", "utf8"] = Field("hex", description="how binary values are written")
    columns: NameList | None = Field(None, description="exact columns of headerless change files, in order")
    load_columns: NameList | None = Field(None, description="exact columns of headerless load files, in order")


class PublishSettings(_Model):
    """Plain files refreshed after each run."""

    to: str
    format: Literal["parquet", "csv", "json", "orc"] = "parquet"


class TableDefaults(_Model):
    """Settings that hold for every table unless the table says otherwise."""

    on_bad_row: BadRowPolicy = Field("fail", description="a row that does not fit: stop the batch, or set it aside")
    max_delete_share: float = Field(0.5, ge=0, le=1, description="a batch may delete at most this share of the mirror")
    format_version: Literal[2, 3] = Field(2, description="Iceberg format version of new mirrors")
    timestamp_column: str | None = Field(None, description="commit time column that DMS adds")
    sequence_column: str = Field("AR_H_CHANGE_SEQ", description="change sequence column, used when present")
    operation_column: str = Field("Op", description="name of the operation column where files name columns")
    before_image_prefix: str = Field("BI_", description="prefix of before-image columns")
    before_image_suffix: str = Field("", description="suffix of before-image columns")
    absent_columns: Literal["unchanged", "null"] = Field(
        "unchanged", description="what a column missing from a file means for its rows"
    )
    name_timezone: str = Field("UTC", description="time zone of the times in change file names")
    load_settle: float = Field(0, ge=0, description="seconds without new load parts before a load is taken")
    on_missing_folder: Literal["stop", "truncate"] = Field(
        "stop", description="what a vanished table folder means: an error, or an empty table"
    )
    max_files: int = Field(1000, ge=1, description="change files per batch")
    max_bytes: int = Field(1 << 30, ge=1, description="bytes of change files per batch")
    priority: int = Field(0, description="tables with a higher number run first")
    time_limit: float | None = Field(
        None, gt=0, description="seconds after which a run begins no further op of the table; an op may take as long"
    )
    rewrite_share: float = Field(0.6, gt=0, description="share of touched rows from which the mirror is rewritten")
    broadcast_keys: int = Field(1_000_000, ge=0, description="touched keys up to which they are sent to every task")
    csv: CsvSettings = CsvSettings()


class TableSettings(TableDefaults):
    """One table's settings. An empty body is allowed: no key, insert-only."""

    path: str | None = Field(None, description="folder under landing; default <schema>/<table>")
    primary_key: NameList = Field((), description="key columns; without them the table is insert-only")
    partition_by: NameList = Field((), description="partition of the mirror: dept, days(ts), bucket(16, id) …")
    table_schema: str | None = Field(None, alias="schema", description="columns and types as DDL")
    schema_mode: Literal["strict", "evolve"] | None = Field(
        None, description="strict: any difference stops the table; default strict where schema is declared"
    )
    renames: dict[str, str] = Field({}, description="column renames as the source made them, old: new")
    null_means_unchanged: NameList = Field((), description="columns whose NULL in an update means: not spoken of")
    before_image_columns: NameList | None = Field(
        None, description="columns with before images in headerless CSV, in order; default key or all, by count"
    )
    cdc_start: str | None = Field(None, description="day the capture began")
    publish: PublishSettings | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("cdc_start", mode="before")
    @classmethod
    def _date_as_text(cls, value: Any) -> Any:
        """YAML reads 2020-11-13 as a date."""
        return value if value is None or isinstance(value, str) else value.isoformat()

    @field_validator("table_schema")
    @classmethod
    def _schema_must_parse(cls, value: str | None) -> str | None:
        if value is not None:
            parse_ddl(value)
        return value

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """Declared columns, None when the files tell."""
        return parse_ddl(self.table_schema) if self.table_schema is not None else None

    @property
    def is_strict(self) -> bool:
        """Whether any difference between files and declared schema stops the table."""
        if self.schema_mode is not None:
            return self.schema_mode == "strict"
        return self.table_schema is not None


class LakeSettings(_Model):
    """Where mirrors and changelogs live."""

    catalog: str = Field("sqlite:///lake/catalog.db", description="sqlite:///…, hadoop:///…, rest+https://…, glue://")
    warehouse: str = Field("./lake/data", description="folder or URI of data files")
    properties: dict[str, str] = Field({}, description="further properties of the Iceberg catalog; env:NAME reads one")


class SparkSettings(_Model):
    """The Spark application that does the work."""

    master: str = "local[*]"
    conf: dict[str, str] = {}


class RetrySettings(_Model):
    """How often a passing fault is tried again within a run, and how long it waits."""

    attempts: int = Field(5, ge=0, description="further attempts per table and run")
    first_delay: float = Field(1.0, gt=0, description="seconds before the first, doubled for each that follows")
    max_delay: float = Field(60.0, gt=0, description="longest wait in seconds")


class Config(_Model):
    """The whole of ``lakeward.yaml``, with ``base`` as the folder that relative paths count from."""

    landing: str = Field("./landing", description="folder tree that the capture tool writes")
    transactions: str | None = Field(None, description="folder of CDC_TXN files under landing (DMS CdcPath)")
    lake: LakeSettings = LakeSettings()
    s3: S3Settings = Field(S3Settings(), description="how s3:// locations are reached")
    state: str = Field(
        "sqlite:///lakeward.db",
        description="run history, registry, leases, ledger cache: sqlite:///…, postgresql://…, dynamodb://…",
    )
    spark: SparkSettings = SparkSettings()
    parallel: int = Field(4, ge=1, description="tables that run at one time")
    retry: RetrySettings = RetrySettings()
    lease_seconds: float = Field(
        30, ge=1, le=30, description="a table's writer that is not heard of for so long loses the table"
    )
    watch: WatchSettings = WatchSettings()
    history_days: int = Field(90, ge=1, description="days after which a run leaves the history")
    metrics: MetricsSettings = MetricsSettings()
    notify: NotifySettings | None = None
    include: NameList = Field(("*",), description="patterns of tables that discovery looks at")
    exclude: NameList = Field((), description="patterns of tables that discovery leaves out")
    defaults: TableDefaults = TableDefaults()
    tables: dict[str, TableSettings] = {}
    base: Path = Field(default_factory=Path.cwd, exclude=True)

    def resolve(self, location: str) -> str:
        """Make a local path absolute, counted from the configuration file; leave URIs alone."""
        if "://" in location:
            return location
        return str((self.base / location).resolve())

    def declared(self) -> dict[TableId, TableSettings]:
        """Tables named in the file."""
        return {TableId.parse(name): settings for name, settings in self.tables.items()}


def load_config(path: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration file and what the environment overrides.

    Raises:
        ConfigurationError: no file, no YAML, an unknown key or a value that does not fit.
    """
    environment = os.environ if environment is None else environment
    file = Path(path or environment.get("LAKEWARD_CONFIG") or DEFAULT_FILE)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        msg = f"no configuration file at {file}"
        raise ConfigurationError(msg, hint="lakeward init   (or --config FILE)") from None
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}"
        raise ConfigurationError(msg) from error
    return read_config(text, base=file.resolve().parent, environment=environment, source=str(file))


def read_config(text: str, *, base: Path, environment: Mapping[str, str], source: str) -> Config:
    """Read a configuration file's text, wherever it came from; ``base`` is what its relative paths count from."""
    try:
        data = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        msg = f"{source} is not valid YAML: {error}"
        raise ConfigurationError(msg) from error
    if not isinstance(data, dict):
        msg = f"{source} must hold a mapping at its top, found {type(data).__name__}"
        raise ConfigurationError(msg)
    return parse_config(data, base=base, environment=environment, source=source)


def parse_config(
    data: Mapping[str, Any], *, base: Path, environment: Mapping[str, str] | None = None, source: str = "configuration"
) -> Config:
    """Validate a mapping that has the shape of ``lakeward.yaml``."""
    merged = _with_defaults(_with_environment(_with_text_keys(data), environment or {}))
    try:
        config = Config.model_validate({**merged, "base": base})
        config.declared()
    except ValidationError as error:
        raise ConfigurationError(_explain(error, source)) from None
    return config


def _with_text_keys(data: Any) -> Any:
    """Read the keys ``null:`` and ``on:`` as their text: YAML takes them for values."""
    if not isinstance(data, dict):
        return data
    names = {"None": "null", "True": "on"}
    return {
        names[str(key)] if key is None or key is True else key: _with_text_keys(value) for key, value in data.items()
    }


def _with_environment(data: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Lay ``LAKEWARD_A__B=value`` over ``a: {b: …}``."""
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if path[0] not in Config.model_fields or path[0] in ("base", "tables"):
            continue
        target = merged
        for key in path[:-1]:
            target = target.setdefault(key, {})
        target[path[-1]] = yaml.safe_load(value) if path[0] != "state" else value
    return merged


def _with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Lay each table's own settings over ``defaults``, so that a table's settings are complete."""
    defaults, tables = data.get("defaults") or {}, data.get("tables") or {}
    if not (isinstance(defaults, dict) and isinstance(tables, dict)):
        return data
    complete = {name: merge_settings(defaults, body) for name, body in tables.items()}
    return {**data, "defaults": defaults, "tables": complete}


def merge_settings(defaults: Mapping[str, Any], own: Any) -> Any:
    """Lay one table's settings over the defaults; ``csv`` is laid key by key."""
    if own is not None and not isinstance(own, dict):
        return own
    own = dict(own or {})
    merged = {**defaults, **own}
    if isinstance(defaults.get("csv"), dict) and isinstance(own.get("csv"), dict):
        merged["csv"] = {**defaults["csv"], **own["csv"]}
    return merged


def explain_settings(error: ValidationError, source: str) -> str:
    """Say what is wrong with one table's settings."""
    return _explain(error, source, within=("tables", "table"))


def _explain(error: ValidationError, source: str, *, within: tuple[str, ...] = ()) -> str:
    lines = [f"{source} is not valid:"]
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "(top)"
        text = problem["msg"]
        if problem["type"] == "extra_forbidden":
            text = f"unknown key{_suggestion((*within, *problem['loc']))}"
        lines.append(f"  {where}: {text}")
    return "\n".join(lines)


def _suggestion(location: tuple[int | str, ...]) -> str:
    model = _model_at(location[:-1])
    known = [field.alias or name for name, field in model.model_fields.items() if name != "base"]
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """Follow an error's path to the model whose key is wrong."""
    by_key: dict[str, type[BaseModel]] = {
        "lake": LakeSettings, "s3": S3Settings, "spark": SparkSettings, "defaults": TableDefaults,
        "csv": CsvSettings, "retry": RetrySettings, "watch": WatchSettings, "publish": PublishSettings,
        "metrics": MetricsSettings, "notify": NotifySettings,
    }  # fmt: skip
    if not location:
        return Config
    if str(location[-1]) in by_key:
        return by_key[str(location[-1])]
    return TableSettings if location[0] == "tables" else Config
