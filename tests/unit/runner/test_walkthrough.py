"""Items of a DMS walkthrough deployment in Lakeward's words; nothing is guessed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.former import FormerSystem
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
                ("imported", "sales.found", False), ("left", "sales.set", None)]  # fmt: skip
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


@pytest.fixture
def former(tmp_path, landing):
    """A deployment that has applied two change files of the table, whose load files are gone."""
    folder = tmp_path / "landing" / "sales" / "product"
    folder.joinpath("LOAD00000001.parquet").unlink()
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dept", pa.string())])
    system = FormerSystem(folder, tmp_path / "old" / "product", schema, keys=("id",), partition=("dept",))
    load = [{"id": number, "name": "a", "dept": "007"} for number in range(1, 4)]
    system.land("LOAD00000001.parquet", load, changes=False)
    system.load_initial()
    folder.joinpath("LOAD00000001.parquet").unlink()
    for day in (1, 2):
        system.land(f"2024010{day}-000000000.parquet", [{"Op": "U", "id": day, "name": "b", "dept": "toys"}])
        system.load_incremental()
    system.land("20240103-000000000.parquet", [{"Op": "I", "id": 9, "name": "c", "dept": "toys"}])
    return system


def of(former, name="product", **changes):
    texts = {"LastFullLoadDate": "2024-01-01 10:00:00", "LastIncrementalFile": f"raw/sales/{name}/{former.last_file}"}
    texts |= changes
    return item(f"raw/sales/{name}/", key="id", flag="true", **{key: {"S": text} for key, text in texts.items()})


def test_a_lake_takes_the_place_of_load_files_that_are_gone(tmp_path, landing, former):
    config, state = parse_config({}, base=tmp_path), MemoryStateStore()
    (tmp_path / "landing" / "sales" / "other").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "landing" / "sales" / "other" / "LOAD00000001.parquet")
    items = [of(former), of(former, "nowhere")]
    first, absent, unknown = take_over(items, config, landing, state, lake="old")
    assert (first.active, first.reason) == (True, None)
    plan = first.plan
    assert (plan.lake, plan.rows, plan.partitions) == (f"{tmp_path}/old/product", 3, ("dept",))
    assert (plan.contained, plan.unread, plan.read_again, plan.doubtful) == (2, 1, 0, ())
    assert plan.columns == "id bigint, name string, dept string"
    assert plan.compare == f"lakeward diff {tmp_path}/old/product iceberg:sales.product --keys id --ignore Op"
    assert (absent.active, absent.table) == (False, "sales.nowhere")
    assert "landing holds no file of it in sales/nowhere" in absent.reason
    assert (unknown.outcome, unknown.table) == ("no item", "sales.other")
    registered = state.find_table(PRODUCT).settings["adopt"]
    assert (registered["lake"], registered["last_file"]) == (plan.lake, "20240102-000000000.parquet")
    # The deployment has gone on: it is imported again, and keeps what was decided meanwhile.
    state.set_table(PRODUCT, settings={"adopt": {**registered, "empty_partition": "null"}})
    former.load_incremental()
    again = next(iter(take_over([of(former)], config, landing, state, lake="old")))
    assert again.outcome == "imported"
    found = state.find_table(PRODUCT).settings["adopt"]
    assert (found["last_file"], found["empty_partition"]) == ("20240103-000000000.parquet", "null")
    assert found["listing"] != registered["listing"]
    # It was loaded again before its first run: the load files count, and not the lake.
    pq.write_table(pa.table({"id": [1], "dept": ["x"]}), former.landing / "LOAD00000001.parquet")
    assert next(iter(take_over([of(former)], config, landing, state, lake="old"))).plan.load_files == 1
    assert state.find_table(PRODUCT).settings.get("adopt") is None


def imported(tmp_path, landing, found, **options):
    config, state = parse_config({}, base=tmp_path), MemoryStateStore()
    return next(iter(take_over([found], config, landing, state, **options)))


def test_settings_of_lakeward_that_concern_a_lake_are_respected_by_its_import(tmp_path, landing, former):
    defaults = {"metadata_columns": {"op": "written_by"}}
    config, state = parse_config({"defaults": defaults}, base=tmp_path), MemoryStateStore()
    [found] = take_over([of(former)], config, landing, state, lake="old")
    assert found.plan.compare.endswith(" --keys id --ignore Op,written_by")
    defaults = {"files": {"changes": "*.parquet", "order": "name"}}
    config, state = parse_config({"defaults": defaults}, base=tmp_path), MemoryStateStore()
    [found] = take_over([of(former)], config, landing, state, lake="old")
    assert (found.active, "adopt and files.changes" in found.reason) == (False, True)


def test_a_table_without_load_files_and_without_a_lake_is_not_built_from_changes_alone(tmp_path, landing, former):
    gone = imported(tmp_path, landing, of(former))
    assert (gone.active, "load files are gone from landing" in gone.reason) == (False, True)
    none = imported(tmp_path, landing, of(former), lake="elsewhere")
    assert (none.active, "has no folder of it" in none.reason) == (False, True)
    never = imported(tmp_path, landing, of(former, LastFullLoadDate="1900-01-01 00:00:00"))
    assert (never.active, never.plan.unread) == (True, 3)
    wrong = imported(tmp_path, landing, of(former, LastIncrementalFile="raw/other/x.parquet"), lake="old")
    assert (wrong.outcome, "expected a file in the folder" in wrong.reason) == ("skipped", True)


def test_what_a_person_must_decide_makes_a_table_inactive(tmp_path, landing, former):
    former.removal_fails = True
    former.load_incremental()
    former.land("20240104-000000000.parquet", [{"Op": "U", "id": 9, "name": "d", "dept": "toys"}])
    former.load_incremental()
    twice = imported(tmp_path, landing, of(former), lake="old")
    assert (twice.active, "more than once in the lake" in twice.reason) == (False, True)
    former.land("20240102-120000000.parquet", [{"Op": "U", "id": 1, "name": "lost", "dept": "toys"}])
    late = imported(tmp_path, landing, of(former), lake="old")
    assert late.plan.doubtful == ("sales/product/20240102-120000000.parquet",)
    assert "change files may be missing in the lake" in late.reason
    both = tmp_path / "old" / "sales" / "product"
    both.mkdir(parents=True)
    (both / "a.parquet").touch()
    assert "may be the lake of sales.product" in imported(tmp_path, landing, of(former), lake="old").reason
