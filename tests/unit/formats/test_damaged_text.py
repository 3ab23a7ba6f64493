"""Content that is not the text it should be: no reader raises, and nothing of it gets into the lake unseen."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.formats.source_helpers import CHANGES, CHANGES_PARQUET, LOAD, LOAD_PARQUET, TXN, listed, make_spec, read

from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.quarantined import parse_raw
from lakeward.formats.dms.sniffing import peek
from lakeward.model import TableId
from lakeward.storage.landing import Landing

HEADER = {"csv": {"header": True}}


def looked_at(root, spec, name):
    return peek(Landing(root), listed(root, f"sales/product/{name}"), spec)


def test_a_header_that_is_not_utf8_is_the_file_s_problem(tmp_path):
    spec = make_spec(**HEADER)
    found = read(tmp_path, b"Op,id,na\xefve,price\nI,1,a,1.00\n", spec)
    assert found.summary.problem.startswith("its header is not valid UTF-8: 'Op,id,na\\\\xefve,price'")
    assert "not valid UTF-8" in looked_at(tmp_path, spec, CHANGES).problem


@pytest.mark.parametrize("name", [CHANGES, LOAD])
@pytest.mark.parametrize("settings", [{}, HEADER])
def test_a_byte_order_mark_alone_is_an_empty_file(tmp_path, name, settings):
    found = read(tmp_path, b"\xef\xbb\xbf", make_spec(**settings), name)
    assert (found.summary.rows, found.summary.problem, found.summary.mismatch) == (0, None, False)
    assert looked_at(tmp_path, make_spec(**settings), name).problem is None


def damaged_parquet(root, file, old, new, **columns):
    """Write a Parquet file and replace bytes of it."""
    path = root / "sales" / "product" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, compression="none", store_schema=False, use_dictionary=False)
    content = path.read_bytes()
    assert old in content
    return content.replace(old, new)


def test_a_column_name_that_is_not_utf8_is_the_file_s_problem(tmp_path):
    content = damaged_parquet(tmp_path, LOAD_PARQUET, b"name", b"n\xe9me", id=pa.array([1], pa.int32()), name=["a"])
    found = read(tmp_path, content, make_spec("id int, name string"), LOAD_PARQUET)
    assert "a column's name is not valid UTF-8" in found.summary.problem
    assert "not valid UTF-8" in looked_at(tmp_path, make_spec("id int, name string"), LOAD_PARQUET).problem


def test_a_value_of_parquet_that_is_not_utf8_is_a_bad_row(tmp_path):
    columns = {"Op": ["I", "I", "I"], "id": pa.array([1, 2, 3], pa.int32()), "name": ["good", "caf#", "fine"]}
    content = damaged_parquet(tmp_path, CHANGES_PARQUET, b"caf#", b"caf\xe9", **columns)
    found = read(tmp_path, content, make_spec("id int, name string"), CHANGES_PARQUET)
    assert found.rows == [("I", 1, "good"), ("I", 3, "fine")]
    assert found.faults == [(2, "name", "caf\\xe9")]
    assert json.loads(found.bad[0]["_lw_raw"])["name"] == "caf\\xe9"


def test_an_operation_of_parquet_that_is_not_utf8_is_a_bad_row(tmp_path):
    columns = {"Op": ["I", "#?"], "id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]}
    content = damaged_parquet(tmp_path, CHANGES_PARQUET, b"#?", b"\xe9?", **columns)
    found = read(tmp_path, content, make_spec("id int, name string"), CHANGES_PARQUET)
    assert found.rows == [("I", 1, "a")] and found.faults == [(2, "Op", "\\xe9?")]


def test_a_table_name_that_is_not_utf8_in_a_transaction_file_is_ignored(tmp_path):
    content = b"I,product,sales,1,a,1.00\nI,caf\xe9,sales,1,a,1.00\nI,product,sales,2,b,1.00\n"
    found = read(tmp_path, content, make_spec(), TXN)
    assert found.summary.problem is None and [row[1] for row in found.rows] == [1, 2]


def test_it_stops_a_table_whose_name_it_may_be(tmp_path):
    spec = make_spec()
    spec = ReadSpec(TableId("sales", "café"), spec.columns, spec.settings)
    found = read(tmp_path, "I,café,sales,1,a,1.00\nI,caf".encode() + b"\xe9,sales,2,a,1.00\n", spec, TXN)
    assert found.summary.problem == "record 2 names a table that is not UTF-8: 'sales.caf\\\\xe9'"


@pytest.mark.parametrize("raw", ["I,1,\ud800,1.00", '{"id": "\\ud800"}', "[" * 100_000, '{"a":' * 100_000])
@pytest.mark.parametrize("path", [f"sales/product/{CHANGES}", f"sales/product/{CHANGES_PARQUET}"])
def test_a_repaired_row_that_is_not_text_stays_a_bad_row(raw, path):
    batch = parse_raw(raw, path, "20240405003052555000", 1, make_spec(), load=False)
    assert batch.column("_lw_kind").to_pylist() == ["bad"]
