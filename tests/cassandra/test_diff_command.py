"""``lakeward cassandra diff`` on exports in a folder; no cluster is needed for it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakeward.config import Config
from lakeward.diffing.stored.changesets import find_change_set
from tests.cassandra.hand_made import export, schema_of

TABLE = schema_of("customer text pk, day int ck, tier text static, total text, tags list<text>")
PAST = [
    ("ann", None, "gold", None, None),
    ("ann", 1, None, "1.00", ["a"]),
    ("ann", 2, None, "2.00", None),
    ("bob", 1, None, "3.00", None),
]
CURRENT = [
    ("ann", None, "silver", None, None),
    ("ann", 1, None, "1.00", ["a"]),
    ("ann", 2, None, None, None),
    ("cid", 9, None, "4.00", ["x", "y"]),
]


@pytest.fixture
def diff_call(
    call: Callable[..., Result], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Return a function that calls ``lakeward cassandra diff``."""
    monkeypatch.chdir(tmp_path)
    return partial(call, "cassandra", "diff")


def document(result: Result, code: int = 0) -> Any:
    assert result.exit_code == code, result.stderr
    return json.loads(result.stdout)


def test_what_changed_is_a_change_set_beside_the_exports(diff_call, spark, tmp_path):
    past = export(spark, tmp_path, TABLE, "2026-11-14T02:00", PAST)
    current = export(spark, tmp_path, TABLE, "2026-11-15T02:00", CURRENT)
    found = document(diff_call("previous", "latest", "--in", tmp_path / "shop/orders", "--output", "json"))
    assert found["summary"] | {"columns": None} == {
        "past_rows": 4, "current_rows": 4, "inserted": 1, "changed": 2, "deleted": 1, "unchanged": 1,
        "duplicates": 0, "columns": None,
    }  # fmt: skip
    assert found["keys"] == ["customer", "day"]
    assert (found["past"]["location"], found["current"]["location"]) == (past, current)
    folder = Path(found["change_set"])
    assert folder.relative_to(tmp_path).parts[:3] == ("shop", "orders", "incremental")
    change_set = find_change_set(spark, Config(base=tmp_path), str(folder))
    rows = {(row["customer"], row["day"]): row for row in change_set.frame.collect()}
    assert {key: (row["diff"], row["changes"]) for key, row in rows.items()} == {
        ("ann", None): ("C", ["tier"]),
        ("ann", 2): ("C", ["total"]),
        ("bob", 1): ("D", None),
        ("cid", 9): ("I", None),
    }
    assert rows["ann", 2]["right"]["total"] is None
    assert rows["cid", 9]["right"]["tags"] == ["x", "y"]
    # Whoever applies it knows the table, and when the current export began.
    assert change_set.manifest.current["cassandra"]["started"].startswith("2026-11-15T02:00")
    assert "ranges" not in change_set.manifest.current["cassandra"]

    # A day is enough; the other way round the target's newer values would win.
    again = document(
        diff_call("2026-11-14", "2026-11-15", "--in", tmp_path / "shop/orders", "--dry-run", "--output", "json")
    )
    assert (again["change_set"], len(again["examples"])) == (None, 4)
    refused = diff_call("latest", "previous", "--in", tmp_path / "shop/orders")
    assert (refused.exit_code, "after previous" in refused.stderr) == (2, True), refused.stderr
    elsewhere = document(diff_call(past, current, "--to", tmp_path / "out", "--output", "json", "--exit-code"), 1)
    assert Path(elsewhere["change_set"]).relative_to(tmp_path).parts[:3] == ("out", "shop", "orders")


def test_columns_may_have_been_added_or_widened(diff_call, spark, tmp_path):
    """The two snapshots differ in schema by an added or widened column."""
    narrow = schema_of("id int pk, count int")
    wide = schema_of("id int pk, added text, count bigint")
    past = export(spark, tmp_path, narrow, "2026-11-14T02:00", [(1, 1), (2, 2), (3, None)])
    current = export(spark, tmp_path, wide, "2026-11-15T02:00", [(1, None, 1), (2, "x", 2), (3, None, 2**40)])
    found = document(diff_call(past, current, "--output", "json"))
    assert (found["summary"]["changed"], found["summary"]["unchanged"]) == (2, 1)
    assert "'added' is new" in " ".join(found["schema_differences"])


def test_times_of_expiry_are_carried_and_not_compared(diff_call, spark, tmp_path):
    table = schema_of("id int pk, v text")
    times = {"writetime": True, "ttl": True}
    past = export(spark, tmp_path, table, "2026-11-14T02:00", [(1, "a", 5, 100), (2, "b", 5, 100)], **times)
    current = export(spark, tmp_path, table, "2026-11-15T02:00", [(1, "a", 5, 101), (2, "b", 6, 100)], **times)
    found = document(diff_call(past, current, "--dry-run", "--output", "json"))
    assert [example["changed"] for example in found["examples"]] == [["_lw_writetime_v"]]
    # Write times that only one side has are no change of every row.
    plain = export(spark, tmp_path, table, "2026-11-16T02:00", [(1, "a"), (2, "b")])
    assert document(diff_call(current, plain, "--dry-run", "--output", "json"))["summary"]["changed"] == 0


def test_what_cannot_be_compared_is_refused(diff_call, spark, tmp_path):
    table = schema_of("id int pk, v text")
    past = export(spark, tmp_path, table, "2026-11-14T02:00", [(n, "x") for n in range(1000)])
    few = export(spark, tmp_path, table, "2026-11-15T02:00", [(n, "x") for n in range(400)])
    some = export(spark, tmp_path, table, "2026-11-16T02:00", [(1, "x")], where="v = 'x'")
    other = export(spark, tmp_path / "b", schema_of("id int pk, v text", name=TABLE.name.__class__("shop", "b")),
                   "2026-11-16T03:00", [(1, "x")])  # fmt: skip
    rekeyed = export(spark, tmp_path, schema_of("v text pk, id int"), "2026-11-17T02:00", [("x", 1)])
    retyped = export(spark, tmp_path, schema_of("id int pk, v blob"), "2026-11-18T02:00", [(1, b"x")])
    plain = tmp_path / "plain"
    spark.range(3).write.parquet(str(plain))
    (Path(few) / "_SUCCESS").rename(tmp_path / "kept")
    for pair, words in (
        ((past, few), "was not finished"),
        ((past, retyped), "copy the table again: lakeward cassandra import"),
        (("previous", "latest"), "--in URI/KEYSPACE/TABLE"),
        ((past, some), "the rows where v = 'x'"),
        ((past, other), "of shop.b"),
        ((past, rekeyed), "another key"),
        ((past, plain), "is not an export of a Cassandra table"),
    ):
        refused = diff_call(*pair)
        assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
        # Options of other commands are no remedy.
        assert "--ignore" not in refused.stderr and "--incomplete-ok" not in refused.stderr
    # An export that lost rows would delete them elsewhere.
    (tmp_path / "kept").rename(Path(few) / "_SUCCESS")
    refused = diff_call(past, few)
    assert (refused.exit_code, "600 of 1,000 rows would be deleted" in refused.stderr) == (2, True)
    assert not (tmp_path / "shop/orders/incremental").exists()
    assert diff_call(past, few, "--max-delete-share", "1").exit_code == 0


def test_columns_named_as_those_of_a_diff(diff_call, spark, tmp_path):
    table = schema_of("diff int pk, changes int ck, left text, right text")
    past = export(spark, tmp_path, table, "2026-11-14T02:00", [(1, 1, "l", "r")])
    current = export(spark, tmp_path, table, "2026-11-15T02:00", [(1, 1, "l", "R")])
    found = document(diff_call(past, current, "--output", "json"))
    row = find_change_set(spark, Config(base=tmp_path), found["change_set"]).frame.first()
    assert (row["_lw_diff"], row["_lw_changes"], row["diff"], row["right"]["right"]) == ("C", ["right"], 1, "R")
