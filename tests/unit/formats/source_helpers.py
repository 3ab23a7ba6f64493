"""Short ways to land a file and read it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.columns import parse_ddl
from lakeward.config import TableSettings
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.files import Limits
from lakeward.formats.dms.listing import list_files, list_transactions
from lakeward.formats.dms.reader import read_file
from lakeward.formats.dms.transactions import SourceName, read_sorted, sort_file, source_name
from lakeward.formats.dms.values import record_schema
from lakeward.model import FileClass, LandingFile, OrderBy, TableId
from lakeward.storage.landing import Landing

TABLE = TableId("sales", "product")
CHANGES = "20240405-003052555.csv"
CHANGES_PARQUET = "20240405-003052555.parquet"
LOAD = "LOAD00000001.csv"
LOAD_PARQUET = "LOAD00000001.parquet"
TXN = "CDC_TXN-20201117153046033.csv"
DDL = "id int, name string, price decimal(10,2)"


def make_spec(ddl: str = DDL, order_by: OrderBy | None = None, **settings: Any) -> ReadSpec:
    settings.setdefault("primary_key", ["id"])
    return ReadSpec(TABLE, parse_ddl(ddl), TableSettings.model_validate(settings), order_by)


@dataclass
class Result:
    """The result of reading one file."""

    summary: FileSummary
    batches: list[pa.RecordBatch]
    columns: tuple[str, ...]

    @property
    def records(self) -> list[dict[str, Any]]:
        found = [record for batch in self.batches for record in batch.to_pylist() if record["_lw_kind"] == "change"]
        return sorted(found, key=lambda record: (record["_lw_row"], record["_lw_step"]))

    @property
    def bad(self) -> list[dict[str, Any]]:
        found = [record for batch in self.batches for record in batch.to_pylist() if record["_lw_kind"] == "bad"]
        return sorted(found, key=lambda record: record["_lw_row"])

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """(operation, column values…) of every change in physical order."""
        return [(r["_lw_operation"], *(r[name] for name in self.columns)) for r in self.records]

    @property
    def numbers(self) -> list[int]:
        return [record["_lw_row"] for record in self.records]

    @property
    def bad_numbers(self) -> list[int]:
        return [record["_lw_row"] for record in self.bad]

    @property
    def faults(self) -> list[tuple[int, str | None, str | None]]:
        details = [(record["_lw_row"], json.loads(record["_lw_detail"])) for record in self.bad]
        return [(row, detail["column"], detail["value"]) for row, detail in details]

    @property
    def reasons(self) -> list[str]:
        return [json.loads(record["_lw_detail"])["reason"] for record in self.bad]


def land(root: Path, content: bytes | str | pa.Table, name: str, folder: str = "sales/product") -> str:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return f"{folder}/{name}"


def listed(root: Path, path: str) -> LandingFile:
    storage, spec = Landing(root), make_spec()
    listing = list_transactions if Path(path).name.startswith("CDC_TXN") else list_files
    folder = "cdc" if path.startswith("cdc/") else "sales/product"
    return next(file for file in listing(storage, folder, spec.settings) if file.path == path)


def read(root: Path, content: bytes | str | pa.Table, spec: ReadSpec | None = None, name: str = CHANGES) -> Result:
    spec = spec or make_spec()
    folder = "cdc" if name.startswith("CDC_TXN") else "sales/product"
    path = land(root, content, name, folder)
    return read_listed(root, listed(root, path), spec)


def _batches(storage: Landing, file: LandingFile, spec: ReadSpec) -> Iterator[pa.RecordBatch]:
    if file.file_class is not FileClass.TRANSACTIONS:
        return read_file(storage, file, spec)
    own = source_name(spec)
    kept = (_own_rows(batch, own) for batch in sort_file(storage, file, spec.settings.csv, Limits.of(spec.settings)))
    return read_sorted(kept, {file.path: file}, spec)


def _own_rows(batch: pa.RecordBatch, own: SourceName) -> pa.RecordBatch:
    rows = [row["ending"] is not None or (row["schema"], row["table"]) == own for row in batch.to_pylist()]
    return batch.filter(pa.array(rows))


def read_listed(root: Path, file: LandingFile, spec: ReadSpec) -> Result:
    batches = list(_batches(Landing(root), file, spec))
    schema = record_schema(spec.columns)
    assert all(batch.schema.equals(schema) for batch in batches)
    assert all(batch.num_rows <= 1 << 16 for batch in batches)
    last = batches[-1].to_pylist()
    assert [record["_lw_kind"] for record in last] == ["file"]
    summary = FileSummary.from_json(last[0]["_lw_detail"])
    return Result(summary, batches[:-1], tuple(column.name for column in spec.columns))
