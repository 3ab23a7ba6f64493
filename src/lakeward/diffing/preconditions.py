"""What must hold before two sides are compared: options that fit together, columns that are there, distinct names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakeward.diffing.layout import value_columns
from lakeward.diffing.options import DiffMode
from lakeward.diffing.widening import is_same
from lakeward.errors import ConfigurationError, RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.types import StructType

    from lakeward.diffing.alignment import Alignment
    from lakeward.diffing.options import DiffOptions

Fold = Callable[[str], str]


def folding(*, case_sensitive: bool) -> Fold:
    """Give the function under which two spellings of a column are one."""
    return str if case_sensitive else str.lower


def check_options(options: DiffOptions, fold: Fold) -> None:
    """Refuse labels that cannot be told apart."""
    for side, prefix in (("left", options.left_column_prefix), ("right", options.right_column_prefix)):
        if not prefix:
            msg = f"The {side} column prefix is empty: give it at least one character"
            raise ConfigurationError(msg)
    if fold(options.left_column_prefix) == fold(options.right_column_prefix):
        msg = f"Both sides have the column prefix {options.left_column_prefix!r}: they must differ"
        raise ConfigurationError(msg)
    labels = (options.insert_value, options.change_value, options.delete_value, options.nochange_value)
    if len(set(labels)) < len(labels):
        msg = f"The labels of rows must all differ, but they are {_listed(labels)}"
        raise ConfigurationError(msg)
    if not options.diff_column or options.change_column == "":
        msg = "The diff column and the change column need a name"
        raise ConfigurationError(msg)
    if options.change_column is not None and fold(options.change_column) == fold(options.diff_column):
        msg = f"The diff column and the change column are both called {options.diff_column!r}"
        raise ConfigurationError(msg)


def check_columns(
    left: StructType, right: StructType, keys: Sequence[str], options: DiffOptions, fold: Fold, *, evolve: bool
) -> None:
    """Refuse keys and ignored columns that are not there, and (without ``evolve``) schemas that differ."""
    for side, schema in (("past", left), ("current", right)):
        repeated = _repeated(schema.names, fold)
        if repeated:
            msg = f"The {side} side has more than one column called {_listed(repeated)}"
            raise RefusedInputError(msg)
    _check_ignored(left, right, options, fold)
    ignored = {fold(name) for name in options.ignore_columns}
    sides = [[name for name in schema.names if fold(name) not in ignored] for schema in (left, right)]
    if not sides[0] and not sides[1]:
        raise RefusedInputError("There is no column to compare" + (" but ignored ones" if ignored else ""))
    _check_keys(keys, sides, options, fold)
    if not evolve:
        _check_same(left, right, ignored, fold)
    _check_compared_names(left, right, options, fold)


def check_output(alignment: Alignment, options: DiffOptions, fold: Fold) -> None:
    """Refuse names of the output that would come twice."""
    keys = [one.name for one in alignment.keys]
    own = [("diff", options.diff_column), ("change", options.change_column)]
    for purpose, name in own:
        if name is not None and fold(name) in {fold(key) for key in keys}:
            msg = f"The {purpose} column is called {name!r}, and so is a key column"
            raise ConfigurationError(msg, hint=_other_name(purpose))
    made = [one.name for one in value_columns(alignment, options)]
    if options.diff_mode is DiffMode.STRUCTS:
        made = [options.left_column_prefix, options.right_column_prefix]
    for purpose, name in own:
        if name is not None and fold(name) in {fold(one) for one in made}:
            msg = f"The {purpose} column is called {name!r}, and so is a value column in mode {options.diff_mode}"
            raise ConfigurationError(msg, hint=_other_name(purpose))
    repeated = _repeated([*keys, *made], fold)
    if repeated:
        msg = (
            f"With the prefixes {options.left_column_prefix!r} and {options.right_column_prefix!r} more than one "
            f"column is called {_listed(repeated)}"
        )
        raise ConfigurationError(msg, hint="choose other prefixes: left_column_prefix, right_column_prefix")


def _other_name(purpose: str) -> str:
    option = " (--change-column)" if purpose == "change" else ""
    return f"name the {purpose} column otherwise: {purpose}_column{option}"


def _check_ignored(left: StructType, right: StructType, options: DiffOptions, fold: Fold) -> None:
    present = {fold(name) for name in (*left.names, *right.names)}
    missing = [name for name in options.ignore_columns if fold(name) not in present]
    if missing:
        msg = f"Neither side has the ignored column {_listed(missing)}; there are {_listed(left.names)}"
        raise ConfigurationError(msg)
    repeated = _repeated(options.ignore_columns, fold)
    if repeated:
        msg = f"The column {_listed(repeated)} is named more than once among the ignored ones"
        raise ConfigurationError(msg)


def _check_keys(keys: Sequence[str], sides: Sequence[Sequence[str]], options: DiffOptions, fold: Fold) -> None:
    repeated = _repeated(keys, fold)
    if repeated:
        msg = f"The key column {_listed(repeated)} is named more than once"
        raise ConfigurationError(msg)
    ignored = [key for key in keys if fold(key) in {fold(name) for name in options.ignore_columns}]
    if ignored:
        msg = f"The column {_listed(ignored)} is a key and ignored at once"
        raise ConfigurationError(msg)
    for side, names in zip(("past", "current"), sides, strict=True):
        missing = [key for key in keys if fold(key) not in {fold(name) for name in names}]
        if missing:
            msg = f"The {side} side has no key column {_listed(missing)}; it has {_listed(names)}"
            raise ConfigurationError(msg)


def _check_same(left: StructType, right: StructType, ignored: set[str], fold: Fold) -> None:
    types = [
        {fold(field.name): field.dataType for field in schema.fields if fold(field.name) not in ignored}
        for schema in (left, right)
    ]
    found = []
    for side, own, other in (("past", types[0], types[1]), ("current", types[1], types[0])):
        for name, data_type in own.items():
            if name not in other or not is_same(data_type, other[name]):
                found.append(f"{name} {data_type.simpleString()} ({side})")
    if found:
        msg = f"The two sides do not have the same columns; only one side has: {', '.join(found)}"
        raise RefusedInputError(
            msg,
            hint="DiffOptions(evolve=True) aligns added, dropped and widened columns",
        )


def _check_compared_names(left: StructType, right: StructType, options: DiffOptions, fold: Fold) -> None:
    present = {fold(name) for name in (*left.names, *right.names)}
    missing = [name for name in options.column_comparators if fold(name) not in present]
    if missing:
        msg = f"A comparator is given for column {_listed(missing)}, which neither side has"
        raise ConfigurationError(msg)


def _repeated(names: Iterable[str], fold: Fold) -> list[str]:
    return [name for name, times in Counter(fold(name) for name in names).items() if times > 1]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
