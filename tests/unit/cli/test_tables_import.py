"""`tables import` from a DynamoDB table with more items than one page of a scan holds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.moto import REGION
from tests.servers.walkthrough import TABLE, deployed, item

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.runner.walkthrough import scan_items


@pytest.fixture
def deployment(moto_endpoint, monkeypatch):
    """Address of the server that has the deployment's table."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    wide = {"Note": {"S": "x" * 300_000}}
    items = [item(f"raw/sales/table{number}/", key="id", **wide) for number in range(8)]
    items += [item("raw/sales/product/", key="id", partition="dept", flag="true"), item("raw/x/", flag="?")]
    with deployed(moto_endpoint, items):
        yield moto_endpoint


def test_the_command_imports_a_deployment(project, call, call_json, deployment):
    folder = project / "landing" / "sales" / "product"
    folder.joinpath("LOAD00000001.csv").unlink()
    pq.write_table(pa.table({"id": [1], "dept": ["x"]}), folder / "LOAD00000001.parquet")
    (project / "lakeward.yaml").write_text("tables: {sales.table1: {primary_key: [id]}}")
    arguments = ("tables", "import", "--dynamodb", TABLE, "--region", REGION, "--endpoint", deployment)
    dry = call(*arguments, "--dry-run")
    assert dry.exit_code == 3
    assert "8 tables would be taken over of 10 items" in dry.stdout
    assert "raw/x/ was skipped: path 'raw/x/' does not end in schema/table" in dry.stderr
    assert [table["table"] for table in call_json("tables", "list")["tables"]] == ["sales.table1"]
    document = call_json(*arguments)
    assert document["dry_run"] is False
    assert sum(table["outcome"] == "imported" for table in document["tables"]) == 8
    shown = call_json("tables", "show", "sales.product")
    assert (shown["active"], shown["primary_key"], shown["partition_by"]) == (True, ["id"], ["dept"])


def test_a_table_that_cannot_be_scanned_is_reported(deployment, monkeypatch):
    with pytest.raises(ConfigurationError, match="there is no DynamoDB table 'other'"):
        list(scan_items("other", region=REGION, endpoint=deployment))
    with pytest.raises(ConfigurationError, match="cannot be read") as refused:
        list(scan_items("other"))
    assert "AWS_REGION" in (refused.value.hint or "")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RetriableError, match="cannot be read"):
        list(scan_items("other", region=REGION, endpoint="http://127.0.0.1:9"))


SOURCES = """
cdc = {
    "employees": {
        "path": "s3://bucket/hr/employees/", "primary_keys": ["id"], "cdc_start_date": date(2020, 11, 13),
        "schema": T.StructType().add("id", "integer"),
    },
    "titles": {"path": "s3://bucket/hr/titles/", "primary_keys": keys(), "schema": T.StructType().add("id", "integer")},
    name: {},
}
"""


def test_the_tables_of_a_generator_are_written_to_the_configuration(project, call, call_json):
    (project / "sources.py").write_text(SOURCES)
    before = (project / "lakeward.yaml").read_text()
    dry = call("tables", "import", "--sources", "sources.py", "--dry-run")
    assert (dry.exit_code, (project / "lakeward.yaml").read_text()) == (3, before)
    assert "sources.py, line 8: 'name' is not understood" in dry.stderr
    done = call("tables", "import", "--sources", "sources.py")
    assert "declared: hr.employees" in done.stdout
    assert "in comments: hr.titles" in done.stdout
    assert "line 7: 'keys()' is not understood" in done.stdout
    assert call_json("tables", "show", "hr.employees")["settings"]["cdc_start"] == "2020-11-13"
    document = call_json("tables", "import", "--sources", "sources.py")
    assert document["written"]["present"] == ["hr.employees", "hr.titles"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--dynamodb", "t", "--sources", "f"), ("--sources", "f", "--lake", "l"), ("--sources", "none.py")],
)
def test_arguments_that_do_not_go_together_are_refused(project, call, arguments):
    assert call("tables", "import", *arguments).exit_code == 2
