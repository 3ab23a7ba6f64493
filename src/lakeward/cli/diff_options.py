"""From the command line's words to the options of a diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward import DiffOptions

ALL_COLUMNS = "*"
# A change to null looks like no change in a sparse diff, unless a list of changed columns tells.
_SPARSE_CHANGES = "changes"


def diff_options(choices: Mapping[str, Any]) -> DiffOptions:
    """Build the options.

    Raises:
        ConfigurationError: a comparator is not known, or does not say what it is for.
    """
    from lakeward import DiffMode, DiffOptions, DuplicateKeys

    by_column = dict(_comparators(choices["comparators"], "--compare"))
    change_column = choices["change_column"] or (_SPARSE_CHANGES if choices["sparse"] else None)
    return DiffOptions(
        change_column=change_column,
        diff_mode=DiffMode(choices["mode"]),
        sparse_mode=choices["sparse"],
        include_unchanged=choices["include_unchanged"],
        ignore_columns=named_columns(choices["ignore"]),
        duplicate_keys=DuplicateKeys(choices["duplicate_keys"]),
        default_comparator=by_column.pop(ALL_COLUMNS, None),
        column_comparators=by_column,
        type_comparators=dict(_comparators(choices["type_comparators"], "--compare-type")),
        evolve=True,
    )


def named_columns(text: str | None) -> tuple[str, ...]:
    """Split a list of columns."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _comparators(given: Iterable[str], option: str) -> Iterable[tuple[str, Any]]:
    from lakeward import parse_comparator

    for text in given:
        name, sign, comparator = text.rpartition("=")
        if not sign or not name:
            msg = f"{option} {text!r} does not say what it is for; expected price=epsilon:0.01"
            raise ConfigurationError(msg)
        yield name, parse_comparator(comparator)
