"""Items of a DMS walkthrough deployment in Lakeward's words; nothing is guessed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.walkthrough import item

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, DataError
from lakeward.model import TableId
from lakeward.runner.walkthrough import WalkthroughTable, read_item, take_over
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.landing import Landing

PRODUCT = TableId("sales", "product")


@pytest.mark.parametrize(
    ("landing", "path", "bucket", "folder"),
    [
        ("s3://raw/dms", "raw/dms/sales/product/", "raw", None),
        ("s3a://raw/dms/", "raw/dms/sales/product", None, None),
        ("s3://raw", "raw/dms/sales/product/", "raw", "dms/sales/product"),
        ("s3://raw", "sales/product", None, None),
        ("./landing", "raw/sales/product/", "raw", None),
        ("./landing", "raw/dms/sales/product/", "raw", "dms/sales/product"),
        ("./landing", "sales/product", None, None),
    ],
)
def test_the_folder_is_relative_to_landing(landing, path, bucket, folder):
    found = read_item(item(path, bucket=bucket), landing)
    assert found == WalkthroughTable(PRODUCT, active=False, settings={"path": folder} if folder else {})


def test_keys_partitions_and_the_flag_are_taken():
    found = read_item(item(key=" id, region ", partition="dept", flag="true"), "s3://raw/dms")
    assert found == WalkthroughTable(PRODUCT, True, {"primary_key": ["id", "region"], "partition_by": ["dept"]})
    assert read_item(item(key="", partition="null"), "s3://raw/dms").settings == {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (item(flag="True"), "ActiveFlag is 'True'; expected the text 'true' or 'false'"),
        (item(flag=None), "attribute ActiveFlag is missing; expected a text"),
        (item(ActiveFlag={"BOOL": True}), "attribute ActiveFlag is {'BOOL': True}; expected a text"),
        (item(key="id,,region"), "PrimaryKey is 'id,,region'; expected column names"),
        (item(partition="a,a"), "each once"),
        (item(key=None), "attribute PrimaryKey is missing"),
        (item("raw/dms/product"), "does not end in schema/table"),
        (item("other/dms/sales/product/", bucket="other"), "does not lie in landing s3://raw/dms"),
        (item("other/dms/sales/product/", bucket=None), "does not lie in landing"),
        (item("raw/dms/sales_changes/product/"), "hold changelogs"),
    ],
)
def test_an_item_that_is_not_as_the_walkthrough_writes_it_is_refused(wrong, words):
    with pytest.raises((DataError, ConfigurationError)) as refused:
        read_item(wrong, "s3://raw/dms")
    assert words in refused.value.message


@pytest.fixture
def landing(tmp_path):
    folder = tmp_path / "landing" / "sales" / "product"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 1], "dept": ["x", "y"]}), folder / "LOAD00000001.parquet")
    return Landing(tmp_path / "landing")


def outcomes(found):
    return [(entry.outcome, entry.table, entry.active) for entry in found]


def test_tables_are_registered_once_and_those_known_are_left_alone(tmp_path, landing):
    config, state = parse_config({"tables": {"sales.declared": {}}}, base=tmp_path), MemoryStateStore()
    state.register(TableId("sales", "found"), active=False)
    state.set_table(TableId("sales", "set"), settings={"primary_key": ["k"]})
    names = ("product", "declared", "found", "set")
    items = [item(f"sales/{name}", bucket=None, key="id", flag="true") for name in names]
    expected = [("imported", "sales.product", True), ("left", "sales.declared", None),
                ("imported", "sales.found", True), ("left", "sales.set", None)]  # fmt: skip
    assert outcomes(take_over(items, config, landing, state, dry_run=True)) == expected
    assert state.find_table(PRODUCT) is None
    found = list(take_over(items, config, landing, state))
    assert outcomes(found) == expected
    assert [entry.reason for entry in found[1::2]] == [
        "it is declared in the configuration file",
        "it is registered already, and active or with settings of its own",
    ]
    registered = state.find_table(PRODUCT)
    assert (registered.active, registered.settings) == (True, {"primary_key": ["id"]})
    assert outcomes(take_over(items[:1], config, landing, state)) == [("left", "sales.product", None)]


def test_an_active_table_that_does_not_fit_its_files_is_imported_as_inactive(tmp_path, landing):
    config, state = parse_config({}, base=tmp_path), MemoryStateStore()
    [found] = take_over([item("sales/product", bucket=None, key="ident", flag="true")], config, landing, state)
    assert (found.outcome, found.active) == ("imported", False)
    assert "primary_key names 'ident'" in found.reason
    assert state.find_table(PRODUCT).settings == {"primary_key": ["ident"]}


def test_bad_and_duplicate_items_are_reported_and_the_others_imported(tmp_path, landing):
    config, state = parse_config({}, base=tmp_path), MemoryStateStore()
    items = [item(flag="yes"), {"id": {"S": "foreign"}}, item("a/sales/product/"), item("b/sales/product/")]
    found = list(take_over(items, config, landing, state))
    assert [entry.outcome for entry in found] == ["skipped", "skipped", "imported", "skipped"]
    assert found[1].reason == "attribute path is missing; expected a text"
    assert "it is the table sales.product, as 'a/sales/product/' is" in found[3].reason
