"""Random tables of Cassandra: types, schemas, rows and workloads.

Values are as a prepared statement takes them; ``canonical`` makes them comparable, bit for bit.
"""

from __future__ import annotations

import math
import struct
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cassandra.util import Date, Duration, OrderedMap, SortedSet
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisDeprecationWarning

from lakeward.cassandra.conversion import CqlMapEntries
from lakeward.cassandra.cql import NATIVE, CqlType, TableName, parse_cql_type
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import DrawFn, SearchStrategy

Row = dict[str, Any]
Udts = dict[str, tuple[tuple[str, str], ...]]

PLAIN = tuple(sorted(NATIVE - {"counter"}))
WITHOUT_ORDER = frozenset({"duration"})
# Names that CQL must quote, words that it reserves, and characters that Spark, JSON and file names mind.
COLUMN_NAMES = ("a", "B", "select", "Mixed Case", "dot.ted", 'quo"te', "back`tick", "ünï", "token", "order by", "x/y=z")
_DAY_NS = 86_400_000_000_000
_LONG = st.integers(-(2**63), 2**63 - 1)


def drawn(strategy: SearchStrategy[Any], count: int, *, number: int = 0) -> list[Any]:
    """Draw some examples at once, the same for the same number, so that one job can take them all.

    Hypothesis begins with the plainest and varies what it has: each of these is the largest of a search of its own.
    """
    return [max(_search(strategy, 1000 * number + offset), key=_size) for offset in range(count)]


def _size(example: Any) -> int:
    """Count the rows of an example and the steps of its workloads; of others, their components."""
    parts = example if isinstance(example, tuple) else (example,)
    rows = sum(len(part.rows) for part in parts if isinstance(part, Filling))
    return rows + sum(len(part) for part in parts if isinstance(part, list)) or len(repr(example))


def _search(strategy: SearchStrategy[Any], number: int) -> list[Any]:
    found: list[Any] = []

    @seed(number)
    @settings(max_examples=10, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(one: Any) -> None:
        found.append(one)

    with warnings.catch_warnings():
        # The driver's threads draw from Python's random numbers meanwhile, which looks as if strategies did.
        warnings.simplefilter("ignore", HypothesisDeprecationWarning)
        collect()
    return found


@st.composite
def types(draw: DrawFn, udts: Udts | None = None, *, ordered: bool = False, depth: int = 2) -> CqlType:
    """Draw a type, frozen or not; an ordered one can be in a key, in a set or the key of a map."""
    text = draw(_type_texts(udts or {}, ordered=ordered, depth=depth))
    found = parse_cql_type(text, udts or {})
    if found.is_multi_cell and (ordered or draw(st.booleans())):
        return parse_cql_type(f"frozen<{text}>", udts or {})
    return found


def _type_texts(udts: Udts, *, ordered: bool, depth: int) -> SearchStrategy[str]:
    plain = st.sampled_from([kind for kind in PLAIN if not (ordered and kind in WITHOUT_ORDER)])
    if depth == 0:
        return plain
    inner = _type_texts(udts, ordered=ordered, depth=depth - 1)
    sorted_inner = _type_texts(udts, ordered=True, depth=depth - 1)
    names = [udt for udt in udts if not (ordered and parse_cql_type(udt, udts).holds(WITHOUT_ORDER))]
    made = [
        *[plain] * 4,
        inner.map(lambda one: f"list<{one}>"),
        sorted_inner.map(lambda one: f"set<{one}>"),
        st.tuples(sorted_inner, inner).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"tuple<{', '.join(some)}>"),
        st.tuples(inner, st.integers(1, 3)).map(lambda pair: f"vector<{pair[0]}, {pair[1]}>"),
    ]
    return st.one_of(*made, *([st.sampled_from(names)] if names else []))


@st.composite
def user_types(draw: DrawFn) -> Udts:
    """Draw up to two user-defined types, of which the second may have fields of the first."""
    udts: Udts = {}
    for name in ("address", "thing")[: draw(st.integers(0, 2))]:
        fields = [draw(types(udts, ordered=True, depth=1)) for _ in range(draw(st.integers(1, 3)))]
        # Cassandra takes no field of its own right in a type: all that is nested is frozen.
        texts = [parse_cql_type(f"list<{field.cql}>", udts).parameters[0].cql for field in fields]
        udts[name] = tuple((COLUMN_NAMES[at], text) for at, text in enumerate(texts))
    return udts


@st.composite
def tables(draw: DrawFn, *, nested: bool = True) -> TableSchema:
    """Draw a table, of plain types alone or not."""
    udts = draw(user_types()) if nested else {}
    key_depth, depth = (1, 2) if nested else (0, 0)
    names = iter(draw(st.permutations(COLUMN_NAMES)))
    keys, clusterings = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    columns = [
        CqlColumn(next(names), draw(types(udts, ordered=True, depth=key_depth)), ColumnKind.PARTITION_KEY, at)
        for at in range(keys)
    ]
    columns += [
        CqlColumn(
            next(names),
            draw(types(udts, ordered=True, depth=key_depth)),
            ColumnKind.CLUSTERING,
            at,
            draw(st.booleans()),
        )
        for at in range(clusterings)
    ]
    kinds = [ColumnKind.STATIC] * (draw(st.integers(0, 2)) if clusterings else 0)
    kinds += [ColumnKind.REGULAR] * draw(st.integers(1, 4))
    others = [CqlColumn(next(names), draw(types(udts, depth=depth)), kind, -1) for kind in kinds]
    others.sort(key=lambda one: (one.kind != ColumnKind.STATIC, one.name))
    schema = TableSchema(TableName("ks", "t"), (*columns, *others), udts)
    return TableSchema(schema.name, schema.columns, {data_type: udts[data_type] for data_type in schema.used_types()})


def values(cql: CqlType) -> SearchStrategy[Any]:
    """Return a strategy for values of a type, never null themselves."""
    if cql.name in ("tuple", "udt"):
        return st.tuples(*(st.none() | values(parameter) for parameter in cql.parameters))
    if cql.name == "map":
        pairs = st.tuples(*map(values, cql.parameters))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: _identity(pair[0])).map(CqlMapEntries)
    if cql.name == "set":
        return st.lists(values(cql.parameters[0]), max_size=3, unique_by=_identity)
    if cql.parameters:
        low, high = (cql.dimension, cql.dimension) if cql.dimension else (0, 3)
        return st.lists(values(cql.parameters[0]), min_size=low, max_size=high)
    return SINGLE[cql.name]


@dataclass(frozen=True)
class Filling:
    """What a table is filled with: rows by full key, and static values by partition."""

    rows: list[Row]
    statics: list[Row]


@st.composite
def fillings(draw: DrawFn, schema: TableSchema, *, partitions: int = 5, rows: int = 5) -> Filling:
    """Draw rows of a table: nulls, rows of nothing but a key, and partitions of nothing but static values too."""
    keys = draw(_keys(schema.partition_key, partitions))
    filling = Filling([], [])
    for partition in keys:
        filling.rows.extend(
            {**partition, **clustering, **draw(_cells(schema.regulars))}
            for clustering in (draw(_keys(schema.clustering, rows)) if schema.clustering else [{}])
        )
        if schema.statics:
            filling.statics.append({**partition, **draw(_cells(schema.statics))})
    return filling


def filled_tables(**options: Any) -> SearchStrategy[tuple[TableSchema, Filling]]:
    """Draw a table and what it is filled with."""
    return tables(**options).flatmap(lambda schema: st.tuples(st.just(schema), fillings(schema)))


@dataclass(frozen=True)
class Step:
    """One write of a workload: ``insert``, ``update``, ``delete``, or ``edit`` of a collection, by + or -."""

    kind: str
    row: Row
    sign: str = ""


@st.composite
def workloads(draw: DrawFn, schema: TableSchema, filling: Filling, *, most: int = 12) -> list[Step]:
    """Draw writes to a table that was filled: to rows that are there, to new ones, and to whole partitions."""
    further = draw(fillings(schema, partitions=2, rows=2))
    rows, statics = filling.rows + further.rows, filling.statics + further.statics
    steps = [Step("insert", row) for row in further.rows]
    for _ in range(draw(st.integers(1, most))):
        if statics and draw(st.integers(0, 3)) == 0:
            steps.append(draw(_steps(schema, draw(st.sampled_from(statics)), schema.statics)))
        elif rows:
            steps.append(draw(_steps(schema, draw(st.sampled_from(rows)), schema.regulars)))
    return steps


@st.composite
def _steps(draw: DrawFn, schema: TableSchema, row: Row, columns: tuple[CqlColumn, ...]) -> Step:
    key = {name: value for name, value in row.items() if name in schema.primary_key}
    column = draw(st.sampled_from(columns))
    kind = draw(st.sampled_from(["update", "update", "edit", "delete", "insert"]))
    if kind == "delete":
        whole = draw(st.integers(0, 3)) == 0 or columns == schema.statics
        names = [column.name for column in schema.partition_key] if whole else list(key)
        return Step(kind, {name: key[name] for name in names})
    if kind == "edit" and column.type.is_multi_cell and column.type.is_collection:
        sign = draw(st.sampled_from("+-"))
        keys_alone = sign == "-" and column.type.name == "map"
        edited = values(column.type) if not keys_alone else st.lists(values(column.type.parameters[0]), max_size=2)
        return Step(kind, {**key, column.name: draw(edited)}, sign)
    if kind == "insert" and columns != schema.statics:
        return Step(kind, {**key, **draw(_cells(columns))})
    return Step("update", {**key, column.name: draw(st.none() | values(column.type))})


def _keys(columns: tuple[CqlColumn, ...], most: int) -> SearchStrategy[list[Row]]:
    parts = st.fixed_dictionaries({column.name: _key_values(column, len(columns)) for column in columns})
    lowest = 0 if columns[0].kind == ColumnKind.CLUSTERING else min(2, most)
    return st.lists(parts, min_size=lowest, max_size=most, unique_by=lambda row: _identity(tuple(row.values())))


def _key_values(column: CqlColumn, columns: int) -> SearchStrategy[Any]:
    found = values(column.type)
    if column.kind == ColumnKind.PARTITION_KEY and columns == 1 and column.type.name in ("text", "ascii", "blob"):
        # The whole key of a partition may not be empty.
        return found.filter(len)
    return found


def _cells(columns: tuple[CqlColumn, ...]) -> SearchStrategy[Row]:
    return st.fixed_dictionaries({column.name: st.none() | values(column.type) for column in columns})


def canonical(value: Any) -> Any:
    """Make values of the driver's comparable: floats by their bits, numbers with their scale, maps in order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, Decimal | UUID | Duration):
        return str(value)
    if isinstance(value, Date):
        return value.days_from_epoch
    if isinstance(value, OrderedMap):
        return tuple((canonical(name), canonical(one)) for name, one in value._items)
    if isinstance(value, list | tuple | SortedSet):
        return tuple(canonical(item) for item in value)
    return value


def _identity(value: Any) -> Any:
    """Identify values as Cassandra does where they are sorted: decimals by their numeric value alone."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, list | tuple):
        return tuple(_identity(item) for item in value)
    return (type(value).__name__, canonical(value))


def _decimals() -> SearchStrategy[Decimal]:
    digits = st.integers(-(10**50), 10**50)
    return st.builds(lambda unscaled, scale: Decimal(f"{unscaled}e{scale}"), digits, st.integers(-1000, 1000))


def _durations() -> SearchStrategy[Duration]:
    parts = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
    return st.builds(lambda sign, some: Duration(*(sign * part for part in some)), st.sampled_from([1, -1]), parts)


def _time_uuids() -> SearchStrategy[UUID]:
    return st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number, version=1))


SINGLE: Mapping[str, SearchStrategy[Any]] = {
    "ascii": st.text(st.characters(max_codepoint=127), max_size=5),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "blob": st.binary(max_size=5),
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": _LONG,
    "varint": st.integers(-(10**40), 10**40),
    "decimal": _decimals(),
    "float": st.floats(width=32),
    "double": st.floats(),
    "date": st.integers(-(2**31), 2**31 - 1).map(Date),
    "time": st.integers(0, _DAY_NS - 1),
    "timestamp": _LONG,
    "duration": _durations(),
    "uuid": st.uuids(),
    "timeuuid": _time_uuids(),
    "inet": st.ip_addresses().map(str),
}
