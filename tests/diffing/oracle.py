"""The diff in plain Python: two lists of rows in dictionaries, no Spark and none of Lakeward's code.

``diff_rows(past, current, keys, …)`` gives the names of the output's columns and its rows as tuples; compare them with
``tables.frozen_rows``. Rows are tuples in the order of ``columns`` (or of ``current_columns`` on the current side, if
that is given). Values are equal as plain equality has it, or as ``equal`` decides for a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.diffing.tables import settled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Record = dict[str, Any]


def plainly_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal: null to null, NaN to NaN, one zero to the other, maps by their entries."""
    return bool(settled(left) == settled(right))


def diff_rows(
    past: Sequence[Sequence[Any]],
    current: Sequence[Sequence[Any]],
    keys: Sequence[str],
    *,
    columns: Sequence[str],
    current_columns: Sequence[str] | None = None,
    mode: str = "column-by-column",
    sparse: bool = False,
    change_column: str | None = None,
    include_unchanged: bool = False,
    ignore: Sequence[str] = (),
    equal: Mapping[str, Callable[[Any, Any], bool]] | None = None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a diff."""
    there = list(current_columns or columns)
    names = [*columns, *(name for name in there if name not in columns)]
    key_names = list(keys) or [name for name in columns if name not in ignore]
    compared = [name for name in names if name not in key_names and name not in ignore]
    before, after = _by_key(past, columns, key_names), _by_key(current, there, key_names)
    layout = _layout(list(columns), there, compared, ignore, mode)
    rows = []
    for key in [*before, *(key for key in after if key not in before)]:
        left, right = before.get(key), after.get(key)
        changed = None if left is None or right is None else _changed(left, right, compared, equal or {})
        action = "I" if left is None else "D" if right is None else "C" if changed else "N"
        if action == "N" and not include_unchanged:
            continue
        whole: Record = left if left is not None else right  # type: ignore[assignment]
        labels = [action] if change_column is None else [action, changed]
        blank = [] if not sparse else _same(left, right, key_names)
        shown = [_shown(left if side == "left" else right, what, blank) for side, what in layout]
        rows.append((*labels, *(whole[name] for name in key_names), *shown))
    heads = ["diff"] if change_column is None else ["diff", change_column]
    return [*heads, *key_names, *(_title(side, what, mode) for side, what in layout)], rows


def _by_key(rows: Sequence[Sequence[Any]], columns: Sequence[str], keys: Sequence[str]) -> dict[Any, Record]:
    found: dict[Any, Record] = {}
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        key = tuple(settled(record[name]) for name in keys)
        assert key not in found, f"the key {key} occurs twice"
        found[key] = record
    return found


def _changed(
    left: Record, right: Record, compared: Sequence[str], equal: Mapping[str, Callable[[Any, Any], bool]]
) -> list[str]:
    return [name for name in compared if not equal.get(name, plainly_equal)(left.get(name), right.get(name))]


def _layout(
    past: list[str], current: list[str], compared: list[str], ignore: Sequence[str], mode: str
) -> list[tuple[str, str | list[str]]]:
    """Return the output's value columns: the side, and a column's name or those in a struct."""
    lefts = [name for name in past if name in compared] + [name for name in past if name in ignore]
    rights = [name for name in current if name in compared] + [name for name in current if name in ignore]
    if mode == "structs":
        return [("left", past), ("right", current)]
    if mode == "side-by-side":
        return [*(("left", name) for name in lefts), *(("right", name) for name in rights)]
    if mode == "left-side":
        return [("left", name) for name in lefts]
    if mode == "right-side":
        ordered = [*(name for name in compared if name in current), *(name for name in current if name in ignore)]
        return [("right", name) for name in ordered]
    sides = (("left", past), ("right", current))
    return [(side, name) for name in (*compared, *ignore) for side, own in sides if name in own]


def _title(side: str, what: str | list[str], mode: str) -> str:
    if isinstance(what, list):
        return side
    return what if mode in ("left-side", "right-side") else f"{side}_{what}"


def _same(left: Record | None, right: Record | None, keys: Sequence[str]) -> list[str]:
    """Return the columns without a change: they are on both sides, and equal."""
    shared = [name for name in left or {} if name in (right or {}) and name not in keys]
    return [name for name in shared if plainly_equal((left or {})[name], (right or {})[name])]


def _shown(own: Record | None, what: str | list[str], blank: Sequence[str]) -> Any:
    if own is None:
        return None
    if isinstance(what, list):
        return tuple(None if name in blank else own[name] for name in what)
    return None if what in blank else own[what]
