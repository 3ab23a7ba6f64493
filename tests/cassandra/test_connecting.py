"""Connecting to a real cluster: what comes of addresses that are wrong, and values that are out of the usual."""

from __future__ import annotations

import multiprocessing
import warnings
from dataclasses import replace

from lakeward.cassandra.clusters import parse_cluster
from lakeward.cassandra.connection import ClusterAddress, connected, task_session, with_nodes
from lakeward.cassandra.tables import examine_cluster
from lakeward.config.services import ClusterSettings, TlsSettings
from lakeward.errors import ConfigurationError, RetriableError
from tests.servers.cassandra import refusal
from tests.servers.process import free_ports


def changed(address, **settings):
    return ClusterAddress(address.name, address.settings.model_copy(update=settings), address.password)


def test_an_address_without_any_configuration_works(cassandra_server):
    settings = cassandra_server.address.settings
    address = parse_cluster(f"cassandra://{settings.hosts[0]}:{settings.port}")
    with connected(address) as session:
        found = examine_cluster(session, address)
    assert found.startswith("Cassandra 5.")
    assert found.endswith("Murmur3Partitioner")


def test_timestamps_are_numbers_within_the_supported_range(cassandra_server, keyspace):
    session = cassandra_server.session()
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, at timestamp)")
    for key, at in enumerate((0, -(2**62), 2**62)):
        session.execute(f"INSERT INTO {keyspace}.t (k, at) VALUES ({key}, {at})")
    assert sorted(session.execute(f"SELECT k, at FROM {keyspace}.t")) == [(0, 0), (1, -(2**62)), (2, 2**62)]


def test_a_closed_port_is_reported_with_what_to_check():
    [port] = free_ports(1)
    address = ClusterAddress("prod", ClusterSettings(hosts=("127.0.0.1",), port=port, timeout=5))
    error = refusal(address, RetriableError, rf"no node of prod answers at 127\.0\.0\.1:{port}")
    assert "firewall" in error.hint


def test_an_unknown_host_is_reported():
    address = ClusterAddress("prod", ClusterSettings(hosts=("no-such-host.invalid",), timeout=5))
    refusal(address, ConfigurationError, r"cannot be resolved: .*no-such-host\.invalid:9042")


def test_an_unknown_data_centre_is_reported_with_the_known_names(cassandra_server):
    address = changed(cassandra_server.address, datacenter="mars")
    refusal(address, ConfigurationError, "no data centre 'mars'; it has datacenter1")


def test_tls_with_a_cluster_that_has_none_is_reported(cassandra_server):
    address = changed(cassandra_server.address, tls=TlsSettings(), timeout=4)
    refusal(address, (ConfigurationError, RetriableError), "local")


def test_a_node_that_is_not_configured_is_asked_where_those_that_are_do_not_answer(cassandra_server):
    address = with_nodes(cassandra_server.address, cassandra_server.session())
    settings = address.settings
    assert address.nodes == ((settings.hosts[0], settings.port),)
    [port] = free_ports(1)
    lost = replace(address, settings=settings.model_copy(update={"port": port, "timeout": 3}))
    with connected(lost) as session:
        assert session.execute("SELECT key FROM system.local").one() == ("local",)


def _ask_in_child(address, answers):
    warnings.simplefilter("error")
    first, second = task_session(address), task_session(address)
    answers.put((first is second, first.execute("SELECT key FROM system.local").one()))


def test_a_process_has_one_session_of_its_own_made_after_the_fork(cassandra_server):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_ask_in_child, args=(cassandra_server.address, answers))
    child.start()
    assert answers.get(timeout=300) == (True, ("local",))
    child.join(300)
    assert child.exitcode == 0


def test_several_connections_are_one_session(cassandra_server, keyspace):
    session = task_session(changed(cassandra_server.address, connections=3))
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, at timestamp)")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, at) VALUES (?, ?)")
    for future in [session.execute_async(insert.bind((key, 2**62 + key))) for key in range(9)]:
        future.result()
    select = session.prepare(f"SELECT at FROM {keyspace}.t WHERE k = ?")
    # Each of them reads numbers where the driver's own reader would end the connection.
    assert [session.execute(select.bind((key,))).one() for key in range(9)] == [(2**62 + key,) for key in range(9)]
    handlers = session.client_protocol_handler
    session.client_protocol_handler = handlers
    assert {connection.client_protocol_handler for connection in session._sessions} == {handlers}
    assert len({id(connection.cluster) for connection in session._sessions}) == 3
