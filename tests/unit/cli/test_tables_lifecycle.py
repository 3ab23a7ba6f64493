"""``lakeward tables reset``, ``rename`` and ``remove``: show what they would do, ask, and do it; no JVM."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from lakeward.cli.main import cli
from lakeward.mirror.op.report import Marked, OpReport, RowCounts
from lakeward.mirror.reset import ResetPlan, TableReset
from lakeward.runner.removing import RemovalPlan, StoredTable, StoredVersion, TableRemoval
from lakeward.runner.renaming import RenamePlan

TABLE = "sales.product"
RESET = ResetPlan(
    TABLE, 45, 44, 100, 2, "20240411000000000000", 3, 1, 2048, ("a", "b", "c"), ("old-load",), ("wrong.csv",), 1, 2, 4,
    (Marked("files", "2024-04-01", "/v", 40),),
)  # fmt: skip
OPS = (
    OpReport(45, "reset", 0, 0, 0, RowCounts(), None, None, "restore", "", mirror_rows=0),
    OpReport(46, "load", 2, 3, 2048, RowCounts(90), None, None, "replace", "", mirror_rows=90),
)
STORED = StoredTable("mirror", TABLE, "/lake/sales/product", 100, 7, 4096, 12, ("friday",))
VERSION = StoredVersion("files", "2024-04-01", "/v/version=2024-04-01", 99, "default.product")
REMOVAL = RemovalPlan(
    TABLE, True, True, True, "lakeward.yaml", 7, ("  sales.product:", "    path: p"), (STORED,), (VERSION,), 44, 3
)
RENAME = RenamePlan(TABLE, "shop.item", "sales/product", {TABLE: "shop.item"}, "lakeward.yaml", 7, (VERSION,))
COMMANDS = {"reset": (TABLE,), "rename": (TABLE, "shop.item"), "remove": (TABLE, "--drop-data")}


@pytest.fixture
def calls(project, answers):
    """Return the calls of the library by method; every one is answered."""
    return {
        "plan reset": answers("plan_reset_table", RESET),
        "reset": answers("reset_table", TableReset(RESET, OPS, 90)),
        "plan rename": answers("plan_rename_table", RENAME),
        "rename": answers("rename_table", replace(RENAME, resumes=True)),
        "plan remove": answers("plan_remove_table", REMOVAL),
        "remove": answers("remove_table", TableRemoval(REMOVAL, ("/v/version=2024-04-01/notes.txt",))),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_terminal_it_needs_consent_and_a_dry_run_does_nothing(calls, call, call_json, name):
    result = call("tables", name, *COMMANDS[name])
    assert result.exit_code == 2 and "use --yes" in result.stderr
    assert not any(calls.values())
    assert call("tables", name, *COMMANDS[name], "--dry-run").exit_code == 0
    assert len(calls[f"plan {name}"]) == 1 and calls[name] == []


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_terminal_it_shows_what_it_would_do_and_asks(calls, monkeypatch, name, answer):
    monkeypatch.setattr("lakeward.cli.lifecycle.require_answerable", lambda *, yes: None)
    result = CliRunner().invoke(cli, ["tables", name, *COMMANDS[name]], input=f"{answer}\n", prog_name="lakeward")
    assert result.exit_code == 0 and len(calls[f"plan {name}"]) == 1
    assert bool(calls[name]) == (answer == "y"), result.stderr
    assert ("nothing was changed" in result.stderr) == (answer == "n")


def test_reset_shows_what_is_read_and_what_is_not_kept(calls, call, call_json):
    text = call("tables", "reset", TABLE, "--dry-run").stdout
    for words in (
        "would read again: 3 files (2.0 KiB), 1 of them for the first time", "op 45; ops 1 to 44 no longer count",
        "named from 20240411000000000000 on", "old-load is not part of the load", "wrong.csv", "1 op that put",
        "2 ops that repaired", "4 keys of erased rows stay left out", "files 2024-04-01 at op 40",
    ):  # fmt: skip
        assert words in text
    assert calls["plan reset"] == [((TABLE,), {"finish": False})]
    text = call("tables", "reset", TABLE, "--yes").stdout
    assert "the mirror had 100 rows and has 90 now" in text
    assert "to go back: lakeward undo sales.product --to-op 44" in text
    document = call_json("tables", "reset", TABLE, "--yes")
    assert [op["kind"] for op in document["ops"]] == ["reset", "load"]
    assert document["plan"]["left_out"] == ["old-load"]


def test_remove_shows_lines_data_and_what_stays(calls, call, call_json):
    text = call("tables", "remove", TABLE, "--drop-data", "--dry-run").stdout
    for words in (
        "would be removed from line 7 on", "    path: p", "would be removed:", "sales.product", "friday", "44 ops",
        "to which the table default.product points", "3 keys were erased", "registers sales.product again, as inactive",
    ):  # fmt: skip
        assert words in text
    document = call_json("tables", "remove", TABLE, "--drop-data", "--yes")
    assert document["done"] is True and document["left"] == ["/v/version=2024-04-01/notes.txt"]
    assert calls["remove"] == [((TABLE,), {"drop_data": True})]
    assert (
        "left, as it is not Lakeward's: /v/version=2024-04-01/notes.txt"
        in call("tables", "remove", TABLE, "--drop-data", "--yes").stdout
    )


def test_rename_shows_both_names(calls, call, call_json):
    text = call("tables", "rename", TABLE, "shop.item", "--dry-run").stdout
    for words in ("sales.product would become shop.item", "sales/product under landing, as before", "line 7", "stays"):
        assert words in text
    assert "is now shop.item; it was interrupted before" in call("tables", "rename", TABLE, "shop.item", "--yes").stdout
    assert call_json("tables", "rename", TABLE, "shop.item", "--yes")["done"] is True
