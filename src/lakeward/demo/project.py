"""The demo: a project in a folder, with configuration and landing files, and its run: load, change and check."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.arguments import FLAG, PATH, instance, takes
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError
from lakeward.lake import Lakeward
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.mirror.op.report import RunReport


# The shop's rows: stores, products and their orders; and the people of a second database.


Row = dict[str, Any]

STORES, PRODUCTS, ORDERS, PERSONS = 8, 25, 8_425, 101
NEW_ORDERS = 1_345
FIRST_ID = 1001
LOADED = datetime(2024, 4, 5, 0, 30, 0, tzinfo=UTC)
CHANGED = datetime(2024, 4, 6, 9, 15, 0, tzinfo=UTC)

_CITIES = ("Boston", "Chicago", "Denver", "Houston", "Miami", "Portland", "Seattle", "Tucson", "Omaha")
_STATES = ("MA", "IL", "CO", "TX", "FL", "OR", "WA", "AZ", "NE")
_DEPARTMENTS = ("Garden", "Kitchen", "Office", "Sports", "Toys")
_THINGS = ("Basket", "Bottle", "Chair", "Lamp", "Notebook")
_FIRST_NAMES = ("Ann", "Ben", "Chloé", "Dora", "Emil", "Fatma", "Goran", "Hana", "Iván", "José")
_LAST_NAMES = ("Adams", "Brown", "Costa", "Diaz", "Evans", "Fischer", "García", "Hill", "Ito", "Jones", "Kim")


def stores() -> list[Row]:
    """Return the stores of the first load."""
    return [_store(number) for number in range(STORES)]


def new_store() -> Row:
    """Return the store that opens later: 1009."""
    return _store(STORES)


def _store(number: int) -> Row:
    return {
        "id": FIRST_ID + number,
        "address1": f"{100 + 7 * number} Main Street",
        "city": _CITIES[number],
        "state": _STATES[number],
        "countrycode": "USA",
        "postcode": f"{2000 + 371 * number:05}",
    }


def products() -> list[Row]:
    """Return the products of the first load."""
    return [
        {
            "id": FIRST_ID + number,
            "name": f"{_DEPARTMENTS[number % 5]} {_THINGS[number // 5]}",
            "dept": _DEPARTMENTS[number % 5],
            "category": _THINGS[number // 5],
            "price": Decimal(999 + 350 * number) / 100,
            "cost": Decimal(555 + 200 * number) / 100,
        }
        for number in range(PRODUCTS)
    ]


def changed_product() -> Row:
    """Return product 1001 after its price rose."""
    return {**products()[0], "price": Decimal("12.49"), "name": "Garden Basket XL"}


def order_rows() -> list[Row]:
    """Return the orders of the first load."""
    return _orders(0, ORDERS, LOADED - timedelta(days=90))


def new_orders() -> list[Row]:
    """Return the orders that come in later."""
    return _orders(ORDERS, NEW_ORDERS, LOADED)


def _orders(first: int, count: int, since: datetime) -> list[Row]:
    random = Random(first)
    catalogue = products()
    # The product that is deleted later is no longer ordered then.
    sold = catalogue if first == 0 else [product for product in catalogue if product["id"] != FIRST_ID + 1]
    return [
        {
            "id": first + number + 1,
            "productid": (product := random.choice(sold))["id"],
            "storeid": FIRST_ID + random.randrange(STORES),
            "qty": random.randint(1, 9),
            "soldprice": product["price"],
            "create_dt": since + timedelta(minutes=15 * number),
        }
        for number in range(count)
    ]


def persons() -> list[Row]:
    """Return the persons of the first load: 1 to 101."""
    return [person(number) for number in range(1, PERSONS + 1)]


def person(number: int) -> Row:
    """Return one person; some have no city."""
    name = f"{_FIRST_NAMES[number % len(_FIRST_NAMES)]} {_LAST_NAMES[number % len(_LAST_NAMES)]}"
    city = None if number % 17 == 0 else _CITIES[number % len(_CITIES)]
    return {"PersonID": number, "FullName": name, "City": city}


# Files as DMS writes them: Parquet with typed columns, and CSV without header.


TIMESTAMP_COLUMN = "cdc_timestamp"
Change = tuple[str, "Row"]


def write_parquet_load(file: Path, schema: pa.Schema, rows: Iterable[Row], time: datetime) -> None:
    """Write a load part: the source's columns and the time of the load."""
    stamped = [{**row, TIMESTAMP_COLUMN: time} for row in rows]
    _write(file, pa.schema([*schema, _timestamp_field()]), stamped)


def write_parquet_changes(file: Path, schema: pa.Schema, changes: Iterable[Change], time: datetime) -> None:
    """Write a change file: the operation first, the commit time last."""
    stamped = [{"Op": operation, **row, TIMESTAMP_COLUMN: time} for operation, row in changes]
    _write(file, pa.schema([pa.field("Op", pa.string()), *schema, _timestamp_field()]), stamped)


def write_csv(file: Path, records: Iterable[Sequence[Any]]) -> None:
    """Write records without header; None is an unquoted NULL."""
    lines = [",".join("NULL" if value is None else str(value) for value in record) for record in records]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _timestamp_field() -> pa.Field:
    return pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", tz="UTC"))


def _write(file: Path, schema: pa.Schema, rows: list[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


MARK = "# Written by lakeward demo."
_CONFIGURATION_FILE = "lakeward.yaml"
_CONFIGURATION = f"""{MARK} `lakeward demo --force` replaces this project.
landing: ./landing

defaults:
  timestamp_column: {TIMESTAMP_COLUMN}

tables:
  sampledb.store:
    primary_key: [id]
  sampledb.product:
    primary_key: [id]
    partition_by: [dept]
  sampledb.productorder:
    primary_key: [id]

  # CSV has no types: they are declared.
  people.persons:
    primary_key: [PersonID]
    timestamp_column: null
    schema: "PersonID int, FullName string, City string"
    csv: {{header: false, null: "NULL"}}
"""
# What a demo leaves in its folder.
_CONTENT = (_CONFIGURATION_FILE, "landing", "lake", "lakeward.db", "lakeward.db-wal", "lakeward.db-shm")
_LAKE_TABLE = re.compile(r"lake/data/(sampledb|people)(_[a-z]+)?/(store|product|productorder|persons)(?=/)")
LAKE_CATALOG = re.compile(r"lake/catalog\.db(-wal|-shm|-journal)?")


@dataclass(frozen=True)
class DemoTable:
    """A table with the rows it must have after the load and after the changes, and what changed."""

    name: str
    loaded: int
    changed: int
    story: str


TABLES = (
    DemoTable("sampledb.store", 8, 9, "1009 added"),
    DemoTable("sampledb.product", 25, 24, "1001 updated, 1002 deleted"),
    DemoTable("sampledb.productorder", 8_425, 9_770, "1,345 added"),
    DemoTable("people.persons", 101, 103, "7 and 8 updated, 130 to 132 added, 10 deleted"),
)

_STORE = pa.schema(
    [
        ("id", pa.int32()),
        ("address1", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("countrycode", pa.string()),
        ("postcode", pa.string()),
    ]
)
_PRODUCT = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("dept", pa.string()),
        ("category", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("cost", pa.decimal128(10, 2)),
    ]
)
_ORDER = pa.schema(
    [
        ("id", pa.int64()),
        ("productid", pa.int32()),
        ("storeid", pa.int32()),
        ("qty", pa.int32()),
        ("soldprice", pa.decimal128(10, 2)),
        ("create_dt", pa.timestamp("us", tz="UTC")),
    ]
)


@takes(folder=PATH, force=FLAG)
def write_demo(folder: str | Path, *, force: bool = False) -> Path:
    """Write configuration and first load of the demo, and return the configuration file.

    Raises:
        ConfigurationError: the folder is not empty, or with ``force`` holds a project that is not a demo.
    """
    folder = Path(folder)
    make_room(folder, _CONTENT, _is_own, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _CONFIGURATION_FILE
    file.write_text(_CONFIGURATION, encoding="utf-8")
    landing, time = folder / "landing", LOADED
    write_parquet_load(landing / "sampledb/store/LOAD00000001.parquet", _STORE, stores(), time)
    write_parquet_load(landing / "sampledb/product/LOAD00000001.parquet", _PRODUCT, products(), time)
    orders, half = order_rows(), ORDERS // 2
    write_parquet_load(landing / "sampledb/productorder/LOAD00000001.parquet", _ORDER, orders[:half], time)
    write_parquet_load(landing / "sampledb/productorder/LOAD00000002.parquet", _ORDER, orders[half:], time)
    write_csv(landing / "people/persons/LOAD00000001.csv", [tuple(row.values()) for row in persons()])
    return file


def land_changes(folder: Path) -> None:
    """Write the change files that a capture would write later."""
    shop_folder, time, name = folder / "landing/sampledb", CHANGED, f"{CHANGED:%Y%m%d-%H%M%S}000.parquet"
    product = changed_product()
    removed = products()[1]
    write_parquet_changes(shop_folder / "product" / name, _PRODUCT, [("U", product), ("D", removed)], time)
    write_parquet_changes(shop_folder / "store" / name, _STORE, [("I", new_store())], time)
    orders = [("I", row) for row in new_orders()]
    write_parquet_changes(shop_folder / "productorder" / name, _ORDER, orders, time)
    changes = [
        ("U", 7, "Hana Hill", "Lisbon"),
        ("U", 8, "Iván Ito", "Kyoto"),
        *[("I", *person(number).values()) for number in (130, 131, 132)],
        ("D", *person(10).values()),
    ]
    write_csv(folder / "landing/people/persons" / f"{CHANGED:%Y%m%d-%H%M%S}000.csv", changes)


def _is_own(path: str) -> bool:
    """Whether the demo wrote a file, by its path from the project's folder."""
    change = f"{CHANGED:%Y%m%d-%H%M%S}000"
    names = ("LOAD00000001", "LOAD00000002", change)
    folders = [(f"landing/sampledb/{table}", "parquet") for table in ("store", "product", "productorder")]
    landed = {
        f"{folder}/{name}.{kind}" for folder, kind in [*folders, ("landing/people/persons", "csv")] for name in names
    }
    return path in landed or path in _CONTENT or LAKE_CATALOG.fullmatch(path) is not None or is_own_lake_file(path)


def is_own_lake_file(path: str) -> bool:
    """Whether a file is one of the demo's tables in the lake, by its path from the project's folder."""
    from lakeward.iceberg.cleanup import is_iceberg_file

    table = _LAKE_TABLE.match(path)
    if table is None:
        return False
    name = path.rpartition("/")[2]
    # Hadoop leaves a checksum beside a file on a local disk.
    plain = path.removesuffix(name) + (name[1:-4] if name.startswith(".") and name.endswith(".crc") else name)
    return plain.endswith("/metadata/version-hint.text") or is_iceberg_file(plain, table[0])


def make_room(
    folder: Path, content: Sequence[str], is_own: Callable[[str], bool], *, force: bool, command: str = "lakeward demo"
) -> None:
    """Clear a folder of an earlier demo, whose ``content`` is known; ``is_own`` recognises its files by their paths.

    Raises:
        ConfigurationError: the folder is not empty, or with ``force`` holds a project that is not a demo, or files
            that the demo did not write among its own. Nothing is touched then.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not force:
        msg = f"{folder} exists and is not an empty folder"
        raise ConfigurationError(msg, hint=f"{command} OTHER_FOLDER, or {command} {folder} --force")
    present = [folder / name for name in content if (folder / name).exists()]
    if present and not _is_demo(folder):
        msg = f"{folder} holds a project that is not a demo: {', '.join(path.name for path in present)}"
        raise ConfigurationError(msg, hint=f"{command} OTHER_FOLDER")
    files = [file for path in present for file in _files(path)]
    foreign = [file for file in files if not is_own(file.relative_to(folder).as_posix())]
    if foreign:
        msg = f"the demo in {folder} holds files that it did not write: {listed(map(str, foreign))}"
        raise ConfigurationError(msg, hint=f"move them elsewhere, or {command} OTHER_FOLDER; nothing was removed")
    LocalFileSystem().remove(str(folder), [file.relative_to(folder).as_posix() for file in files])
    for path in present:
        LocalFileSystem().prune(str(path))


def _files(path: Path) -> list[Path]:
    """Return all files at or below a path, links among them."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_symlink() or not file.is_dir())


def _is_demo(folder: Path) -> bool:
    file = folder / _CONFIGURATION_FILE
    return file.is_file() and file.read_text(encoding="utf-8").startswith(MARK)


_LAKE = instance("a Lakeward", Lakeward)
_SAMPLES = (
    ("product 1001", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1001"),
    ("product 1002", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1002"),
    ("store 1009", "SELECT city FROM sampledb.store WHERE id = 1009"),
    ("person 7", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 7"),
    ("person 10", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 10"),
    ("person 130", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 130"),
)


@dataclass(frozen=True)
class TableCheck(Document):
    """A table's rows before and after the changes, against what they must be."""

    table: str
    before: int
    after: int
    expected: int
    ok: bool
    changes: str


@dataclass(frozen=True)
class SampleRow(Document):
    """A row that changed, as it was and as it is."""

    row: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class DemoReport(Document, keys=("ok", "seconds", "tables", "rows")):
    """The results of the demo: the runs of load and changes, the check of every table, and some rows."""

    loaded: RunReport
    changed: RunReport
    tables: tuple[TableCheck, ...]
    rows: tuple[SampleRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every table has the rows that it must have."""
        return all(check.ok for check in self.tables)

    @property
    def seconds(self) -> float:
        """How long both runs took."""
        return self.loaded.seconds + self.changed.seconds


@takes(lake=_LAKE, folder=PATH)
def play_demo(lake: Lakeward, folder: str | Path) -> DemoReport:
    """Load the demo that :func:`write_demo` wrote to a folder, change it, and check the mirrors.

    Raises:
        DataError: a table failed.
    """
    loaded = _run(lake)
    rows, samples = _counts(lake), _samples(lake)
    land_changes(Path(folder))
    changed = _run(lake)
    rows_after, samples_after = _counts(lake), _samples(lake)
    checks = tuple(
        TableCheck(
            table.name,
            rows[table.name],
            rows_after[table.name],
            table.changed,
            rows[table.name] == table.loaded and rows_after[table.name] == table.changed,
            table.story,
        )
        for table in TABLES
    )
    return DemoReport(
        loaded, changed, checks, tuple(SampleRow(row, samples[row], samples_after[row]) for row, _ in _SAMPLES)
    )


def _run(lake: Lakeward) -> RunReport:
    """Run all tables; the first that fails ends the demo."""
    report = lake.run()
    for failed in report.failed:
        raise DataError(failed.message or f"{failed.table} failed", hint=failed.hint)
    return report


def _counts(lake: Lakeward) -> dict[str, int]:
    return {table.name: lake.sql(f"SELECT count(*) FROM {table.name}").collect()[0][0] for table in TABLES}


def _samples(lake: Lakeward) -> dict[str, str | None]:
    return {row: next((found[0] for found in lake.sql(query).collect()), None) for row, query in _SAMPLES}
