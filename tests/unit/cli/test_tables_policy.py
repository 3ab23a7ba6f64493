"""Rules for columns on the command line: set, checked, and hashes computed."""

from __future__ import annotations

import hashlib
import hmac

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lakeward.cli.main import cli

KEY = "0123456789abcdef0123456789abcdef"
SCHEMA = "schema=id int, ssn int, mail string"


@pytest.fixture
def customers(project, monkeypatch):
    """An undeclared table of Parquet files."""
    monkeypatch.setenv("POLICY_KEY", KEY)
    folder = project / "landing" / "sales" / "customers"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "ssn": [7, 8], "mail": ["a", "b"]}), folder / "LOAD00000001.parquet")
    return project


def test_rules_are_set_one_by_one(customers, call, call_json):
    rules = ("--column", "ssn=hash", "--column", "a=b=truncate(4)", "--set", "hash_key=env:POLICY_KEY")
    assert call("tables", "set", "sales.customers", *rules).exit_code == 0
    assert call("tables", "set", "sales.customers", "--column", "mail=drop").exit_code == 0
    settings = call_json("tables", "show", "sales.customers")["settings"]
    assert settings["columns"] == {"ssn": "hash", "a=b": "truncate(4)", "mail": "drop"}
    assert settings["hash_key"] == "env:POLICY_KEY"
    for wrong, why in (
        ("ssn", "expected COLUMN=RULE"),
        ("=hash", "expected COLUMN=RULE"),
        ("ssn=sha1", "is not a rule"),
    ):
        refused = call("tables", "set", "sales.customers", "--column", wrong)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
    refused = call("tables", "set", "sales.customers", "--primary-key", "id", "--column", "id=mask")
    assert (refused.exit_code, "part of the key" in refused.stderr) == (2, True)


def test_a_check_finds_rules_that_do_not_fit(customers, call, call_json, monkeypatch):
    call("tables", "set", "sales.customers", "--primary-key", "id", "--column", "ssn=truncate(2)")
    call("tables", "set", "sales.customers", "--column", "mial=drop")
    found = [
        (entry["setting"], entry["message"]) for entry in call_json("tables", "check", "sales.customers")["findings"]
    ]
    unknown = "columns: has a rule for 'mial', which is not a column of the table"
    assert found == [
        ("columns", "columns: ssn cannot be truncated: it is bigint, and only text has characters"),
        ("columns", f"{unknown}; did you mean 'mail'? columns: id, mail, ssn"),
    ]
    hashing = ("--unset", "columns", "--column", "ssn=hash", "--set", "hash_key=env:POLICY_KEY")
    assert call("tables", "set", "sales.customers", *hashing).exit_code == 0
    assert call_json("tables", "check", "sales.customers")["findings"] == []
    monkeypatch.delenv("POLICY_KEY")
    (missing,) = call_json("tables", "check", "sales.customers")["findings"]
    assert (missing["severity"], missing["setting"]) == ("error", "hash_key")


def test_hashes_are_computed_from_standard_input(customers, call):
    declared = ("--set", SCHEMA, "--column", "ssn=hash", "--set", "hash_key=env:POLICY_KEY")
    call("tables", "set", "sales.customers", *declared)

    def hashed(column, text):
        return CliRunner().invoke(cli, ["tables", "hash", "sales.customers", column], input=text, prog_name="lakeward")

    expected = hmac.new(KEY.encode(), b"7", hashlib.sha256).hexdigest()
    assert hashed("ssn", "7\n007\r\n").stdout.split() == [expected] * 2
    for column, text, why in (
        ("ssn", "7\nx\n", "value 2 is not of type int"),
        ("mail", "a\n", "is not a hashed column"),
    ):
        refused = hashed(column, text)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
