"""Files that hold more than they should: their messages, and that reading needs little memory and time."""

from __future__ import annotations

import gzip
import json
import resource
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.formats.source_helpers import CHANGES, CHANGES_PARQUET, TXN, listed, make_spec, read

from lakeward.formats.dms.sniffing import peek
from lakeward.storage.landing import Landing

MIB = 1 << 20
GZIP = f"{CHANGES}.gz"


class Cost:
    """Seconds and bytes of memory that a block takes; memory is that of the whole process at its highest."""

    def __enter__(self):
        self._began, self._before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return self

    def __exit__(self, *_):
        self.seconds = time.process_time() - self._began
        self.bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before) * 1024


def bomb(first: bytes) -> bytes:
    """Return half a megabyte of gzip members that unpack to one line of half a gigabyte."""
    return gzip.compress(first) + gzip.compress(b"x" * (32 * MIB), 6) * 16 + gzip.compress(b",1.00\n")


@pytest.mark.parametrize("name", [GZIP, f"{TXN}.gz"])
def test_a_small_file_that_unpacks_to_a_huge_line_is_refused_early(tmp_path, name):
    folder = "cdc" if name.startswith("CDC") else "sales/product"
    content = bomb(b"I,product,sales,1," if folder == "cdc" else b"I,1,")
    with Cost() as cost:
        found = read(tmp_path, content, make_spec(), name)
    assert "beyond max_expansion = 200; raise max_expansion" in found.summary.problem
    assert cost.seconds < 30 and cost.bytes < 800 * MIB
    if folder != "cdc":
        looked = peek(Landing(tmp_path), listed(tmp_path, f"{folder}/{name}"), make_spec())
        assert "max_expansion" in looked.problem


def test_a_file_may_be_as_repetitive_as_the_setting_allows(tmp_path):
    rows = b"I,1,xxxxxxxx,1.00\n" * (70 * MIB // 18)
    content = gzip.compress(rows, 6)
    assert len(rows) / len(content) > 200
    refused = read(tmp_path, content, make_spec(), GZIP)
    assert "max_expansion" in refused.summary.problem
    taken = read(tmp_path, content, make_spec(max_expansion=2000), GZIP)
    assert taken.summary.problem is None and taken.summary.inserts == 70 * MIB // 18


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_huge_record_is_refused_by_its_number_and_setting(tmp_path, quote):
    content = f"I,1,a,1.00\nI,2,{quote}{'y' * (9 * MIB)}{quote},1.00\nI,3,b,1.00\n"
    found = read(tmp_path, content, make_spec(max_row_bytes=8 * MIB))
    assert found.summary.problem.startswith("record 2 has more than max_row_bytes = 8,388,608 bytes; raise max_row_b")
    found = read(tmp_path, content, make_spec(max_value_bytes=8 * MIB))
    assert "record 2 has a value of 9,437,184 bytes, beyond max_value_bytes = 8,388,608" in found.summary.problem
    assert read(tmp_path, content, make_spec()).numbers == [1, 2, 3]


def test_a_quote_that_is_never_closed_is_not_read_to_the_end_of_a_huge_file(tmp_path):
    found = read(tmp_path, 'I,1,"' + "z" * (9 * MIB), make_spec(max_row_bytes=2 * MIB))
    assert found.summary.problem.startswith("record 1 has more than max_row_bytes = 2,097,152 bytes")


def test_limits_hold_for_small_values_too(tmp_path):
    content = "I,1,abc,1.00\nI,2,abcdef,1.00\n"
    found = read(tmp_path, content, make_spec(max_value_bytes=5))
    assert "record 2 has a value of 6 bytes, beyond max_value_bytes = 5" in found.summary.problem
    found = read(tmp_path, content, make_spec(max_row_bytes=12))
    assert "record 2 has more than max_row_bytes = 12 bytes" in found.summary.problem
    found = read(
        tmp_path, "I,product,sales,1,abc,1.00\nI,product,sales,2,ä€€€€,1.00\n", make_spec(max_value_bytes=12), TXN
    )
    assert "record 2 has a value of 14 bytes" in found.summary.problem


def test_a_value_that_many_rows_of_parquet_share_is_not_repeated_in_memory(tmp_path):
    value, rows = "v" * (4 * MIB), 4000
    table = pa.table(
        {
            "Op": ["I"] * rows,
            "id": pa.array(range(rows), pa.int32()),
            "name": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value])),
            "price": pa.array([None] * rows, pa.decimal128(10, 2)),
        }
    )
    path = tmp_path / "sales" / "product" / CHANGES_PARQUET
    path.parent.mkdir(parents=True)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < MIB // 4
    found = read(tmp_path, path.read_bytes(), make_spec(max_value_bytes=MIB), CHANGES_PARQUET)
    assert "record 1 has a value of 4,194,304 bytes, beyond max_value_bytes = 1,048,576" in found.summary.problem
    batches = iter_read(tmp_path, make_spec())
    sizes = [batch.nbytes for batch in (next(batches), next(batches))]
    assert max(sizes) < 300 * MIB, "16 GB in pieces"


def iter_read(root, spec):
    from lakeward.formats.dms.reader import read_file

    return read_file(Landing(root), listed(root, f"sales/product/{CHANGES_PARQUET}"), spec)


def test_parquet_that_claims_more_than_its_size_allows_is_refused(tmp_path):
    rows = 3_000_000
    table = pa.table({"id": pa.array([1] * rows, pa.int32()), "name": ["a"] * rows})
    spec = make_spec("id int, name string", primary_key=[], max_expansion=2)
    found = read(tmp_path, table, spec, "LOAD00000001.parquet")
    assert "claim to hold 3,000,000 rows, beyond max_expansion = 2" in found.summary.problem
    spec = make_spec("id int, name string", primary_key=[], max_expansion=100_000)
    assert read(tmp_path, table, spec, "LOAD00000001.parquet").summary.rows == rows


def test_rows_of_a_wrong_width_are_passed_on_in_batches(tmp_path, monkeypatch):
    from lakeward.formats.dms import csv as dms_csv

    monkeypatch.setattr(dms_csv, "_EXACT_CHARACTERS", 10_000)
    found = read(tmp_path, "I,1,a,1.00\n" + "too,few\n" * 20_000 + "I,1,a,1.00\n", make_spec())
    assert found.summary.bad == 20_000 and found.numbers == [1, 20_002]
    assert found.bad_numbers == list(range(2, 20_002))
    assert max(batch.num_rows for batch in found.batches) < 2_000


def test_the_settings_are_documented_with_their_numbers():
    text = Path("docs/configuration.md").read_text(encoding="utf-8")
    for name, value in {"max_value_bytes": 64 * MIB, "max_row_bytes": 128 * MIB, "max_expansion": 200}.items():
        assert f"| `{name}` | `{value}" in text, json.dumps(name)
