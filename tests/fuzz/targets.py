"""What is fuzzed: everything that reads input from outside. Each function returns, or raises an error of Lakeward's."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from unittest import mock

import click
import pyarrow as pa
import pytest

from lakeward.cli.main import cli
from lakeward.columns import parse_ddl
from lakeward.config import TableSettings, load_config, parse_config
from lakeward.diffing.stored.changesets import read_change_set_manifest
from lakeward.errors import BugError, LakewardError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.files import READER_FAULT, Limits, UnusableFileError
from lakeward.formats.dms.listing import list_files, list_transactions
from lakeward.formats.dms.parquet import parquet_columns
from lakeward.formats.dms.quarantined import parse_raw, raw_values
from lakeward.formats.dms.reader import read_file
from lakeward.formats.dms.sniffing import peek
from lakeward.formats.dms.transactions import read_sorted, sort_file
from lakeward.formats.dms.values import record_schema
from lakeward.model import LandingFile, TableId
from lakeward.runner.tables import discover
from lakeward.runner.watch.notices import path_under, read_s3_notice
from lakeward.state.base import TableRun
from lakeward.state.memory import MemoryStateStore
from lakeward.state.sql import SqlStateStore
from lakeward.state.sqlite import SqliteDatabase
from lakeward.storage.landing import Landing
from lakeward.testing.state_contract import ELSEWHERE, PRODUCT, PROGRESS, make_entry
from lakeward.views.versions.manifest import read_manifest
from tests.fuzz.engine import Target

TABLE = TableId("sales", "product")
NOON = datetime(2024, 4, 5, 12, tzinfo=UTC)
DDL = (
    "id int, name string, price decimal(10,2), at timestamp, day date, flag boolean, blob binary, ratio double, "
    "big bigint, clock time"
)
CHANGES, LOAD, TXN = "20240405-003052555", "LOAD00000001", "CDC_TXN-20201117153046033.csv"
_WAYS = (
    {},
    {"csv": {"header": True}},
    {"csv": {"delimiter": "|", "quote": "'", "null": "", "unchanged": "?"}, "timestamp_column": "ts"},
    {"max_value_bytes": 64, "max_row_bytes": 200, "before_image_columns": ["id"]},
)


def _specs() -> Iterator[ReadSpec]:
    for way in _WAYS:
        settings = TableSettings.model_validate({"primary_key": ["id"], "on_bad_row": "quarantine", **way})
        yield ReadSpec(TABLE, parse_ddl(DDL), settings)


SPECS = tuple(_specs())


def _files(root: str, name: str, data: bytes) -> Iterator[tuple[Landing, LandingFile]]:
    """Land the data as a change file and as a load part."""
    folder = Path(root, "sales", "product")
    folder.mkdir(parents=True)
    for stem in (CHANGES, LOAD):
        (folder / f"{stem}.{name}").write_bytes(data)
    storage = Landing(root)
    return ((storage, file) for file in list_files(storage, "sales/product", SPECS[0].settings))


def _require_documented(batches: Iterable[pa.RecordBatch], spec: ReadSpec) -> None:
    """Read to the end: rows are valid Arrow, and the file has no problem that the reader did not foresee."""
    last = None
    for batch in batches:
        assert batch.schema.equals(record_schema(spec.columns))
        batch.validate(full=True)
        last = batch
    assert last is not None
    summary = FileSummary.from_json(last.column("_lw_detail")[0].as_py())
    assert READER_FAULT not in (summary.problem or ""), summary.problem


def _read_all(name: str, data: bytes) -> None:
    """Read as change file and as load part, in one of the ways, which the data chooses."""
    spec = _spec_for(data)
    with tempfile.TemporaryDirectory() as root:
        for storage, file in _files(root, name, data):
            _require_documented(read_file(storage, file, spec), spec)
            for looking in (spec, ReadSpec(TABLE, (), spec.settings)):
                found = peek(storage, file, looking)
                assert READER_FAULT not in (found.problem or ""), found.problem


def _spec_for(data: bytes) -> ReadSpec:
    return SPECS[zlib.crc32(data) % len(SPECS)]


def csv(data: bytes) -> None:
    _read_all("csv", data)
    text = data.decode("utf-8", "surrogateescape")
    for spec in SPECS[:2]:
        parse_raw(text, f"sales/product/{CHANGES}.csv", "20240405003052555000", 1, spec, load=False)


def gzip(data: bytes) -> None:
    _read_all("csv.gz", data)
    _read_all("parquet.gz", data)


def parquet(data: bytes) -> None:
    _read_all("parquet", data)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(UnusableFileError, OSError, pa.ArrowException):  # as it documents
            parquet_columns(file.name, SPECS[0].settings)


def raw(data: bytes) -> None:
    """The text of a quarantined row, as a person may have repaired it."""
    text = data.decode("utf-8", "surrogateescape")
    for path in (
        f"sales/product/{CHANGES}.csv",
        f"sales/product/{CHANGES}.parquet",
        "cdc/CDC_TXN-20201117153046033.csv",
    ):
        for spec in SPECS[:3]:
            parse_raw(text, path, "20240405003052555000", 1, spec, load=False).validate(full=True)
            raw_values(text, path, spec, load=True)


def transactions(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "cdc")
        folder.mkdir()
        (folder / TXN).write_bytes(data)
        storage = Landing(root)
        [file] = list_transactions(storage, "cdc", SPECS[0].settings)
        spec = _spec_for(data)
        batches = list(sort_file(storage, file, spec.settings.csv, Limits.of(spec.settings)))
        ending = json.loads(batches[-1].column("ending")[-1].as_py())
        assert READER_FAULT not in (ending["problem"] or ""), ending
        _require_documented(read_sorted(batches, {file.path: file}, spec), spec)
        config = parse_config({"landing": root, "transactions": "cdc"}, base=Path(root))
        discover(config, storage, MemoryStateStore(), read_transactions=True)


def configuration(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        file = Path(root, "lakeward.yaml")
        file.write_bytes(data)
        load_config(file, {})


def events(data: bytes) -> None:
    """No message raises anything at all."""
    notice = read_s3_notice(data.decode("utf-8", "surrogateescape"))
    for entry in notice.created:
        path_under("s3://lake/landing", entry)
        f"{entry.bucket}/{entry.key}".encode()
    for problem in notice.problems:
        problem.encode()


def manifests(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for read in (read_manifest, read_change_set_manifest):
        _refused(lambda read=read: read(text, "folder"))


# Every column of the state store that is parsed when it is read.
_PARSED = {
    "lakeward_tables": ("settings",),
    "lakeward_ledgers": ("progress",),
    "lakeward_files": ("disposition", "file_class"),
    "lakeward_runs": ("report", "started_at"),
    "lakeward_leases": ("expires_at",),
}


def state_rows(data: bytes) -> None:
    """The data instead of each text that the state store parses, one after the other."""
    text = data.decode("utf-8", "replace")
    for name, columns in _PARSED.items():
        for column in columns:
            with tempfile.TemporaryDirectory() as root:
                _damage(Path(root, "state.db"), name, column, text)


@cache
def _filled_store() -> bytes:
    with tempfile.TemporaryDirectory() as root:
        store = SqlStateStore(SqliteDatabase(Path(root, "state.db")))
        store.register(PRODUCT, active=True)
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("sales/product/LOAD00000001.csv")])
        store.record_run(TableRun("r", PRODUCT, NOON, NOON, "done", {}))
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=60)
        store.close()
        return Path(root, "state.db").read_bytes()


def _damage(file: Path, name: str, column: str, text: str) -> None:
    file.write_bytes(_filled_store())
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE {name} SET {column} = ?", (text,))
        connection.commit()
    store = SqlStateStore(SqliteDatabase(file))
    try:
        _refused(lambda: list(store.registered()))
        _refused(lambda: store.progress(PRODUCT))
        _refused(lambda: store.load_parts(PRODUCT, 1))
        _refused(lambda: store.runs(PRODUCT))
        _refused(lambda: store.lease_of(PRODUCT))
    finally:
        store.close()


def arguments(data: bytes) -> None:
    """Arguments in lines; commands are recognised and their options parsed, and nothing is done."""
    given = [os.fsdecode(part) for part in data.replace(b"\0", b"").split(b"\n")]
    out = io.StringIO()
    with (
        mock.patch.object(click.Command, "invoke", return_value=None),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(given, "lakeward")
    assert ended.value.code in (0, 2), (ended.value.code, given)
    assert "this is a bug" not in out.getvalue(), (given, out.getvalue())


def _refused(read: Callable[[], object]) -> None:
    """Call a reader whose errors are Lakeward's, so that the next one is tried too."""
    try:
        read()
    except BugError:
        raise
    except LakewardError:
        pass


_JSON = (
    b"null",
    b"[]",
    b"{}",
    b"0",
    b"-1",
    b"1e400",
    b'""',
    b"true",
    b"NaN",
    b'"\\ud800"',
    b"[" * 2000,
    b'{"a":' * 2000,
)
_CSV = (b'"', b'""', b",", b"|", b"'", b"NULL", b"\r", b"\n", b"I,", b"U,", b"D,", b"\xef\xbb\xbf", b"\xe9", b"?",
        b"1e400", b"99999999999", b"0x1F", b"2024-02-30 00:00:00", b"product,sales")  # fmt: skip
_YAML = (b"&a ", b"*a", b"<<: ", b"- ", b": ", b"[", b"{", b"!!timestamp x", b"!!int ''", b"2024-02-30", b"\0", b"\xe9",
         b"null", b"~", b"tables:\n", b"'", b"%", b"|\n", b"1" * 5000)  # fmt: skip
_ARGUMENTS = tuple(
    itertools.chain(
        (f"\n{name}\n".encode() for name in cli.commands),
        (
            b"--output\njson",
            b"--set",
            b"\n--set\na=[",
            b"--config\n",
            b"--help",
            b"-1",
            b"\n--every\n1e400s",
            b"x://[::1",
        ),
    )
)

TARGETS = (
    Target("csv", csv, _CSV),
    Target("gzip", gzip, (b"\x1f\x8b\x08", b"\0\0\0\0")),
    Target("parquet", parquet, (b"PAR1", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x15\x02", b"\xe9")),
    Target("transactions", transactions, _CSV),
    Target("raw", raw, (*_CSV, *_JSON)),
    Target("configuration", configuration, _YAML),
    Target("events", events, _JSON),
    Target("manifests", manifests, _JSON),
    Target("state_rows", state_rows, _JSON),
    Target("arguments", arguments, _ARGUMENTS),
)
