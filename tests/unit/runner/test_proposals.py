"""What a new table's files propose, with what evidence, and what stays in doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import Config, TableSettings
from lakeward.model import TableId
from lakeward.runner import proposals
from lakeward.runner.proposals import Proposal, propose
from lakeward.runner.tables import KnownTable
from lakeward.storage.landing import Landing

TIME = "2024-01-01 00:00:00.000000"
IDS = list(range(1, 101))
ORDERS = Path("sales", "orders")


def propose_for(root: Path, **settings: Any) -> Proposal:
    config = Config(landing=str(root), base=root)
    known = KnownTable(TableId("sales", "orders"), TableSettings(**settings), active=False, declared=False)
    return propose(config, Landing(root), known)


def proposed(root: Path, *parts: dict[str, Any]) -> Proposal:
    (root / ORDERS).mkdir(parents=True)
    for number, part in enumerate(parts, start=1):
        pq.write_table(pa.table(part), root / ORDERS / f"LOAD0000000{number}.parquet")
    return propose_for(root)


def proposed_csv(root: Path, **files: str) -> Proposal:
    (root / ORDERS).mkdir(parents=True)
    names = {"load": "LOAD00000001.csv", "second": "LOAD00000002.csv", "changes": "20240405-003052555.csv"}
    for name, text in files.items():
        (root / ORDERS / names[name]).write_text(text)
    return propose_for(root)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"name": ["a", "b"], "id": [1, 2]}, ("id",)),
        ({"id": [1, 1], "orders_id": [1, 2]}, ("orders_id",)),
        ({"id": [1, 1], "order_id": [1, 2]}, ("order_id",)),
        ({"id": [1, None], "title": ["a", "b"]}, ("title",)),
        ({"price": [1.5, 2.5], "is_new": [True, False], "code": ["a", "b"]}, ("code",)),
        ({"order": [1, 1, 2], "line": [1, 2, 1], "text": ["x", "x", "x"]}, ("order", "line")),
        ({"id": [1, 1], "line": [1, 1]}, ()),
        ({"id": pa.array([], pa.int32())}, ()),
    ],
)
def test_columns_unique_in_the_load_are_proposed_likely_names_first(
    tmp_path: Path, columns: dict[str, Any], key: tuple[str, ...]
) -> None:
    found = proposed(tmp_path, columns)
    assert found.primary_key == key
    assert ("primary_key" in found.evidence) == bool(key)
    # So few rows do not show that anything is unique.
    assert found.doubts


def test_all_parts_of_the_load_count_for_key_and_types(tmp_path: Path) -> None:
    narrow = {"id": pa.array([1, 2], pa.int32()), "no": [1, 2]}
    found = proposed(tmp_path, narrow, {"id": pa.array([2, 1 << 40]), "no": [3, 4], "new": [1.5, 2]})
    assert found.primary_key == ("no",)
    assert found.schema == "id bigint, no bigint, new double"
    assert "schema" not in found.settings


@pytest.mark.parametrize(
    ("columns", "doubt"),
    [
        ({"id": IDS, "name": ["x"] * 100}, None),
        ({"code": IDS, "name": ["x"] * 100}, "is not named like a key"),
        ({"id": IDS, "orders_id": IDS}, "would be a key as well as id"),
        ({"a": [1, 2] * 50, "b": ["x"] * 100}, "no column, and no pair"),
        ({"id": IDS[:5]}, "only 5 rows"),
        ({"id": IDS, "_file": IDS}, "Iceberg"),
    ],
)
def test_nothing_is_in_doubt_only_for_the_one_column_that_is_named_like_a_key(
    tmp_path: Path, columns: dict[str, Any], doubt: str | None
) -> None:
    doubts = proposed(tmp_path, columns).doubts
    assert bool(doubts) == (doubt is not None), doubts
    assert doubt is None or any(doubt in found for found in doubts)


def test_files_that_no_rule_reads_and_parts_that_contradict_each_other_are_doubts(tmp_path: Path) -> None:
    proposed(tmp_path, {"id": IDS})
    (tmp_path / ORDERS / "part-1.parquet").write_bytes(b"")
    assert any("part-1.parquet" in doubt for doubt in propose_for(tmp_path).doubts)
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / ORDERS / "LOAD00000002.parquet")
    assert any("column id is" in doubt for doubt in propose_for(tmp_path).doubts)


def test_the_commit_time_is_proposed_and_is_not_a_key(tmp_path: Path) -> None:
    found = proposed(tmp_path, {"ts": [TIME], "name": ["a"]})
    assert (found.primary_key, found.timestamp_column) == (("name",), "ts")
    assert "comes first and holds times" in found.evidence["timestamp_column"]


def test_columns_with_few_values_and_months_of_times_are_candidates_for_partitions(tmp_path: Path) -> None:
    days = pa.array([f"2024-0{1 + number // 50}-01" for number in range(100)]).cast(pa.date32())
    dates = pa.array([20000 + number for number in range(100)], pa.int32()).cast(pa.date32())
    found = proposed(tmp_path, {"id": IDS, "dept": ["a", "b", "c", None] * 25, "two": days, "born": dates})
    assert [candidate.partition for candidate in found.partition_candidates] == ["two", "dept", "months(born)"]
    assert found.partition_candidates[1].evidence == "4 values in 100 rows of the load"
    assert "partition_by" not in found.settings


def test_of_a_large_load_the_key_is_proposed_by_its_name_and_stays_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "READ_BYTES", 10)
    found = proposed(tmp_path, {"ts": [TIME], "id": [1], "name": ["x"]})
    assert (found.primary_key, found.timestamp_column) == (("id",), "ts")
    assert any("were not compared" in doubt for doubt in found.doubts)


HEADED = "id,name,code,price,born,at,flag\n1,Ann,007,1.50,2001-02-03,2024-01-01 10:00:00,true\n"


def test_csv_with_a_header_is_proposed_with_types_and_stays_in_doubt(tmp_path: Path) -> None:
    more = "2,NULL,012,20,NULL,2024-01-01 10:00:00.5,false\n"
    found = proposed_csv(tmp_path, load=HEADED + more, changes=f"Op,{HEADED.splitlines()[0]}\nD,1,,,,,,\n")
    assert found.schema == (
        "id int, name string, code string, price decimal(18,2), born date, at timestamp_ntz, flag boolean"
    )
    assert found.csv == {"header": True}
    assert found.settings["schema"] == found.schema
    assert any("inferred from texts" in doubt for doubt in found.doubts)


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        (["1", "-2", "0"], "int"),
        (["1", "9999999999"], "bigint"),
        (["1", "99999999999999999999"], "decimal(38,0)"),
        (["1", "9" * 40], "string"),
        (["007", "8"], "string"),
        (["+5", "6"], "string"),
        (["1.5", "2"], "decimal(18,1)"),
        (["1.5", "2e10"], "double"),
        (["2024-02-30", "2024-02-28"], "string"),
        (["2024-02-28T10:00:00Z", "2024-02-28 10:00:00+02:00"], "timestamp"),
        (["yes", "no"], "string"),
        (["t", ""], "string"),
    ],
)
def test_a_type_is_inferred_only_if_it_keeps_every_value_as_it_is_written(
    tmp_path: Path, values: list[str], column_type: str
) -> None:
    rows = "".join(f"{number},{value}\n" for number, value in enumerate(values))
    assert proposed_csv(tmp_path, load=f"id,value\n{rows}").schema == f"id int, value {column_type}"


def test_types_are_widened_over_all_load_files(tmp_path: Path) -> None:
    found = proposed_csv(tmp_path, load="id,v\n1,2\n", second="id,v\n2,2.25\n3,x\n")
    assert found.schema == "id int, v string"


@pytest.mark.parametrize(
    ("text", "csv"),
    [
        ("id;v\n1;a\n2;b\n", {"header": True, "delimiter": ";"}),
        ("id\tv\n1\ta,b\n2\tb\n", {"header": True, "delimiter": "\t"}),
        ("id,v\n'1','a;b'\n'2','c'\n", {"header": True, "quote": "'"}),
        ("id,v\n1,\\N\n2,b\n", {"header": True, "null": "\\N"}),
        ("v,id\na,1\nb,\n", {"header": True, "null": ""}),
        ('id,v\n1,"a\n,b"\n2,"NULL"\n', {"header": True}),
    ],
)
def test_delimiter_quote_and_null_token_are_recognised(tmp_path: Path, text: str, csv: dict[str, Any]) -> None:
    assert proposed_csv(tmp_path, load=text).csv == csv


def test_files_without_header_get_invented_names_and_the_commit_time_is_separated(tmp_path: Path) -> None:
    found = proposed_csv(tmp_path, load=f"{TIME},1,a\n{TIME},2,b\n", changes=f"I,{TIME},3,c\n")
    assert (found.schema, found.timestamp_column) == ("column_1 int, column_2 string", "commit_time")
    assert any("names of the schema are invented" in doubt for doubt in found.doubts)


def test_a_first_record_of_words_before_words_is_not_decided(tmp_path: Path) -> None:
    found = proposed_csv(tmp_path, load="code,name\na,b\n")
    assert found.csv == {} and any("may name the columns or be a row" in doubt for doubt in found.doubts)


def test_changes_alone_propose_columns_and_no_key(tmp_path: Path) -> None:
    found = proposed_csv(tmp_path, changes="Op,id,v\nI,1,a\nD,2,b\n")
    assert (found.primary_key, found.schema) == ((), "id int, v string")


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\x00", b'a,b\n"x', b"\x1f\x8b\x00", b"id,v\n\xff,\xfe\n1,2\n", b"\xef\xbb\xbf"]
)
def test_no_content_of_a_file_makes_a_proposal_fail(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ORDERS).mkdir(parents=True)
    (tmp_path / ORDERS / "LOAD00000001.csv").write_bytes(content)
    assert propose_for(tmp_path).doubts
    (tmp_path / ORDERS / "LOAD00000001.csv").rename(tmp_path / ORDERS / "LOAD00000001.parquet")
    assert propose_for(tmp_path).doubts
