"""Rows set aside and read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_helpers import CHANGES, CHANGES_PARQUET, LOAD, LOAD_PARQUET, TXN, make_spec, read

from lakeward.formats.dms.quarantined import keys_of_raw, parse_raw
from lakeward.formats.dms.values import record_schema

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.formats.base import ReadSpec

SEQ = "20240405003052550000000000000000001"


def _again(bad: dict[str, Any], spec: ReadSpec, *, load: bool = False) -> list[dict[str, Any]]:
    batch = parse_raw(bad["_lw_raw"], bad["_lw_file"], bad["_lw_file_time"], bad["_lw_row"], spec, load=load)
    assert batch.schema.equals(record_schema(spec.columns))
    for record in batch.to_pylist():
        assert all(record[name] == bad[name] for name in ("_lw_file", "_lw_file_time", "_lw_row"))
    return batch.to_pylist()


def _strict_then_loose(text: Any, spec: ReadSpec, loose: ReadSpec, root: Path, name: str) -> list[dict[str, Any]]:
    """Read with a schema that refuses the row, then its raw text with one that takes it."""
    (bad,) = read(root, text, spec, name).bad
    (still,) = _again(bad, spec, load=name.startswith("LOAD"))
    assert {k: still[k] for k in ("_lw_kind", "_lw_detail", "_lw_raw")} == {
        k: bad[k] for k in ("_lw_kind", "_lw_detail", "_lw_raw")
    }
    return _again(bad, loose, load=name.startswith("LOAD"))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('U,70000,"NULL"\n', {}),
        (f'U,70000,"NULL",{SEQ}\n', {}),
        (f'U,2024-01-01 00:00:00,70000,"NULL",{SEQ},70000\n', {"timestamp_column": "ts"}),
        ('name,Op,id\n"NULL",U,70000\n', {"csv": {"header": True}}),
        ('"NULL",70000,U\n', {"csv": {"columns": ["name", "id", "Op"]}}),
    ],
)
def test_a_csv_row_is_put_back_at_its_place(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    strict, loose = make_spec("id smallint, name string", **options), make_spec("id int, name string", **options)
    (record,) = _strict_then_loose(text, strict, loose, tmp_path, CHANGES)
    assert (record["_lw_kind"], record["_lw_operation"], record["id"], record["name"]) == ("change", "U", 70000, "NULL")
    assert record["_lw_sequence"] == (SEQ.zfill(38) if SEQ in text else "")


def test_a_load_row(tmp_path: Path) -> None:
    for text, options in (("70000,a\n", {}), ("a,70000\n", {"csv": {"load_columns": ["name", "id"]}})):
        strict, loose = make_spec("id smallint, name string", **options), make_spec("id int, name string", **options)
        (record,) = _strict_then_loose(text, strict, loose, tmp_path, LOAD)
        assert (record["_lw_operation"], record["id"], record["_lw_sequence"]) == ("I", 70000, None)


def test_a_moved_key_becomes_two_records(tmp_path: Path) -> None:
    strict, loose = make_spec("id int, n smallint"), make_spec("id int, n int")
    records = _strict_then_loose("U,2,70000,1\n", strict, loose, tmp_path, CHANGES)
    assert [(r["_lw_operation"], r["_lw_step"], r["id"], r["n"]) for r in records] == [
        ("D", 0, 1, None), ("U", 1, 2, 70000),
    ]  # fmt: skip


def test_a_transaction_row(tmp_path: Path) -> None:
    strict, loose = make_spec("id smallint, name string"), make_spec("id int, name string")
    text = 'I,people,hr,1\nU,product,sales,70000,"NULL"\n'
    (record,) = _strict_then_loose(text, strict, loose, tmp_path, TXN)
    assert (record["_lw_row"], record["_lw_operation"], record["id"], record["name"]) == (2, "U", 70000, "NULL")
    batch = parse_raw("U,people,hr,1", "cdc/" + TXN, "", 1, loose, load=False)
    assert "names another table" in batch.to_pylist()[0]["_lw_detail"]


def test_a_parquet_row(tmp_path: Path) -> None:
    ddl = "id {}, b binary, t timestamp, d decimal(5,2), n string, f double, h timestamp_ntz, o boolean, e string"
    options = {"timestamp_column": "ts", "csv": {"binary": "base64", "unchanged": "~"}}
    strict, loose = make_spec(ddl.format("smallint"), **options), make_spec(ddl.format("int"), **options)
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901)
    row = {
        "Op": "U", "ts": "2024-01-01 00:00:00.000001", "id": 70000, "b": b"\xff", "t": moment, "d": Decimal("1.50"),
        "n": None, "f": 0.1, "h": moment, "o": True, "e": "~",
    }  # fmt: skip
    types = {"id": pa.int32(), "t": pa.timestamp("ns", "UTC"), "n": pa.string()}
    table = pa.table({name: pa.array([value], types.get(name)) for name, value in row.items()})
    direct = read(tmp_path, table, loose, CHANGES_PARQUET).records
    assert _strict_then_loose(table, strict, loose, tmp_path, CHANGES_PARQUET) == direct


def test_an_empty_text_key_of_a_parquet_row_moves(tmp_path: Path) -> None:
    strict, loose = make_spec("id string, n smallint"), make_spec("id string, n int")
    table = pa.table({"Op": ["U"], "id": ["x"], "n": pa.array([70000], pa.int32()), "BI_id": [""]})
    records = _strict_then_loose(table, strict, loose, tmp_path, CHANGES_PARQUET)
    assert [(record["_lw_operation"], record["id"]) for record in records] == [("D", ""), ("U", "x")]


def test_a_parquet_load_row(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([70000], pa.int32())})
    (record,) = _strict_then_loose(table, make_spec("id smallint"), make_spec("id int"), tmp_path, LOAD_PARQUET)
    assert (record["_lw_operation"], record["id"]) == ("I", 70000)


def test_a_row_repaired_by_hand() -> None:
    spec, path = make_spec("id int, name string, ok boolean"), "sales/product/" + CHANGES_PARQUET
    (record,) = parse_raw('{"Op":"U","id":7,"name":null,"ok":true}', path, "1", 3, spec, load=False).to_pylist()
    assert (record["_lw_row"], record["id"], record["name"], record["ok"]) == (3, 7, None, True)


@pytest.mark.parametrize(
    ("raw", "path", "options", "reason"),
    [
        ("U,1", CHANGES, {}, "has 2 fields"),
        ("U,1,a\nU,2,b", CHANGES, {}, "holds 2 records; expected one record"),
        ('U,1,"a', CHANGES, {}, "holds 1 records"),
        ("U,1,a", CHANGES, {"csv": {"header": True}}, "expected a header and one record"),
        ("Op,id,name\nU,1", CHANGES, {"csv": {"header": True}}, "has 2 fields, expected 3"),
        ("Op,id,x\nU,1,2", CHANGES, {"csv": {"header": True}}, "do not fit"),
        ("{", CHANGES_PARQUET, {}, "not JSON"),
        ("[]", CHANGES_PARQUET, {}, "not a JSON object"),
        ('{"Op":"U","id":"1","extra":"2"}', CHANGES_PARQUET, {}, "do not fit"),
        ('{"Op":"U","name":"1"}', CHANGES_PARQUET, {}, "no column id"),
        ("U,1,a", CHANGES, {"timestamp_column": "ts"}, "no column 'ts'"),
    ],
)
def test_a_row_that_still_does_not_fit_stays_bad(raw: str, path: str, options: dict[str, Any], reason: str) -> None:
    spec = make_spec("id int, name string", **options)
    (record,) = parse_raw(raw, path, "20240101000000000000", 5, spec, load=False).to_pylist()
    assert (record["_lw_kind"], record["_lw_row"], record["_lw_raw"]) == ("bad", 5, raw)
    assert reason in json.loads(record["_lw_detail"])["reason"]


def test_the_empty_text_of_a_one_column_load() -> None:
    spec = make_spec("a string", primary_key=["a"])
    (record,) = parse_raw("", LOAD, "", 2, spec, load=True).to_pylist()
    assert (record["_lw_kind"], record["a"]) == ("change", "")


_TEXTS = st.one_of(st.none(), st.just("NULL"), st.just(""), st.text(alphabet='a,"\n\r é', max_size=6))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.lists(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=3), st.booleans())
def test_raw_text_keeps_every_field(tmp_path: Path, rows: list[tuple[str | None, str | None]], header: bool) -> None:
    ddl = "id {}, a string, b string"
    options = {"csv": {"header": header}}
    strict, loose = make_spec(ddl.format("smallint"), **options), make_spec(ddl.format("int"), **options)
    quoted = ["NULL" if text is None else '"' + text.replace('"', '""') + '"' for row in rows for text in row]
    lines = [f"U,7000{i},{quoted[2 * i]},{quoted[2 * i + 1]}\n" for i in range(len(rows))]
    bad = read(tmp_path, ("Op,id,a,b\n" if header else "") + "".join(lines), strict).bad
    again = [record for row in bad for record in _again(row, loose)]
    assert [(record["a"], record["b"]) for record in again] == rows


def _keys_of(raw: str, spec: ReadSpec, file: str = CHANGES, time: str = "20240405003052555000") -> list[dict[str, Any]]:
    rows = pa.record_batch({"file": [file], "time": [time], "row": pa.array([7], pa.int64()), "raw": [raw]})
    names = ("_lw_file", "_lw_file_time", "_lw_row")
    found = keys_of_raw(rows, spec).to_pylist()
    assert all([entry.pop(name) for name in names] == [file, time, 7] for entry in found)
    return found


def test_key_is_found_whatever_else_is_wrong_with_the_row():
    spec = make_spec(timestamp_column="ts")
    moment = datetime(2024, 4, 5, tzinfo=UTC)
    found = {"_lw_commit_time": moment, "_lw_has_key": True, "id": 42}
    assert _keys_of("U,2024-04-05 00:00:00,42,name,no price", spec) == [found]
    assert _keys_of("X,2024-04-05 00:00:00,42,name,1.00", spec) == [found]
    load = _keys_of("42,name,no price", make_spec(), LOAD, "")
    assert load == [{"_lw_commit_time": None, "_lw_has_key": True, "id": 42}]
    as_json = json.dumps({"Op": "U", "id": "42", "name": "a", "price": "much"})
    assert [found["id"] for found in _keys_of(as_json, make_spec(), CHANGES_PARQUET)] == [42]


def test_key_before_the_row_moved_is_found_too():
    spec = make_spec(before_image_columns=["id"])
    assert [found["id"] for found in _keys_of("U,42,name,no price,41", spec)] == [42, 41]


@pytest.mark.parametrize("raw", ["", "U", "U,x42,name,1.00", '"U,42'])
def test_unreadable_key_is_none(raw: str):
    assert _keys_of(raw, make_spec()) == [{"_lw_commit_time": None, "_lw_has_key": False, "id": None}]
