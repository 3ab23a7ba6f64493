"""Compare rows as multisets, exactly, and say readably where they differ."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

    Values must be of one kind and equal: ``1`` is neither ``True`` nor ``Decimal(1)``; a NaN equals a NaN; naive
    times are taken as UTC. ``key`` only serves the message: rows of one key are shown column by column.
    """
    difference = describe_difference(actual, expected, key)
    if difference:
        msg = f"{label} differs from the truth\n{difference}"
        raise AssertionError(msg)


def describe_difference(
    actual: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], key: Sequence[str] = ()
) -> str:
    """Give a readable account of what is missing, unexpected or different; empty when nothing is."""
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
    """Give a value as (kind, comparable value), so that values of different kinds never compare equal."""
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
    """Pair rows that share a key, one against one; give the pairs and what is left of both."""
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
