"""The group of commands, its shared options, and the client behind them."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from lakeward import CassandraClient
from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.sync_steps import First
from lakeward.cli.cassandra import cassandra
from lakeward.cli.cassandra_options import (
    both_limits,
    cluster_option,
    limits_from,
    read_limits,
    tasks_option,
    write_limits,
)
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError


def test_all_commands_exist_and_have_help():
    assert set(cassandra.commands) == {
        *("export", "import", "diff", "apply", "sync", "compare"),
        *("count", "top-partitions", "delete", "ttl"),
    }
    result = CliRunner().invoke(cassandra, ["--help"])
    assert result.exit_code == 0
    for command in cassandra.commands.values():
        assert command.get_short_help_str(40).rstrip(".") in result.output


def test_an_unknown_command_is_refused():
    assert "No such command 'exprot'" in CliRunner().invoke(cassandra, ["exprot"]).output


@pytest.mark.parametrize(
    ("options", "arguments", "limits"),
    [
        (read_limits, ["--max-rows-per-second", "10", "--max-rcu", "2.5"], RateLimits(10, read_units=2.5)),
        (write_limits, ["--max-rows-per-second", "10", "--max-wcu", "2.5"], RateLimits(10, write_units=2.5)),
        (both_limits, ["--max-rcu", "1", "--max-wcu", "2"], RateLimits(write_units=2, read_units=1)),
        (write_limits, [], RateLimits()),
    ],
)
def test_limits_come_from_the_options(options, arguments, limits):
    found = []

    @click.command
    @cluster_option()
    @options
    @tasks_option
    def work(**choices):
        found.append(limits_from(choices))
        assert choices == {"cluster": "copy", "tasks": 3}

    result = CliRunner().invoke(work, [*arguments, "--cluster", "copy", "--tasks", "3"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert found == [limits]


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_limits_that_allow_nothing_are_refused(text):
    work = click.command(write_limits(lambda **_: None))
    assert CliRunner().invoke(work, ["--max-wcu", text]).exit_code == 2


def test_the_client_finds_tables_of_clusters(tmp_path):
    config = parse_config({"clusters": {"prod": {"hosts": "a"}, "copy": {"hosts": "b"}}}, base=tmp_path)
    with CassandraClient(config, cluster="prod") as client:
        place = client.table('copy/shop."Orders"')
        assert (place.address.name, place.name) == ("copy", TableName("shop", "Orders"))
        assert str(place) == "copy/shop.Orders"
        assert client.table("shop.orders").address.settings.hosts == ("a",)
        with pytest.raises(ConfigurationError, match="does not name a table"):
            client.table("orders")


def test_writes_are_recorded_in_the_same_cluster(tmp_path):
    config = parse_config({"clusters": {"prod": {"hosts": "a"}, "copy": {"hosts": "b"}}}, base=tmp_path)
    with CassandraClient(config) as client:
        place = client.table("copy/shop.orders")
    assert place.ledger(None) is None
    assert place.ledger("copy/ops.state") == place.ledger("ops.state") == TableName("ops", "state")
    with pytest.raises(
        ConfigurationError,
        match=r"--ledger prod/ops\.state is in another cluster",
    ):
        place.ledger("prod/ops.state")


def test_the_client_needs_no_configuration_for_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with CassandraClient.open(cluster="cassandra://127.0.0.1:9043") as client:
        assert client.table("shop.orders").address.settings.port == 9043


def test_a_configuration_that_is_named_must_exist(tmp_path):
    with pytest.raises(ConfigurationError, match=r"missing\.yaml"):
        CassandraClient.open(tmp_path / "missing.yaml")


def test_a_sync_requests_what_its_options_say(tmp_path):
    config = parse_config({"clusters": {"prod": {"hosts": "a"}, "copy": {"hosts": "b"}}}, base=tmp_path)
    limits = RateLimits(10, write_units=2, read_units=1)
    with CassandraClient(config) as client:
        request = client._sync_request(
            "copy/shop_eu.orders", "exports", {"source": "prod/shop.orders", "first": "assume", "limits": limits}
        )
        followed = client._sync_request("copy/shop_eu.orders", "exports", {"table": "shop.orders", "keep": 3})
    assert (request.table, request.into) == (TableName("shop", "orders"), TableName("shop_eu", "orders"))
    assert request.source is not None
    assert (request.source.name, request.target.name, request.first) == ("prod", "copy", First.ASSUME)
    assert request.export_limits == RateLimits(10, read_units=1)
    assert request.limits == RateLimits(10, write_units=2)
    assert (followed.source, followed.table, followed.keep) == (None, TableName("shop", "orders"), 3)
    assert followed.first is None
