"""Versions of rows in plain Python: from a table's states one after another, without a look at any change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from lakeward.testing.oracle import Key, Row


@dataclass(frozen=True)
class State:
    """What a table holds from a moment on, until the next state; None: since the beginning."""

    since: datetime | None
    rows: Sequence[Mapping[str, Any]]

    def by_key(self, key: Sequence[str]) -> dict[Key, Mapping[str, Any]]:
        """Give the rows by their keys."""
        return {tuple(row[name] for name in key): row for row in self.rows}


def versions(states: Iterable[State], key: Sequence[str], track: Sequence[str] | None = None) -> list[Row]:
    """Give every version with ``valid_from``, ``valid_to`` and ``is_current``, from states in order of time.

    ``track`` restricts the columns that make a new version; the others are shown as at its start.
    """
    ordered = [State(None, ()), *states]
    opened: dict[Key, Row] = {}
    found: list[Row] = []
    for before, after in pairwise(ordered):
        old, new = before.by_key(key), after.by_key(key)
        for one in {*old, *new}:
            if one in old and one in new and _is_same(old[one], new[one], track):
                continue
            if one in opened:
                found.append({**opened.pop(one), "valid_to": after.since, "is_current": False})
            if one in new:
                opened[one] = {**new[one], "valid_from": after.since, "valid_to": None, "is_current": True}
    return [*found, *opened.values()]


def valid_at(rows: Iterable[Mapping[str, Any]], moment: datetime) -> list[Row]:
    """Give the rows whose version is valid at a moment, without a version's own columns."""
    own = {"valid_from", "valid_to", "is_current", "operation"}
    return [
        {name: value for name, value in row.items() if name not in own}
        for row in rows
        if (row["valid_from"] is None or row["valid_from"] <= moment)
        and (row["valid_to"] is None or moment < row["valid_to"])
    ]


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any], track: Sequence[str] | None) -> bool:
    return all(one[name] == other[name] for name in track or one)
