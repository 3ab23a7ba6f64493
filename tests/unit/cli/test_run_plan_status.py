"""How results of the library are shown, with the exit codes."""

from dataclasses import replace

import pytest

from lakeward.mirror.op.report import OpReport, Outcome, RowCounts, RunReport, TablePlan, TableReport
from lakeward.mirror.quarantine import BadRow, QuarantineReport

OP = OpReport(
    op=2, kind="batch", generation=1, files=1, size=2048, read=RowCounts(6, 3, 2, 1, 0), writes=5, removals=1,
    strategy="broadcast delete + append", reason="6 keys touched of 101 rows", schema_changes=("added column x int",),
    mirror_snapshot=7_000_000_000_000_000_001, seconds=0.5,
)  # fmt: skip
DONE = TableReport("sales.product", Outcome.DONE, (OP,), mirror_rows=103, seconds=0.6)
FAILED = TableReport(
    "sales.customer", Outcome.FAILED, (), "sales.customer: 3 bad rows", "repair the files", "data", 3
)  # fmt: skip
LOCKED = TableReport("sales.till", Outcome.LOCKED, (), "held by run 7")


def test_run_shows_each_table(project, call, call_json, answers):
    answers("run", RunReport("r1", (DONE,), 0.7))
    result = call("run")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("sales.product"))
    assert line.split() == [
        "sales.product", "done", "1", "1", "6", "3", "2", "1", "0", "103", "0.6", "12",
        "broadcast", "delete", "+", "append",
    ]  # fmt: skip
    document = call_json("run")
    assert document["tables"][0]["rows_in"] == 6
    assert document["tables"][0]["ops"][0]["mirror_snapshot"] == 7_000_000_000_000_000_001


def test_a_failed_table_is_3_and_the_others_are_reported(project, call, call_json, answers):
    answers("run", RunReport("r1", (DONE, FAILED, LOCKED), 0.7))
    result = call("run")
    assert result.exit_code == 3
    assert "3 tables, 1 failed" in result.stdout
    assert "error: sales.customer: 3 bad rows\ntry: repair the files" in result.stderr
    assert "note: sales.till: held by run 7" in result.stderr
    assert call_json("run")["exit_code"] == 3


def test_a_locked_table_alone_is_0(project, call, answers):
    answers("run", RunReport("r1", (LOCKED,), 0.1))
    assert call("run").exit_code == 0


def test_run_without_active_tables_warns(project, call, answers):
    answers("run", RunReport("r1", (), 0.0))
    result = call("run")
    assert result.exit_code == 0
    assert "no table is active" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "tables", "wait"),
    [
        ([], (), 0),
        (["--wait"], (), float("inf")),
        (["--wait", "sales.product"], ("sales.product",), float("inf")),
        (["--wait", "30", "sales.product"], ("sales.product",), 30),
        (["sales.product", "--wait=2.5"], ("sales.product",), 2.5),
    ],
)
def test_wait_takes_a_number_or_none(project, call, answers, arguments, tables, wait):
    calls = answers("run", RunReport("r1"))
    assert call("run", *arguments).exit_code == 0
    assert calls[0][0] == (tables,)
    assert calls[0][1]["wait"] == wait


def test_decisions_for_a_run_reach_the_library(project, call, answers):
    calls = answers("run", RunReport("r1"))
    path = "sales/product/LOAD00000001.csv"
    call("run", "--allow-deletes", "--same-load", "--cut", "2024-04-05T02:30:52+02:00", "--accept-changed", path)
    options = calls[0][1]["options"]
    assert (options.allow_deletes, options.same_load) == (True, True)
    assert options.cut == "20240405003052000000"
    assert options.accept_changed == {path}


@pytest.mark.parametrize(
    ("given", "digits"),
    [
        ("20240405-003052555", "20240405003052555000"),
        ("2024-04-05", "20240405000000000000"),
        ("2024-04-05 00:30:52.555", "20240405003052555000"),
    ],
)
def test_a_cut_is_a_time_or_as_in_names(project, call, answers, given, digits):
    calls = answers("plan", [])
    assert call("plan", "--cut", given).exit_code == 0
    assert calls[0][1]["options"].cut == digits


def test_a_cut_that_is_not_a_time_is_refused(project, call):
    result = call("run", "--cut", "yesterday")
    assert result.exit_code == 2
    assert "'yesterday' is not a time" in result.stderr


def test_files_reach_the_library_which_chooses_their_tables(project, call, answers):
    calls = answers("run", RunReport("r1"))
    path = "sales/product/LOAD00000001.csv"
    given = [path, f"landing/{path}", str(project / "landing" / path), (project / "landing" / path).as_uri()]
    for file in given:
        assert call("run", "--file", file).exit_code == 0
    assert [(call[0][0], call[1]["options"].files) for call in calls] == [((), {file}) for file in given]


def test_files_that_no_table_reads_are_refused(project, call):
    result = call("run", "--file", "sales/product/LOAD00000009.csv")
    assert (result.exit_code, "is not a file under landing" in result.stderr) == (2, True)
    result = call("run", "--file", "sales/customer/LOAD00000001.csv")
    assert (result.exit_code, "belongs to no active table" in result.stderr) == (2, True)
    result = call("run", "--file", str(project / "lakeward.yaml"))
    assert (result.exit_code, "is not a file under landing" in result.stderr) == (2, True)


def test_plan_shows_what_a_run_would_do(project, call, call_json, answers):
    files = tuple(f"sales/product/{number}.csv" for number in range(8))
    plan = TablePlan("sales.product", Outcome.DONE, OP, files, files_waiting=12)
    answers("plan", [plan, TablePlan("sales.till", Outcome.IDLE)])
    result = call("plan")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "sales.product: op 2 (batch, generation 1)",
        f"  files     1 of 12 waiting files, 2.0 KiB: {', '.join(files[:5])} and 3 more",
        "  rows      6: 3 inserts, 2 updates, 1 delete",
        "  schema    added column x int",
        "  strategy  broadcast delete + append: 6 keys touched of 101 rows",
        "  mirror    5 keys written, 1 removed",
        "sales.till: nothing to do",
    ]
    assert call_json("plan")["tables"][0]["files_waiting"] == 12


def test_run_and_plan_show_rows_that_a_table_without_key_ignored(project, call, call_json, answers):
    op = replace(OP, read=RowCounts(3, 3, ignored=4))
    answers("plan", [TablePlan("sales.log", Outcome.DONE, op, ("a.csv",), files_waiting=1)])
    shown = "3: 3 inserts, 0 updates, 0 deletes; 4 updates and deletes ignored (without_key: inserts)"
    assert shown in call("plan").stdout
    answers("run", RunReport("r1", (TableReport("sales.log", Outcome.DONE, (op, op)),), 0.7))
    assert "sales.log: 8 updates and deletes ignored (without_key: inserts)" in call("run").stdout
    assert call_json("run")["tables"][0]["rows_ignored"] == 8


@pytest.mark.parametrize(("kind", "code"), [("data", 3), ("configuration", 2)])
def test_a_plan_that_would_be_refused_has_the_exit_code_of_the_run(project, call, call_json, answers, kind, code):
    refused = TablePlan("sales.product", Outcome.FAILED, message="too odd", hint="fix", error_kind=kind, exit_code=code)
    answers("plan", [refused])
    result = call("plan")
    assert result.exit_code == code
    assert "sales.product: would be refused" in result.stdout
    assert "error: too odd\ntry: fix" in result.stderr
    assert call_json("plan")["exit_code"] == code


ROW = BadRow(3, 1, "sales/product/20240101-000000.csv", "20240101000000000000", 7, "not a number", "id", "x", "U,x,a")


def test_quarantine_list_shows_rows_and_limits(project, call, call_json, answers):
    answers("bad_rows", [ROW, ROW])
    result = call("quarantine", "list", "sales.product", "--limit", "1")
    assert "sales.product: 1 bad row" in result.stdout
    assert "sales/product/20240101-000000.csv:7" in result.stdout
    assert "more than 1 bad row;" in result.stderr
    rows = call_json("quarantine", "list")["tables"][0]["rows"]
    assert [row["id"] for row in rows] == [ROW.id, ROW.id]


def test_quarantine_retry_reads_replacements(project, call, answers):
    calls = answers("retry_bad_rows", QuarantineReport(1, (), (OP,)))
    result = call("quarantine", "retry", "sales.product", "--replace", "a=b/c.csv:7=U,1,x=y")
    assert result.exit_code == 0
    assert "1 row put back, 0 still bad" in result.stdout
    assert calls[0][0] == ("sales.product", (), {"a=b/c.csv:7": "U,1,x=y"})
    assert call("quarantine", "retry", "sales.product", "--replace", "nonsense").exit_code == 2


def test_rows_that_are_still_bad_are_3(project, call, answers):
    answers("retry_bad_rows", QuarantineReport(0, (ROW,)))
    result = call("quarantine", "retry", "sales.product", ROW.id)
    assert result.exit_code == 3
    assert "not a number" in result.stdout


def test_quarantine_drop_needs_ids_or_all(project, call, answers):
    calls = answers("drop_bad_rows", QuarantineReport(2, (), (OP,)))
    assert call("quarantine", "drop", "sales.product").exit_code == 2
    assert call("quarantine", "drop", "sales.product", ROW.id, "--all").exit_code == 2
    assert not calls
    assert "2 rows dropped" in call("quarantine", "drop", "sales.product", "--all").stdout
    assert call("quarantine", "drop", "sales.product", ROW.id).exit_code == 0
    assert call("quarantine", "drop", "sales.nothing", "--all").exit_code == 2


def test_state_rebuild_names_the_tables(project, call, call_json, answers):
    answers("rebuild_state", ["sales.product"])
    assert call("state", "rebuild").stdout == "1 table found in the lake\n  sales.product\n"
    assert call_json("state", "rebuild") == {"tables": ["sales.product"]}
