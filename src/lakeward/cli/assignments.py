"""Settings of a table as the command line gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def read_settings(
    primary_key: Sequence[str],
    partition_by: Sequence[str],
    assignments: Sequence[str],
    unset: Sequence[str],
    *,
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Give the settings to change; None goes back to the default. ``before`` is what was set until now."""
    settings: dict[str, Any] = {_top_level(key): None for key in unset}
    if primary_key:
        settings["primary_key"] = _names(primary_key)
    if partition_by:
        settings["partition_by"] = _names(partition_by)
    for assignment in assignments:
        _assign(settings, assignment, before)
    return settings


def _assign(settings: dict[str, Any], assignment: str, before: Mapping[str, Any]) -> None:
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        msg = f"--set {assignment!r}: expected KEY=VALUE"
        raise click.UsageError(msg)
    from lakeward import parse_setting

    value = parse_setting(text)
    name, dot, inner = key.strip().partition(".")
    if dot:
        # The registry replaces a setting as a whole: what was set inside it until now stays.
        kept = settings.get(name) or before.get(name) or {}
        settings[name] = {**kept, inner: value}
    else:
        settings[name] = value


def _top_level(key: str) -> str:
    if "." in key:
        msg = f"--unset {key!r}: a setting is unset as a whole; expected {key.partition('.')[0]!r}"
        raise click.UsageError(msg)
    return key


def _names(values: Sequence[str]) -> list[str]:
    """Split at commas outside parentheses: ``dept,bucket(16, id)`` are two fields."""
    return [name for value in values for name in _split(value)]


def _split(value: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(f"{value},"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            if part := value[start:position].strip():
                yield part
            start = position + 1
