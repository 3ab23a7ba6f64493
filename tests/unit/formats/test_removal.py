"""Landing files rewritten without some rows."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import CsvSettings
from lakeward.formats.dms.files import Limits
from lakeward.formats.dms.removal import write_without_rows
from lakeward.storage.landing import Landing

if TYPE_CHECKING:
    from pathlib import Path


def rewritten(folder: Path, content: bytes, rows: set[int], **csv: object) -> bytes:
    source, target = folder / "source", folder / "target"
    source.write_bytes(content)
    write_without_rows(str(source), str(target), "sales/product/20240101.csv", rows, CsvSettings(**csv), Limits())
    return target.read_bytes()


@pytest.mark.parametrize(
    ("content", "rows", "expected"),
    [
        (b"a,1\nb,2\nc,3\n", {2}, b"a,1\nc,3\n"),
        (b"a,1\r\nb,2\r\nc,3", {1}, b"b,2\r\nc,3"),
        (b"a,1\r\nb,2\r\nc,3", {3}, b"a,1\r\nb,2\r\n"),
        (b'a,"x\ny"\nb,"1,2"\n', {1}, b'b,"1,2"\n'),
        (b"\xef\xbb\xbfa,1\nb,2\n", {1}, b"\xef\xbb\xbfb,2\n"),
        (b"a,\xff\xfe\nb,2\n", {2}, b"a,\xff\xfe\n"),
        (b"\n\na,1\n\nb,2\n", {3}, b"\n\n\nb,2\n"),
        (b"a\rb,1\nb,2\n", {2}, b"a\rb,1\n"),
        (b"a,1\n", {1}, b""),
        (b"", {1}, b""),
    ],
)
def test_csv_keeps_every_other_byte(tmp_path: Path, content: bytes, rows: set[int], expected: bytes):
    assert rewritten(tmp_path, content, rows) == expected


def test_header_is_kept_and_not_counted(tmp_path: Path):
    assert rewritten(tmp_path, b"id,name\n1,a\n2,b\n", {1}, header=True) == b"id,name\n2,b\n"


def test_gzip_stays_gzip(tmp_path: Path):
    assert gzip.decompress(rewritten(tmp_path, gzip.compress(b"a,1\nb,2\n"), {1})) == b"b,2\n"


def test_parquet_keeps_types_groups_and_packing(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    table = pa.table({"id": pa.array(range(10), pa.int16()), "name": [f"row {key}" for key in range(10)]})
    pq.write_table(table, source, row_group_size=4, compression="gzip")
    write_without_rows(str(source), str(target), "a/b/LOAD00000001.parquet", {1, 6, 10}, CsvSettings(), Limits())
    found = pq.ParquetFile(target)
    assert found.read().to_pydict()["id"] == [1, 2, 3, 4, 6, 7, 8]
    assert found.schema_arrow.equals(table.schema) and found.num_row_groups == 3
    assert found.metadata.row_group(0).column(0).compression == "GZIP"


def test_replaced_file_has_the_new_content_and_leaves_no_draft(tmp_path: Path):
    folder, new = tmp_path / "landing", tmp_path / "new"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "x.csv").write_text("old")
    new.write_text("new")
    Landing(folder).replace("a/x.csv", str(new))
    assert {file.name: file.read_text() for file in (folder / "a").iterdir()} == {"x.csv": "new"}
