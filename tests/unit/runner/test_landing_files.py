"""Files that a user names, on disk and in S3: their path under landing and the tables that read them."""

import uuid
from types import SimpleNamespace

import pytest
from tests.servers.moto import CREDENTIALS, REGION, moto_client
from tests.unit.runner.trigger_helpers import known

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.runner.watch.requests import choose_files
from lakeward.storage.landing import open_landing

KEY = "sales/product/2024/a b+1.csv"


def lake(landing, base, *tables, **settings):
    config = parse_config({"landing": landing, **settings}, base=base)
    storage = open_landing(config.resolve(config.landing), config.s3)
    by_name = {str(table.table): table for table in tables}
    return SimpleNamespace(config=config, storage=storage, tables=lambda: list(tables), table=by_name.__getitem__)


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
