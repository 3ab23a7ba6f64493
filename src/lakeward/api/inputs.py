"""Keys and settings parsed from texts, and settings written as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lakeward.arguments import PATH, TEXT, TEXTS, takes
from lakeward.config.loading import read_yaml
from lakeward.errors import ConfigurationError
from lakeward.text import MALFORMED, json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@takes(texts=TEXTS)
def parse_key(texts: Iterable[str]) -> dict[str, str | None]:
    """Return a row's key from ``column=value`` texts; ``NULL`` is a null, ``'NULL'`` in single quotes that text.

    Raises:
        ConfigurationError: a text is not an assignment, or a column occurs twice.
    """
    from lakeward.views.history.keys import read_assignments

    return read_assignments(texts)


@takes(path=PATH)
def read_keys(path: str | Path) -> list[Mapping[str, Any]]:
    """Return the keys of a file with one per line, each as ``id=42`` or as a JSON object of all key columns.

    Raises:
        ConfigurationError: the file is not UTF-8, or a line holds no key.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        raise ConfigurationError(msg) from None
    return [_read_key(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _read_key(path: str | Path, number: int, line: str) -> Mapping[str, Any]:
    if not line.lstrip().startswith("{"):
        return parse_key([line.strip()])
    try:
        return json_object(line)
    except (ValueError, RecursionError) as error:
        msg = f"{path}, line {number}: not a JSON object: {error}"
        raise ConfigurationError(msg) from error


@takes(text=TEXT)
def parse_setting(text: str) -> Any:
    """Return the value of a table's setting from its text, as YAML reads it."""
    try:
        return read_yaml(text) if text else ""
    except (yaml.YAMLError, *MALFORMED):
        # Not valid YAML, such as the date 2024-02-30: the text itself, which the setting accepts or refuses.
        return text


def format_setting(value: Any) -> str:
    """Return a setting's value as text that :func:`parse_setting` reads back, without quotes where it needs none."""
    if isinstance(value, str) and parse_setting(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
