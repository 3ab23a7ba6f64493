"""``lakeward diff`` as it is called, on files, in a folder without any configuration."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakeward.diffing.stored.applying import change_set_folder

SCHEMA = "id int, name string, price decimal(10,2), note string"
PAST = [(1, "pen", "1.00", None), (2, "ink", "2.50", "blue"), (3, "cap", "3.00", "red"), (4, "bag", "9.99", None)]
CURRENT = [(1, "pen", "1.00", None), (2, "ink", "2.75", None), (4, "bag", "9.99", None), (5, "map", "4.00", "new")]


@pytest.fixture(autouse=True)
def _in_a_folder(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call commands in an empty folder, on the Spark application of the tests."""
    monkeypatch.chdir(tmp_path)


def frame(spark: Any, rows: list[tuple[Any, ...]]) -> Any:
    cells = "id int, name string, price string, note string"
    return spark.createDataFrame(rows, cells).selectExpr("id", "name", "cast(price as decimal(10,2)) price", "note")


@pytest.fixture
def exports(spark: Any, tmp_path: Path) -> Path:
    frame(spark, PAST).coalesce(1).write.parquet(str(tmp_path / "past"))
    frame(spark, CURRENT).coalesce(1).write.parquet(str(tmp_path / "current"))
    return tmp_path


def document(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_counts_columns_and_examples(call, exports):
    found = document(call("diff", "past", "current", "--keys", "id", "--output", "json", "--exit-code"), 1)
    assert found["summary"] == {
        "past_rows": 4, "current_rows": 4, "inserted": 1, "changed": 1, "deleted": 1, "unchanged": 2,
        "columns": {"name": 0, "price": 1, "note": 1}, "duplicates": 0,
    }  # fmt: skip
    assert (found["keys"], found["plan"]["name"], found["schema_differences"]) == (["id"], "join", [])
    assert (found["past"]["kind"], found["past"]["location"]) == ("files", str(exports / "past"))
    assert found["examples"] == [
        {
            "action": "C", "key": {"id": "2"}, "changed": ["price", "note"],
            "past": {"name": "ink", "price": "2.50", "note": "blue"},
            "current": {"name": "ink", "price": "2.75", "note": None},
        },
        {"action": "I", "key": {"id": "5"}, "changed": [], "current": {"name": "map", "price": "4.00", "note": "new"}},
        {"action": "D", "key": {"id": "3"}, "changed": [], "past": {"name": "cap", "price": "3.00", "note": "red"}},
    ]  # fmt: skip
    # No lake, no state store, nothing of Spark's is left behind where the command was called.
    assert sorted(path.name for path in exports.iterdir()) == ["current", "past"]


def test_the_text_shows_them_side_by_side(call, exports):
    result = call("diff", "past", "current", "--keys", "id")
    assert result.exit_code == 0, result.stderr
    assert "1 inserted, 1 changed, 1 deleted; 2 unchanged" in result.stdout
    assert "changed rows by column: price 1, note 1" in result.stdout
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "changed id='2' price '2.50' '2.75'" in lines
    assert "note 'blue' NULL" in lines
    assert "compared by join: " in result.stderr


def test_equal_sides_end_with_0(call, exports):
    result = call("diff", "past", "past", "--keys", "id", "--exit-code")
    assert (result.exit_code, "no differences; 4 unchanged" in result.stdout) == (0, True), result.stderr


def test_a_change_set_is_written_with_both_parents(call, exports, spark):
    found = document(call("diff", "past", "current", "--keys", "id", "--to", "out", "--output", "json"))
    folder = Path(found["change_set"])
    assert folder.relative_to(exports).parts[:2] == ("out", "incremental")
    manifest = json.loads((folder / "_manifest.json").read_text())
    assert (folder / "_SUCCESS").exists()
    assert manifest["counts"] == {"inserted": 1, "changed": 1, "deleted": 1, "unchanged": 2}
    assert manifest["past"]["rows"] == manifest["current"]["rows"] == 4
    assert manifest["past"]["checksum"] != manifest["current"]["checksum"]
    assert manifest["past"] == {name: value for name, value in found["past"].items() if name != "address"}
    rows = {tuple(row) for row in spark.read.parquet(str(folder)).select("diff", "id", "left_name").collect()}
    assert rows == {("I", 5, None), ("D", 3, "cap"), ("C", 2, "ink")}
    # The minute may be over by now: let it be in the next ones too.
    for minutes in range(15):
        later = Path(change_set_folder(str(exports / "out"), datetime.now(UTC) + timedelta(minutes=minutes)))
        if later != folder:
            shutil.copytree(folder, later)
    again = call("diff", "past", "current", "--keys", "id", "--to", "out")
    assert again.exit_code == 2 and manifest["id"] in again.stderr


def test_the_checksum_of_the_same_rows_is_the_same(call, exports, spark):
    spark.createDataFrame([], frame(spark, []).schema).write.parquet(str(exports / "empty"))
    frame(spark, list(reversed(PAST))).repartition(3).write.parquet(str(exports / "shuffled"))
    same = document(call("diff", "past", "shuffled", "--keys", "id", "--to", "a", "--output", "json"))
    assert same["past"]["checksum"] == same["current"]["checksum"]
    for sides in (("past", "empty"), ("empty", "past"), ("empty", "empty")):
        found = document(call("diff", *sides, "--keys", "id", "--to", "-".join(sides), "--output", "json"))
        rows = [0 if side == "empty" else 4 for side in sides]
        assert [found["past"]["rows"], found["current"]["rows"]] == rows


def test_many_deletes_are_refused_and_nothing_is_written(call, exports, spark):
    spark.range(2000).selectExpr("id", "id * 2 as twice").coalesce(1).write.parquet(str(exports / "all"))
    spark.range(900).selectExpr("id", "id * 2 as twice").coalesce(1).write.parquet(str(exports / "some"))
    refused = call("diff", "all", "some", "--keys", "id", "--to", "out")
    assert (refused.exit_code, "1,100 of 2,000 rows would be deleted, 55%" in refused.stderr) == (2, True)
    assert not (exports / "out").exists() or not files_below(exports / "out")
    assert call("diff", "all", "some", "--keys", "id").exit_code == 0
    assert call("diff", "past", "current", "--keys", "id", "--max-delete-share", "0.1").exit_code == 2
    allowed = call("diff", "all", "some", "--keys", "id", "--to", "out", "--max-delete-share", "0.6")
    assert allowed.exit_code == 0, allowed.stderr


def test_sparse_output_names_what_changed(call, exports, spark):
    arguments = ("--keys", "id", "--to", "out", "--sparse", "--output", "json")
    folder = document(call("diff", "past", "current", *arguments))["change_set"]
    changed = spark.read.parquet(folder).filter("diff = 'C'").first()
    assert (changed["changes"], changed["right_name"], changed["right_note"]) == (["price", "note"], None, None)


def test_json_leaves_out_the_side_that_is_not_there(call, exports):
    arguments = ("--keys", "id", "--to", "out", "--format", "json", "--output", "json")
    folder = Path(document(call("diff", "past", "current", *arguments))["change_set"])
    lines = [line for file in folder.glob("part-*.json") for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    by_key = {row["id"]: row for row in rows}
    assert by_key[5] == {"diff": "I", "id": 5, "right_name": "map", "right_price": 4.0, "right_note": "new"}
    assert by_key[2]["right_note"] is None


def test_duplicate_keys_are_shown_with_their_counts(call, exports, spark):
    frame(spark, [*PAST, PAST[1], PAST[1], PAST[2]]).coalesce(1).write.parquet(str(exports / "twice"))
    refused = call("diff", "twice", "current", "--keys", "id", "--to", "out")
    assert refused.exit_code == 2
    assert "on the past side (twice): id=2 (3 times); id=3 (2 times)" in refused.stderr
    assert not (exports / "out").exists() or not files_below(exports / "out")
    reported = call("diff", "twice", "current", "--keys", "id", "--duplicate-keys", "report", "--output", "json")
    assert document(reported)["summary"]["duplicates"] == 3
    # Key 2 is still there, and a change set could only record that it is deleted.
    refused = call("diff", "twice", "past", "--keys", "id", "--duplicate-keys", "report", "--to", "out")
    assert (refused.exit_code, "3 rows have a key that came before" in refused.stderr) == (2, True), refused.stderr
    assert not (exports / "out").exists() or not files_below(exports / "out")


def test_added_dropped_and_widened_columns_are_reported(call, exports, spark):
    wider = frame(spark, CURRENT).selectExpr("cast(id as bigint) id", "name", "price", "true as is_new")
    wider.coalesce(1).write.parquet(str(exports / "wider"))
    found = document(call("diff", "past", "wider", "--keys", "id", "--output", "json"))
    differences = " ".join(found["schema_differences"])
    assert (
        "'note' is gone" in differences
        and "'is_new' is new" in differences
        and "'id' changed from int to bigint" in differences
    )


def test_comparators_and_ignored_columns(call, exports):
    arguments = ("--keys", "id", "--output", "json", "--ignore", "note", "--compare", "price=epsilon:0.5")
    found = document(call("diff", "past", "current", *arguments))
    assert (found["summary"]["changed"], found["summary"]["unchanged"]) == (0, 3)
    assert call("diff", "past", "current", "--keys", "id", "--compare", "epsilon:1").exit_code == 2


def test_the_report_is_one_page(call, exports):
    result = call("diff", "past", "current", "--keys", "id", "--report", "diff.html", "--to", "out")
    assert result.exit_code == 0, result.stderr
    page = (exports / "diff.html").read_text()
    assert page.startswith("<!doctype html>") and "2.75" in page
    assert call("diff", "past", "current", "--keys", "id", "--report", "no/where.html").exit_code == 2
    folder = call("diff", "past", "current", "--keys", "id", "--report", "past", "--to", "other")
    assert (folder.exit_code, "past is a folder" in folder.stderr) == (2, True), folder.stderr


def test_without_a_key_nothing_is_guessed(call, exports):
    refused = call("diff", "past", "current")
    assert (refused.exit_code, "--keys" in refused.stderr) == (2, True)
    found = document(call("diff", "past", "current", "--keys", "*", "--output", "json"))
    assert (found["summary"]["inserted"], found["summary"]["deleted"], found["summary"]["changed"]) == (2, 2, 0)


def test_all_columns_are_the_key_also_where_one_is_new(call, exports, spark):
    frame(spark, PAST).selectExpr("*", "if(id = 1, 7, null) stock").coalesce(1).write.parquet(str(exports / "more"))
    found = document(call("diff", "past", "more", "--keys", "*", "--output", "json"))
    assert found["keys"][-1] == "stock"
    assert [found["summary"][name] for name in ("inserted", "deleted", "unchanged")] == [1, 1, 3]
    refused = call("diff", "past", "more", "--keys", "*", "--to", "out")
    assert (refused.exit_code, "only one side has the key column stock" in refused.stderr) == (2, True)
    frame(spark, [*PAST, PAST[0]]).write.parquet(str(exports / "twice"))
    refused = call("diff", "twice", "more", "--keys", "*")
    assert (refused.exit_code, "note=None (2 times)" in refused.stderr) == (2, True), refused.stderr


def test_keys_may_be_called_as_the_diffs_own_columns(call, exports, spark):
    past, current = (spark.createDataFrame([(1, 1, value)], "diff int, left_x int, x int") for value in (5, 6))
    past.write.parquet(str(exports / "a"))
    current.write.parquet(str(exports / "b"))
    arguments = ("--keys", "diff,left_x", "--to", "out", "--output", "json")
    folder = document(call("diff", "a", "b", *arguments))["change_set"]
    [row] = spark.read.parquet(folder).collect()
    assert row.asDict() == {"_lw_diff": "C", "diff": 1, "left_x": 1, "_lw_left_x": 5, "right_x": 6}
    assert call("patch", "a", folder, "--to", "restored").exit_code == 0
    assert call("diff", "restored", "b", "--exit-code").exit_code == 0


def test_ignored_columns_of_two_types_and_of_types_without_a_hash(call, exports, spark):
    spark.sql("select 1 id, 'a' name, named_struct('a', 1) p, parse_json('[1]') v").write.parquet(str(exports / "a"))
    spark.sql("select 1 id, 'b' name, 'text' p, parse_json('[2]') v").write.parquet(str(exports / "b"))
    spark.sql("select 1 id, 'c' name, named_struct('a', 2) p, parse_json('[3]') v").write.parquet(str(exports / "c"))
    arguments = ("--keys", "id", "--ignore", "p,v", "--to", "out", "--output", "json")
    example = document(call("diff", "a", "b", *arguments[:4], "--output", "json"))["examples"][0]
    assert (example["past"]["p"], example["current"]["p"], example["current"]["v"]) == ('{"a":1}', "text", "[2]")
    written = document(call("diff", "a", "b", *arguments))
    assert written["past"]["checksum"] != written["current"]["checksum"]
    refused = call("patch", "a", written["change_set"], "--to", "restored", "--force")
    assert (refused.exit_code, "which ignores it: rows that did not change" in refused.stderr) == (2, True)
    one_type = document(call("diff", "a", "c", *[argument if argument != "out" else "other" for argument in arguments]))
    applied = call("patch", "a", one_type["change_set"], "--to", "restored")
    assert applied.exit_code == 0, applied.stderr
    assert spark.read.parquet(str(exports / "restored")).selectExpr("name", "p.a", "to_json(v)").collect() == [
        ("c", 2, "[3]")
    ]


def test_a_change_set_is_applied_and_its_result_is_a_side_again(call, exports):
    written = document(call("diff", "past", "current", "--keys", "id", "--to", "out", "--output", "json"))
    applied = call("patch", "past", written["change_set"], "--to", "restored")
    assert applied.exit_code == 0, applied.stderr
    found = document(call("diff", "restored", "current", "--output", "json", "--exit-code"))
    assert (found["keys"], found["past"]["kind"], found["past"]["rows"]) == (["id"], "set", 4)
