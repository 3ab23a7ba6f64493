"""``lakeward tables repair``: shows what it would do, asks, does it; no JVM."""

from lakeward.columns import parse_ddl
from lakeward.config import TableSettings
from lakeward.mirror.columns_repair import ColumnsRepair
from lakeward.mirror.op.settings import captured_columns

TABLE = "sales.product"
PLAN = ColumnsRepair(TABLE, {"V": "V_2"}, ("ts",))


def test_without_a_terminal_it_needs_consent_and_a_dry_run_does_nothing(project, call, call_json, answers):
    calls = answers("repair_table", PLAN)
    result = call("tables", "repair", TABLE)
    assert result.exit_code == 2 and "use --yes" in result.stderr and calls == []
    result = call("tables", "repair", TABLE, "--dry-run")
    assert result.exit_code == 0 and calls == [((TABLE,), {"dry_run": True})]
    assert "column V would be named V_2" in result.stdout
    assert call_json("tables", "repair", TABLE, "--dry-run") == {
        "table": TABLE, "renamed": {"V": "V_2"}, "dropped": ["ts"], "done": False,
    }  # fmt: skip


def test_it_reports_what_was_done_and_what_remains_to_do(project, call, call_json, answers):
    calls = answers("repair_table", PLAN)
    result = call("tables", "repair", TABLE, "--yes")
    assert calls[-1] == ((TABLE,), {})
    assert "column V is now named V_2" in result.stdout and "column ts was removed" in result.stdout
    assert f"lakeward undo {TABLE} --to-op 0, then lakeward run {TABLE}" in result.stdout
    assert call_json("tables", "repair", TABLE, "--yes")["done"] is True


def test_a_table_that_matches_its_settings_is_left_alone(project, call, call_json, answers):
    calls = answers("repair_table", ColumnsRepair(TABLE, {}, ()))
    assert "there is nothing to repair" in call("tables", "repair", TABLE, "--yes").stdout
    assert call_json("tables", "repair", TABLE, "--yes")["done"] is False
    assert all(options == {"dry_run": True} for _, options in calls)


def test_undeclared_columns_are_attributed_to_the_capture():
    mirror = parse_ddl("id int, ts string, AR_H_CHANGE_SEQ string")
    assert captured_columns(mirror, TableSettings()) == ("AR_H_CHANGE_SEQ",)
    assert captured_columns(mirror, TableSettings(timestamp_column="ts")) == ("ts", "AR_H_CHANGE_SEQ")
    declared = TableSettings(timestamp_column="ts", table_schema="id int, ts string, AR_H_CHANGE_SEQ string")
    assert captured_columns(mirror, declared) == ()
