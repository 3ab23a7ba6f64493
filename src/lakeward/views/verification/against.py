"""Comparing the mirror with another copy of its table: reading that copy, matching columns and types."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.columns import quote_name
from lakeward.config.policy import policy_of, rules_of
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.op.erased import is_erased_key, key_fields, key_hash
from lakeward.mirror.op.metadata_columns import source_columns
from lakeward.mirror.op.protected import protected_rows
from lakeward.spark.errors import any_failure, translated
from lakeward.spark.jvm import has_class
from lakeward.storage.claims import MANIFEST
from lakeward.storage.filesystem import for_reading, open_filesystem
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import lacking_keys
from lakeward.views.verification.report import PASSWORD_VARIABLE, USER_VARIABLE
from lakeward.views.versions.folders import VERSION_PREFIX, find_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from lakeward.mirror.op.as_of import PointInTime
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.spark.workspace import Workspace
from lakeward.views.verification.report import Against

# Another copy of a table as a frame: a table in a database, or a folder of files.


USER_SETTING, PASSWORD_SETTING = "spark.lakeward.against.user", "spark.lakeward.against.password"
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "redshift": "com.amazon.redshift.jdbc42.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "sqlite": "org.sqlite.JDBC",
}
_BACKQUOTED = ("mysql", "mariadb")
_FILE_FORMAT = re.compile(r"\.(parquet|orc|csv|json)(?:\.\w+)?$")
_FETCHED_ROWS = "10000"
# Only names are inferred: texts are converted to the types of the mirror.
_TEXT_OPTIONS = {
    "csv": {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST"},
    "json": {"primitivesAsString": "true", "mode": "FAILFAST"},
}
_PARTITION_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True)
class OtherSide:
    """The other copy. ``is_text``: its values are texts, to be converted to the mirror's types.

    ``is_version``: it was made from the mirror, so that it obeys the table's column policy already.
    """

    rows: DataFrame
    is_text: bool = False
    is_version: bool = False


def open_other(context: TableContext, against: Against) -> OtherSide:
    """Open the other copy for reading.

    Raises:
        ConfigurationError: it cannot be reached, or cannot be compared with.
    """
    msg = f"{context.table}: {shown_location(against)} cannot be read"
    hint = "check the address, the table's name and the user's rights"
    with translated(any_failure(DataError, msg, hint=hint)):
        return _database(context, against) if against.is_jdbc else _folder(context, against)


def shown_location(against: Against) -> str:
    """Return the other copy's address without options, which may hold secrets."""
    return re.split(r"[?;]", against.location, maxsplit=1)[0] if against.is_jdbc else against.location


def _database(context: TableContext, against: Against) -> OtherSide:
    """Read a table by a single query: several would see different states of a database in use."""
    kind = against.location.split(":")[1]
    driver = context.spark.conf.get("spark.lakeward.against.driver", None) or _DRIVERS.get(kind)
    if driver is None:
        msg = f"--against {shown_location(against)}: the driver of {kind!r} is not known; known: {', '.join(_DRIVERS)}"
        raise ConfigurationError(msg, hint="spark: {conf: {spark.lakeward.against.driver: CLASS}}")
    _require_driver(context, kind, driver)
    mark = "`" if kind in _BACKQUOTED else '"'
    named = against.table or ".".join(f"{mark}{part}{mark}" for part in (context.table.schema, context.table.name))
    options = {
        "url": against.location,
        "driver": driver,
        "dbtable": named,
        "fetchsize": _FETCHED_ROWS,
        # A time without a zone is not an instant.
        "preferTimestampNTZ": "true",
        **_credentials(context),
    }
    return OtherSide(context.spark.read.format("jdbc").options(**options).load())


def _credentials(context: TableContext) -> dict[str, str]:
    found = {
        "user": os.environ.get(USER_VARIABLE) or context.spark.conf.get(USER_SETTING, None),
        "password": os.environ.get(PASSWORD_VARIABLE) or context.spark.conf.get(PASSWORD_SETTING, None),
    }
    return {name: value for name, value in found.items() if value}


def _require_driver(context: TableContext, kind: str, driver: str) -> None:
    if not has_class(context.spark, driver):
        msg = f"the JDBC driver {driver} of {kind!r} is not on Spark's class path"
        hint = "spark: {conf: {spark.jars.packages: GROUP:ARTIFACT:VERSION}}, or spark.driver.extraClassPath: FILE"
        raise ConfigurationError(msg, hint=hint)


def _folder(context: TableContext, against: Against) -> OtherSide:
    location = context.config.resolve(against.location).rstrip("/")
    store = open_filesystem(context.spark, context.config, location)
    present = store.files(location)
    if MANIFEST in present or location.rpartition("/")[2].startswith(VERSION_PREFIX):
        return OtherSide(find_version(store, location).read(context.spark), is_version=True)
    if several := sorted(name for name in store.folders(location) if name.startswith(VERSION_PREFIX)):
        msg = f"{context.table}: {location} holds versions of a table: {', '.join(several[:5])}"
        raise ConfigurationError(msg, hint=f"name one: --against {location}/{several[-1]}")
    file_format = _format_of(context, location, present)
    with context.spark_settings({_PARTITION_TYPES: "false"}):
        reader = context.spark.read.format(file_format).options(**store.options, **_TEXT_OPTIONS.get(file_format, {}))
        return OtherSide(reader.load(for_reading(store.for_spark(location))), is_text=file_format in _TEXT_OPTIONS)


def _format_of(context: TableContext, location: str, present: Iterable[str]) -> str:
    """Return the format of a folder's files, judged by their names."""
    visible = (path for path in present if not path.rpartition("/")[2].startswith(("_", ".")))
    found = {match[1] for path in visible if (match := _FILE_FORMAT.search(path))}
    if len(found) != 1:
        what = f"files of several formats ({', '.join(sorted(found))})" if found else "no such files"
        msg = f"{context.table}: --against names a folder of Parquet, ORC, CSV or JSON files; {location} has {what}"
        raise ConfigurationError(msg, hint="name the folder that holds the files, or a published version")
    return found.pop()


# The type in which to compare two columns: values are compared only where no side loses any.


_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 19}
_INSTANTS = (T.TimestampType, T.TimestampNTZType)
_TEXTS = (T.StringType, T.VarcharType)
_WIDENINGS: tuple[tuple[Any, Any], ...] = (
    (T.FloatType, T.DoubleType),
    (T.BooleanType, tuple(_DIGITS)),
    (T.DateType, T.TimestampNTZType),
    (_INSTANTS, _INSTANTS),
    (_TEXTS, _TEXTS),
)


def comparable_type(mirror: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the type in which to compare two columns: that of the side which can hold all values of the other."""
    if is_lossless(other, mirror):
        return mirror
    return other if is_lossless(mirror, other) else None


def is_lossless(source: T.DataType, target: T.DataType) -> bool:
    """Whether a cast keeps all values distinct. Sessions are in UTC, so that an instant has a single text."""
    if source == target or isinstance(source, T.NullType):
        return True
    if type(source) in _DIGITS:
        return _holds_integers(_DIGITS[type(source)], target)
    if isinstance(source, T.DecimalType) and isinstance(target, T.DecimalType):
        whole, wanted = source.precision - source.scale, target.precision - target.scale
        return whole <= wanted and source.scale <= target.scale
    return any(isinstance(source, narrow) and isinstance(target, wide) for narrow, wide in _WIDENINGS)


def _holds_integers(digits: int, target: T.DataType) -> bool:
    if isinstance(target, T.DecimalType):
        return target.precision - target.scale >= digits
    return _DIGITS.get(type(target), 0) >= digits


_HASH, _AS_HERE = f"{S.PREFIX}hash", f"{S.PREFIX}as_here_"


@dataclass(frozen=True)
class TwoSides:
    """Both copies with the same columns of the same types; ``names`` are those that can be compared.

    ``left_out`` counts the keys that are left out because they changed after the cut-off.
    """

    expected: DataFrame
    found: DataFrame
    names: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    not_compared: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True)
class _Match:
    """A column of the mirror, the other side's column, and the type to compare in."""

    name: str
    other: str
    compared_as: T.DataType | None
    types: str


def two_sides(at: PointInTime, bases: Bases, mirror: DataFrame, workspace: Workspace, against: Against) -> TwoSides:
    """Open the other copy and convert both to common columns and types.

    Raises:
        ConfigurationError: the key cannot be compared, or the cut-off cannot be applied.
    """
    context = at.context
    own = source_columns(bases.columns, context.settings)
    other = _protected(at, bases, open_other(context, against))
    matches = _matches(mirror.select(*columns(field.name for field in own)), other)
    by_name = {match.name: match for match in matches}
    compared = [match for match in matches if match.compared_as is not None]
    _require_key(at, by_name)
    taken = {match.other for match in matches}
    expected = other.rows.select(*[column(match.other).cast(_type(match)).alias(match.name) for match in compared])
    sides = TwoSides(
        expected=_without_erased(at, bases, expected, mirror),
        found=mirror.select(*[column(match.name).cast(_type(match)).alias(match.name) for match in compared]),
        names=tuple(match.name for match in compared),
        only_here=tuple(lake_column.name for lake_column in own if lake_column.name not in by_name),
        only_there=tuple(name for name in other.rows.columns if name not in taken),
        not_compared=tuple(f"{match.name} ({match.types})" for match in matches if match.compared_as is None),
    )
    return sides if against.cut_off is None else _before_cut_off(at, sides, other, by_name, workspace, against)


def _protected(at: PointInTime, bases: Bases, other: OtherSide) -> OtherSide:
    """Return the other copy with the values that the table's column policy makes of its own."""
    settings = at.context.settings
    if other.is_version or not rules_of(settings):
        return other
    types = {lake_column.name: lake_column.source for lake_column in bases.columns}
    rows = protected_rows(other.rows, policy_of(settings), types, is_text=other.is_text)
    return replace(other, rows=rows)


def _without_erased(at: PointInTime, bases: Bases, rows: DataFrame, mirror: DataFrame) -> DataFrame:
    """Return the rows without keys that were erased here and did not return: the other side may still have them.

    The hashes were computed from keys in the mirror's types: a key that these types cannot hold was not erased.
    """
    keys, erased = at.context.settings.primary_key, bases.erased
    if erased is None or not keys:
        return rows
    own = key_hash(erased.salt, key_fields(mirror, keys)).alias(_HASH)
    # At most as many as were erased, and their hashes are in memory already.
    back = mirror.select(own).filter(column(_HASH).isin(*erased.times)).distinct().collect()
    gone = erased.times.keys() - {row[0] for row in back}
    if not gone:
        return rows
    as_here = [f"try_cast({quote_name(key)} AS {mirror.schema[key].dataType.simpleString()})" for key in keys]
    names = [_AS_HERE + key for key in keys]
    cast = rows.select("*", *[F.expr(value).alias(name) for value, name in zip(as_here, names, strict=True)])
    is_gone = is_erased_key(cast, names, erased.salt, gone)
    for key, name in zip(keys, names, strict=True):
        is_gone &= column(key).eqNullSafe(column(name).cast(rows.schema[key].dataType))
    return cast.filter(~is_gone).drop(*names)


def _before_cut_off(
    at: PointInTime,
    sides: TwoSides,
    other: OtherSide,
    by_name: dict[str, _Match],
    workspace: Workspace,
    against: Against,
) -> TwoSides:
    """Return both sides without keys that changed after the cut-off, according to either side."""
    keys = at.context.settings.primary_key
    limit = _limit(at, against)
    changed = [
        at.changes()
        .filter(column(S.COMMIT_TIME) > limit)
        .select(*[column(key).cast(_type(by_name[key])).alias(key) for key in keys])
    ]
    if against.changed_at is not None:
        name = _require_changed_at(at, other, against.changed_at)
        newer = other.rows.filter(column(name).cast("timestamp") > limit)
        changed.append(newer.select(*[column(by_name[key].other).cast(_type(by_name[key])).alias(key) for key in keys]))
    left_out = changed[0] if len(changed) == 1 else changed[0].union(changed[1])
    left_out = workspace.keep(left_out.distinct())
    return TwoSides(
        lacking_keys(sides.expected, left_out, keys=keys),
        lacking_keys(sides.found, left_out, keys=keys),
        sides.names,
        sides.only_here,
        sides.only_there,
        sides.not_compared,
        left_out.count(),
    )


def _limit(at: PointInTime, against: Against) -> Column:
    context, cut_off = at.context, against.cut_off
    if cut_off is None or cut_off.micros is None:
        msg = "--cut-off takes a day or a time, as 2024-04-05T10:30:00"
        raise ConfigurationError(msg)
    if not context.settings.primary_key:
        msg = f"{context.table} has no key: its rows that changed after --cut-off cannot be identified"
        raise ConfigurationError(msg, hint="compare without --cut-off while the other side does not change")
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: it is not known which of its changes came after --cut-off"
        raise ConfigurationError(msg, hint="set timestamp_column, or compare while the other side does not change")
    return F.timestamp_micros(F.lit(cut_off.micros))


def _require_changed_at(at: PointInTime, other: OtherSide, name: str) -> str:
    if name not in other.rows.columns:
        have = ", ".join(other.rows.columns)
        msg = f"{at.context.table}: --changed-at {name}: the other side has no such column; it has {have}"
        raise ConfigurationError(msg)
    return name


def _matches(mirror: DataFrame, other: OtherSide) -> list[_Match]:
    """Match the mirror's columns with the other side's by name, ignoring case where that is unambiguous."""
    there = other.rows.columns
    by_lower: dict[str, list[str]] = {}
    for name in there:
        by_lower.setdefault(name.lower(), []).append(name)
    found = []
    for field in mirror.schema.fields:
        near = by_lower.get(field.name.lower(), [])
        if field.name in there or len(near) == 1:
            name = field.name if field.name in there else near[0]
            found.append(_match(field, other.rows.schema[name], is_text=other.is_text))
    return found


def _match(mirror: T.StructField, other: T.StructField, *, is_text: bool) -> _Match:
    # Every type but binary has a single text form.
    if is_text and isinstance(other.dataType, T.StringType) and not isinstance(mirror.dataType, T.BinaryType):
        compared_as: T.DataType | None = mirror.dataType
    else:
        compared_as = comparable_type(mirror.dataType, other.dataType)
    types = f"{mirror.dataType.simpleString()} here, {other.dataType.simpleString()} there"
    return _Match(mirror.name, other.name, compared_as, types)


def _require_key(at: PointInTime, by_name: dict[str, _Match]) -> None:
    for key in at.context.settings.primary_key:
        match = by_name.get(key)
        if match is None or match.compared_as is None:
            found = "has no such column" if match is None else f"has another type ({match.types})"
            msg = f"{at.context.table}: rows are compared by the key column {key}, and the other side {found}"
            raise ConfigurationError(msg)


def _type(match: _Match) -> T.DataType:
    if match.compared_as is None:
        msg = f"column {match.name} has no type to compare in"
        raise ConfigurationError(msg)
    return match.compared_as
