"""Random table definitions and values: columns of every type, keys of every kind, plain and odd names."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.columns import SIMPLE_TYPES, Column, decimal_parts, lake_type
from lakeward.model import TableId

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lakeward.testing.oracle import Key, Row
    from lakeward.testing.simulator.options import SimulatorOptions


if TYPE_CHECKING:
    Maker = Callable[[Random], Any]

INTEGER_RANGES = {
    "tinyint": (-(2**7), 2**7 - 1), "smallint": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1), "utinyint": (0, 2**8 - 1), "usmallint": (0, 2**16 - 1),
    "uint": (0, 2**32 - 1), "ubigint": (0, 2**64 - 1),
}  # fmt: skip
ODD_SHARE = 0.2
WORDS = ("amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "lake", "mesa", "ward")
# Safe in every CSV dialect, but a careless reader may trim, convert or truncate them.
PLAIN_ODD_TEXTS = (
    "007", "7", "1e3", "true", "null", "None", "NaN", " leading", "trailing ", "back\\slash", "it's", "ß→ÿ",
    "日本語", "😀", "e\u0301", "\u2028", "\x85", "#not a comment", "2024-02-30", "x" * 300,
)  # fmt: skip
QUOTED_ODD_TEXTS = (
    "", "NULL", "\\N", 'say "hi"', '"', '""', "a,b", "a;b|c\td", "line\nbreak", "line\r\nbreak", "\r", "\n", ",",
    '","', 'ends with "',
)  # fmt: skip
ODD_DATES = (date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(9999, 12, 31))
# Python cannot show the very first days as local time, so the earliest moment is a little later.
ODD_MOMENTS = (
    datetime(1000, 1, 1), datetime(1582, 10, 10, 1, 2, 3, 4), datetime(1899, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999),
)  # fmt: skip


def maker_of(column_type: str, options: SimulatorOptions) -> Maker:
    """Return a function that draws values of a type, with occasional edge cases if the options ask for them."""
    usual, odd = _usual_maker(column_type), odd_values(column_type, options)
    if not (options.odd_values and odd):
        return usual
    return lambda random: random.choice(odd) if random.random() < ODD_SHARE else usual(random)


def odd_values(column_type: str, options: SimulatorOptions) -> tuple[Any, ...]:
    """Return the values of a type that readers get wrong most easily."""
    if bounds := INTEGER_RANGES.get(column_type):
        return (*bounds, 0)
    if parts := decimal_parts(column_type):
        largest = 10 ** parts[0] - 1
        return tuple(exact_decimal(units, parts[1]) for units in (largest, -largest, 1, 0))
    by_type: dict[str, tuple[Any, ...]] = {
        "string": _odd_texts(options),
        "binary": (b"\x00", b'\xff\xfe,"\n', bytes(range(256)), *((b"",) if options.rfc4180 else ())),
        "date": ODD_DATES,
        "timestamp_ntz": ODD_MOMENTS,
        "timestamp": tuple(moment.replace(tzinfo=UTC) for moment in ODD_MOMENTS),
        "time": (time(0, 0), time(23, 59, 59), time(12, 34, 56, 789_000)),
        "double": (5e-324, 1.7976931348623157e308, 0.1, 1e23, *_not_numbers(options)),
        "float": (_single(1.4e-45), _single(3.4028234e38), *_not_numbers(options)),
    }
    return by_type.get(column_type, ())


def lake_value(column_type: str, value: Any) -> Any:
    """Return a source value as a reader of the mirror sees it."""
    if value is None:
        return None
    if column_type == "time":
        return value.isoformat()
    return Decimal(value) if lake_type(column_type) == "decimal(20,0)" and isinstance(value, int) else value


def lake_row(columns: tuple[Column, ...], row: Row) -> Row:
    """Return a source row as a reader of the mirror sees it; a column the row does not have is null."""
    return {column.name: lake_value(column.type, row.get(column.name)) for column in columns}


def exact_decimal(units: int, scale: int) -> Decimal:
    """Return ``units / 10**scale``; arithmetic would round to the 28 digits of Python's decimal context."""
    return Decimal(f"{units}E-{scale}")


def _usual_maker(column_type: str) -> Maker:
    if bounds := INTEGER_RANGES.get(column_type):
        low, high = max(bounds[0], -100_000), min(bounds[1], 100_000)
        return lambda random: random.randint(low, high)
    if parts := decimal_parts(column_type):
        limit, scale = 10 ** min(parts[0], 12) - 1, parts[1]
        return lambda random: exact_decimal(random.randint(-limit, limit), scale)
    return _USUAL[column_type]


def _moment(random: Random) -> datetime:
    return datetime(2001, 1, 1) + timedelta(seconds=random.randint(0, 10**9), microseconds=random.randrange(10**6))


def _single(value: float) -> float:
    """Return a number rounded to a 32-bit float."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


_USUAL: dict[str, Maker] = {
    "boolean": lambda random: random.random() < 0.5,
    "float": lambda random: _single(random.uniform(-1000, 1000)),
    "double": lambda random: random.uniform(-1e6, 1e6),
    "string": lambda random: f"{random.choice(WORDS)} {random.randrange(1000)}",
    "binary": lambda random: random.randbytes(random.randint(1, 12)),
    "date": lambda random: date(1850, 1, 1) + timedelta(days=random.randrange(80_000)),
    "time": lambda random: time(random.randrange(24), random.randrange(60), random.randrange(60)),
    "timestamp": lambda random: _moment(random).replace(tzinfo=UTC),
    "timestamp_ntz": _moment,
}


def _odd_texts(options: SimulatorOptions) -> tuple[str, ...]:
    """Return odd texts without those that the dialect cannot distinguish: raw CSV has no quotes."""
    texts = PLAIN_ODD_TEXTS if not options.rfc4180 else (*PLAIN_ODD_TEXTS, *QUOTED_ODD_TEXTS, options.null)
    return tuple(text for text in texts if text != options.unchanged and (options.rfc4180 or text != options.null))


def _not_numbers(options: SimulatorOptions) -> tuple[float, ...]:
    """Return NaN and the infinities, which only Parquet writes in one way."""
    only_parquet = options.format == "parquet" and not options.transactions
    return (float("nan"), float("inf"), float("-inf")) if only_parquet else ()


SCHEMA = "shop"
TABLE_NAMES = ("customer", "orders", "product", "invoice", "shipment", "audit", "price", "stock")
PLAIN_NAMES = ("name", "status", "amount", "city", "note", "created", "score", "flag", "payload", "rank")
ODD_NAMES = (
    "Mixed Case", "with.dot", 'with "quotes"', "back`quote", "select", "naïve", "数量", "a-b", "order", "it's",
    "50%", "CamelCase", "_under", "#hash", "$dollar",
)  # fmt: skip
ADDED_NAMES = ("added_1", "added_2")
KEY_NAMES = ("id", "region", "line")
KEY_TYPES = ("int", "bigint", "string", "decimal(18,2)", "date", "timestamp_ntz", "binary", "ubigint", "uint")
# The low-order parts of a composite key take few values.
MINOR_KEY_TYPES = (*KEY_TYPES, "smallint", "tinyint")
MINOR_VALUES = 4
DECIMAL_TYPES = ("decimal(10,2)", "decimal(38,0)", "decimal(28,6)", "decimal(5,5)", "decimal(38,18)")


@dataclass(frozen=True)
class TableSpec:
    """A simulated source table.

    ``added`` columns come in one by one while the simulation runs. ``null_unchanged`` columns are those whose NULL
    in an update means: unchanged.
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    added: tuple[Column, ...] = ()
    nullable_key: bool = False
    null_unchanged: tuple[str, ...] = ()

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Every column the table will ever have."""
        return (*self.columns, *self.added)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns in the key's order."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    def key_at(self, number: int) -> Key:
        """Return the key with a number; no two numbers have the same key."""
        parts: list[int] = []
        for _ in self.key[1:]:
            number, part = divmod(number, MINOR_VALUES)
            parts.append(part)
        values = [
            _key_value(column.type, part)
            for column, part in zip(self.key_columns, (number, *reversed(parts)), strict=True)
        ]
        null_part = 0 if len(values) > 1 else 2
        if self.nullable_key and (parts[0] if parts else number) == null_part:
            values[-1] = None
        return tuple(values)


def random_tables(random: Random, options: SimulatorOptions) -> tuple[TableSpec, ...]:
    """Draw the tables of a simulation."""
    return tuple(_random_table(random, options, number) for number in range(options.tables))


def _random_table(random: Random, options: SimulatorOptions, number: int) -> TableSpec:
    names = _column_names(random, options)
    keyless = options.keyless and (number == options.tables - 1 or random.random() < 0.2)
    key = () if keyless else _random_key(random, options, names)
    others = [Column(name, _random_type(random)) for name in names if name not in {column.name for column in key}]
    columns = [*key, *others]
    if random.random() < 0.3:
        # Keys need not come first.
        random.shuffle(columns)
    added = tuple(Column(name, _random_type(random)) for name in ADDED_NAMES) if options.add_columns else ()
    return TableSpec(
        TableId(SCHEMA, _table_name(number)),
        tuple(columns),
        tuple(column.name for column in key),
        added,
        bool(key) and options.nullable_keys and random.random() < 0.5,
        tuple(column.name for column in others[::2]) if options.null_means_unchanged and key else (),
    )


def _table_name(number: int) -> str:
    base = TABLE_NAMES[number % len(TABLE_NAMES)]
    return base if number < len(TABLE_NAMES) else f"{base}_{number // len(TABLE_NAMES)}"


def _column_names(random: Random, options: SimulatorOptions) -> list[str]:
    pool = ODD_NAMES if options.odd_names else PLAIN_NAMES
    return random.sample(pool, random.randint(4, 8))


def _random_key(random: Random, options: SimulatorOptions, names: list[str]) -> tuple[Column, ...]:
    """Draw one to three key columns; with odd names the key has one too."""
    size = random.choice((1, 1, 2, 3)) if options.composite_keys else 1
    key_names = list(KEY_NAMES[:size])
    if options.odd_names:
        key_names[0] = names[0]
    major, minors = random.choice(KEY_TYPES), random.choices(MINOR_KEY_TYPES, k=size - 1)
    return tuple(Column(name, column_type) for name, column_type in zip(key_names, (major, *minors), strict=True))


def _random_type(random: Random) -> str:
    return random.choice((*sorted(SIMPLE_TYPES), *DECIMAL_TYPES))


def _key_value(column_type: str, number: int) -> Any:
    """Return the value with a number; no two numbers have the same value."""
    if column_type == "string":
        # '007' and '7' are two keys.
        return str(number // 2) if number % 2 else f"00{number // 2}"
    if column_type == "date":
        return date(1850, 1, 1) + timedelta(days=number)
    if column_type == "timestamp_ntz":
        return datetime(1899, 12, 31, 23, 59, 59) + timedelta(microseconds=250_001 * number)
    if column_type == "binary":
        return number.to_bytes(4, "big")
    if column_type == "ubigint":
        return 2**63 + number
    return exact_decimal(number, 2) if column_type.startswith("decimal") else number
