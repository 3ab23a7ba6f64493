"""A comparison as text for eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.output import add_row, count, lines, styled, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from lakeward import DiffResult, Example

_ACTIONS = {"I": ("inserted", "green"), "C": ("changed", "yellow"), "D": ("deleted", "red")}


def draw(console: Console, result: DiffResult, *, limit: int) -> None:
    """Print counts, columns that differ, and the first differences side by side."""
    summary = result.summary
    lines(
        console,
        [
            ("past", f"{result.past['address']}   {count(summary.past_rows, 'row')}"),
            ("current", f"{result.current['address']}   {count(summary.current_rows, 'row')}"),
            ("keys", ", ".join(result.keys)),
        ],
        indent="",
    )
    numbers = (("inserted", summary.inserted), ("changed", summary.changed), ("deleted", summary.deleted))
    shown = ", ".join(f"{number:,} {what}" for what, number in numbers)
    console.print(f"{'no differences' if summary.is_same else shown}; {summary.unchanged:,} unchanged")
    draw_differences(console, result, limit=limit)
    if result.report:
        console.print(f"report: {result.report}")


def draw_differences(console: Console, result: DiffResult, *, limit: int) -> None:
    """Print columns that differ, the first differences side by side, and where all of them are."""
    for line in _details(result):
        console.print(f"  {line}")
    if result.examples:
        _draw_examples(console, result)
    numbers = (result.summary.inserted, result.summary.changed, result.summary.deleted)
    if limit and max(numbers) > limit and result.examples:
        console.print(f"the first {limit} of each kind are shown; --limit shows more, --to PATH writes all")
    if result.change_set:
        console.print(f"change set: {result.change_set}")


def _details(result: DiffResult) -> list[str]:
    found = list(result.differences)
    columns = {name: number for name, number in result.summary.columns.items() if number}
    if columns:
        ordered = sorted(columns.items(), key=lambda one: -one[1])
        found.append(f"changed rows by column: {', '.join(f'{name} {number:,}' for name, number in ordered)}")
    if result.summary.duplicates:
        found.append(f"{count(result.summary.duplicates, 'row')} whose key came before on the same side")
    return found


def _draw_examples(console: Console, result: DiffResult) -> None:
    drawn = table("what", "key", "column", "past", "current")
    for one in result.examples:
        what, style = _ACTIONS[one.action]
        for at, (name, left, right) in enumerate(_cells(one)):
            first = (styled(what, style), _row(one.key)) if at == 0 else ("", "")
            add_row(drawn, [*first, name, left, right])
    console.print(drawn)


def _cells(one: Example) -> list[tuple[str, str, str]]:
    if one.left is None or one.right is None:
        return [("", "" if one.left is None else _row(one.left), "" if one.right is None else _row(one.right))]
    return [(name, _text(one.left.get(name)), _text(one.right.get(name))) for name in one.changed]


def _row(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: str | None) -> str:
    """Tell a null from the text of that name."""
    return "NULL" if value is None else repr(value)
