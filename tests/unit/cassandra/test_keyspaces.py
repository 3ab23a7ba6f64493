"""What only Amazon Keyspaces does. Nothing of this was run against the service."""

from __future__ import annotations

import ssl
from datetime import timedelta

import pytest

from lakeward.cassandra import keyspaces
from lakeward.cassandra.connection import ClusterAddress, _cluster
from lakeward.config.services import ClusterSettings
from lakeward.errors import ConfigurationError

KEYSPACES = ClusterAddress("ks", ClusterSettings(keyspaces="eu-west-1"))
CASSANDRA = ClusterAddress("prod", ClusterSettings(hosts=("10.0.0.1",)))


class Rows:
    """A session that returns the same rows to every query."""

    def __init__(self, *rows):
        self.rows = rows

    def execute(self, _query, _values=()):
        return self.rows


@pytest.fixture
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-key")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "cassandra.eu-west-1.amazonaws.com"),
        ("us-gov-west-1", "cassandra.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "cassandra.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_a_regions_endpoint(region, host):
    assert keyspaces.endpoint(region) == host


def test_the_service_is_reached_encrypted_signed_and_by_the_name_of_its_certificate(credentials, monkeypatch):
    given = {}
    monkeypatch.setattr("cassandra.cluster.Cluster", lambda **settings: given.update(settings))
    _cluster(KEYSPACES)
    assert (given["contact_points"], given["port"]) == (["cassandra.eu-west-1.amazonaws.com"], 9142)
    assert given["ssl_options"] == {"server_hostname": "cassandra.eu-west-1.amazonaws.com"}
    assert given["ssl_context"].check_hostname
    assert given["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert given["protocol_version"] == 4
    assert type(given["auth_provider"]).__name__ == "SigV4AuthProvider"


def test_service_specific_credentials_are_a_password(monkeypatch):
    given = {}
    monkeypatch.setattr("cassandra.cluster.Cluster", lambda **settings: given.update(settings))
    settings = ClusterSettings(keyspaces="eu-west-1", username="app-at-1", password="env:KS")
    _cluster(ClusterAddress("ks", settings, "pa55"))
    assert type(given["auth_provider"]).__name__ == "PlainTextAuthProvider"


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_the_login_is_signed_and_contains_no_secret(credentials):
    authenticator = keyspaces.signing_provider("eu-west-1").new_authenticator("host")
    assert authenticator.initial_response() == b"SigV4\0\0"
    answer = authenticator.evaluate_challenge(b"nonce=91703fdc2ef562e19fbdab0f58e42fe5")
    assert "access_key=AKIDEXAMPLE" in answer
    assert "s3cret-key" not in answer


def test_a_login_without_credentials_is_refused_before_anything_is_tried(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no AWS credentials .* in eu-west-1"):
        keyspaces.signing_provider("eu-west-1")


def test_limits_are_those_of_the_kind_of_cluster():
    limits = keyspaces.limits_of(KEYSPACES.settings)
    assert (limits.batch_rows, limits.columns, limits.columns_with_ttl) == (30, 225, 166)
    assert (limits.partition_write_units, limits.oldest_timestamp) == (1000, timedelta(days=2))
    assert (limits.newest_timestamp, limits.is_keyspaces) == (timedelta(minutes=5), True)
    usual = keyspaces.limits_of(CASSANDRA.settings)
    assert usual.partition_write_units is usual.oldest_timestamp is usual.columns is None
    assert not usual.is_keyspaces


@pytest.mark.parametrize("name", ["Murmur3Partitioner", "RandomPartitioner"])
def test_partitioners_with_tokens_are_accepted(name):
    assert keyspaces.require_partitioner(f"org.apache.cassandra.dht.{name}", cluster="ks") == name


def test_the_default_partitioner_is_refused_with_the_remedy():
    with pytest.raises(ConfigurationError, match="ks uses DefaultPartitioner") as caught:
        keyspaces.require_partitioner("com.amazonaws.cassandra.DefaultPartitioner", cluster="ks")
    assert caught.value.hint.startswith("UPDATE system.local SET partitioner=")


def test_an_ordered_partitioner_is_refused():
    with pytest.raises(ConfigurationError, match="uses ByteOrderedPartitioner") as caught:
        keyspaces.require_partitioner("org.apache.cassandra.dht.ByteOrderedPartitioner", cluster="old")
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("rows", "timestamps", "ttl"),
    [
        ([], False, False),
        ([(None,)], False, False),
        ([({"ttl": {"status": "enabled"}},)], False, True),
        ([({"client_side_timestamps": {"status": "enabled"}, "ttl": {"status": "disabled"}},)], True, False),
    ],
)
def test_properties_of_a_table_are_off_by_default(rows, timestamps, ttl):
    session = Rows(*rows)
    assert keyspaces.has_client_timestamps(session, "ks", "t") is timestamps
    assert keyspaces.has_ttl(session, "ks", "t") is ttl


def test_the_statement_that_turns_a_property_on():
    assert keyspaces.enabling_statement('"ks"."t"', "ttl") == (
        "ALTER TABLE \"ks\".\"t\" WITH CUSTOM_PROPERTIES = {'ttl': {'status': 'enabled'}}"
    )
