"""Which comparator a column has: the one named for it, else the one for its type, else the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.diffing.comparators import PLAIN, Comparator
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from lakeward.diffing.alignment import AlignedColumn
    from lakeward.diffing.options import DiffOptions

_SIMPLE_TYPES = frozenset(
    {
        "boolean", "byte", "tinyint", "short", "smallint", "integer", "int", "long", "bigint", "float", "double",
        "decimal", "string", "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz", "time", "array",
        "struct", "map", "void",
    }
)  # fmt: skip


def comparator_for(
    name: str, data_type: DataType, options: DiffOptions, fold: Callable[[str], str] = str.lower
) -> Comparator:
    """Choose a column's comparator, once it is known to take the column's type.

    The default one holds for the columns whose type it takes; others are compared by plain equality.
    """
    by_name = {fold(one): comparator for one, comparator in options.column_comparators.items()}
    found = by_name.get(fold(name)) or _for_type(data_type, options.type_comparators)
    if found is None:
        default = options.default_comparator or PLAIN
        return default if default.accepts(data_type) else PLAIN
    if not found.accepts(data_type):
        msg = f"The comparator {found} cannot compare column {name!r}, which is {data_type.simpleString()}"
        raise ConfigurationError(msg)
    return found


def check_types_named(comparators: Mapping[str, Comparator]) -> None:
    """Refuse a comparator for a type that no column can have."""
    for text in comparators:
        plain = _plain(text)
        if not any(mark in plain for mark in "(<") and plain not in _SIMPLE_TYPES:
            msg = (
                f"A comparator is given for type {text!r}, which is none; known: {', '.join(sorted(_SIMPLE_TYPES))} "
                "and types such as decimal(10,2) or map<string,int>"
            )
            raise ConfigurationError(msg)


def equal_values(left: Column, right: Column, one: AlignedColumn) -> Column:
    """Tell whether two values of an aligned column are equal by its comparator; never null."""
    return _compared(left, right, one, one.comparator)


def plainly_equal(left: Column, right: Column, one: AlignedColumn) -> Column:
    """Tell whether two values of an aligned column are equal by plain equality; never null."""
    return _compared(left, right, one, PLAIN)


def surely_equal(left: Column, right: Column, one: AlignedColumn) -> Column:
    """Tell, as cheaply as possible, whether two values are equal by plain equality and by the comparator too."""
    return equal_values(left, right, one) if one.comparator.is_finer else plainly_equal(left, right, one)


def _compared(left: Column, right: Column, one: AlignedColumn, comparator: Comparator) -> Column:
    return comparator.equal(comparator.prepared(left, one.type), comparator.prepared(right, one.type))


def _for_type(data_type: DataType, comparators: Mapping[str, Comparator]) -> Comparator | None:
    by_type = {_plain(text): comparator for text, comparator in comparators.items()}
    exact = by_type.get(_plain(data_type.simpleString()))
    return exact or by_type.get(data_type.typeName())


def _plain(text: str) -> str:
    return "".join(text.lower().split())
