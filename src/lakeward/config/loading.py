"""The whole of ``lakeward.yaml`` as typed models, and reading it: the file first, then the environment."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from pydantic import Field, PrivateAttr, ValidationError

from lakeward.arguments import NONE, PATH, takes
from lakeward.config.base import NameList, Settings, inner_model
from lakeward.config.services import (
    ClusterSettings,
    FileAccess,
    LinkPolicy,
    MetricsSettings,
    NotifySettings,
    S3Settings,
    WatchSettings,
)
from lakeward.config.tables import TableDefaults, TableSettings
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.text import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel


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
    conf: dict[str, str] = Field({}, repr=False, description="further Spark settings, which override Lakeward's own")


class RetrySettings(Settings):
    """How often a temporary error is retried within a run, and after which delay."""

    attempts: int = Field(5, ge=0, description="retries per table and run")
    first_delay: float = Field(1.0, gt=0, description="seconds before the first retry, doubled for each later one")
    max_delay: float = Field(60.0, gt=0, description="longest wait in seconds")


class Config(Settings):
    """The whole of ``lakeward.yaml``, with ``base`` as the folder that relative paths count from."""

    landing: str = Field("./landing", description="folder tree that the capture tool writes")
    transactions: str | None = Field(None, description="folder of CDC_TXN files under landing (DMS CdcPath)")
    whole_transactions: bool = Field(
        False, description="declared: no transaction continues in the next CDC_TXN file, and none is written twice"
    )
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
        description="files and folders made for a state or catalog in SQLite: for this user alone, or by umask",
    )
    spark: SparkSettings = Field(SparkSettings(), description="the Spark application that does the work")
    parallel: int = Field(4, ge=1, description="tables that run at one time")
    retry: RetrySettings = Field(RetrySettings(), description="how temporary errors are retried")
    lease_seconds: float = Field(
        30, ge=1, le=30, description="a writer that does not renew its lease for this long loses the table"
    )
    watch: WatchSettings = Field(WatchSettings(), description="what starts a run of lakeward watch")
    history_days: int = Field(90, ge=1, description="days after which a run is removed from the history")
    metrics: MetricsSettings = Field(MetricsSettings(), description="where Prometheus finds metrics")
    notify: NotifySettings | None = Field(None, description="who is notified when tables fail and recover")
    timezone: str = Field("UTC", description="time zone of days and times in commands that name none")
    include: NameList = Field(("*",), description="patterns of tables that discovery looks at")
    exclude: NameList = Field((), description="patterns of tables that discovery leaves out")
    defaults: TableDefaults = Field(TableDefaults(), description="settings of every table that does not override them")
    clusters: dict[str, ClusterSettings] = Field({}, description="Cassandra clusters and Keyspaces, by name")
    tables: dict[str, TableSettings] = Field({}, description="settings of each table, by schema.table")
    base: Path = Field(default_factory=Path.cwd, exclude=True)
    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """The file that was read, None for settings from elsewhere."""
        return self._file

    def with_file(self, file: Path) -> Self:
        """Return these settings as those of a file."""
        found = self.model_copy()
        found._file = file  # noqa: SLF001 - an object of this class
        return found

    def resolve(self, location: str) -> str:
        """Return a local path made absolute, relative to the configuration file; URIs stay as they are."""
        if "://" in location:
            return location
        return str((self.base / location).resolve())

    def declared(self) -> dict[TableId, TableSettings]:
        """Return the settings of the tables in the file, by table."""
        return {TableId.parse(name): settings for name, settings in self.tables.items()}


# Nesting and repetition by aliases are bounded. In a few lines where every alias repeats the one before it ten times,
# YAML expands to more values than any machine holds, and an alias inside its own anchor to infinitely many. Files
# written by hand stay far below these bounds.


MAX_DEPTH = 50
MAX_NODES = 200_000
_ENDLESS = "it is nested too deeply, or an alias in it contains itself"


def read_yaml(text: str) -> Any:
    """Read one YAML document, with the types that YAML itself has.

    Raises:
        yaml.YAMLError: the text is not YAML, is nested too deeply, or expands to too many values.
    """
    loader = _BoundedLoader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError:
        raise
    except Exception as error:  # the library lets out what a bad date, number or tagged value makes Python raise
        msg = str(error) or type(error).__name__
        raise yaml.YAMLError(msg) from error
    finally:
        loader.dispose()


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of one YAML document with their places in the text, None for an empty one.

    Raises:
        yaml.YAMLError: as for :func:`read_yaml`.
    """
    loader = _BoundedLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


class _BoundedLoader(yaml.SafeLoader):
    """A loader that counts values as they are composed, those behind an alias once per use."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise yaml.composer.ComposerError(None, None, _ENDLESS, mark)
            self._count(self._sizes[id(node)], mark)
            return node
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, _ENDLESS, mark)
        before = self._nodes
        self._count(1, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._sizes[id(node)] = self._nodes - before
        return node

    def _count(self, nodes: int, mark: yaml.Mark) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            msg = f"found more than {MAX_NODES:,} values, aliases written out"
            raise yaml.composer.ComposerError(None, None, msg, mark)


def explain_settings(error: ValidationError, source: str) -> str:
    """Return what is wrong with one table's settings."""
    return explain(error, source, within=("tables", "table"))


def explain(error: ValidationError, source: str, *, within: tuple[str, ...] = ()) -> str:
    """Return what is wrong, key by key, with the nearest known key for an unknown one."""
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
    known = [field.alias or name for name, field in model.model_fields.items() if not field.exclude]
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model at an error's path; numbers and table names in the path lead no deeper."""
    model: type[BaseModel] = Config
    for part in location:
        field = model.model_fields.get(str(part))
        model = (inner_model(field) if field else None) or model
    return model


# ``LAKEWARD_LANDING``, ``LAKEWARD_STATE``, ``LAKEWARD_LAKE__WAREHOUSE`` … override the keys of the same names.
DEFAULT_FILE = "lakeward.yaml"
ENVIRONMENT_PREFIX = "LAKEWARD_"
_IN_NO_NAME = re.compile(r"[\0\ud800-\udfff]")
# Read by other parts of Lakeward, not configuration keys.
_OTHER_VARIABLES = {"LAKEWARD_JARS", "LAKEWARD_CACHE", "LAKEWARD_CONFIG"}


@takes(path=PATH | NONE)
def load_config(path: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration file and what the environment overrides.

    Raises:
        ConfigurationError: the file is missing or not YAML, or a key is unknown or has an invalid value.
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
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        hint = f"iconv -f ISO-8859-1 -t UTF-8 {file}   (if it was written in Latin-1)"
        raise ConfigurationError(msg, hint=hint) from None
    except ValueError as error:
        msg = f"{str(file)!r} cannot be the name of a file: {error}"
        raise ConfigurationError(msg) from None
    config = read_config(text, base=file.resolve().parent, environment=environment, source=str(file))
    return config.with_file(file.absolute())


def read_config(text: str, *, base: Path, environment: Mapping[str, str], source: str) -> Config:
    """Read the text of a configuration file; relative paths in it count from ``base``."""
    data = _read_yaml(text, source) or {}
    if not isinstance(data, dict):
        msg = f"{source} must hold a mapping at its top, found {type(data).__name__}"
        raise ConfigurationError(msg)
    return parse_config(data, base=base, environment=environment, source=source)


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return what is wrong and where, without the lines of the file: a secret may be in them."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error)
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(part for part in (error.context, error.problem) if part)


def parse_config(
    data: Mapping[str, Any], *, base: Path, environment: Mapping[str, str] | None = None, source: str = "configuration"
) -> Config:
    """Validate a mapping that has the shape of ``lakeward.yaml``."""
    try:
        merged = _with_defaults(_with_environment(_with_text_keys(data), environment or {}))
    except RecursionError:
        msg = f"{source} is nested too deeply, or an alias in it contains itself"
        raise ConfigurationError(msg) from None
    _require_plain_text(merged, source)
    try:
        config = Config.model_validate({**merged, "base": base})
        config.declared()
    except ValidationError as error:
        raise ConfigurationError(explain(error, source)) from None
    return config


def _read_yaml(text: str, source: str) -> Any:
    try:
        return read_yaml(text)
    except RecursionError:
        msg = f"{source} is nested too deeply"
        raise ConfigurationError(msg) from None
    except (yaml.YAMLError, *MALFORMED) as error:
        # Invalid dates such as 2024-02-30, and invalid numbers, raise the errors of Python's own types.
        problem = _yaml_problem(error) if isinstance(error, yaml.YAMLError) else str(error)
        msg = f"{source} is not valid YAML: {problem}"
        hint = None if isinstance(error, yaml.YAMLError) else "put a value that is text in quotes"
        raise ConfigurationError(msg, hint=hint) from error


def _require_plain_text(data: Any, source: str, where: tuple[str, ...] = ()) -> None:
    """Refuse text that no path, name or address can contain; CSV delimiters and tokens are exempt."""
    if isinstance(data, dict):
        for key, value in data.items():
            _require_plain_text(str(key), source, where)
            _require_plain_text(value, source, (*where, str(key)))
    elif isinstance(data, list):
        for value in data:
            _require_plain_text(value, source, where)
    elif isinstance(data, str) and "csv" not in where and (found := _IN_NO_NAME.search(data)):
        place = ".".join(where) or "(top)"
        msg = f"{source} is not valid:\n  {place}: {data!r} holds the character {found[0]!r}, which no name or path can"
        raise ConfigurationError(msg)


def _with_text_keys(data: Any) -> Any:
    """Return data with the keys ``null:`` and ``on:`` as text: YAML reads them as values."""
    if not isinstance(data, dict):
        return data
    names = {"None": "null", "True": "on"}
    return {
        names[str(key)] if key is None or key is True else key: _with_text_keys(value) for key, value in data.items()
    }


def _with_environment(data: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return data with ``LAKEWARD_A__B=value`` in place of ``a: {b: …}``."""
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if path[0] not in Config.model_fields or path[0] in ("base", "tables"):
            continue
        target = merged
        for key in path[:-1]:
            target = _inner(target, key, variable)
        target[path[-1]] = _environment_value(variable, value) if path[0] != "state" else value
    return merged


def _inner(target: dict[str, Any], key: str, variable: str) -> dict[str, Any]:
    """Replace the mapping under a key by a copy and return that; an empty value counts as an empty mapping."""
    found = target.get(key)
    if found is not None and not isinstance(found, dict):
        msg = f"{variable} sets a key inside {key}:, which the configuration file has as {found!r}"
        raise ConfigurationError(msg, hint=f"make {key}: a mapping, or unset {variable}")
    target[key] = dict(found or {})
    inner: dict[str, Any] = target[key]
    return inner


def _environment_value(variable: str, value: str) -> Any:
    """Read a value as YAML; a pattern such as ``*`` or ``*.orders`` is not an alias."""
    return value if value.startswith("*") else _read_yaml(value, variable)


def _with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Return data with each table's own settings merged over ``defaults``, so that they are complete."""
    defaults, tables = data.get("defaults") or {}, data.get("tables") or {}
    if not (isinstance(defaults, dict) and isinstance(tables, dict)):
        return data
    complete = {name: merge_settings(defaults, body) for name, body in tables.items()}
    return {**data, "defaults": defaults, "tables": complete}


def merge_settings(defaults: Mapping[str, Any], own: Any) -> Any:
    """Merge one table's settings over the defaults, inner settings such as ``csv`` key by key."""
    if own is not None and not isinstance(own, dict):
        return own
    own = dict(own or {})
    merged = {**defaults, **own}
    for key in ("csv", "files", "maintenance", "snapshots"):
        if isinstance(defaults.get(key), dict) and isinstance(own.get(key), dict):
            merged[key] = {**defaults[key], **own[key]}
    return merged
