"""Which names certificates must hold, and which nodes are used, without a server."""

from __future__ import annotations

import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra.connection import DefaultEndPoint
from cassandra.policies import IdentityTranslator

from lakeward.cassandra import connection
from lakeward.cassandra.connection import ClusterAddress, NamedEndPoints, names_of, task_session, with_nodes
from lakeward.config.services import ClusterSettings, TlsSettings
from lakeward.errors import RetriableError

_HOSTS = {"n1.example": ["10.0.0.1"], "n2.example": ["10.0.0.2", "fd00::2"], "10.0.0.9": ["10.0.0.9"]}
_NODES = (("10.0.0.2", 9042), ("10.0.0.7", 9042))


@pytest.fixture(autouse=True)
def _known_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, *_: object) -> list[Any]:
        if host not in _HOSTS:
            raise socket.gaierror
        return [(0, 0, 0, "", (address, port)) for address in _HOSTS[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def _ways_in(nodes: tuple[tuple[str, int], ...] = (), **settings: Any) -> dict[str, Any]:
    return connection._ways_in(ClusterSettings(**settings), nodes)


def test_a_node_must_show_the_name_that_it_is_configured_by_and_others_their_address() -> None:
    found = _ways_in(hosts=("n1.example", "n2.example", "10.0.0.9", "nowhere.example"), tls=TlsSettings())

    shown = {point.address: point.ssl_options["server_hostname"] for point in found["contact_points"]}
    assert shown == {
        "10.0.0.1": "n1.example",
        "10.0.0.2": "n2.example",
        "fd00::2": "n2.example",
        "10.0.0.9": "10.0.0.9",
    }
    factory = found["endpoint_factory"].configure(SimpleNamespace(address_translator=IdentityTranslator()))
    second, other = (factory.create({"rpc_address": address, "peer": address}) for address in ("10.0.0.2", "10.0.0.7"))
    assert (second.ssl_options["server_hostname"], other.ssl_options["server_hostname"]) == ("n2.example", "10.0.0.7")
    # A node that others describe is the node that was used first.
    assert second == found["contact_points"][1] == DefaultEndPoint("10.0.0.2", 9042)


def test_one_name_may_hold_for_all_nodes_and_plain_connections_have_none() -> None:
    hosts = ("n1.example",)
    assert _ways_in(hosts=hosts, tls=TlsSettings(server_name="db.example"))["ssl_options"] == {
        "server_hostname": "db.example"
    }
    plain = _ways_in(hosts=hosts)
    # With options of TLS the driver would encrypt.
    assert set(plain) == {"contact_points", "port"}
    assert _ways_in(keyspaces="eu-west-1")["ssl_options"]["server_hostname"] == "cassandra.eu-west-1.amazonaws.com"
    # The driver reports that no name can be resolved.
    assert _ways_in(hosts=("nowhere.example",), tls=TlsSettings())["contact_points"] == ["nowhere.example"]


def test_nodes_with_other_names_are_connected_by_those_names() -> None:
    assert _ways_in(_NODES, hosts=("n1.example",))["contact_points"] == [*_NODES]
    found = _ways_in(_NODES, hosts=("n1.example", "n2.example"), tls=TlsSettings())["contact_points"]
    assert [entry.ssl_options["server_hostname"] for entry in found] == ["n2.example", "10.0.0.7"]
    assert isinstance(_ways_in(_NODES, hosts=("n1.example",), tls=TlsSettings())["endpoint_factory"], NamedEndPoints)
    assert names_of(["nowhere.example"], 9042) == {}


def _host(address: str, datacenter: str) -> Any:
    return SimpleNamespace(endpoint=DefaultEndPoint(address, 9042), datacenter=datacenter)


@pytest.mark.parametrize(("datacenter", "expected"), [(None, _NODES[:1]), ("west", _NODES[1:])])
def test_tasks_get_the_nodes_of_the_data_centre_in_use(datacenter: str | None, expected: Any) -> None:
    hosts = [_host("10.0.0.2", "east"), _host("10.0.0.7", "west")]
    metadata = SimpleNamespace(all_hosts=lambda: hosts)
    cluster = SimpleNamespace(metadata=metadata, endpoints_resolved=[DefaultEndPoint("10.0.0.2", 9042)])
    address = ClusterAddress("one", ClusterSettings(hosts=("n2.example",), datacenter=datacenter))

    found = with_nodes(address, cast("Any", SimpleNamespace(cluster=cluster)))

    assert found.nodes == expected
    # A process needs no second session because a node joined.
    assert found == address


def _silent(times: int, tried: list[Any]) -> Any:
    def opened(_: object, nodes: Any = ()) -> str:
        tried.append(nodes)
        if len(tried) <= times:
            msg = "no node answers"
            raise RetriableError(msg)
        return "a session"

    return opened


def test_where_the_configured_nodes_do_not_answer_others_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    address = ClusterAddress("one", ClusterSettings(hosts=("n1.example",)))
    tried: list[Any] = []
    monkeypatch.setattr(connection, "_opened", _silent(1, tried))
    assert connection.open_session(replace(address, nodes=_NODES)) == "a session"
    assert tried == [(), _NODES]
    tried.clear()
    with pytest.raises(RetriableError):
        connection.open_session(address)
    assert tried == [()]


def test_a_task_keeps_trying_to_connect_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(connection, "time", clock)
    monkeypatch.setattr(connection, "atexit", SimpleNamespace(register=lambda _: None))
    session = SimpleNamespace(cluster=SimpleNamespace(shutdown=None))
    answers: list[Any] = [RetriableError("no"), RetriableError("no"), session]

    def opened(_: object) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(connection, "open_session", opened)
    assert task_session(ClusterAddress("patient", ClusterSettings(hosts=("a",)))) is session
    assert len(pauses) == 2
    answers[:] = [RetriableError(f"try {number}") for number in range(100)]
    with pytest.raises(RetriableError, match="try"):
        task_session(ClusterAddress("too patient", ClusterSettings(hosts=("a",))))
    assert 60 < sum(pauses) < 75
