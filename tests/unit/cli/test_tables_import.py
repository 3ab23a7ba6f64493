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
