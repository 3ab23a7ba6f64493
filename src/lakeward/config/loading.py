"""Reading ``lakeward.yaml``: the file comes first, the environment overrides it.

``LAKEWARD_LANDING``, ``LAKEWARD_STATE``, ``LAKEWARD_LAKE__WAREHOUSE`` … stand for the keys of their names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from lakeward.arguments import NONE, PATH, takes
from lakeward.config.bounded_yaml import read_yaml
from lakeward.config.explaining import explain
from lakeward.config.whole import Config
from lakeward.errors import ConfigurationError
from lakeward.reading_back import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_FILE = "lakeward.yaml"
ENVIRONMENT_PREFIX = "LAKEWARD_"
# Read by other parts of Lakeward, not configuration keys.
_IN_NO_NAME = re.compile(r"[\0\ud800-\udfff]")
_OTHER_VARIABLES = {"LAKEWARD_JARS", "LAKEWARD_CACHE", "LAKEWARD_CONFIG"}


@takes(path=PATH | NONE)
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
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        hint = f"iconv -f ISO-8859-1 -t UTF-8 {file}   (if it was written in Latin-1)"
        raise ConfigurationError(msg, hint=hint) from None
    except ValueError as error:
        msg = f"{str(file)!r} cannot be the name of a file: {error}"
        raise ConfigurationError(msg) from None
    return read_config(text, base=file.resolve().parent, environment=environment, source=str(file))


def read_config(text: str, *, base: Path, environment: Mapping[str, str], source: str) -> Config:
    """Read a configuration file's text, wherever it came from; ``base`` is what its relative paths count from."""
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
        msg = f"{source} is nested too deeply, or an alias in it holds itself"
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
        # Dates such as 2024-02-30 and numbers that are none raise whatever Python's own types do.
        problem = _yaml_problem(error) if isinstance(error, yaml.YAMLError) else str(error)
        msg = f"{source} is not valid YAML: {problem}"
        hint = None if isinstance(error, yaml.YAMLError) else "write a value that shall stay text in quotes"
        raise ConfigurationError(msg, hint=hint) from error


def _require_plain_text(data: Any, source: str, where: tuple[str, ...] = ()) -> None:
    """Refuse text that no path, name or address can hold; what CSV files use as delimiters and signs is their own."""
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
            target = _inner(target, key, variable)
        target[path[-1]] = _environment_value(variable, value) if path[0] != "state" else value
    return merged


def _inner(target: dict[str, Any], key: str, variable: str) -> dict[str, Any]:
    """Return a copy of the mapping under a key, put in its place; one that is empty in the file holds nothing yet."""
    found = target.get(key)
    if found is not None and not isinstance(found, dict):
        msg = f"{variable} sets a key inside {key}:, which the configuration file has as {found!r}"
        raise ConfigurationError(msg, hint=f"let {key}: be a mapping, or unset {variable}")
    target[key] = dict(found or {})
    inner: dict[str, Any] = target[key]
    return inner


def _environment_value(variable: str, value: str) -> Any:
    """Read a value as YAML; a pattern such as ``*`` or ``*.orders`` is itself and no alias."""
    return value if value.startswith("*") else _read_yaml(value, variable)


def _with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Lay each table's own settings over ``defaults``, so that a table's settings are complete."""
    defaults, tables = data.get("defaults") or {}, data.get("tables") or {}
    if not (isinstance(defaults, dict) and isinstance(tables, dict)):
        return data
    complete = {name: merge_settings(defaults, body) for name, body in tables.items()}
    return {**data, "defaults": defaults, "tables": complete}


def merge_settings(defaults: Mapping[str, Any], own: Any) -> Any:
    """Lay one table's settings over the defaults; ``csv``, ``maintenance`` and ``snapshots`` are laid key by key."""
    if own is not None and not isinstance(own, dict):
        return own
    own = dict(own or {})
    merged = {**defaults, **own}
    for key in ("csv", "maintenance", "snapshots"):
        if isinstance(defaults.get(key), dict) and isinstance(own.get(key), dict):
            merged[key] = {**defaults[key], **own[key]}
    return merged
