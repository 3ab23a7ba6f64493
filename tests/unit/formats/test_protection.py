"""Values are replaced while files are read: no record, bad row or message holds one that a rule concerns."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_helpers import CHANGES, CHANGES_PARQUET, LOAD, LOAD_PARQUET, TABLE, TXN, Result, listed, read

from lakeward.column_policy import as_stored, fingerprint, of_files
from lakeward.columns import parse_ddl
from lakeward.config import TableSettings
from lakeward.config.policy import rules_of
from lakeward.errors import ConfigurationError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.protection import hashes
from lakeward.formats.dms.quarantined import HAS_KEY, keys_of_raw, parse_raw, rows_of_file
from lakeward.formats.dms.sniffing import peek
from lakeward.storage.landing import Landing

KEY = "0123456789abcdef0123456789abcdef"
SECRET = "xq7secretzz"
RULES = {"ssn": "hash", "name": "truncate(2)", "note": "mask", "pay": "redact", "mail": "drop"}
DDL = "id int, ssn bigint, name string, note int, pay decimal(8,2), mail date, city string"


@pytest.fixture(autouse=True)
def _with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", KEY)


def protected_spec(ddl: str = DDL, columns: dict[str, str] | None = None, **settings: Any) -> ReadSpec:
    chosen = {"primary_key": ["id"], "columns": RULES if columns is None else columns, "hash_key": "env:POLICY_KEY"}
    model = TableSettings.model_validate({"schema": ddl, **chosen, **settings})
    rules = rules_of(model)
    return ReadSpec(TABLE, as_stored(of_files(parse_ddl(ddl), rules), rules), model)


def hashed(text: str | bytes) -> str:
    """What a value of this canonical text becomes, by Python's own HMAC."""
    return hmac.new(KEY.encode(), text.encode() if isinstance(text, str) else text, hashlib.sha256).hexdigest()


def everything(result: Result) -> str:
    records = [batch.to_pylist() for batch in result.batches]
    return repr((records, result.summary))


def test_every_rule_in_a_headerless_csv(tmp_path: Path) -> None:
    text = "I,7,42,Müller,5,1.50,2020-01-01,Bern\nU,8,NULL,A,NULL,NULL,NULL,NULL\n"
    found = read(tmp_path, text, protected_spec())
    assert found.rows == [("I", 7, hashed("42"), "Mü", "***", None, "Bern"), ("U", 8, None, "A", None, None, None)]
    assert found.columns == ("id", "ssn", "name", "note", "pay", "city")


def test_values_that_a_rule_does_not_need_are_not_parsed(tmp_path: Path) -> None:
    found = read(tmp_path, "I,7,42,x,no number,no decimal,no date,Bern\n", protected_spec())
    assert found.rows == [("I", 7, hashed("42"), "x", "***", None, "Bern")]
    assert not found.bad


@pytest.mark.parametrize("name", [CHANGES, TXN])
def test_a_bad_row_keeps_its_place_and_reason_alone(tmp_path: Path, name: str) -> None:
    head = "I,product,sales," if name == TXN else "I,"
    texts = [
        f"7,{SECRET},x,1,1,NULL,{SECRET}",
        f"{SECRET},1,x,1,1,NULL,a",
        f"7,{SECRET}",
        f'7,1,"{SECRET}",1,1,NULL,a,b',
    ]
    found = read(tmp_path, "".join(f"{head}{text}\n" for text in texts), protected_spec(), name)
    assert found.bad_numbers == [1, 2, 3, 4]
    assert [(column, value) for _, column, value in found.faults] == [
        ("ssn", None),
        ("id", None),
        (None, None),
        (None, None),
    ]
    assert found.reasons[0] == "not a value of type bigint"
    assert SECRET not in everything(found)
    assert all(row["_lw_raw"] is None for row in found.bad)


def test_parquet_and_csv_give_one_hash(tmp_path: Path) -> None:
    spec = protected_spec("id int, ssn decimal(10,2)", {"ssn": "hash"})
    table = pa.table(
        {"Op": ["I"], "id": pa.array([1], pa.int32()), "ssn": pa.array([Decimal("7.50")], pa.decimal128(10, 2))}
    )
    texts = ["7.50", "7.5", "007.500", "75e-1"]
    csv = read(tmp_path, "".join(f"I,1,{text}\n" for text in texts), spec, CHANGES)
    assert {row[2] for row in csv.rows} == {hashed("7.5")}
    assert read(tmp_path, table, spec, CHANGES_PARQUET).rows == [("I", 1, hashed("7.5"))]


@pytest.mark.parametrize(
    ("values", "canonical"),
    [
        (pa.array([7, -7, 0], pa.int32()), ["7", "-7", "0"]),
        (pa.array([7, -7, 0], pa.int64()), ["7", "-7", "0"]),
        (pa.array([Decimal("7.00"), Decimal(700), Decimal("0.00")], pa.decimal128(9, 2)), ["7", "700", "0"]),
        (pa.array([Decimal("1E-10")], pa.decimal128(38, 10)), ["0.0000000001"]),
        (pa.array([0.5, -0.0, float("nan"), float("inf"), 1e300]), ["0.5", "0.0", "nan", "inf", "1e+300"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["", " Ä "]), ["", " Ä "]),
        (pa.array([b"\x00\xff"]), [b"\x00\xff"]),
        (pa.array([date(2020, 1, 31)]), ["2020-01-31"]),
        (pa.array([datetime(2020, 1, 31, 10)], pa.timestamp("us")), ["2020-01-31 10:00:00.000000"]),
        (pa.array([datetime(2020, 1, 31, 10, tzinfo=UTC)], pa.timestamp("us", "UTC")), ["2020-01-31 10:00:00.000000"]),
    ],
)
def test_the_canonical_text_of_each_type(values: pa.Array, canonical: list[str | bytes]) -> None:
    assert hashes(values, KEY.encode()).to_pylist() == [hashed(text) for text in canonical]


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=30))
def test_equal_values_have_equal_hashes_whatever_stands_beside_them(numbers: list[int | None]) -> None:
    found = hashes(pa.array(numbers, pa.int64()), KEY.encode()).to_pylist()
    assert found == [None if number is None else hashed(str(number)) for number in numbers]


def test_a_hashed_key_moves_by_its_before_image(tmp_path: Path) -> None:
    spec = protected_spec("id int, name string", {"id": "hash"})
    found = read(tmp_path, "U,8,x,7\nU,9,y,9\nD,9,NULL,\n", spec)
    assert [(r["_lw_operation"], r["_lw_step"], r["id"]) for r in found.records] == [
        ("D", 0, hashed("7")), ("U", 1, hashed("8")), ("U", 0, hashed("9")), ("D", 0, hashed("9")),
    ]  # fmt: skip
    assert found.summary.moves == 1


def test_before_images_of_other_columns_obey_their_rules(tmp_path: Path) -> None:
    names = ["Op", "id", "ssn", "mail", "BI_id", "BI_ssn", "BI_mail"]
    values = ["U", 8, "new", "new", 7, SECRET, SECRET]
    table = pa.table({name: [value] for name, value in zip(names, values, strict=True)})
    spec = protected_spec("id bigint, ssn string", {"ssn": "hash", "mail": "drop"})
    found = read(tmp_path, table, spec, CHANGES_PARQUET)
    away, here = found.records
    assert (away["ssn"], here["ssn"], away["_lw_unchanged"]) == (hashed(SECRET), hashed("new"), None)
    assert SECRET not in everything(found)


def test_a_marked_value_stays_unchanged_under_its_rule(tmp_path: Path) -> None:
    found = read(tmp_path, "U,7,<same>,<same>,<same>,1,NULL,b\n", protected_spec(csv={"unchanged": "<same>"}))
    assert found.records[0]["_lw_unchanged"] == ["ssn", "name", "note"]
    assert found.rows == [("U", 7, None, None, None, None, "b")]


def test_an_absent_dropped_column_leaves_nothing_unchanged(tmp_path: Path) -> None:
    table = pa.table({"Op": ["U"], "id": pa.array([1], pa.int32()), "a": ["x"]})
    spec = protected_spec("id int, a string, ssn string", {"ssn": "drop"}, schema_mode="evolve")
    found = read(tmp_path, table, spec, CHANGES_PARQUET)
    assert (found.records[0]["_lw_unchanged"], found.summary.partial) == (None, 0)


def test_types_that_the_lake_does_not_have_may_be_masked_and_dropped(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "tags": [["a"], None], "more": [{"a": 1}, {"a": 2}]})
    spec = protected_spec("id int, tags string", {"tags": "mask", "more": "drop"}, schema_mode="evolve")
    assert read(tmp_path, table, spec, LOAD_PARQUET).rows == [("I", 1, "***"), ("I", 2, None)]


def test_headerless_files_need_the_places_of_dropped_columns(tmp_path: Path) -> None:
    spec = protected_spec("id int, name string", {"ssn": "drop"})
    found = read(tmp_path, f"I,1,{SECRET},n\n", spec)
    assert found.summary.problem == "headerless CSV needs the places of dropped columns: declare ssn in schema: too"
    assert SECRET not in everything(found)


def test_a_file_without_its_header_shows_no_value(tmp_path: Path) -> None:
    spec = protected_spec("id int, name string", {"name": "mask"}, csv={"header": True})
    found = read(tmp_path, f"I,1,{SECRET}\nI,2,x\n", spec)
    assert found.summary.mismatch
    assert found.summary.columns == tuple((f"(field {place} of the header)", "") for place in (1, 2, 3))
    twice = read(tmp_path, f"{SECRET},{SECRET}\n", spec)
    assert twice.summary.problem == "the file names columns more than once: 1 of them"
    undecoded = read(tmp_path, SECRET.encode() + b"\xff\n", spec)
    assert undecoded.summary.problem == "its header is not valid UTF-8; let the capture write UTF-8"
    for result in (found, twice, undecoded):
        assert SECRET not in everything(result)


def test_a_look_at_a_file_shows_no_value(tmp_path: Path) -> None:
    named = protected_spec("id int, name string", {"name": "mask"}, csv={"header": True})
    plain = protected_spec("id int, name string", {"name": "mask"})
    for text in (f"1,{SECRET}\n2,{SECRET}\n", f"{SECRET},{SECRET}\n1,a\n2,b\n"):
        read(tmp_path, text, named, LOAD)
        for spec in (named, plain):
            assert SECRET not in repr(peek(Landing(tmp_path), listed(tmp_path, f"sales/product/{LOAD}"), spec))


def test_what_arrow_says_of_a_broken_file_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (pa.ArrowInvalid(f"cannot parse {SECRET}"), ValueError(f"unexpected {SECRET}")):
        monkeypatch.setattr("lakeward.formats.dms.reader.CsvFile.open", _raising(error))
        problem = read(tmp_path, "I,1,a\n", protected_spec()).summary.problem
        assert problem is not None
        assert SECRET not in problem
        assert type(error).__name__ in problem


def _raising(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_the_key_is_needed_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLICY_KEY")
    with pytest.raises(ConfigurationError, match="environment variable 'POLICY_KEY', which is not set"):
        protected_spec()
    monkeypatch.setenv("POLICY_KEY", "short")
    with pytest.raises(ConfigurationError, match="has 5 bytes; expected at least 32"):
        protected_spec()
    with pytest.raises(ConfigurationError, match="hash_key is not set"):
        protected_spec(hash_key=None)
    assert protected_spec("id int, name string", {"name": "mask"}, hash_key=None).policy.key is None


def test_neither_spec_nor_settings_show_the_key() -> None:
    spec = protected_spec()
    assert KEY not in repr(spec) + repr(spec.settings) + json.dumps(spec.settings.model_dump(mode="json"))
    assert KEY not in fingerprint(KEY.encode())


# --- bad rows read again ---------------------------------------------------------------------------------------------


def _set_aside(tmp_path: Path, spec: ReadSpec) -> tuple[str, FileSummary]:
    found = read(tmp_path, f"I,1,70000\nI,2,3\nI,3,{SECRET}\n", spec)
    assert found.bad_numbers == [1, 3]
    return f"sales/product/{CHANGES}", found.summary


def test_bad_rows_are_read_again_from_their_file(tmp_path: Path) -> None:
    strict, loose = (protected_spec(f"id int, ssn {kind}", {"ssn": "hash"}) for kind in ("smallint", "int"))
    _, recorded = _set_aside(tmp_path, strict)
    found = rows_of_file(Landing(tmp_path), recorded, [1, 3], loose)
    first, second = (batch.to_pylist() for batch in (found[1], found[3]) if isinstance(batch, pa.RecordBatch))
    assert [(row["_lw_kind"], row["_lw_row"], row["ssn"]) for row in first] == [("change", 1, hashed("70000"))]
    assert [(row["_lw_kind"], row["_lw_raw"]) for row in second] == [("bad", None)]
    assert SECRET not in repr(second)


def test_a_file_that_is_not_as_it_was_is_not_read_again(tmp_path: Path) -> None:
    spec = protected_spec("id int, ssn smallint", {"ssn": "hash"})
    path, recorded = _set_aside(tmp_path, spec)
    with_header = protected_spec("id int, ssn int", {"ssn": "hash"}, csv={"header": True, "columns": None})
    assert "columns of its file" in str(rows_of_file(Landing(tmp_path), recorded, [1], with_header)[1])
    assert rows_of_file(Landing(tmp_path), recorded, [9], spec) == {9: "its file has no such row"}
    (tmp_path / path).write_text("I,1,70000\nI,2,3\n")
    assert "has other content" in str(rows_of_file(Landing(tmp_path), recorded, [1], spec)[1])
    (tmp_path / path).unlink()
    assert "its file is gone" in str(rows_of_file(Landing(tmp_path), recorded, [1], spec)[1])


def test_a_header_that_was_set_later_shifts_no_row(tmp_path: Path) -> None:
    """Row numbers would mean other rows: the header is no row."""
    spec = protected_spec("id int, name string", {"name": "mask"}, csv={"header": False})
    found = read(tmp_path, "Op,id,name\nI,1,a\nI,x,b\n", spec)
    assert found.bad_numbers == [1, 3]
    named = protected_spec("id int, name string", {"name": "mask"}, csv={"header": True})
    again = rows_of_file(Landing(tmp_path), found.summary, [1, 3], named)
    assert set(again.values()) == {
        "its file had 3 rows when the row was set aside, and has 2 under the present settings"
    }


def test_a_repaired_text_obeys_the_rules(tmp_path: Path) -> None:
    spec = protected_spec("id int, ssn int", {"ssn": "hash"})
    path = f"sales/product/{CHANGES}"
    (good,) = parse_raw("I,1,5", path, "1", 1, spec, load=False).to_pylist()
    assert good["ssn"] == hashed("5")
    for text in (f"I,1,{SECRET}", f"I,{SECRET}", f'I,"{SECRET}'):
        (bad,) = parse_raw(text, path, "1", 1, spec, load=False).to_pylist()
        assert SECRET not in repr(bad)


def test_rows_of_transaction_files_are_read_again(tmp_path: Path) -> None:
    strict, loose = (protected_spec(f"id int, ssn {kind}", {"ssn": "hash"}) for kind in ("smallint", "int"))
    found = read(tmp_path, "I,other,sales,1,2\nI,product,sales,1,70000\n", strict, TXN)
    assert found.bad_numbers == [2]
    again = rows_of_file(Landing(tmp_path), found.summary, [2], loose)[2]
    assert isinstance(again, pa.RecordBatch)
    assert [(row["_lw_row"], row["ssn"]) for row in again.to_pylist()] == [(2, hashed("70000"))]


def test_an_erasure_finds_no_key_where_no_text_is_kept(tmp_path: Path) -> None:
    spec = protected_spec("id int, ssn int", {"ssn": "hash"})
    (bad,) = (batch for batch in read(tmp_path, f"I,1,{SECRET}\n", spec).batches if batch.num_rows)
    names = ["_lw_file", "_lw_file_time", "_lw_row", "_lw_raw"]
    assert [row[HAS_KEY] for row in keys_of_raw(bad.select(names), spec).to_pylist()] == [False]
