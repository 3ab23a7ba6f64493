"""The mirror held against another copy of its table, as far as the two can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.datatypes import quote_name
from lakeward.errors import ConfigurationError
from lakeward.pipeline.erased import is_erased_key, key_fields, key_hash
from lakeward.snapshots.verification.source import open_other
from lakeward.snapshots.verification.types import comparable_type
from lakeward.transforms.columns import column
from lakeward.transforms.keys import lacking_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakeward.pipeline.as_of import Standpoint
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.workspace import Workspace
    from lakeward.snapshots.verification.report import Against
    from lakeward.snapshots.verification.source import OtherSide

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


def two_sides(at: Standpoint, bases: Bases, mirror: DataFrame, workspace: Workspace, against: Against) -> TwoSides:
    """Open the other copy and bring both to columns and types that can be compared.

    Raises:
        ConfigurationError: the key cannot be compared, or the cut-off cannot be told.
    """
    context = at.context
    other = open_other(context, against)
    matches = _matches(mirror, other)
    by_name = {one.name: one for one in matches}
    compared = [one for one in matches if one.compared_as is not None]
    _require_key(at, by_name)
    taken = {one.other for one in matches}
    expected = other.rows.select(*[column(one.other).cast(_type(one)).alias(one.name) for one in compared])
    sides = TwoSides(
        expected=_without_erased(at, bases, expected, mirror),
        found=mirror.select(*[column(one.name).cast(_type(one)).alias(one.name) for one in compared]),
        names=tuple(one.name for one in compared),
        only_here=tuple(one.name for one in bases.columns if one.name not in by_name),
        only_there=tuple(name for name in other.rows.columns if name not in taken),
        not_compared=tuple(f"{one.name} ({one.types})" for one in matches if one.compared_as is None),
    )
    return sides if against.cut_off is None else _before_cut_off(at, sides, other, by_name, workspace, against)


def _without_erased(at: Standpoint, bases: Bases, rows: DataFrame, mirror: DataFrame) -> DataFrame:
    """Leave out keys that were erased here and are not back: the other side may still have them.

    The hashes were taken of keys as the mirror has them: a key that its types cannot hold is none of those.
    """
    keys, erased = at.context.settings.primary_key, bases.erased
    if erased is None or not keys:
        return rows
    own = key_hash(erased.salt, key_fields(mirror, keys)).alias(_HASH)
    # At most as many as were erased, whose hashes are in memory already.
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
    at: Standpoint,
    sides: TwoSides,
    other: OtherSide,
    by_name: dict[str, _Match],
    workspace: Workspace,
    against: Against,
) -> TwoSides:
    """Leave out every key with a change after the cut-off, as far as either side tells."""
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


def _limit(at: Standpoint, against: Against) -> Column:
    context, cut_off = at.context, against.cut_off
    if cut_off is None or cut_off.micros is None:
        msg = "--cut-off takes a day or a time, as 2024-04-05T10:30:00"
        raise ConfigurationError(msg)
    if not context.settings.primary_key:
        msg = f"{context.table} has no key: it cannot be told which of its rows changed after --cut-off"
        raise ConfigurationError(msg, hint="compare without --cut-off while the other side stands still")
    if context.settings.timestamp_column is None:
        msg = f"{context.table} has no timestamp_column: nothing tells which of its changes came after --cut-off"
        raise ConfigurationError(msg, hint="set timestamp_column, or compare while the other side stands still")
    return F.timestamp_micros(F.lit(cut_off.micros))


def _require_changed_at(at: Standpoint, other: OtherSide, name: str) -> str:
    if name not in other.rows.columns:
        have = ", ".join(other.rows.columns)
        msg = f"{at.context.table}: --changed-at {name}: the other side has no such column; it has {have}"
        raise ConfigurationError(msg)
    return name


def _matches(mirror: DataFrame, other: OtherSide) -> list[_Match]:
    """Find each column of the mirror on the other side: by its name, or in another case where only one has it."""
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
    # A text holds a value of any type but binary, of which there are several spellings.
    if is_text and isinstance(other.dataType, T.StringType) and not isinstance(mirror.dataType, T.BinaryType):
        compared_as: T.DataType | None = mirror.dataType
    else:
        compared_as = comparable_type(mirror.dataType, other.dataType)
    types = f"{mirror.dataType.simpleString()} here, {other.dataType.simpleString()} there"
    return _Match(mirror.name, other.name, compared_as, types)


def _require_key(at: Standpoint, by_name: dict[str, _Match]) -> None:
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
