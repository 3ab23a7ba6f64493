"""The benchmark's table: 12 columns of the usual types, and batches of uniform random changes."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("quantity", pa.int32()),
        ("customer", pa.int64()),
        ("price", pa.decimal128(12, 2)),
        ("ratio", pa.float64()),
        ("name", pa.string()),
        ("city", pa.string()),
        ("code", pa.string()),
        ("created", pa.date32()),
        ("updated", pa.timestamp("us", tz="UTC")),
        ("active", pa.bool_()),
        ("note", pa.string()),
    ]
)
_START = datetime(2024, 1, 1, tzinfo=UTC)
_CITIES = ("Oslo", "Bern", "Lima", "Rome", "Cairo", "Quito")
_ROWS_PER_PART = 1_000_000


def write_load(folder: Path, rows: int) -> None:
    """Write the full load as DMS parts."""
    folder.mkdir(parents=True)
    for part, start in enumerate(range(0, rows, _ROWS_PER_PART), start=1):
        ids = pa.array(range(start, min(start + _ROWS_PER_PART, rows)), pa.int64())
        pq.write_table(_load_table(ids), folder / f"LOAD{part:08X}.parquet", row_group_size=100_000)


def _load_table(ids: pa.Array) -> pa.Table:
    """Make columns from ids by arithmetic: fast, and the same on every machine."""
    mixed = pc.bit_wise_and(pc.multiply(ids, pa.scalar(2654435761, pa.int64())), pa.scalar(0xFFFFFF, pa.int64()))
    text = pc.cast(mixed, pa.string())
    city = pc.take(pa.array(_CITIES), pc.subtract(mixed, pc.multiply(pc.divide(mixed, 6), 6)))
    day = pc.cast(pc.cast(pc.divide(mixed, 2000), pa.int32()), pa.date32())
    values = {
        "id": ids,
        "quantity": pc.cast(pc.divide(mixed, 1000), pa.int32()),
        "customer": pc.divide(mixed, 7),
        "price": pc.cast(pc.cast(pc.divide(mixed, 100), pa.decimal128(21, 2)), pa.decimal128(12, 2)),
        "ratio": pc.divide(pc.cast(mixed, pa.float64()), 3.0),
        "name": pc.binary_join_element_wise("name", text, "-"),
        "city": city,
        "code": pc.binary_join_element_wise("c", text, ""),
        "created": day,
        "updated": pc.cast(pc.add(pc.multiply(mixed, 1_000_000), 1_700_000_000_000_000), pa.timestamp("us", tz="UTC")),
        "active": pc.equal(pc.bit_wise_and(mixed, pa.scalar(1, pa.int64())), 1),
        "note": pc.binary_join_element_wise("a note of some length about", text, " "),
    }
    return pa.table([values[name] for name in SCHEMA.names], schema=SCHEMA)


def write_batch(path: Path, *, rows: int, changes: int, number: int) -> None:
    """Write a change file: 80 % updates and 10 % deletes of uniform random keys, 10 % inserts of new ones."""
    chance = random.Random(number)
    keys = chance.sample(range(rows), changes * 9 // 10)
    updates = changes * 8 // 10
    new = [rows + number * changes + at for at in range(changes - len(keys))]
    operations = ["U"] * updates + ["D"] * (len(keys) - updates) + ["I"] * len(new)
    records = list(zip(operations, keys + new, strict=True))
    chance.shuffle(records)
    moment = _START + timedelta(hours=number)
    table = pa.table(
        {
            "Op": [operation for operation, _ in records],
            "cdc_timestamp": [f"{moment + timedelta(microseconds=at):%Y-%m-%d %H:%M:%S.%f}" for at in range(changes)],
            **_change_columns([key for _, key in records], number, chance),
        }
    )
    pq.write_table(table, path)


def _change_columns(keys: list[int], number: int, chance: random.Random) -> dict[str, Any]:
    size = len(keys)
    values: dict[str, list[Any]] = {
        "id": keys,
        "quantity": [chance.randrange(1000) for _ in keys],
        "customer": [chance.randrange(1 << 40) for _ in keys],
        "price": [Decimal(chance.randrange(10**9)) / 100 for _ in keys],
        "ratio": [chance.random() for _ in keys],
        "name": [f"changed {number}-{key}" for key in keys],
        "city": chance.choices(_CITIES, k=size),
        "code": [f"x{key}" for key in keys],
        "created": [date(2024, 1, 1 + number % 28)] * size,
        "updated": [_START + timedelta(seconds=key % 100_000) for key in keys],
        "active": [bool(key % 2) for key in keys],
        "note": [None if key % 5 == 0 else f"batch {number}" for key in keys],
    }
    return {name: pa.array(values[name], SCHEMA.field(name).type) for name in SCHEMA.names}


def change_file_name(number: int) -> str:
    """Return the DMS name of a batch's file."""
    return f"{_START + timedelta(hours=number):%Y%m%d-%H%M%S}000.parquet"
