"""The demo as a project in a folder: configuration, first load, and the changes that come after it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.arguments import FLAG, PATH, takes
from lakeward.demo import shop
from lakeward.demo.files import TIMESTAMP_COLUMN, write_csv, write_parquet_changes, write_parquet_load
from lakeward.errors import ConfigurationError
from lakeward.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

  # CSV tells no types: they are declared.
  people.persons:
    primary_key: [PersonID]
    timestamp_column: null
    schema: "PersonID int, FullName string, City string"
    csv: {{header: false, null: "NULL"}}
"""
# What a demo leaves in its folder.
_CONTENT = (_CONFIGURATION_FILE, "landing", "lake", "lakeward.db", "lakeward.db-wal", "lakeward.db-shm")
_LAKE_TABLE = re.compile(r"lake/data/(sampledb|people)(_[a-z]+)?/(store|product|productorder|persons)(?=/)")
_LAKE_CATALOG = re.compile(r"lake/catalog\.db(-wal|-shm|-journal)?")
_SHOWN = 5


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
    landing, time = folder / "landing", shop.LOADED
    write_parquet_load(landing / "sampledb/store/LOAD00000001.parquet", _STORE, shop.stores(), time)
    write_parquet_load(landing / "sampledb/product/LOAD00000001.parquet", _PRODUCT, shop.products(), time)
    orders, half = shop.orders(), shop.ORDERS // 2
    write_parquet_load(landing / "sampledb/productorder/LOAD00000001.parquet", _ORDER, orders[:half], time)
    write_parquet_load(landing / "sampledb/productorder/LOAD00000002.parquet", _ORDER, orders[half:], time)
    write_csv(landing / "people/persons/LOAD00000001.csv", [tuple(row.values()) for row in shop.persons()])
    return file


def land_changes(folder: Path) -> None:
    """Write the change files that a capture would write later."""
    shop_folder, time, name = folder / "landing/sampledb", shop.CHANGED, f"{shop.CHANGED:%Y%m%d-%H%M%S}000.parquet"
    product = shop.changed_product()
    removed = shop.products()[1]
    write_parquet_changes(shop_folder / "product" / name, _PRODUCT, [("U", product), ("D", removed)], time)
    write_parquet_changes(shop_folder / "store" / name, _STORE, [("I", shop.new_store())], time)
    orders = [("I", row) for row in shop.new_orders()]
    write_parquet_changes(shop_folder / "productorder" / name, _ORDER, orders, time)
    changes = [
        ("U", 7, "Hana Hill", "Lisbon"),
        ("U", 8, "Iván Ito", "Kyoto"),
        *[("I", *shop.person(number).values()) for number in (130, 131, 132)],
        ("D", *shop.person(10).values()),
    ]
    write_csv(folder / "landing/people/persons" / f"{shop.CHANGED:%Y%m%d-%H%M%S}000.csv", changes)


def _is_own(path: str) -> bool:
    """Whether the demo wrote a file, by its path from the project's folder."""
    change = f"{shop.CHANGED:%Y%m%d-%H%M%S}000"
    names = ("LOAD00000001", "LOAD00000002", change)
    folders = [(f"landing/sampledb/{one}", "parquet") for one in ("store", "product", "productorder")]
    landed = {f"{one}/{name}.{kind}" for one, kind in [*folders, ("landing/people/persons", "csv")] for name in names}
    return path in landed or path in _CONTENT or _LAKE_CATALOG.fullmatch(path) is not None or is_own_lake_file(path)


def is_own_lake_file(path: str) -> bool:
    """Whether a file is one of the demo's tables in the lake, by its path from the project's folder."""
    from lakeward.lake.iceberg.orphans import is_iceberg_file

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
    """Clear a folder of an earlier demo, whose ``content`` is known; ``is_own`` knows its files by their paths.

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
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        shown = ", ".join(str(file) for file in foreign[:_SHOWN]) + more
        msg = f"the demo in {folder} holds files that it did not write: {shown}"
        raise ConfigurationError(msg, hint=f"move them elsewhere, or {command} OTHER_FOLDER; nothing was removed")
    LocalFileSystem().remove(str(folder), [file.relative_to(folder).as_posix() for file in files])
    for path in present:
        LocalFileSystem().prune(str(path))


def _files(path: Path) -> list[Path]:
    """Return all files at or below a path, links among them."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    return sorted(one for one in path.rglob("*") if one.is_symlink() or not one.is_dir())


def _is_demo(folder: Path) -> bool:
    file = folder / _CONFIGURATION_FILE
    return file.is_file() and file.read_text(encoding="utf-8").startswith(MARK)
