"""Random values of every column type, and the form in which the lake holds them."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import decimal_parts, lake_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lakeward.datatypes import Column
    from lakeward.testing.oracle import Row
    from lakeward.testing.simulator.options import SimulatorOptions

    Maker = Callable[[Random], Any]

INTEGER_RANGES = {
    "tinyint": (-(2**7), 2**7 - 1), "smallint": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1), "utinyint": (0, 2**8 - 1), "usmallint": (0, 2**16 - 1),
    "uint": (0, 2**32 - 1), "ubigint": (0, 2**64 - 1),
}  # fmt: skip
ODD_SHARE = 0.2
WORDS = ("amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "lake", "mesa", "ward")
# Safe in every CSV dialect, and still apt to be trimmed, retyped or cut by a careless reader.
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
    """Give a function that draws values of a type, odd ones now and then if the options say so."""
    usual, odd = _usual_maker(column_type), odd_values(column_type, options)
    if not (options.odd_values and odd):
        return usual
    return lambda random: random.choice(odd) if random.random() < ODD_SHARE else usual(random)


def odd_values(column_type: str, options: SimulatorOptions) -> tuple[Any, ...]:
    """Give the values of a type that readers get wrong most easily."""
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
    """Give a source value as a reader of the mirror sees it."""
    if value is None:
        return None
    if column_type == "time":
        return value.isoformat()
    return Decimal(value) if lake_type(column_type) == "decimal(20,0)" and isinstance(value, int) else value


def lake_row(columns: tuple[Column, ...], row: Row) -> Row:
    """Give a source row as a reader of the mirror sees it; a column the row does not have is null."""
    return {column.name: lake_value(column.type, row.get(column.name)) for column in columns}


def exact_decimal(units: int, scale: int) -> Decimal:
    """Give ``units / 10**scale``; arithmetic would round to the 28 digits of Python's decimal context."""
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
    """Round to a 32 bit float."""
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
    """Leave out what the dialect cannot tell apart: with raw CSV everything that would need quotes."""
    texts = PLAIN_ODD_TEXTS if not options.rfc4180 else (*PLAIN_ODD_TEXTS, *QUOTED_ODD_TEXTS, options.null)
    return tuple(text for text in texts if text != options.unchanged and (options.rfc4180 or text != options.null))


def _not_numbers(options: SimulatorOptions) -> tuple[float, ...]:
    """Only Parquet has one way to write them."""
    only_parquet = options.format == "parquet" and not options.transactions
    return (float("nan"), float("inf"), float("-inf")) if only_parquet else ()
