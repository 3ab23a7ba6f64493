"""`tables check` and what it guards."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.runner import validation


@pytest.fixture
def parquet(project):
    """A second, undeclared table of Parquet files beside the declared CSV one."""
    folder = project / "landing" / "sales" / "orders"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 2], "name": ["a", "b", "c"]}), folder / "LOAD00000001.parquet")
    return project


def test_check_reports_everything_and_exits_with_1(parquet, call, call_json):
    call("discover")
    result = call("tables", "check")
    assert result.exit_code == 1
    assert "error sales.product: schema: there is no schema" in result.stdout
    assert "  try: correct tables: sales.product: schema: in lakeward.yaml" in result.stdout
    assert "3 tables checked: 2 errors, 2 warnings" in result.stdout
    document = call_json("tables", "check", "sales.orders")
    assert document["tables"] == 1
    assert [(finding["severity"], finding["setting"]) for finding in document["findings"]] == [
        ("warning", "primary_key")
    ]
    assert call("tables", "check", "sales.orders").exit_code == 0
    assert call("tables", "check", "sales.order").exit_code == 2


def test_a_table_is_activated_only_if_it_fits_and_a_refusal_keeps_the_settings(parquet, call, call_json):
    call("discover")
    result = call("tables", "set", "sales.orders", "--primary-key", "idd", "--activate")
    assert result.exit_code == 2
    assert "sales.orders was not activated" in result.stderr and "did you mean 'id'?" in result.stderr
    result = call("tables", "set", "sales.orders", "--primary-key", "id", "--activate")
    assert "1 key occurs more than once in the load" in result.stderr and '{"id": 2} 2 times' in result.stderr
    shown = call_json("tables", "show", "sales.orders")
    assert (shown["active"], shown["primary_key"]) == (False, ["id"])
    assert "the settings of this command were kept" in result.stderr
    result = call("tables", "set", "sales.orders", "--primary-key", "id", "--activate", "--no-check-data")
    assert result.exit_code == 0
    result = call("tables", "activate", "sales.orders", "--force")
    assert result.exit_code == 0
    assert "warning: sales.orders: primary_key: 1 key occurs more than once" in result.stderr


def test_settings_without_activation_are_kept_as_they_are(parquet, call, call_json):
    assert call("tables", "set", "sales.orders", "--primary-key", "later").exit_code == 0
    assert call_json("tables", "show", "sales.orders")["primary_key"] == ["later"]


def test_discover_reports_what_it_left_out(project, call, call_json):
    folder = project / "landing" / "2024" / "03"
    folder.mkdir(parents=True)
    (folder / "20240327-014303888.csv").write_text("")
    result = call("discover")
    assert "warning: 2024/03 was left out: it is named like a date folder" in result.stderr
    assert [folder["path"] for folder in call_json("discover")["skipped"]] == ["2024/03"]


def test_discover_quotes_names_in_the_commands_it_proposes(project, call):
    folder = project / "landing" / "sales" / "it's here"
    folder.mkdir()
    (folder / "LOAD00000001.csv").write_text("1\n")
    assert """lakeward tables set 'sales.it'"'"'s here' --primary-key""" in call("discover").stdout


def test_discover_reports_that_transactions_were_not_read(project, call):
    (project / "landing" / "cdc").mkdir()
    (project / "landing" / "cdc" / "CDC_TXN-20240327014303888.csv").write_text("I,orders,sales,1\n")
    with (project / "lakeward.yaml").open("a") as file:
        file.write("transactions: cdc\n")
    assert "transaction files were not read" in call("discover").stderr
    result = call("discover", "--read-transactions")
    assert "sales.orders   (only in transaction files)" in result.stdout
    assert "not read" not in result.stderr


def test_doctor_checks_the_settings_of_active_tables(project, call, call_json):
    tables = {check["name"]: check for check in call_json("doctor", "--no-spark")["checks"]}["tables"]
    assert tables["status"] == "problem"
    assert "sales.product: schema: there is no schema" in tables["detail"]
    assert tables["remedy"] == "lakeward tables check"


def test_a_name_that_is_not_utf8_is_its_table_s_finding_and_the_others_are_checked(parquet, call, call_json):
    odd = parquet / "landing" / "sales" / "odd"
    odd.mkdir()
    (odd / "LOAD00000001.csv").write_text("1\n")
    call("discover")
    (odd / os.fsdecode(b"\xff\x1b[31m_LOAD00000002.csv")).write_text("2\n")
    result = call("tables", "check")
    assert result.exit_code == 1, result.stderr
    assert "error sales.odd: files: " in result.stdout
    assert "\\xff\\x1b[31m_LOAD00000002.csv cannot be read: its name is not UTF-8" in result.stdout
    assert "sales.orders: primary_key" in result.stdout
    messages = [
        finding["message"] for finding in call_json("tables", "check")["findings"] if finding["table"] == "sales.odd"
    ]
    assert any("\\xff\\x1b[31m_LOAD00000002.csv" in message for message in messages)


def test_an_error_of_one_table_becomes_its_finding(parquet, call, monkeypatch):
    call("discover")
    take_sample = validation.take_sample

    def failing(storage, known):
        if known.table.name == "product":
            raise ZeroDivisionError
        return take_sample(storage, known)

    monkeypatch.setattr(validation, "take_sample", failing)
    result = call("tables", "check")
    assert "sales.product: files: sales.product: this is a bug in Lakeward: ZeroDivisionError" in result.stdout
    assert "sales.orders: primary_key" in result.stdout


def test_a_refusal_leaves_an_active_table_as_it_is(parquet, call, call_json):
    call("discover")
    assert call("tables", "set", "sales.orders", "--primary-key", "id", "--activate", "--no-check-data").exit_code == 0
    result = call("tables", "set", "sales.orders", "--primary-key", "idd", "--activate")
    assert result.exit_code == 2
    assert "keeps its earlier settings" in result.stderr
    assert call_json("tables", "show", "sales.orders")["primary_key"] == ["id"]
