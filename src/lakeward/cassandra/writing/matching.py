"""Columns of a snapshot or change set held against those of the table they are to be written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.cassandra.schema import differences
from lakeward.cassandra.types import spark_type
from lakeward.cassandra.writing.plan import WriteColumn
from lakeward.diffing.widening import is_same
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from lakeward.cassandra.names import TableName
    from lakeward.cassandra.origins import Origin
    from lakeward.cassandra.schema import CqlColumn, TableSchema
    from lakeward.cassandra.types import CqlType

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


@dataclass(frozen=True)
class Found:
    """A column that is there: its type, and where its values are."""

    type: DataType
    value: Column


@dataclass(frozen=True)
class Matched:
    """A column that is written, and the expression that gives its values in the form that the plan expects."""

    column: WriteColumn
    value: Column


def matched(
    label: str, found: Mapping[str, Found], keys: Sequence[str], origin: Origin | None, target: TableSchema
) -> list[Matched]:
    """Pair the columns that are there with the target's: the key whole and in its order, then the others.

    Raises:
        RefusedInputError: the key is another one, or a column is missing in the target or cannot take the values; each
            is told in a sentence.
    """
    problems = _other_key(keys, target) or (_problems(found, origin, target))
    pairs: list[Matched] = []
    if not problems:
        known = {one.name: one.type for one in origin.schema.columns} if origin is not None else {}
        for column in target.columns:
            if column.name not in found:
                continue
            pair = _pair(column, found[column.name], known.get(column.name))
            if isinstance(pair, str):
                problems.append(pair)
            else:
                pairs.append(pair)
    if problems:
        msg = f"{label} does not fit {target.name}: {'; '.join(problems)}"
        raise RefusedInputError(msg, hint=_hint(target.name, found, origin, target))
    return pairs


def require_no_counters(label: str, *schemas: TableSchema | None) -> None:
    """Refuse tables of counters.

    Raises:
        RefusedInputError: one of the tables is.
    """
    for one in schemas:
        if one is not None and one.has_counters:
            msg = (
                f"{label} cannot be written: {one.name} has counters, which can only be added to; what is written "
                "twice, after a time-out for instance, would count twice"
            )
            raise RefusedInputError(msg, hint="counters can be exported and compared only")


def _other_key(keys: Sequence[str], target: TableSchema) -> list[str]:
    if sorted(keys) == sorted(target.primary_key):
        return []
    return [f"its key is ({', '.join(keys)}), the table's is ({', '.join(target.primary_key)})"]


def _problems(found: Mapping[str, Found], origin: Origin | None, target: TableSchema) -> list[str]:
    if origin is not None:
        there = {one.name for one in origin.schema.columns}
        told = differences(origin.schema, target, [name for name in found if name in there])
        return told + [_missing(name) for name in found if name not in there and name not in target.names]
    return [_missing(name) for name in found if name not in target.names]


def _missing(name: str) -> str:
    return f"the column {name!r} is missing"


def _pair(column: CqlColumn, found: Found, source: CqlType | None) -> Matched | str:
    is_key = column.kind.is_key
    for cql in (source, column.type):
        if cql is not None and is_same(found.type, spark_type(cql, key=is_key)):
            return Matched(WriteColumn(column.name, column.kind, cql, column.type), found.value)
    wanted = spark_type(column.type, key=is_key)
    value = _converted(found, wanted, column.type.name)
    if value is None:
        return (
            f"the column {column.name!r} is {found.type.simpleString()}, where the table has {column.type.cql}, which "
            f"is read from {wanted.simpleString()}"
        )
    return Matched(WriteColumn(column.name, column.kind, column.type, column.type), value)


def _converted(found: Found, wanted: DataType, name: str) -> Column | None:
    """Give values of files that others wrote in the form that snapshots have; None where that could change them."""
    have = found.type
    if isinstance(have, _WHOLE) and isinstance(wanted, _WHOLE):
        is_wider = _WHOLE.index(type(have)) <= _WHOLE.index(type(wanted))
        return found.value.cast(wanted) if is_wider and name not in ("timestamp", "date", "time") else None
    if isinstance(have, T.TimestampType) and name == "timestamp":
        return F.unix_millis(found.value)
    if isinstance(have, T.DateType) and name == "date":
        return F.unix_date(found.value)
    is_whole = isinstance(have, _WHOLE) or (isinstance(have, T.DecimalType) and have.scale == 0)
    is_exact = (
        (isinstance(have, T.FloatType) and isinstance(wanted, T.DoubleType))
        or (isinstance(have, T.DecimalType) and name == "decimal")
        or (is_whole and name in ("decimal", "varint"))
    )
    return found.value.cast(wanted) if is_exact else None


def _hint(name: TableName, found: Mapping[str, Found], origin: Origin | None, target: TableSchema) -> str:
    if origin is not None:
        absent = [one for one in origin.schema.columns if one.name in found and one.name not in target.names]
        if absent and not any(one.kind.is_key for one in absent):
            added = ", ".join(f"{one.cql} {one.type.cql}" for one in absent)
            return f"ALTER TABLE {name.cql} ADD ({added});"
    return "write into a table with these columns: --create-table makes one of an export"
