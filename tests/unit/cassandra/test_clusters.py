"""Which cluster is meant, how addresses are read, and where passwords come from."""

from __future__ import annotations

import sys

import boto3
import pytest

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.clusters import find_cluster, limits_for, parse_cluster
from lakeward.cassandra.connection import open_session
from lakeward.cassandra.cql import TableAddress
from lakeward.cassandra.keyspaces import signing_provider
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError


@pytest.fixture
def config(tmp_path):
    clusters = {
        "prod": {
            "hosts": ["10.0.0.1"],
            "username": "app",
            "password": "env:PROD_PW",
            "tls": {"ca": "certs/ca.pem"},
            "max_requests_per_second": 500,
        },
        "copy": {"hosts": "10.0.0.2"},
    }
    return parse_config({"clusters": clusters}, base=tmp_path)


def test_the_tables_address_comes_first_then_the_option_then_the_only_one(config, monkeypatch, tmp_path):
    monkeypatch.setenv("PROD_PW", "pa55")
    table = TableAddress.parse("prod/shop.orders")
    assert find_cluster(config, table, "copy").name == "prod"
    assert find_cluster(config, TableAddress.parse("shop.orders"), "copy").name == "copy"
    only = parse_config({"clusters": {"one": {"hosts": "a"}}}, base=tmp_path)
    assert find_cluster(only, None, None).name == "one"


def test_a_password_is_found_where_settings_point_and_is_never_shown(config, monkeypatch):
    with pytest.raises(ConfigurationError, match=r"password of cluster prod .*'PROD_PW', which is not set"):
        find_cluster(config, None, "prod")
    monkeypatch.setenv("PROD_PW", "pa55w0rd")
    found = find_cluster(config, None, "prod")
    assert found.password == "pa55w0rd"
    assert "pa55w0rd" not in f"{found!r} {found} {found.settings!r} {found.settings.model_dump_json()}"


def test_paths_of_certificates_are_relative_to_the_configuration(config, monkeypatch, tmp_path):
    monkeypatch.setenv("PROD_PW", "pa55")
    assert find_cluster(config, None, "prod").settings.tls.ca == str(tmp_path / "certs/ca.pem")


def test_configured_clusters_are_listed_where_the_cluster_is_missing(config, tmp_path):
    with pytest.raises(ConfigurationError, match="no cluster 'test': the configured clusters are prod, copy"):
        find_cluster(config, None, "test")
    with pytest.raises(ConfigurationError, match="no cluster is named, and the configured clusters are prod, copy"):
        find_cluster(config, TableAddress.parse("shop.orders"), None)
    with pytest.raises(ConfigurationError, match="none is configured"):
        find_cluster(parse_config({}, base=tmp_path), None, None)


@pytest.mark.parametrize(
    ("text", "hosts", "port"),
    [
        ("cassandra://127.0.0.1:9043", ("127.0.0.1",), 9043),
        ("cassandra://127.0.0.1", ("127.0.0.1",), 9042),
        ("cassandra://a.example,b.example:9142/", ("a.example", "b.example"), 9142),
        ("cassandra://[::1],[::2]:9043", ("::1", "::2"), 9043),
        ("cassandra://[::1]", ("::1",), 9042),
        ("cassandra://a:9043,b:9043", ("a", "b"), 9043),
    ],
)
def test_hosts_and_port_of_an_address(text, hosts, port):
    settings = parse_cluster(text).settings
    assert (settings.hosts, settings.port) == (hosts, port)


def test_choices_of_an_address(monkeypatch, tmp_path):
    monkeypatch.setenv("CASSANDRA_PASSWORD", "pa55w0rd")
    monkeypatch.chdir(tmp_path)
    found = parse_cluster("cassandra://h?datacenter=dc1&username=app&ca=ca.pem&consistency=ONE&timeout=5s")
    assert (found.settings.datacenter, found.settings.username, found.settings.consistency) == ("dc1", "app", "ONE")
    assert (found.password, found.settings.timeout) == ("pa55w0rd", 5.0)
    assert found.settings.tls.ca == str(tmp_path / "ca.pem")
    assert found.settings.tls.check_host_name
    assert parse_cluster("cassandra://h?server_name=db").settings.tls.server_name == "db"
    assert found.name == "cassandra://h"
    assert parse_cluster("cassandra://h?tls=").settings.tls is not None


def test_keyspaces_has_an_address_too():
    settings = parse_cluster("keyspaces://eu-west-1").settings
    assert (settings.keyspaces, settings.hosts) == ("eu-west-1", ())
    settings = parse_cluster("keyspaces://eu-west-1/?consistency=ONE").settings
    assert (settings.keyspaces, settings.consistency) == ("eu-west-1", "ONE")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cassandra://app:pa55w0rd@h", "must not contain a login"),
        ("mysql://app:pa55w0rd@h", "'mysql://app:\\*\\*\\*@h' is not the address of a cluster"),
        ("cassandra://h/keyspace", "is not the address of a cluster"),
        ("cassandra://", "is not the address of a cluster"),
        (
            "cassandra://[::1:9042",
            r"'\[::1:9042' is not a host of a cluster; expected .*, or an IPv6 address such as \[::1\]",
        ),
        ("cassandra://::1", "'::1' is not a host of a cluster"),
        ("cassandra://[h]:9042", r"'\[h\]:9042' is not a host of a cluster"),
        ("cassandra://a[::1]", "is not a host of a cluster"),
        ("cassandra://[::1]9042", "is not a host of a cluster"),
        ("cassandra://a,,b", "'' is not a host of a cluster"),
        ("cassandra://app:pa55w0rd@[::1", "must not contain a login"),
        ("cassandra://a:9042,b:9043", "same port, but 'a:9042,b:9043' names 9042, 9043"),
        ("keyspaces://app:pa55w0rd@eu-west-1", "must not contain a login"),
        ("keyspaces://", "is not the address of a cluster"),
        ("cassandra://h?colour=red", "has no option 'colour'"),
        ("cassandra://h:http", "port: Input should be a valid integer"),
        ("cassandra://h?consistency=SOME", "consistency: Input should be 'LOCAL_QUORUM'"),
    ],
)
def test_invalid_addresses_are_refused_without_repeating_secrets(text, problem):
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse_cluster(text)
    assert "pa55w0rd" not in str(caught.value)


def test_the_clusters_own_limit_counts_unless_the_job_has_one(config, monkeypatch):
    monkeypatch.setenv("PROD_PW", "pa55")
    prod, copy = find_cluster(config, None, "prod"), find_cluster(config, None, "copy")
    assert limits_for(prod, RateLimits(write_units=7)) == RateLimits(write_units=7, requests_per_second=500)
    assert limits_for(prod, RateLimits(requests_per_second=9)) == RateLimits(requests_per_second=9)
    assert limits_for(copy, RateLimits()) == RateLimits()


@pytest.fixture
def secrets_manager(monkeypatch):
    moto = pytest.importorskip("moto")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with moto.mock_aws():
        client = boto3.client("secretsmanager")
        yield client
        client.close()


def secret_config(tmp_path, name):
    settings = {"hosts": "h", "username": "app", "password": f"secret:{name}"}
    return parse_config({"clusters": {"prod": settings}}, base=tmp_path)


@pytest.mark.parametrize("text", ["pa55w0rd", '{"username": "app", "password": "pa55w0rd"}'])
def test_a_password_of_secrets_manager(secrets_manager, tmp_path, text):
    arn = secrets_manager.create_secret(Name="prod/cassandra", SecretString=text)["ARN"]
    for name in ("prod/cassandra", arn):
        assert find_cluster(secret_config(tmp_path, name), None, "prod").password == "pa55w0rd"


def test_missing_secrets_and_secrets_without_a_password_are_reported(secrets_manager, tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot be read from AWS Secrets Manager \(nothing\)"):
        find_cluster(secret_config(tmp_path, "nothing"), None, "prod")
    secrets_manager.create_secret(Name="other", SecretString='{"key": "pa55w0rd"}')
    with pytest.raises(ConfigurationError, match="holds no password for cluster prod") as caught:
        find_cluster(secret_config(tmp_path, "other"), None, "prod")
    assert "pa55w0rd" not in str(caught.value)


def test_without_the_driver_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cassandra.cluster", None)
    with pytest.raises(ConfigurationError, match="the driver, which is not installed") as caught:
        open_session(parse_cluster("cassandra://127.0.0.1"))
    assert caught.value.hint == "pip install 'lakeward[cassandra]'"


def test_without_amazons_packages_the_extra_to_install_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigurationError, match="the package for it is not installed") as caught:
        find_cluster(secret_config(tmp_path, "any"), None, "prod")
    assert caught.value.hint == "pip install 'lakeward[aws]'"
    with pytest.raises(ConfigurationError, match="packages that are not installed") as caught:
        signing_provider("eu-west-1")
    assert caught.value.hint == "pip install 'lakeward[keyspaces]'"
