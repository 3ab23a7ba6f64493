"""What each row does: operations, order, partial rows, key changes, transaction files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_helpers import CHANGES, LOAD, TXN, land, listed, make_spec, read, read_listed

from lakeward.formats.dms import csv as dms_csv
from lakeward.model import Operation, OrderBy, Place
from lakeward.testing.oracle import ModelChange, fold_by_rule

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {"csv": {"header": True}}
TIMES = [f"2024-04-05 00:30:5{digit}.000001" for digit in range(5)]


def test_operations_and_counts(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,1.00\nU,2,b,2.00\nD,3,c,3.00\nU,4,d,x\n")
    assert [row[:2] for row in result.rows] == [("I", 1), ("U", 2), ("D", 3)]
    summary = result.summary
    assert (summary.rows, summary.inserts, summary.updates, summary.deletes, summary.bad) == (4, 1, 1, 1, 1)
    assert (summary.moves, summary.partial, summary.stable, summary.mismatch) == (0, 0, True, False)
    assert len(summary.content_hash) == 32
    record = result.records[0]
    assert record["_lw_file"] == "sales/product/" + CHANGES
    assert record["_lw_file_time"] == "20240405003052555000"
    assert (record["_lw_sequence"], record["_lw_commit_time"], record["_lw_step"]) == ("", None, 0)


@pytest.mark.parametrize(("letter", "value"), [("X", "X"), ("NULL", None), ("", ""), ("i", "i"), (" I", " I")])
def test_an_unknown_operation_is_a_bad_row(tmp_path: Path, letter: str, value: str | None) -> None:
    result = read(tmp_path, f"I,1,a,1\n{letter},2,b,2\nI,3,c,3\n")
    assert result.numbers == [1, 3]
    assert result.faults == [(2, "Op", value)]


def test_load_rows_must_be_inserts(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,1\nU,2,b,2\nI,3,c,3\n", name=LOAD)
    assert [row[:2] for row in result.rows] == [("I", 1), ("I", 3)]
    assert result.faults == [(2, "Op", "U")]
    assert result.records[0]["_lw_file_time"] == ""


def test_a_table_without_key_takes_inserts_only(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,1\nU,2,b,2\nD,3,c,3\n", make_spec(primary_key=[]))
    assert result.numbers == [1]
    assert result.faults == [(2, "Op", "U"), (3, "Op", "D")]
    assert set(result.reasons) == {"an update or delete cannot be placed without a key"}


@pytest.mark.parametrize("rule", [None, "stop", "quarantine"])
def test_only_the_rule_inserts_changes_what_is_read_of_a_table_without_key(tmp_path: Path, rule: str | None) -> None:
    text = "I,1,a,1\nU,2,b,2\nD,3,c,3\n"
    result = read(tmp_path, text, make_spec(primary_key=[], without_key=rule))
    assert (result.numbers, result.bad_numbers, result.summary.ignored) == ([1], [2, 3], 0)


def test_ignored_updates_and_deletes_are_counted_apart_whatever_else_is_wrong_with_them(tmp_path: Path) -> None:
    text = "I,1,a,1\nU,2,b,x\nD,y,c,3\nI,4,d,x\nX,5,e,5\nU,6\nI,7,f,7\n"
    result = read(tmp_path, text, make_spec(primary_key=[], without_key="inserts"))
    summary = result.summary
    assert (result.numbers, result.bad_numbers) == ([1, 7], [4, 5, 6])
    counts = (summary.rows, summary.inserts, summary.updates, summary.deletes, summary.bad, summary.ignored)
    assert counts == (5, 2, 0, 0, 3, 2)
    assert summary.last is not None
    assert summary.last.row == 7


def test_a_load_row_that_is_no_insert_is_never_ignored(tmp_path: Path) -> None:
    spec = make_spec(primary_key=[], without_key="inserts")
    result = read(tmp_path, "I,1,a,1\nU,2,b,2\n", spec, name=LOAD)
    assert (result.bad_numbers, result.summary.ignored) == ([2], 0)


def test_a_table_with_a_key_is_read_as_if_the_rule_were_not_set(tmp_path: Path) -> None:
    text = "I,1,a,1\nU,2,b,2\nD,3,c,3\n"
    results = [read(tmp_path, text, make_spec(without_key=rule)) for rule in (None, "inserts", "stop")]
    assert [found.numbers for found in results] == [[1, 2, 3]] * 3
    assert [found.summary.ignored for found in results] == [0] * 3


_LETTERS = st.lists(st.sampled_from("IUD"), max_size=30)


@given(letters=_LETTERS, rule=st.sampled_from(("quarantine", "inserts")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_rule_for_tables_without_key_agrees_with_the_oracle(
    tmp_path: Path, letters: list[str], rule: Literal["quarantine", "inserts"]
) -> None:
    text = "".join(f"{letter},{number},a,1\n" for number, letter in enumerate(letters, 1))
    result = read(tmp_path, text, make_spec(primary_key=[], without_key=rule))
    changes = [
        ModelChange(Place("", "", "", number), Operation(letter), (), {"id": number})
        for number, letter in enumerate(letters, 1)
    ]
    expected = fold_by_rule(changes, ["id"], rule)
    assert [{"id": record["id"]} for record in result.records] == expected.rows
    assert result.bad_numbers == [change.place.row for change in expected.set_aside]
    assert result.summary.ignored == expected.ignored
    assert result.summary.rows + expected.ignored == len(letters)


def test_null_and_composite_keys_pass(tmp_path: Path) -> None:
    spec = make_spec("a int, b string, c string", primary_key=["b", "a"])
    assert read(tmp_path, "I,NULL,x,1\nU,1,NULL,2\n", spec).rows == [("I", None, "x", "1"), ("U", 1, None, "2")]


def test_an_update_to_null_sets_null(tmp_path: Path) -> None:
    (record,) = read(tmp_path, "U,1,NULL,NULL\n").records
    assert (record["name"], record["price"], record["_lw_unchanged"]) == (None, None, None)


# --- order ---------------------------------------------------------------------------------------------------------


def test_sequence_is_padded_and_checked(tmp_path: Path) -> None:
    rows = ["7", "20240405003052550000000000000000001", "", "NULL", "12a", "-1", "1" * 38, "1" * 39]
    text = "Op,id,name,price,AR_H_CHANGE_SEQ\n" + "".join(f"U,{i},a,1,{seq}\n" for i, seq in enumerate(rows))
    result = read(tmp_path, text, make_spec(**HEADER))
    assert [record["_lw_sequence"] for record in result.records] == [rows[i].zfill(38) for i in (0, 1, 6)]
    assert [fault[:2] for fault in result.faults] == [(row, "AR_H_CHANGE_SEQ") for row in (3, 4, 5, 6, 8)]
    assert result.summary.order_by is OrderBy.SEQUENCE
    assert result.summary.first == Place("7".zfill(38), "20240405003052555000", "sales/product/" + CHANGES, 1)
    assert result.summary.last == Place("1" * 38, "20240405003052555000", "sales/product/" + CHANGES, 7)


def test_timestamp_order_is_fixed_width_utc(tmp_path: Path) -> None:
    text = (
        "Op,ts,id,name,price\nU,2024-04-05 00:30:52,1,a,1\nU,2024-04-05T02:30:52.5+02:00,2,a,1\nU,,3,a,1\n"
        "U,NULL,4,a,1\nU,yesterday,5,a,1\n"
    )
    result = read(tmp_path, text, make_spec(timestamp_column="ts", **HEADER))
    sequences = [record["_lw_sequence"] for record in result.records]
    assert sequences == ["2024-04-05 00:30:52.000000", "2024-04-05 00:30:52.500000"]
    assert result.records[1]["_lw_commit_time"] == datetime(2024, 4, 5, 0, 30, 52, 500000, tzinfo=UTC)
    assert result.faults == [(3, "ts", None), (4, "ts", None), (5, "ts", "yesterday")]


def test_equal_timestamps_are_distinguished_by_row(tmp_path: Path) -> None:
    text = "".join(f"U,{TIMES[0]},1,{name},1\n" for name in "abc")
    result = read(tmp_path, text, make_spec(timestamp_column="ts"))
    assert [(record["_lw_row"], record["name"]) for record in result.records] == [(1, "a"), (2, "b"), (3, "c")]
    assert result.summary.first is not None
    assert result.summary.last is not None
    assert (result.summary.first.row, result.summary.last.row) == (1, 3)


def test_first_and_last_are_by_place_and_not_by_row(tmp_path: Path) -> None:
    order = [2, 4, 0, 4, 0]
    text = "".join(f"U,{TIMES[digit]},1,a,1\n" for digit in order)
    summary = read(tmp_path, text, make_spec(timestamp_column="ts")).summary
    assert summary.first is not None
    assert summary.last is not None
    assert (summary.first.sequence, summary.first.row) == (TIMES[0], 3)
    assert (summary.last.sequence, summary.last.row) == (TIMES[4], 4)


def test_first_and_last_over_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dms_csv, "MAX_ROWS", 2)
    text = "".join(f"U,{TIMES[digit]},1,a,1\n" for digit in [2, 4, 0, 4, 0])
    summary = read(tmp_path, text, make_spec(timestamp_column="ts")).summary
    assert summary.first is not None
    assert summary.last is not None
    assert (summary.first.row, summary.last.row) == (3, 4)


def test_the_sequence_keeps_the_commit_time(tmp_path: Path) -> None:
    text = f"Op,ts,id,name,price,AR_H_CHANGE_SEQ\nU,{TIMES[0]},1,a,1,5\nU,,2,a,1,6\nU,x,3,a,1,7\n"
    result = read(tmp_path, text, make_spec(timestamp_column="ts", **HEADER))
    assert [record["_lw_commit_time"] is None for record in result.records] == [False, True]
    assert result.faults == [(3, "ts", "x")]


@pytest.mark.parametrize(
    ("order", "settings", "column"),
    [
        (OrderBy.SEQUENCE, {}, "AR_H_CHANGE_SEQ"),
        (OrderBy.TIMESTAMP, {"timestamp_column": "ts"}, "ts"),
        (None, {"timestamp_column": "ts"}, "ts"),
        (OrderBy.TIMESTAMP, {}, "timestamp_column"),
    ],
)
def test_a_missing_order_column_is_a_problem(
    tmp_path: Path, order: OrderBy | None, settings: dict[str, Any], column: str
) -> None:
    for text, more in (("Op,id,name,price\nU,1,a,1\n", HEADER), ("U,1,a,1\n", {})):
        result = read(tmp_path, text, make_spec(order_by=order, **settings, **more))
        assert result.summary.problem is not None
        assert column in result.summary.problem
        assert result.batches == []


def test_the_generations_order_holds_even_where_a_file_has_more(tmp_path: Path) -> None:
    text = f"Op,ts,id,name,price,AR_H_CHANGE_SEQ\nU,{TIMES[0]},1,a,1,5\n"
    for order, sequence in ((OrderBy.NONE, ""), (OrderBy.TIMESTAMP, TIMES[0]), (OrderBy.SEQUENCE, "5".zfill(38))):
        result = read(tmp_path, text, make_spec(order_by=order, timestamp_column="ts", **HEADER))
        assert result.records[0]["_lw_sequence"] == sequence
        assert result.summary.order_by is order


def test_a_load_needs_no_order_and_parses_its_time_leniently(tmp_path: Path) -> None:
    text = f"ts,id,name,price,AR_H_CHANGE_SEQ\n{TIMES[0]},1,a,1,\nwhenever,2,a,1,x\n,3,a,1,\n"
    spec = make_spec(order_by=OrderBy.SEQUENCE, timestamp_column="ts", **HEADER)
    result = read(tmp_path, text, spec, LOAD)
    assert [record["_lw_commit_time"] is None for record in result.records] == [False, True, True]
    assert {record["_lw_sequence"] for record in result.records} == {None}
    assert (result.summary.order_by, result.summary.first, result.summary.last) == (None, None, None)
    assert read(tmp_path, "id,name,price\n1,a,1\n", spec, LOAD).summary.inserts == 1


# --- partial rows --------------------------------------------------------------------------------------------------

MARK = {"csv": {"unchanged": "~"}}


def test_the_unchanged_marker(tmp_path: Path) -> None:
    result = read(tmp_path, 'U,1,~,1\nU,2,a,"~"\nU,3,~,~\nU,4,a,NULL\nI,5,~,1\n', make_spec(**MARK))
    unchanged = [record["_lw_unchanged"] for record in result.records]
    assert unchanged == [["name"], ["price"], ["name", "price"], None, ["name"]]
    assert result.rows[0] == ("U", 1, None, Decimal("1.00"))
    assert result.summary.partial == 4


def test_signs_are_right_in_every_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dms_csv, "MAX_ROWS", 3)
    spec = make_spec("id int, name string, note string", timestamp_column="ts", **MARK)
    text = "".join(f"U,{TIMES[0]},{i},name {i},{'~' if i % 2 else 'note'},{'' if i % 2 else i}\n" for i in range(11))
    result = read(tmp_path, text, spec)
    assert result.rows == [("U", i, f"name {i}", None if i % 2 else "note") for i in range(11)]
    assert [record["_lw_unchanged"] for record in result.records] == [["note"] if i % 2 else None for i in range(11)]


def test_the_marker_in_a_key_is_a_bad_row(tmp_path: Path) -> None:
    result = read(tmp_path, "U,~,a,1\nD,~,a,1\nU,2,a,1\n", make_spec(**MARK))
    assert result.faults == [(1, "id", "~"), (2, "id", "~")]
    assert result.reasons[0] == "a key column cannot be left unchanged"


def test_the_marker_means_nothing_in_a_load(tmp_path: Path) -> None:
    result = read(tmp_path, "1,~,1\n2,a,~\n", make_spec(**MARK), LOAD)
    assert result.rows == [("I", 1, "~", Decimal(1))]
    assert result.faults == [(2, "price", "~")]


def test_null_means_unchanged_in_updates_only(tmp_path: Path) -> None:
    spec = make_spec(null_means_unchanged=["name", "id"])
    result = read(tmp_path, "U,1,NULL,NULL\nI,2,NULL,1\nU,NULL,b,1\nD,3,NULL,NULL\n", spec)
    assert [record["_lw_unchanged"] for record in result.records] == [["name"], None, None, None]
    result = read(tmp_path, "1,NULL,1\n", spec, LOAD)
    assert result.records[0]["_lw_unchanged"] is None


def test_signs_of_all_kinds_together(tmp_path: Path) -> None:
    spec = make_spec(
        "id int, a string, b string, c string", null_means_unchanged=["a"], csv={"header": True, "unchanged": "~"}
    )
    result = read(tmp_path, "Op,id,a,b\nU,1,NULL,~\nU,2,~,x\nU,3,y,z\n", spec)
    assert [sorted(record["_lw_unchanged"]) for record in result.records] == [["a", "b", "c"], ["a", "c"], ["c"]]


def test_a_delete_never_fails_for_a_value_outside_its_key(tmp_path: Path) -> None:
    result = read(tmp_path, "D,1,~,x\nD,2,,\nD,3,a,1.5\nD,x,a,1\n", make_spec(**MARK))
    assert result.rows == [("D", 1, None, None), ("D", 2, "", None), ("D", 3, "a", Decimal("1.50"))]
    assert [record["_lw_unchanged"] for record in result.records] == [None] * 3
    assert result.faults == [(4, "id", "x")]
    assert result.summary.partial == 0


# --- key changes ---------------------------------------------------------------------------------------------------


def test_a_key_change_is_a_delete_and_a_write(tmp_path: Path) -> None:
    result = read(tmp_path, "I,1,a,1,\nU,2,b,2,1\nU,2,c,3,2\nU,3,d,4,\nD,2,e,5,2\n")
    assert result.rows == [
        ("I", 1, "a", Decimal(1)),
        ("D", 1, None, None),
        ("U", 2, "b", Decimal(2)),
        ("U", 2, "c", Decimal(3)),
        ("U", 3, "d", Decimal(4)),
        ("D", 2, "e", Decimal(5)),
    ]
    assert [(r["_lw_row"], r["_lw_step"]) for r in result.records] == [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0)]
    summary = result.summary
    assert (summary.rows, summary.updates, summary.deletes, summary.moves) == (5, 3, 1, 1)


def test_the_place_of_a_last_move_counts_its_step(tmp_path: Path) -> None:
    summary = read(tmp_path, "U,2,b,2,1\n").summary
    assert summary.first is not None
    assert summary.last is not None
    assert (summary.first.step, summary.last.step) == (0, 1)


def test_a_composite_key_moves_when_one_part_differs(tmp_path: Path) -> None:
    spec = make_spec("a int, b string, c string", primary_key=["a", "b"], **HEADER)
    text = "Op,a,b,c,BI_a,BI_b\nU,1,y,v,1,x\nU,1,y,v,1,y\nU,1,y,v,,\nU,NULL,y,v,1,y\n"
    result = read(tmp_path, text, spec)
    assert [row[:3] for row in result.rows] == [
        ("D", 1, "x"), ("U", 1, "y"), ("U", 1, "y"), ("U", 1, "y"), ("D", 1, "y"), ("U", None, "y"),
    ]  # fmt: skip


def test_a_key_part_without_before_image_counts_as_it_is(tmp_path: Path) -> None:
    spec = make_spec("a int, b string, c string", primary_key=["a", "b"], **HEADER)
    result = read(tmp_path, "Op,a,b,c,BI_a\nU,2,y,v,1\n", spec)
    assert result.rows == [("D", 1, "y", None), ("U", 2, "y", "v")]


def test_before_images_of_other_columns_do_not_move(tmp_path: Path) -> None:
    result = read(tmp_path, "U,1,b,2,1,a,1\nI,2,b,2,,,\n")
    assert (result.summary.moves, result.summary.bad) == (0, 0)


def test_a_partial_key_change_is_marked_at_its_new_place_only(tmp_path: Path) -> None:
    result = read(tmp_path, "U,2,~,2,1\n", make_spec(**MARK))
    assert [record["_lw_unchanged"] for record in result.records] == [None, ["name"]]
    assert result.summary.partial == 1


def test_a_delete_without_key_takes_it_from_the_before_image(tmp_path: Path) -> None:
    result = read(tmp_path, "D,NULL,NULL,NULL,7\nD,8,NULL,NULL,9\nD,NULL,NULL,NULL,x\nD,NULL,NULL,NULL,\n")
    assert [row[:2] for row in result.rows] == [("D", 7), ("D", 8), ("D", None)]
    assert result.faults == [(3, "BI_id", "x")]
    assert result.summary.moves == 0


def test_a_before_image_that_does_not_parse_matters_to_updates_only(tmp_path: Path) -> None:
    spec = make_spec(**HEADER)
    result = read(tmp_path, "Op,id,name,price,BI_id\nU,1,a,1,x\nI,2,a,1,x\nD,3,a,1,x\n", spec)
    assert result.faults == [(1, "BI_id", "x")]
    assert result.numbers == [2, 3]


def test_a_bad_row_is_bad_as_a_whole(tmp_path: Path) -> None:
    result = read(tmp_path, "U,2,b,x,1\nU,4,b,1,3\n")
    assert result.rows == [("D", 3, None, None), ("U", 4, "b", Decimal(1))]
    assert (result.bad_numbers, result.summary.moves) == ([1], 1)


# --- transaction files ---------------------------------------------------------------------------------------------


def test_transaction_files_hold_many_tables(tmp_path: Path) -> None:
    text = (
        'I,product,sales,1,a,1.00\nI,people,hr,1\nU,product,sales,1,"x\ny",NULL\nD,product,other,9,z,1\n'
        'U,product,sales,1,"NULL",2,1\nX,product,sales,1,a,1\nD,product,sales,1,,\nI,people,hr,1,2,3,4,5,6,7\n'
    )
    result = read(tmp_path, text, name=TXN)
    assert result.rows == [("I", 1, "a", Decimal(1)), ("U", 1, "x\ny", None), ("D", 1, "", None)]
    assert result.numbers == [1, 3, 7]
    assert result.bad_numbers == [5, 6]
    assert result.bad[0]["_lw_raw"] == 'U,product,sales,1,"NULL",2,1'
    assert result.summary.rows == 5
    assert result.summary.time == "20201117153046033000"


def test_transaction_files_with_timestamp_sequence_and_before_images(tmp_path: Path) -> None:
    sequence = "20240405003052550000000000000000001"
    text = f"U,product,sales,{TIMES[0]},2,a,1,{sequence},1\n"
    result = read(tmp_path, text, make_spec(timestamp_column="ts"), TXN)
    assert [row[:2] for row in result.rows] == [("D", 1), ("U", 2)]
    assert result.records[0]["_lw_sequence"] == sequence.zfill(38)


def test_transaction_files_without_rows_of_the_table(tmp_path: Path) -> None:
    for text in ("", "I,people,hr,1\n"):
        result = read(tmp_path, text, make_spec(timestamp_column="ts"), TXN)
        assert (result.summary.rows, result.summary.problem, result.batches) == (0, None, [])


def test_transaction_files_name_the_table_as_its_folder_does(tmp_path: Path) -> None:
    spec = make_spec(path="SALES/PRODUCT")
    text = "I,PRODUCT,SALES,1,a,1\nI,product,sales,2,a,1\n"
    assert read(tmp_path, text, spec, TXN).numbers == [1]


def test_transaction_files_ignore_the_header_setting(tmp_path: Path) -> None:
    assert read(tmp_path, "I,product,sales,1,a,1\n", make_spec(**HEADER), TXN).numbers == [1]


def test_a_transaction_record_that_names_no_table_is_a_problem(tmp_path: Path) -> None:
    result = read(tmp_path, "I,product,sales,1,a,1\nI,product\n", name=TXN)
    assert result.summary.problem is not None
    assert "record 2 has 2 fields" in result.summary.problem


# --- identity ------------------------------------------------------------------------------------------------------


def test_a_file_changed_after_the_listing_has_no_rows(tmp_path: Path) -> None:
    file = listed(tmp_path, land(tmp_path, "I,1,a,1\n", CHANGES))
    land(tmp_path, "I,1,a,1\nI,2,b,2\n", CHANGES)
    result = read_listed(tmp_path, file, make_spec())
    assert (result.summary.stable, result.summary.problem, result.batches) == (False, None, [])
    (tmp_path / file.path).unlink()
    result = read_listed(tmp_path, file, make_spec())
    assert (result.summary.stable, result.batches) == (False, [])
    assert result.summary.identity == file.identity


@pytest.mark.parametrize("vanish", [True, False])
def test_a_file_changed_while_read_is_not_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanish: bool) -> None:
    file = listed(tmp_path, land(tmp_path, "I,1,a,1\n", CHANGES))
    original = dms_csv.CsvFile.read

    def disturbed(self: dms_csv.CsvFile, width: int, **options: Any) -> Any:
        yield from original(self, width, **options)
        if vanish:
            (tmp_path / file.path).unlink()
        else:
            land(tmp_path, "I,1,a,1\nI,2", CHANGES)

    monkeypatch.setattr(dms_csv.CsvFile, "read", disturbed)
    assert read_listed(tmp_path, file, make_spec()).summary.stable is False


def test_before_images_of_only_the_changed_key_part_keep_the_other(tmp_path: Path) -> None:
    spec = make_spec("a int, b string, c string", primary_key=["a", "b"], csv={"header": True})
    result = read(tmp_path, "Op,a,b,c,BI_a,BI_b\nU,2,y,v,1,\n", spec)
    assert result.rows == [("D", 1, "y", None), ("U", 2, "y", "v")]


NULL_KEY = "a string, b int, v string"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [(None, [("U", "x", 1)]), ("unchanged", [("U", "x", 1)]), ("value", [("D", None, 1), ("U", "x", 1)])],
)
def test_null_in_a_before_image_is_unchanged_or_a_value_as_declared(
    tmp_path: Path, declared: str | None, expected: list[tuple[Any, ...]]
) -> None:
    spec = make_spec(NULL_KEY, primary_key=["a", "b"], before_image_nulls=declared, **HEADER)
    result = read(tmp_path, "Op,a,b,v,BI_a,BI_b\nU,x,1,v,NULL,1\n", spec)
    assert [row[:3] for row in result.rows] == expected
    # Only where nothing is declared does it matter whether the key can be NULL.
    assert result.summary.null_images == (1 if declared is None else 0)


def test_every_null_before_image_is_a_value_where_that_is_declared(tmp_path: Path) -> None:
    spec = make_spec(before_image_nulls="value", **HEADER)
    text = "Op,id,name,price,BI_id\nU,5,a,1,NULL\nU,NULL,a,1,NULL\nI,6,a,1,NULL\nU,7,a,1,\n"
    rows = [(row[0], row[1]) for row in read(tmp_path, text, spec).rows]
    assert rows == [("D", None), ("U", 5), ("U", None), ("I", 6), ("U", 7)]


@pytest.mark.parametrize(
    ("null", "image", "old"),
    [
        (None, "", "x"), (None, '""', ""), (None, "NULL", "x"), ("NULL", "", ""), ("NULL", '""', ""),
        ("", "", "x"), ("", '""', ""), ("\\N", "", ""), ("\\N", "\\N", "x"),
    ],
)  # fmt: skip
def test_empty_text_in_a_before_image_is_a_value_if_quoted_or_not_the_null_token(
    tmp_path: Path, null: str | None, image: str, old: str
) -> None:
    csv = {"header": True, **({} if null is None else {"null": null})}
    spec = make_spec(NULL_KEY, primary_key=["a", "b"], csv=csv)
    result = read(tmp_path, f"Op,a,b,v,BI_a,BI_b\nU,x,1,v,{image},2\nI,y,1,v,,\n", spec)
    assert [row[:3] for row in result.rows] == [("D", old, 2), ("U", "x", 1), ("I", "y", 1)]
    assert not result.bad


def test_departures_contain_the_before_images_of_the_other_columns(tmp_path: Path) -> None:
    text = "Op,id,name,price,BI_id,BI_name,BI_price\nU,2,new,1,1,old,NULL\nU,2,newer,1,2,new,1\n"
    away = read(tmp_path, text, make_spec(**HEADER)).records[0]
    assert (away["id"], away["name"], away["price"], away["_lw_unchanged"]) == (1, "old", None, ["price"])
    away = read(tmp_path, text, make_spec(before_image_nulls="value", **HEADER)).records[0]
    assert (away["id"], away["name"], away["price"], away["_lw_unchanged"]) == (1, "old", None, None)
    # Without them nothing is known but the key.
    away = read(tmp_path, "U,2,b,2,1\n").records[0]
    assert (away["id"], away["name"], away["_lw_unchanged"]) == (1, None, None)


def test_changes_have_their_transaction_where_a_column_contains_it(tmp_path: Path) -> None:
    spec = make_spec(transaction_column="txid", **HEADER)
    result = read(tmp_path, 'Op,txid,id,name,price,BI_id\nU,7,2,a,1,1\nI,"a""\\b",3,a,1,\nI,NULL,4,a,1,\n', spec)
    details = [json.loads(record["_lw_detail"] or "{}") for record in result.records]
    assert [detail.get("transaction") for detail in details] == ["7", "7", 'a"\\b', None]
    assert result.rows[1] == ("U", 2, "a", Decimal(1))


def test_before_images_of_a_headerless_key_come_in_the_order_of_the_columns(tmp_path: Path) -> None:
    spec = make_spec("a int, b int, c string", primary_key=["b", "a"])
    result = read(tmp_path, "U,1,2,v,3,4\n", spec)
    assert result.rows == [("D", 3, 4, None), ("U", 1, 2, "v")]
