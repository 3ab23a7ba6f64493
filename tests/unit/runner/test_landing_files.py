"""Files that a user names, on disk and in S3: their path under landing and the tables that read them."""

import uuid
from types import SimpleNamespace

import pytest
from tests.servers.moto import CREDENTIALS, REGION, moto_client
from tests.unit.runner.trigger_helpers import known

from lakeward import Lakeward, RunOptions
from lakeward.api.opened import OpenedLake
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.model import Disposition, FileClass, LedgerEntry, Progress, TableId
from lakeward.runner.watch.requests import choose_files, resolve_files
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.landing import open_landing

KEY = "sales/product/2024/a b+1.csv"


def lake(landing, base, *tables, **settings):
    config = parse_config({"landing": landing, **settings}, base=base)
    storage = open_landing(config.resolve(config.landing), config.s3)
    by_name = {str(table.table): table for table in tables}
    return SimpleNamespace(
        config=config, storage=storage, state=MemoryStateStore(), tables=lambda: list(tables), table=by_name.__getitem__
    )


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path, monkeypatch):
    """A landing folder with one file, and the file's address."""
    tables = [known("sales.product"), known("sales.order"), known("hr.person", active=False)]
    if request.param == "disk":
        file = tmp_path / "landing" / KEY
        file.parent.mkdir(parents=True)
        file.write_text("x")
        return lake("landing", tmp_path, *tables), file.as_uri()
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    endpoint, bucket = request.getfixturevalue("moto_endpoint"), f"files-{uuid.uuid4().hex[:8]}"
    client = moto_client("s3", endpoint)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.put_object(Bucket=bucket, Key=f"from dms/{KEY}", Body=b"x")
    client.close()
    s3 = {"endpoint": endpoint, "region": REGION}
    return lake(f"s3://{bucket}/from dms", tmp_path, *tables, s3=s3), f"s3a://{bucket}/from dms/{KEY}"


def test_an_address_and_a_path_name_the_same_file(place):
    found, address = place
    for name in (address, KEY):
        assert choose_files(found, (), [name]) == (("sales.product",), frozenset([KEY]))
    assert choose_files(found, ["sales.order"], []) == (("sales.order",), frozenset())


@pytest.mark.parametrize("uri", ["sales/product/none.csv", "s3://other/sales/product/1.csv", "/etc/hostname"])
def test_a_file_that_is_not_under_landing_is_refused(place, uri):
    with pytest.raises(ConfigurationError, match="is not a file under landing"):
        choose_files(place[0], (), [uri])


def test_a_file_of_another_table_is_refused(place):
    with pytest.raises(ConfigurationError, match="belongs to no named table"):
        choose_files(place[0], ["sales.order"], [KEY])


LISTS = ["files", "keep_parts", "drop_parts", "accept_changed"]


@pytest.mark.parametrize("name", LISTS)
def test_every_list_of_files_takes_addresses_and_paths(place, name):
    found, address = place
    for given in (address, KEY):
        tables, options = resolve_files(found, ["sales.product"], RunOptions(**{name: [given]}))
        assert tables == ("sales.product",)
        assert options == RunOptions(**{name: [KEY]})


@pytest.mark.parametrize("name", LISTS)
def test_no_list_takes_a_file_that_would_match_nothing(place, name):
    with pytest.raises(ConfigurationError, match="is not a file under landing"):
        resolve_files(place[0], (), RunOptions(**{name: ["sales/product/LOAD00000009.csv"]}))
    with pytest.raises(ConfigurationError, match="belongs to no named table"):
        resolve_files(place[0], ["sales.order"], RunOptions(**{name: [KEY]}))


def test_a_part_that_was_read_and_is_gone_can_be_left_out_of_a_load(place):
    found, gone = place[0], "sales/product/LOAD00000002.csv"
    identity = found.storage.identity(KEY)
    entry = LedgerEntry(gone, identity, "hash", 1, Disposition.CONSUMED, 1, 1, FileClass.LOAD, "")
    found.state.replace_ledger(TableId("sales", "product"), 1, Progress(op=1), [entry])
    for names in ((), ("sales.product",)):
        assert resolve_files(found, names, RunOptions(drop_parts=[gone]))[1].drop_parts == {gone}
    with pytest.raises(ConfigurationError, match="is not a file under landing"):
        resolve_files(found, ["sales.order"], RunOptions(drop_parts=[gone]))


@pytest.fixture
def two_tables(tmp_path, monkeypatch):
    """A lake with two tables and a file of each, and what its runs and plans are called with; no Spark."""
    monkeypatch.chdir(tmp_path)
    for table in ("product", "order"):
        (tmp_path / "landing/sales" / table).mkdir(parents=True)
        (tmp_path / "landing/sales" / table / "LOAD00000001.csv").write_text("1,a")
    calls = []

    def note(_bench, tables, options, *_args, **_options):
        calls.append(([str(known.table) for known in tables], options))

    monkeypatch.setattr(OpenedLake, "workbench", lambda _lake: None)
    monkeypatch.setattr("lakeward.runner.run.run_tables", note)
    monkeypatch.setattr("lakeward.runner.workbench.plan_tables", note)
    with Lakeward(parse_config({"tables": {"sales.product": {}, "sales.order": {}}}, base=tmp_path)) as opened:
        yield opened, calls


@pytest.mark.parametrize("method", ["run", "plan"])
def test_runs_and_plans_resolve_their_files(two_tables, tmp_path, method):
    opened, calls = two_tables
    part, call = "sales/order/LOAD00000001.csv", getattr(opened, method)
    for given in (part, f"landing/{part}", str(tmp_path / "landing" / part), (tmp_path / "landing" / part).as_uri()):
        call(options=RunOptions(files=[given], drop_parts=[given]))
    assert calls == [(["sales.order"], RunOptions(files=[part], drop_parts=[part]))] * 4
    with pytest.raises(ConfigurationError, match="is not a file under landing"):
        call(options=RunOptions(keep_parts=["order/LOAD00000001.csv"]))


@pytest.mark.parametrize("method", ["run", "plan"])
def test_a_reload_of_all_tables_at_once_is_refused(two_tables, method):
    opened, calls = two_tables
    with pytest.raises(ConfigurationError, match="reload decides about the load files of single tables"):
        getattr(opened, method)(options=RunOptions(reload=True))
    getattr(opened, method)(["sales.order"], options=RunOptions(reload=True))
    assert calls == [(["sales.order"], RunOptions(reload=True))]
