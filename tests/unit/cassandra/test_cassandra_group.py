"""The group of commands, its shared options, and the desk that finds tables."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from lakeward.api.cassandra import CassandraDesk
from lakeward.cassandra.budget import Limits
from lakeward.cassandra.names import TableName
from lakeward.cli.cassandra import cassandra
from lakeward.cli.cassandra_options import (
    both_limits,
    cluster_option,
    limits_from,
    read_limits,
    tasks_option,
    write_limits,
)
from lakeward.cli.cassandra_written import ledger_beside
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError


def test_all_commands_are_there_and_say_what_they_do():
    assert set(cassandra.commands) == {"export", "import", "diff", "apply", "sync", "compare"}
    result = CliRunner().invoke(cassandra, ["--help"])
    assert result.exit_code == 0
    for command in cassandra.commands.values():
        assert command.get_short_help_str(40).rstrip(".") in result.output


def test_an_unknown_command_is_refused():
    assert "No such command 'exprot'" in CliRunner().invoke(cassandra, ["exprot"]).output


@pytest.mark.parametrize(
    ("options", "arguments", "limits"),
    [
        (read_limits, ["--max-rows-per-second", "10", "--max-rcu", "2.5"], Limits(10, read_units=2.5)),
        (write_limits, ["--max-rows-per-second", "10", "--max-wcu", "2.5"], Limits(10, write_units=2.5)),
        (both_limits, ["--max-rcu", "1", "--max-wcu", "2"], Limits(write_units=2, read_units=1)),
        (write_limits, [], Limits()),
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


def test_the_desk_finds_tables_of_clusters(tmp_path):
    config = parse_config({"clusters": {"prod": {"hosts": "a"}, "copy": {"hosts": "b"}}}, base=tmp_path)
    with CassandraDesk(config) as desk:
        place = desk.table('copy/shop."Orders"', "prod")
        assert (place.address.name, place.name) == ("copy", TableName("shop", "Orders"))
        assert str(place) == "copy/shop.Orders"
        assert desk.table("shop.orders", "prod").address.settings.hosts == ("a",)
        with pytest.raises(ConfigurationError, match="does not name a table"):
            desk.table("orders", "prod")


def test_what_is_written_is_recorded_in_the_same_cluster(tmp_path):
    config = parse_config({"clusters": {"prod": {"hosts": "a"}, "copy": {"hosts": "b"}}}, base=tmp_path)
    with CassandraDesk(config) as desk:
        place = desk.table("shop.orders", "copy")
    assert ledger_beside(place, None) is None
    assert ledger_beside(place, "copy/ops.state") == ledger_beside(place, "ops.state") == TableName("ops", "state")
    with pytest.raises(ConfigurationError, match=r"--ledger prod/ops\.state is in another cluster than copy/shop"):
        ledger_beside(place, "prod/ops.state")


def test_the_desk_needs_no_configuration_for_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with CassandraDesk() as desk:
        assert desk.table("shop.orders", "cassandra://127.0.0.1:9043").address.settings.port == 9043
