"""Random tables and what becomes of them, for property tests of the diff.

    @given(change=changes())                      # or changes(nested=False), changes(keys=2), changes(rows=200) …
    @settings(max_examples=5, deadline=None)
    def test_x(spark, change):
        past, current = change.frames(spark)      # two DataFrames
        change.schema, change.keys                # StructType; names of the key columns
        change.past, change.current               # the same rows as lists of tuples
        frozen_rows(frame.collect())              # Counter of rows in a comparable form: NaN, -0.0, maps, structs …

Keys are unique on each side (null is one of them). Each change is made from a drawn seed by plain ``random``: one
example is a large table, and a failing one is repeated by its seed. ``changed_again(change, seed)`` gives the next
state of a table, so that three or more in a row can be had. Value columns hold every type that can be compared: nulls,
NaN, both zeros and infinities, empty arrays and maps, and maps whose entries only change their order.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]

KEY_TYPES: tuple[DataType, ...] = (
    LongType(), IntegerType(), StringType(), DecimalType(12, 2), DateType(), TimestampType(), BinaryType(),
    DoubleType(),
)  # fmt: skip
FLAT_TYPES: tuple[DataType, ...] = (
    BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(20, 4),
    StringType(), BinaryType(), DateType(), TimestampType(), TimestampNTZType(),
)  # fmt: skip
_PAIR = StructType([StructField("a", DoubleType()), StructField("b.c", ArrayType(StringType()))])
NESTED_TYPES: tuple[DataType, ...] = (
    ArrayType(DoubleType()), _PAIR, MapType(StringType(), IntegerType()), ArrayType(_PAIR),
    MapType(IntegerType(), MapType(StringType(), DoubleType())),
    StructType([StructField("m", MapType(StringType(), StringType())), StructField("n", LongType())]),
)  # fmt: skip
# Names that a careless query would not survive.
_NAMES = ("v", "dotted.name", "with `tick", "blank name", "left_v", "Ünï", "diff", "value", "x", "y", "z", "w", "u")
_TEXTS = ("", "a", "b", " a", "a  b", "ä", "null", "long " * 5, "\n", "'q'")


@dataclass(frozen=True)
class Change:
    """A table before and after."""

    seed: int
    schema: StructType
    keys: tuple[str, ...]
    past: Rows
    current: Rows

    def __repr__(self) -> str:
        return f"Change(seed={self.seed}, {self.schema.simpleString()}, keys={self.keys}, {len(self.past)} rows)"

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Return both states as frames."""
        return frame_of(spark, self.past, self.schema), frame_of(spark, self.current, self.schema)


def frame_of(spark: SparkSession, rows: Rows, schema: StructType, *, partitions: int = 2) -> DataFrame:
    """Return rows as a frame; a map column keeps the order of its entries, which is lost on the plain way to Spark."""
    maps = {at: field for at, field in enumerate(schema.fields) if isinstance(field.dataType, MapType)}
    sent = [tuple(_as_entries(value) if at in maps else value for at, value in enumerate(row)) for row in rows]
    fields = [StructField(field.name, _entries_type(field.dataType)) for field in schema.fields]
    frame = spark.createDataFrame(
        spark.sparkContext.parallelize(sent, partitions), StructType(fields), verifySchema=False
    )
    return frame.select(
        *(
            F.map_from_entries(column(field.name)).alias(field.name) if at in maps else column(field.name)
            for at, field in enumerate(schema.fields)
        )
    )


def _as_entries(value: dict[Any, Any] | None) -> list[tuple[Any, Any]] | None:
    return None if value is None else list(value.items())


def _entries_type(data_type: DataType) -> DataType:
    if not isinstance(data_type, MapType):
        return data_type
    entry = [StructField("key", data_type.keyType, nullable=False), StructField("value", data_type.valueType)]
    return ArrayType(StructType(entry), containsNull=False)


def changes(
    *, rows: int = 60, keys: int | None = None, nested: bool = True, null_keys: bool = True
) -> st.SearchStrategy[Change]:
    """Return tables of up to so many rows with what becomes of them."""
    return st.integers(0, 2**32).map(
        lambda seed: make_change(seed, rows=rows, keys=keys, nested=nested, null_keys=null_keys)
    )


def make_change(
    seed: int, *, rows: int = 60, keys: int | None = None, nested: bool = True, null_keys: bool = True
) -> Change:
    """Return the table of a seed."""
    dice = random.Random(seed)
    key_count = keys or dice.choice((1, 1, 2, 3))
    key_fields = [StructField(f"k{at}", dice.choice(KEY_TYPES)) for at in range(key_count)]
    names = dice.sample(_NAMES, dice.randint(1, 6))
    types = FLAT_TYPES + (NESTED_TYPES * 2 if nested else ())
    fields = key_fields + [StructField(name, dice.choice(types)) for name in names]
    dice.shuffle(fields)
    schema = StructType(fields)
    key_names = tuple(field.name for field in key_fields)
    past = _unique((_row(dice, schema, key_names, null_keys) for _ in range(dice.randint(0, rows))), schema, key_names)
    start = Change(seed, schema, key_names, past, past)
    return replace(changed_again(start, dice.getrandbits(32), null_keys=null_keys), past=past, seed=seed)


def changed_again(change: Change, seed: int, *, null_keys: bool = True) -> Change:
    """Return the next state of a table: rows deleted, changed, inserted, and others left as they are."""
    dice = random.Random(seed)
    schema, keys = change.schema, change.keys
    share = dice.choice((0.05, 0.3, 1.0))
    rows: Rows = []
    for row in change.current:
        if dice.random() < share / 4:
            continue
        rows.append(_mutated(dice, row, schema, keys) if dice.random() < share else row)
    rows += [_row(dice, schema, keys, null_keys) for _ in range(dice.randint(0, max(2, len(rows) // 4)))]
    dice.shuffle(rows)
    return replace(change, past=change.current, current=_unique(rows, schema, keys), seed=seed)


def frozen_rows(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Return rows in a form in which they can be counted; floats are distinguished to the sign of a zero."""
    return Counter(tuple(frozen(value) for value in row) for row in rows)


def frozen(value: Any) -> Any:
    """Return a value in a form that can be hashed; NaN is one value, the order of a map's entries none."""
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, dict):
        return ("map", frozenset((frozen(key), frozen(one)) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("many", tuple(frozen(item) for item in value))
    return bytes(value) if isinstance(value, bytearray) else value


def settled(value: Any) -> Any:
    """Return a value in the form in which plain equality sees it: as :func:`frozen`, but with one zero."""
    if isinstance(value, float):
        return ("float", repr(value + 0.0))
    if isinstance(value, dict):
        return ("map", frozenset((settled(key), settled(one)) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("many", tuple(settled(item) for item in value))
    return bytes(value) if isinstance(value, bytearray) else value


def _unique(rows: Iterable[tuple[Any, ...]], schema: StructType, keys: Sequence[str]) -> Rows:
    places = [schema.names.index(key) for key in keys]
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        found.setdefault(tuple(settled(row[place]) for place in places), row)
    return list(found.values())


def _row(dice: random.Random, schema: StructType, keys: Sequence[str], null_keys: bool) -> tuple[Any, ...]:
    return tuple(
        make_value(dice, field.dataType, nulls=0.15 if field.name not in keys else 0.05 if null_keys else 0.0)
        for field in schema.fields
    )


def _mutated(dice: random.Random, row: tuple[Any, ...], schema: StructType, keys: Sequence[str]) -> tuple[Any, ...]:
    values = list(row)
    for at, field in enumerate(schema.fields):
        if field.name not in keys and dice.random() < 0.5:
            values[at] = _turned(dice, values[at], field.dataType)
    return tuple(values)


def _turned(dice: random.Random, value: Any, data_type: DataType) -> Any:
    """Return another value: at times one that only looks different."""
    if isinstance(value, dict) and len(value) > 1 and dice.random() < 0.5:
        return dict(reversed(value.items()))
    if value == 0 and isinstance(value, float) and dice.random() < 0.5:
        return -value
    return make_value(dice, data_type, nulls=0.3)


def make_value(dice: random.Random, data_type: DataType, *, nulls: float = 0.15) -> Any:
    """Return a value of a type."""
    if dice.random() < nulls:
        return None
    if isinstance(data_type, ArrayType):
        return [make_value(dice, data_type.elementType) for _ in range(dice.randint(0, 3))]
    if isinstance(data_type, MapType):
        keys = [make_value(dice, data_type.keyType, nulls=0) for _ in range(dice.randint(0, 3))]
        return {key: make_value(dice, data_type.valueType) for key in keys}
    if isinstance(data_type, StructType):
        return tuple(make_value(dice, field.dataType) for field in data_type.fields)
    return _MAKERS[type(data_type)](dice, data_type)


def _whole(bits: int) -> Any:
    top = 2 ** (bits - 1)
    return lambda dice, _: dice.choice((0, 1, -1, top - 1, -top, dice.randint(-100, 100), dice.randint(-top, top - 1)))


def _double(dice: random.Random, _: DataType) -> float:
    special = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5)
    return dice.choice(special) if dice.random() < 0.6 else dice.uniform(-1e6, 1e6)


def _float(dice: random.Random, data_type: DataType) -> float:
    found = _double(dice, data_type)
    return float(struct.unpack("f", struct.pack("f", found))[0])


def _decimal(dice: random.Random, data_type: DataType) -> Decimal:
    assert isinstance(data_type, DecimalType)
    return Decimal(dice.randint(-(10**9), 10**9)).scaleb(-data_type.scale)


def _moment(dice: random.Random, _: DataType) -> dt.datetime:
    return dt.datetime(2020, 1, 1, 12) + dt.timedelta(
        seconds=dice.randint(0, 400), microseconds=dice.choice((0, 1, 999999))
    )


def _day(dice: random.Random, _: DataType) -> dt.date:
    return dt.date(2020, 1, 1) + dt.timedelta(days=dice.randint(0, 80))


_MAKERS: dict[type[DataType], Any] = {
    BooleanType: lambda dice, _: dice.random() < 0.5,
    ByteType: _whole(8),
    ShortType: _whole(16),
    IntegerType: _whole(32),
    LongType: _whole(64),
    FloatType: _float,
    DoubleType: _double,
    DecimalType: _decimal,
    StringType: lambda dice, _: dice.choice(_TEXTS) if dice.random() < 0.5 else f"t{dice.randint(0, 200)}",
    BinaryType: lambda dice, _: dice.randbytes(dice.randint(0, 2)),
    DateType: _day,
    TimestampType: _moment,
    TimestampNTZType: _moment,
}
