"""Comparing rows as multisets, exactly, with a readable account of differences; versions of rows in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.testing.oracle import Key, Row


SHOWN = 10
ABSENT = ("absent", None)

_Canonical = tuple[str, Any]
_CanonicalRow = tuple[tuple[str, _Canonical], ...]


def assert_same_rows(
    actual: Iterable[Mapping[str, Any]],
    expected: Iterable[Mapping[str, Any]],
    key: Sequence[str] = (),
    label: str = "table",
) -> None:
    """Raise AssertionError unless both hold the same rows, each as often.

    Values must be of the same kind and equal: ``1`` is neither ``True`` nor ``Decimal(1)``; a NaN equals a NaN; naive
    times count as UTC. ``key`` is only used for the message: rows of one key are shown column by column.
    """
    difference = describe_difference(actual, expected, key)
    if difference:
        msg = f"{label} differs from the truth\n{difference}"
        raise AssertionError(msg)


def describe_difference(
    actual: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], key: Sequence[str] = ()
) -> str:
    """Return a readable account of what is missing, unexpected or different; empty if there is no difference."""
    found = Counter(_canonical_row(row) for row in actual)
    wanted = Counter(_canonical_row(row) for row in expected)
    if found == wanted:
        return ""
    missing, unexpected = list((wanted - found).elements()), list((found - wanted).elements())
    differing: list[tuple[_CanonicalRow, _CanonicalRow]] = []
    if key:
        differing, missing, unexpected = _pair_by_key(missing, unexpected, key)
    lines = [f"{found.total()} rows found, {wanted.total()} expected"]
    lines += _section("differing", [_describe_pair(pair, key) for pair in differing])
    lines += _section("missing", [_describe_row(row) for row in missing])
    lines += _section("unexpected", [_describe_row(row) for row in unexpected])
    return "\n".join(lines)


def canonical(value: Any) -> _Canonical:
    """Return a value as (kind, comparable value), so that values of different kinds never compare equal."""
    if value is None:
        return ("null", None)
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else value)
    if isinstance(value, bytes | bytearray | memoryview):
        return ("bytes", bytes(value))
    if isinstance(value, datetime):
        return ("datetime", value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
    for kind in (bool, int, Decimal, str, date, time):
        if isinstance(value, kind):
            return (kind.__name__, value)
    msg = f"cannot compare a value of type {type(value).__name__}: {value!r}"
    raise TypeError(msg)


def _canonical_row(row: Mapping[str, Any]) -> _CanonicalRow:
    return tuple(sorted(((name, canonical(value)) for name, value in row.items()), key=lambda item: item[0]))


def _pair_by_key(
    missing: list[_CanonicalRow], unexpected: list[_CanonicalRow], key: Sequence[str]
) -> tuple[list[tuple[_CanonicalRow, _CanonicalRow]], list[_CanonicalRow], list[_CanonicalRow]]:
    """Return pairs of rows that share a key, and what is left over on both sides."""
    by_key: dict[tuple[_Canonical, ...], list[_CanonicalRow]] = {}
    for row in unexpected:
        by_key.setdefault(_key_of(row, key), []).append(row)
    pairs, unpaired = [], []
    for row in missing:
        if found := by_key.get(_key_of(row, key)):
            pairs.append((row, found.pop()))
        else:
            unpaired.append(row)
    return pairs, unpaired, [row for rows in by_key.values() for row in rows]


def _key_of(row: _CanonicalRow, key: Sequence[str]) -> tuple[_Canonical, ...]:
    values = dict(row)
    return tuple(values.get(name, ABSENT) for name in key)


def _section(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = [f"    … and {len(entries) - SHOWN} more"] if len(entries) > SHOWN else []
    return [f"  {title}: {len(entries)}", *(f"    {entry}" for entry in entries[:SHOWN]), *more]


def _describe_pair(pair: tuple[_CanonicalRow, _CanonicalRow], key: Sequence[str]) -> str:
    expected, found = dict(pair[0]), dict(pair[1])
    names = ", ".join(f"{name}={_show(expected.get(name, ABSENT))}" for name in key)
    columns = [
        f"{name}: found {_show(found.get(name, ABSENT))}, expected {_show(expected.get(name, ABSENT))}"
        for name in sorted({*expected, *found})
        if found.get(name, ABSENT) != expected.get(name, ABSENT)
    ]
    return f"({names}) {'; '.join(columns)}"


def _describe_row(row: _CanonicalRow) -> str:
    return ", ".join(f"{name}={_show(value)}" for name, value in row)


def _show(value: _Canonical) -> str:
    return "no such column" if value == ABSENT else repr(value[1])


# Versions of rows, from the successive states of a table and without any change.
@dataclass(frozen=True)
class State:
    """The rows of a table from a moment on, until the next state; None: since the beginning."""

    since: datetime | None
    rows: Sequence[Mapping[str, Any]]

    def by_key(self, key: Sequence[str]) -> dict[Key, Mapping[str, Any]]:
        """Return the rows by their keys."""
        return {tuple(row[name] for name in key): row for row in self.rows}


def versions(states: Iterable[State], key: Sequence[str], track: Sequence[str] | None = None) -> list[Row]:
    """Return every version with ``valid_from``, ``valid_to`` and ``is_current``, from states in order of time.

    ``track`` restricts the columns that make a new version; the others are shown as at its start.
    """
    ordered = [State(None, ()), *states]
    opened: dict[Key, Row] = {}
    found: list[Row] = []
    for before, after in pairwise(ordered):
        old, new = before.by_key(key), after.by_key(key)
        for row_key in {*old, *new}:
            if row_key in old and row_key in new and _is_same(old[row_key], new[row_key], track):
                continue
            if row_key in opened:
                found.append({**opened.pop(row_key), "valid_to": after.since, "is_current": False})
            if row_key in new:
                opened[row_key] = {**new[row_key], "valid_from": after.since, "valid_to": None, "is_current": True}
    return [*found, *opened.values()]


def valid_at(rows: Iterable[Mapping[str, Any]], moment: datetime) -> list[Row]:
    """Return the rows whose version is valid at a moment, without a version's own columns."""
    own = {"valid_from", "valid_to", "is_current", "operation"}
    return [
        {name: value for name, value in row.items() if name not in own}
        for row in rows
        if (row["valid_from"] is None or row["valid_from"] <= moment)
        and (row["valid_to"] is None or moment < row["valid_to"])
    ]


def _is_same(old: Mapping[str, Any], new: Mapping[str, Any], track: Sequence[str] | None) -> bool:
    return all(old[name] == new[name] for name in track or old)
