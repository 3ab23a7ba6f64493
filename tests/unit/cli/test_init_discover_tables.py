"""Commands that need no Spark."""

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import load_config
from lakeward.state.base import open_state
from lakeward.testing.state_contract.shared import CUSTOMER, PROGRESS, make_entry


def test_init_writes_a_configuration_that_can_be_read(tmp_path, monkeypatch, call, call_json):
    monkeypatch.chdir(tmp_path)
    assert call("init", "--landing", "/data/my: landing").exit_code == 0
    config = load_config()
    assert config.landing == "/data/my: landing"
    assert config.defaults.on_bad_row == "fail"
    assert call_json("init", "--config", "second.yaml") == {"file": "second.yaml", "landing": "./landing"}


def test_init_refuses_to_overwrite_without_force(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.yaml").write_text("tables: {a.b: {}}")
    result = call("init")
    assert result.exit_code == 2
    assert "lakeward.yaml exists already" in result.stderr
    assert load_config().tables
    assert call("init", "--force").exit_code == 0
    assert not load_config().tables


def test_discover_registers_what_is_not_declared(project, call, call_json):
    result = call("discover")
    assert result.exit_code == 0
    assert "1 new table, 2 known" in result.stdout
    wanted = "lakeward tables set sales.customer --primary-key column_1 --set 'schema=column_1 int, column_2 string'"
    assert f"{wanted} --activate" in result.stdout
    known = ["sales.customer", "sales.product"]
    nothing = {
        "new": [],
        "unlanded": [],
        "skipped": [],
        "unread": [],
        "proposals": {},
        "activated": [],
        "written": None,
    }
    assert call_json("discover") == {**nothing, "tables": known}


def test_discover_proposes_a_command_that_works_and_doctor_counts_the_same(project, call, call_json):
    orders, stray = project / "landing" / "sales" / "orders", project / "landing" / "sales" / "part-00000.parquet"
    orders.mkdir()
    rows = {"ts": ["2024-01-01 00:00:00.000000"] * 2, "region": ["a", "a"], "no": [1, 2]}
    pq.write_table(pa.table(rows), orders / "LOAD00000001.parquet")
    stray.write_bytes(b"PAR1")
    checks = {check["name"]: check["detail"] for check in call_json("doctor", "--no-spark")["checks"]}
    result = call("discover")
    assert "2 new tables, 3 known" in result.stdout and "sales was left out: holds sales/part-00000" in result.stderr
    assert "holds 3 tables; 1 folder left out: lakeward discover names them" in checks["landing"]
    [line] = [line for line in result.stdout.splitlines() if line.startswith("  sales.orders")]
    command = line.split("   ", 1)[1]
    assert command == "lakeward tables set sales.orders --primary-key no --set timestamp_column=ts --activate"
    assert call(*shlex.split(command)[1:]).exit_code == 0


def _orders(project, rows):
    folder = project / "landing" / "sales" / "orders"
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "LOAD00000001.parquet")


def test_discover_writes_and_activates_what_is_not_in_doubt(project, call, call_json):
    _orders(project, {"ts": ["2024-01-01 00:00:00.000000"] * 100, "id": list(range(100)), "dept": ["a", "b"] * 50})
    before = (project / "lakeward.yaml").read_text().replace("{primary_key", "   {primary_key") + "# the end\n"
    (project / "lakeward.yaml").write_text(before)
    call("discover")
    found = call_json("discover", "--write", "--activate")
    assert found["new"] == [] and sorted(found["proposals"]) == ["sales.customer", "sales.orders"]
    taken = {entry["table"]: entry for entry in found["activated"]}
    assert taken["sales.orders"] == {"table": "sales.orders", "activated": True, "reason": None}
    assert "inferred from texts" in taken["sales.customer"]["reason"]
    assert (found["written"]["declared"], found["written"]["commented"]) == (["sales.orders"], ["sales.customer"])
    after = (project / "lakeward.yaml").read_text()
    at = after.index("  # proposed by lakeward discover")
    assert after[:at] + after[after.index("# the end") :] == before
    assert "    # partition_by: [dept]  # 2 values in 100 rows of the load\n" in after
    config = load_config()
    assert sorted(config.tables) == ["sales.orders", "sales.product"]
    assert config.tables["sales.orders"].timestamp_column == "ts"
    shown = {entry["table"]: entry for entry in call_json("tables", "list")["tables"]}
    assert (shown["sales.orders"]["active"], shown["sales.orders"]["declared"]) == (True, True)
    assert not shown["sales.customer"]["active"]
    again = call("discover", "--write", "--activate")
    assert "sales.customer: there already, left as it is" in again.stdout
    assert (project / "lakeward.yaml").read_text() == after


def test_a_written_proposal_counts_once_somebody_removes_the_comment_signs(project, call, call_json):
    call("discover", "--write")
    text = (project / "lakeward.yaml").read_text()
    block = text[text.index("  # proposed by") :]
    lines = [line.replace("# ", "", 1) if "in doubt" not in line else line for line in block.splitlines()[1:]]
    (project / "lakeward.yaml").write_text(text.replace(block, "\n".join(lines) + "\n"))
    shown = call_json("tables", "show", "sales.customer")
    assert (shown["declared"], shown["primary_key"]) == (True, ["column_1"])
    assert shown["settings"]["schema"] == "column_1 int, column_2 string"


def test_discover_refuses_a_file_to_which_it_cannot_add_safely(project, call):
    text = "tables: {sales.product: {primary_key: [id]}}\n"
    (project / "lakeward.yaml").write_text(text)
    result = call("discover", "--write")
    assert result.exit_code == 2 and "written in braces" in result.stderr
    assert (project / "lakeward.yaml").read_text() == text


def test_hostile_names_of_columns_stay_within_their_comments(project, call, call_json):
    _orders(project, {"id": list(range(100)), "a\n  evil.table: {}": ["x", "y"] * 50, "b # c: {}": ["x"] * 100})
    call("discover", "--write")
    assert sorted(load_config().tables) == ["sales.orders", "sales.product"]


def test_changing_settings_for_reading_after_a_run_shows_how_to_read_files_again(project, call):
    call("discover")
    assert "undo" not in call("tables", "set", "sales.customer", "--set", "csv.header=true").stderr
    store = open_state("sqlite:///lakeward.db", project)
    store.extend_ledger(
        CUSTOMER, after=None, snapshot_id=1, progress=PROGRESS, entries=[make_entry("sales/customer/LOAD00000001.csv")]
    )
    store.close()
    text = call("tables", "set", "sales.customer", "--set", "csv.header=false").stderr
    assert "lakeward undo sales.customer --to-op 0" in " ".join(text.split())
    assert "undo" not in call("tables", "set", "sales.customer", "--set", "priority=2").stderr


def test_tables_set_changes_and_activates(project, call, call_json):
    call("discover")
    result = call(
        "tables", "set", "sales.customer", "--primary-key", "id,region", "--primary-key", "part",
        "--partition-by", "dept,bucket(16, id)", "--set", "on_bad_row=quarantine", "--set", "csv.header=true",
        "--set", "csv.null=", "--set", "freshness=5m", "--set", "schema=id int, name string", "--activate", "--force",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    shown = call_json("tables", "show", "sales.customer")
    assert (shown["active"], shown["declared"]) == (True, False)
    assert shown["primary_key"] == ["id", "region", "part"]
    assert shown["partition_by"] == ["dept", "bucket(16, id)"]
    assert shown["settings"]["on_bad_row"] == "quarantine"
    assert shown["settings"]["schema"] == "id int, name string"
    assert shown["settings"]["csv"]["header"] is True
    assert shown["settings"]["csv"]["null"] == ""
    assert shown["settings"]["freshness"] in ("5m", 300)


def test_a_nested_setting_keeps_its_neighbours_and_unset_drops_it(project, call, call_json):
    call("discover")
    call("tables", "set", "sales.customer", "--set", "csv.header=true")
    call("tables", "set", "sales.customer", "--set", "csv.delimiter=;")
    csv = call_json("tables", "show", "sales.customer")["settings"]["csv"]
    assert (csv["header"], csv["delimiter"]) == (True, ";")
    call("tables", "set", "sales.customer", "--unset", "csv")
    csv = call_json("tables", "show", "sales.customer")["settings"]["csv"]
    assert (csv["header"], csv["delimiter"]) == (False, ",")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sales.product", "--primary-key", "id"], "declared in the configuration file"),
        (["sales.customer"], "nothing to set"),
        (["sales.customer", "--set", "on_bad_row"], "expected KEY=VALUE"),
        (["sales.customer", "--set", "on_bad_rows=fail"], "on_bad_row"),
        (["sales.customer", "--set", "on_bad_row=maybe"], "on_bad_row"),
        (["sales.customer", "--unset", "csv.header"], "unset as a whole"),
        (["customer", "--activate"], "schema.table"),
    ],
)
def test_tables_set_refuses(project, call, arguments, words):
    result = call("tables", "set", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_table_without_folder_is_set_with_a_warning(project, call):
    result = call("tables", "set", "sales.custommer", "--activate")
    assert result.exit_code == 0
    assert "warning: sales.custommer: path: there is no load or change file in folder sales/custommer" in result.stderr
    assert "warning: sales.custommer: primary_key: there is no primary key" in result.stderr


def test_activate_and_deactivate_accept_only_known_tables(project, call, call_json):
    call("discover")
    refused = call("tables", "activate", "sales.customer")
    assert refused.exit_code == 2
    assert "schema: there is no schema: CSV files have no types" in refused.stderr
    assert call("tables", "activate", "sales.customer", "--force").exit_code == 0
    assert {table["table"]: table["active"] for table in call_json("tables", "list")["tables"]} == {
        "sales.customer": True,
        "sales.product": True,
    }
    assert call("tables", "deactivate", "sales.product", "sales.customer").exit_code == 0
    assert not any(table["active"] for table in call_json("tables", "list")["tables"])
    result = call("tables", "activate", "sales.product", "sales.prodct")
    assert result.exit_code == 2
    assert "did you mean sales.product?" in result.stderr
    assert not any(table["active"] for table in call_json("tables", "list")["tables"])


def test_tables_list_without_tables_shows_what_to_do(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.yaml").write_text("")
    result = call("tables", "list")
    assert "0 tables" in result.stdout
    assert "lakeward discover" in result.stderr
    assert call("tables", "list", "--quiet").stderr == ""


def test_text_is_not_truncated_without_a_terminal(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    name = "schema." + "x" * 300
    (tmp_path / "lakeward.yaml").write_text(json.dumps({"tables": {name: {}}}))
    assert name in call("tables", "list").stdout


def test_tables_show_hides_keys_in_an_address(project, call):
    set_ = call(
        "tables", "set", "sales.customer", "--set", "publish={to: 's3://AK:hush/+x@bucket/p'}", "--no-check-data"
    )
    shown = [call("tables", "show", "sales.customer"), call("tables", "show", "sales.customer", "--output", "json")]
    assert all("s3://AK:***@bucket/p" in found.stdout for found in shown)
    assert not any("hush" in found.output for found in (set_, *shown))
