"""Prepare the rows of a snapshot or a change set for tasks: columns matched with the target's, in the order of writing.

Rows are written unit by unit, those of a partition together, without hot partitions.

Change sets in JSON and CSV have no types: their values are read with the types of the target. Times are in such files
as Spark writes them (``2026-11-15T10:30:00.000Z``, ``2026-11-15``), as CQL does (a time of day is
``10:30:00.5``), or as the numbers that a snapshot holds. The form is recognised from the value: Spark itself
would read a number as seconds, where a snapshot has milliseconds. Numbers of any size are read as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.cassandra.schema import ColumnKind, differences
from lakeward.cassandra.snapshots import EXPIRES, WRITETIME
from lakeward.cassandra.values import spark_type
from lakeward.cassandra.write_plan import (
    ACTION,
    CHANGED,
    CHANGES,
    DELETED,
    EXPIRY,
    INSERTED,
    KEY,
    UNIT,
    VALUE,
    WRITTEN,
    WriteColumn,
)
from lakeward.columns import quote_name
from lakeward.diffing.frames.alignment import is_same
from lakeward.diffing.frames.comparators import PLAIN
from lakeward.diffing.frames.refusals import unfit_value
from lakeward.diffing.stored.files import format_of_name
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lakeward.cassandra.cql import CqlType, TableName
    from lakeward.cassandra.schema import CqlColumn, TableSchema
    from lakeward.cassandra.snapshots import ExportOrigin
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.parsed_diff import ParsedDiff, SideValue

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source: its type, and the expression of its values."""

    type: DataType
    value: Column


@dataclass(frozen=True)
class Matched:
    """A column to write, and the expression of its values in the form that the plan expects."""

    column: WriteColumn
    value: Column


def matched(
    label: str, found: Mapping[str, SourceColumn], keys: Sequence[str], origin: ExportOrigin | None, target: TableSchema
) -> list[Matched]:
    """Match the columns of the source with those of the target: the key in order, then the others.

    Raises:
        RefusedInputError: the key differs, or a column is missing in the target or cannot hold the values; the message
            lists all problems.
    """
    problems = _other_key(keys, target) or (_problems(found, origin, target))
    pairs: list[Matched] = []
    if not problems:
        known = {source.name: source.type for source in origin.schema.columns} if origin is not None else {}
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
    """Refuse tables with counters.

    Raises:
        RefusedInputError: one of the tables has counters.
    """
    for schema in schemas:
        if schema is not None and schema.has_counters:
            msg = (
                f"{label} cannot be written: {schema.name} has counters, which can only be added to; what is written "
                "twice, after a time-out for instance, would count twice"
            )
            raise RefusedInputError(msg, hint="counters can be exported and compared only")


def _other_key(keys: Sequence[str], target: TableSchema) -> list[str]:
    if sorted(keys) == sorted(target.primary_key):
        return []
    return [f"its key is ({', '.join(keys)}), the table's is ({', '.join(target.primary_key)})"]


def _problems(found: Mapping[str, SourceColumn], origin: ExportOrigin | None, target: TableSchema) -> list[str]:
    if origin is not None:
        there = {source.name for source in origin.schema.columns}
        problems = differences(origin.schema, target, [name for name in found if name in there])
        return problems + [_missing(name) for name in found if name not in there and name not in target.names]
    return [_missing(name) for name in found if name not in target.names]


def _missing(name: str) -> str:
    return f"the column {name!r} is missing"


def _pair(column: CqlColumn, found: SourceColumn, source: CqlType | None) -> Matched | str:
    is_key = column.kind.is_key
    for cql in (source, column.type):
        if cql is not None and is_same(found.type, spark_type(cql, key=is_key)):
            return Matched(WriteColumn(column.name, column.kind, cql, column.type), found.value)
    wanted = spark_type(column.type, key=is_key)
    value = _converted(found, wanted, column.type.name)
    if value is None:
        return (
            f"the column {column.name!r} is {found.type.simpleString()}, but the table has {column.type.cql}, which "
            f"is read from {wanted.simpleString()}"
        )
    return Matched(WriteColumn(column.name, column.kind, column.type, column.type), value)


def _converted(found: SourceColumn, wanted: DataType, name: str) -> Column | None:
    """Return values of foreign files in the form of snapshots; None where the conversion could change them."""
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


def _hint(name: TableName, found: Mapping[str, SourceColumn], origin: ExportOrigin | None, target: TableSchema) -> str:
    if origin is not None:
        absent = [
            source for source in origin.schema.columns if source.name in found and source.name not in target.names
        ]
        if absent and not any(source.kind.is_key for source in absent):
            added = ", ".join(f"{source.cql} {source.type.cql}" for source in absent)
            return f"ALTER TABLE {name.cql} ADD ({added});"
    return "write into a table with these columns: --create-table creates one from an export"


def require_applicable(label: str, diff: ParsedDiff) -> None:
    """Refuse a change set that does not determine what to write.

    Raises:
        RefusedInputError: it has no current values; or a value that became null cannot be distinguished from one that
            did not change.
    """
    if diff.right is None:
        msg = f"{label} has only past values, so there is nothing to write"
        raise RefusedInputError(msg, hint="lakeward diff … --mode structs --change-column changes")
    is_ambiguous = diff.options.sparse_mode or diff.left is None
    if diff.changed is None and is_ambiguous:
        msg = (
            f"{label} does not say which columns changed: a value that became null cannot be distinguished from one "
            "that did not change"
        )
        raise RefusedInputError(msg, hint="make it again with that list: lakeward diff … --change-column changes")


def action(diff: ParsedDiff) -> Column:
    """Return the action of a row, whatever labels the change set uses."""
    return F.when(~diff.has_left, F.lit(INSERTED)).when(~diff.has_right, F.lit(DELETED)).otherwise(F.lit(CHANGED))


def changed_names(diff: ParsedDiff) -> Column:
    """Return the names of the columns that changed: as listed in the change set, else by comparing both sides."""
    if diff.changed is not None:
        return diff.changed
    past = {diff.fold(value.name): value for value in diff.left or ()}
    none = F.array().cast("array<string>")
    names = [
        F.when(_is_equal(past.get(diff.fold(value.name)), value), none).otherwise(F.array(F.lit(value.name)))
        for value in diff.right or ()
    ]
    return F.when(diff.has_left & diff.has_right, F.concat(none, *names))


def _is_equal(left: SideValue | None, right: SideValue) -> Column:
    if left is None:
        return right.value.isNull()
    if not is_same(left.type, right.type):
        return F.lit(False)
    return PLAIN.equal(PLAIN.prepared(left.value, left.type), PLAIN.prepared(right.value, right.type))


def found_columns(diff: ParsedDiff) -> dict[str, SourceColumn]:
    """Return the columns of the rows: their current values, and the past ones of deleted rows."""
    past = {value.name: value for value in diff.left or ()}
    found = {field.name: SourceColumn(field.dataType, column(field.name)) for field in diff.keys}
    for current in diff.right or ():
        if current.name.startswith((WRITETIME, EXPIRES)):
            continue
        before, value = past.get(current.name), current.value
        if before is not None and is_same(before.type, current.type):
            value = F.when(diff.has_right, current.value).otherwise(before.value)
        found[current.name] = SourceColumn(current.type, value)
    return found


def expiries(diff: ParsedDiff, values: Sequence[str]) -> list[Column]:
    """Return when the current values expire; empty where the change set has no expiry times."""
    known = {value.name: value.value for value in diff.right or ()}
    if not any(EXPIRES + name in known for name in values):
        return []
    none = F.lit(None).cast("bigint")
    return [known.get(EXPIRES + name, none).cast("bigint") for name in values]


_NUMBER = r"^-?\d{1,19}$"
_TIME = r"^([01]?\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?$"
_SHOWN = 100


def text_struct(target: TableSchema) -> T.StructType:
    """Return the columns of a table as they are read from JSON or CSV: times as text, others as in a snapshot."""
    return T.StructType(
        [
            T.StructField(
                own.name, T.StringType() if own.type.name in _READ else spark_type(own.type, key=own.kind.is_key)
            )
            for own in target.columns
        ]
    )


def require_no_csv_blobs(target: TableSchema, paths: Iterable[str], label: str) -> None:
    """Refuse blobs in CSV, which has no defined form for bytes.

    Raises:
        RefusedInputError: there are blobs; the message has their columns.
    """
    blobs = [own.name for own in target.columns if own.type.name == "blob"]
    if blobs and any(format_of_name(path) == "csv" for path in paths):
        msg = f"{label} is CSV, which does not say how the bytes of {', '.join(blobs)} are written"
        raise RefusedInputError(msg, hint="write it as JSON (in base64) or Parquet")


def typed(frame: DataFrame, target: TableSchema, options: DiffOptions) -> DataFrame:
    """Return a change set with times converted as in a snapshot; a text that is not a time fails the job."""
    sides = (options.left_column_prefix, options.right_column_prefix)
    kinds = {f"{side}_{own.name}": own.type.name for own in target.columns for side in sides if not own.kind.is_key}
    kinds.update({own.name: own.type.name for own in target.columns if own.kind.is_key})
    return frame.select(
        *[
            _READ[kinds[field.name]](field.name).alias(field.name)
            if isinstance(field.dataType, T.StringType) and kinds.get(field.name) in _READ
            else column(field.name)
            for field in frame.schema.fields
        ]
    )


def _timestamp(name: str) -> Column:
    moment = F.expr(f"try_cast({quote_name(name)} AS timestamp)")
    # Cassandra stores milliseconds: a finer time would be changed.
    is_whole = F.unix_micros(moment) % 1_000 == 0
    return _either(name, F.when(is_whole, F.unix_millis(moment)), "bigint", "timestamp of milliseconds")


def _date(name: str) -> Column:
    return _either(name, F.unix_date(F.expr(f"try_cast({quote_name(name)} AS date)")), "int", "date")


def _time(name: str) -> Column:
    part = [F.regexp_extract(column(name), _TIME, number) for number in (1, 2, 3, 4)]
    hours, minutes, seconds = (text.cast("bigint") for text in part[:3])
    nanoseconds = F.rpad(part[3], 9, "0").cast("bigint")
    whole = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds
    return _either(name, F.when(column(name).rlike(_TIME), whole), "bigint", "time")


def _either(name: str, read: Column, number: str, what: str) -> Column:
    """Return a number as it is, any other text as ``read`` converts it, and null for null."""
    text = column(name)
    value = F.when(text.rlike(_NUMBER), F.expr(f"try_cast({quote_name(name)} AS {number})")).otherwise(read)
    shown = F.substring(text, 1, _SHOWN)
    unfit = unfit_value(F.lit(f"the column {name} holds '"), shown, F.lit(f"', which is not a {what}"))
    return F.when(text.isNull() | value.isNotNull(), value).when(unfit, value)


_READ = {"timestamp": _timestamp, "date": _date, "time": _time}


_PLACE, _CHUNK = f"{S.PREFIX}place", f"{S.PREFIX}chunk"
# A unit is written again after a crash: small compared to the whole, but not so small that recording it is costly.
_ROWS_PER_UNIT, _FEWEST_UNITS, MOST_UNITS = 4_000, 8, 512


@dataclass(frozen=True)
class Parts:
    """The expressions of a row for tasks; times exist for every value or for none."""

    partition_key: Sequence[Column]
    clustering: Sequence[Column]
    values: Sequence[Column]
    writetimes: Sequence[Column] = field(default_factory=tuple)
    expiries: Sequence[Column] = field(default_factory=tuple)
    action: Column | None = None
    changes: Column | None = None


def split_key(pairs: Sequence[Matched]) -> tuple[list[Column], list[Column], list[Column]]:
    """Return the values of the partition key, the clustering columns and all others."""
    kinds = [(pair.column.kind, pair.value) for pair in pairs]
    return (
        [value for kind, value in kinds if kind is ColumnKind.PARTITION_KEY],
        [value for kind, value in kinds if kind is ColumnKind.CLUSTERING],
        [value for kind, value in kinds if not kind.is_key],
    )


def unit_count(rows: int | None) -> int:
    """Return the number of units for this many rows, a power of two."""
    wanted = (rows or 0) // _ROWS_PER_UNIT
    return min(max(1 << (wanted - 1).bit_length() if wanted > 1 else 1, _FEWEST_UNITS), MOST_UNITS)


def spread(frame: DataFrame, parts: Parts, *, units: int, done: Collection[int], tasks: int, chunk: int) -> DataFrame:
    """Return the rows of all units that are not done, each unit in one task.

    All rows of a partition are in one unit. Within it, partitions take turns: first one batch of rows of each, then the
    next batch of those that have more.
    """
    place = F.xxhash64(*parts.partition_key)
    wanted = frame.select(
        place.alias(_PLACE),
        F.pmod(place, F.lit(units)).cast("int").alias(UNIT),
        *([] if parts.action is None else [parts.action.alias(ACTION)]),
        *([] if parts.changes is None else [parts.changes.alias(CHANGES)]),
        *_numbered(KEY, [*parts.partition_key, *parts.clustering]),
        *_numbered(VALUE, parts.values),
        *_numbered(WRITTEN, parts.writetimes),
        *_numbered(EXPIRY, parts.expiries),
    )
    if done:
        wanted = wanted.filter(~column(UNIT).isin(sorted(done)))
    placed = wanted.repartition(tasks, column(UNIT))
    if not parts.clustering:
        return placed.sortWithinPartitions(UNIT, _PLACE).drop(_PLACE)
    window = Window.partitionBy(UNIT, _PLACE).orderBy(_PLACE)
    numbered = placed.withColumn(_CHUNK, F.floor((F.row_number().over(window) - 1) / F.lit(chunk)))
    return numbered.sortWithinPartitions(UNIT, _CHUNK, _PLACE).drop(_PLACE, _CHUNK)


def _numbered(mark: str, expressions: Sequence[Column]) -> list[Column]:
    return [expression.alias(f"{mark}{number}") for number, expression in enumerate(expressions)]
