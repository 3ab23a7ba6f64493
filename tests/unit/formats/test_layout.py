"""Which field of a CSV record holds what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from source_helpers import CHANGES, LOAD, TABLE, make_spec, read

from lakeward.formats.base import ReadSpec
from lakeward.model import OrderBy

if TYPE_CHECKING:
    from pathlib import Path

PAIR = "id int, name string"
TIME, SEQ = "2024-04-05 00:30:52.555000", "20240405003052550000000000000000001"


@pytest.mark.parametrize(
    ("text", "settings", "rows", "order"),
    [
        ("I,1,a\n", {}, [("I", 1, "a")], OrderBy.NONE),
        ("1,a\n2,b\n", {}, [("I", 1, "a"), ("I", 2, "b")], OrderBy.NONE),
        (f"U,{TIME},1,a\n", {"timestamp_column": "ts"}, [("U", 1, "a")], OrderBy.TIMESTAMP),
        (f"{TIME},1,a\n", {"timestamp_column": "ts"}, [("I", 1, "a")], OrderBy.TIMESTAMP),
        (f"U,1,a,{SEQ}\n", {}, [("U", 1, "a")], OrderBy.SEQUENCE),
        (f"1,a,{SEQ}\n", {}, [("I", 1, "a")], OrderBy.SEQUENCE),
        (f"U,{TIME},1,a,{SEQ}\n", {"timestamp_column": "ts"}, [("U", 1, "a")], OrderBy.SEQUENCE),
        (f"U,{TIME},1,a,{SEQ},1\n", {"timestamp_column": "ts"}, [("U", 1, "a")], OrderBy.SEQUENCE),
        (f"U,{TIME},1,a,{SEQ},1,b\n", {"timestamp_column": "ts"}, [("U", 1, "a")], OrderBy.SEQUENCE),
        ("U,1,a,1\nI,2,b,\n", {}, [("U", 1, "a"), ("I", 2, "b")], OrderBy.NONE),
        ("U,1,a,1,x\nI,2,b,,\n", {}, [("U", 1, "a"), ("I", 2, "b")], OrderBy.NONE),
        ("U,1,a,x\nI,2,b,\n", {"before_image_columns": ["name"]}, [("U", 1, "a"), ("I", 2, "b")], OrderBy.NONE),
    ],
)
def test_headerless_change_layouts(
    tmp_path: Path, text: str, settings: dict[str, Any], rows: list[tuple[Any, ...]], order: OrderBy
) -> None:
    result = read(tmp_path, text, make_spec(PAIR, **settings))
    assert (result.rows, result.bad) == (rows, [])
    assert result.summary.order_by is order
    assert result.summary.columns is None
    assert result.summary.moves == 0


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("1,a\n", {}),
        ("I,1,a\n", {}),
        (f"{TIME},1,a\n", {"timestamp_column": "ts"}),
        (f"I,{TIME},1,a\n", {"timestamp_column": "ts"}),
        ("I,1,a,\n", {}),
        ("1,a,\n", {}),
        (f"I,{TIME},1,a,,,\n", {"timestamp_column": "ts"}),
        ("I,1,a\n", {"timestamp_column": "ts"}),
    ],
)
def test_headerless_load_layouts(tmp_path: Path, text: str, settings: dict[str, Any]) -> None:
    result = read(tmp_path, text, make_spec(PAIR, **settings), LOAD)
    assert (result.rows, result.bad) == ([("I", 1, "a")], [])
    (record,) = result.records
    assert record["_lw_sequence"] is None
    assert result.summary.order_by is None
    assert result.summary.first is None


def test_a_load_whose_last_column_is_empty_still_has_its_operation(tmp_path: Path) -> None:
    spec = make_spec("code string, note string", primary_key=["code"])
    assert read(tmp_path, "I,x,\nI,y,NULL\n", spec, LOAD).rows == [("I", "x", ""), ("I", "y", None)]


def test_load_and_changes_of_one_table_may_differ(tmp_path: Path) -> None:
    assert read(tmp_path, "1,a\n", make_spec(PAIR), LOAD).rows == [("I", 1, "a")]
    assert read(tmp_path, "D,1,a\n", make_spec(PAIR), CHANGES).rows == [("D", 1, "a")]


def test_the_most_frequent_width_decides(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,x,y,z\nI,1,a\nI,2,b\nI,3\n", make_spec(PAIR))
    assert result.numbers == [2, 3]
    assert result.bad_numbers == [1, 4]


def test_an_unknown_letter_does_not_shift_columns(tmp_path: Path) -> None:
    spec = make_spec("code string, name string", primary_key=["code"])
    result = read(tmp_path, "X,1,a\n", spec)
    assert result.faults == [(1, "Op", "X")]


def test_a_truncated_change_is_not_read_as_one_without_operation(tmp_path: Path) -> None:
    spec = make_spec("code string, name string", primary_key=["code"])
    result = read(tmp_path, "U,1\n", spec)
    assert (result.rows, result.bad_numbers) == ([], [1])


def test_without_any_fit_every_row_is_bad(tmp_path: Path) -> None:
    result = read(tmp_path, "a,b,c,d,e,f,g,h\n" * 3, make_spec(PAIR))
    assert result.bad_numbers == [1, 2, 3]
    assert result.rows == []


def test_a_column_added_at_the_source_is_not_read_as_a_before_image(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,5\nI,2,b,6\n", make_spec(PAIR))
    assert result.bad_numbers == [1, 2]
    assert result.reasons[0].startswith("has 4 fields")
    result = read(tmp_path, "U,1,a,1\nI,2,b,6\n", make_spec(PAIR))
    assert result.faults == [(2, "BI_id", "6")]


def test_order_columns_that_are_source_columns_sit_at_their_place(tmp_path: Path) -> None:
    spec = make_spec("id int, ts timestamp, name string", timestamp_column="ts")
    result = read(tmp_path, f"U,1,{TIME},a\n", spec)
    moment = datetime(2024, 4, 5, 0, 30, 52, 555000, tzinfo=UTC)
    assert result.rows == [("U", 1, moment, "a")]
    assert result.records[0]["_lw_commit_time"] == moment
    assert result.records[0]["_lw_sequence"] == TIME
    spec = make_spec("id int, AR_H_CHANGE_SEQ string")
    result = read(tmp_path, f"U,1,{SEQ}\n", spec)
    assert result.rows == [("U", 1, SEQ)]
    assert result.records[0]["_lw_sequence"] == SEQ.zfill(38)


def test_configured_columns_are_exact(tmp_path: Path) -> None:
    csv = {"columns": ["BI_id", "name", "id", "Op"], "load_columns": ["name", "id"]}
    spec = make_spec(PAIR, csv=csv)
    result = read(tmp_path, "1,a,2,U\n", spec)
    assert result.rows == [("D", 1, None), ("U", 2, "a")]
    assert result.summary.columns is None
    assert read(tmp_path, "a,1\n", spec, LOAD).rows == [("I", 1, "a")]


def test_configured_columns_may_be_fewer_even_when_strict(tmp_path: Path) -> None:
    spec = make_spec(PAIR, csv={"columns": ["Op", "id"]}, schema=PAIR)
    (record,) = read(tmp_path, "U,1\n", spec).records
    assert record["_lw_unchanged"] == ["name"]


def test_configured_columns_must_be_known(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a\n", make_spec(PAIR, csv={"columns": ["Op", "id", "nme"]}))
    assert result.summary.problem == "csv.columns names nme, which the table's schema does not have"


# --- with a header -------------------------------------------------------------------------------------------------

HEADER = {"csv": {"header": True}}


def test_a_header_places_columns_by_name(tmp_path: Path) -> None:
    spec = make_spec(PAIR, timestamp_column="ts", **HEADER)
    result = read(tmp_path, f"name,ts,Op,BI_id,id,AR_H_CHANGE_SEQ\na,{TIME},U,1,1,{SEQ}\n", spec)
    assert result.rows == [("U", 1, "a")]
    assert result.summary.columns == (("name", ""), ("id", ""))
    assert result.summary.order_by is OrderBy.SEQUENCE


def test_metadata_names_of_another_case(tmp_path: Path) -> None:
    spec = make_spec(PAIR, timestamp_column="TS", **HEADER)
    result = read(tmp_path, f"OP,ts,id,name,ar_h_change_seq\nU,{TIME},1,a,{SEQ}\n", spec)
    assert result.rows == [("U", 1, "a")]
    assert result.summary.order_by is OrderBy.SEQUENCE


def test_a_source_column_is_never_read_as_metadata_of_another_case(tmp_path: Path) -> None:
    spec = make_spec("id int, op string", **HEADER)
    assert read(tmp_path, "id,op\n1,D\n", spec, LOAD).rows == [("I", 1, "D")]
    assert read(tmp_path, "Op,id,op\nU,1,D\n", spec).rows == [("U", 1, "D")]


def test_another_operation_column(tmp_path: Path) -> None:
    spec = make_spec(PAIR, operation_column="__op", **HEADER)
    assert read(tmp_path, "__op,id,name\nD,1,a\n", spec).rows == [("D", 1, "a")]


def test_an_unknown_name_is_a_mismatch(tmp_path: Path) -> None:
    result = read(tmp_path, "Op,id,name,extra\nI,1,a,x\n", make_spec(PAIR, **HEADER))
    assert (result.summary.mismatch, result.batches) == (True, [])
    assert result.summary.columns == (("id", ""), ("name", ""), ("extra", ""))


def test_the_before_image_of_a_new_column_is_not_a_column(tmp_path: Path) -> None:
    result = read(tmp_path, "Op,id,name,extra,BI_id,BI_extra\nI,1,a,x,,\n", make_spec(PAIR, **HEADER))
    assert result.summary.columns == (("id", ""), ("name", ""), ("extra", ""))


def test_a_missing_name_means_unchanged_or_null_or_mismatch(tmp_path: Path) -> None:
    text = "Op,id\nU,1\nD,2\n"
    result = read(tmp_path, text, make_spec(PAIR, **HEADER))
    assert [record["_lw_unchanged"] for record in result.records] == [["name"], None]
    assert result.summary.partial == 1
    result = read(tmp_path, text, make_spec(PAIR, absent_columns="null", **HEADER))
    assert [record["_lw_unchanged"] for record in result.records] == [None, None]
    result = read(tmp_path, text, make_spec(PAIR, schema=PAIR, **HEADER))
    assert (result.summary.mismatch, result.batches) == (True, [])


def test_a_load_is_complete_by_definition(tmp_path: Path) -> None:
    (record,) = read(tmp_path, "id\n1\n", make_spec(PAIR, **HEADER), LOAD).records
    assert (record["name"], record["_lw_unchanged"]) == (None, None)


def test_a_missing_key_column_is_a_problem(tmp_path: Path) -> None:
    result = read(tmp_path, "Op,name\nU,a\n", make_spec(PAIR, **HEADER))
    assert result.summary.problem == "the file has no column id, which the key needs"


def test_a_repeated_name_is_a_problem(tmp_path: Path) -> None:
    result = read(tmp_path, "Op,id,name,name\nU,1,a,b\n", make_spec(PAIR, **HEADER))
    assert result.summary.problem == "the file names columns more than once: name"


def test_renames_come_first(tmp_path: Path) -> None:
    spec = make_spec(PAIR, renames={"ident": "id", "label": "name"}, **HEADER)
    assert read(tmp_path, "Op,ident,label,BI_ident\nU,2,a,1\n", spec).rows == [("D", 1, None), ("U", 2, "a")]


@pytest.mark.parametrize("header", ["Op,id,name,_lw_x\nI,1,a,b\n", "Op,id,_lw_row\nI,1,2\n"])
def test_reserved_names_are_columns_that_the_table_does_not_have(tmp_path: Path, header: str) -> None:
    assert read(tmp_path, header, make_spec(PAIR, **HEADER)).summary.mismatch


def test_reserved_names_in_the_schema_are_a_problem(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a\n", make_spec("id int, _lw_x string"))
    assert result.summary.problem is not None
    assert "_lw_x" in result.summary.problem


def test_before_image_suffix_and_no_affix(tmp_path: Path) -> None:
    spec = make_spec(PAIR, before_image_prefix="", before_image_suffix="_old", **HEADER)
    assert read(tmp_path, "Op,id,name,id_old\nU,2,a,1\n", spec).summary.moves == 1
    spec = make_spec(PAIR, before_image_prefix="", before_image_suffix="", **HEADER)
    assert read(tmp_path, "Op,id,name\nU,2,a\n", spec).rows == [("U", 2, "a")]


def test_a_key_outside_the_schema_is_a_problem(tmp_path: Path) -> None:
    for text, options in (("I,1,a\n", {}), ("Op,id,name\nI,1,a\n", HEADER)):
        problem = read(tmp_path, text, make_spec(PAIR, primary_key=["nr"], **options)).summary.problem
        assert problem == "primary_key names nr, which the table's schema does not have"


def test_headerless_csv_needs_a_schema(tmp_path: Path) -> None:
    spec = ReadSpec(TABLE, (), make_spec().settings)
    problem = read(tmp_path, "I,1,a\n", spec).summary.problem
    assert problem is not None
    assert "no schema" in problem
