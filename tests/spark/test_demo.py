"""The demo: its own checks, the counts asked for, and the commands it recommends."""

import json
import shlex

import pytest

from lakeward.cli.samples import NEXT_COMMANDS
from tests.commands import invoke

COUNTS = {"sampledb.store": 9, "sampledb.product": 24, "sampledb.productorder": 9770, "people.persons": 103}
BEFORE = {"sampledb.store": 8, "sampledb.product": 25, "sampledb.productorder": 8425, "people.persons": 101}


@pytest.mark.slow
def test_demo_loads_changes_and_checks(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("demo", "shop", "--output", "json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["ok"]
    assert {table["table"]: table["before"] for table in document["tables"]} == BEFORE
    assert {table["table"]: table["after"] for table in document["tables"]} == COUNTS

    monkeypatch.chdir(tmp_path / "shop")
    persons = json.loads(invoke("sql", "SELECT * FROM people.persons", "--output", "json").stdout)
    by_id = {row["PersonID"]: row for row in persons}
    assert set(by_id) == ({*range(1, 102)} | {130, 131, 132}) - {10}
    assert (by_id[7]["City"], by_id[8]["City"], by_id[17]["City"]) == ("Lisbon", "Kyoto", None)
    products = json.loads(invoke("sql", "SELECT id, price FROM sampledb.product", "--output", "json").stdout)
    assert {row["id"] for row in products} == set(range(1001, 1026)) - {1002}
    assert {"id": 1001, "price": "12.49"} in products

    for _, command in NEXT_COMMANDS:
        done = invoke(*shlex.split(command))
        assert done.exit_code == 0, (command, done.stderr)
