"""Random table definitions: columns over every type, keys of every kind, names of every sort."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import SIMPLE_TYPES, Column
from lakeward.model import TableId
from lakeward.testing.simulator.values import exact_decimal

if TYPE_CHECKING:
    from random import Random

    from lakeward.testing.oracle import Key
    from lakeward.testing.simulator.options import SimulatorOptions

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
    in an update means: not spoken of.
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
        """Give the key with a number; no two numbers give the same key."""
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
    """Give the value with a number; no two numbers give the same value."""
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
