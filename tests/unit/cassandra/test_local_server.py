"""The local cluster of the demo and of tests, as far as it needs no Java."""

from __future__ import annotations

import socket
import subprocess

import pytest
import yaml

from lakeward.demo.cassandra import server
from lakeward.demo.cassandra.server import LocalCassandra, ServerOptions, ServerPorts, write_node_files
from lakeward.errors import ConfigurationError, RetriableError


def test_pins_are_complete_and_include_the_server():
    pinned = server.cassandra_jars()
    assert len({jar.file_name for jar in pinned}) == len(pinned) > 80
    assert all(len(jar.sha256) == 64 and jar.size > 0 and jar.coordinate.count(":") == 2 for jar in pinned)
    assert any(jar.coordinate.startswith("org.apache.cassandra:cassandra-all:") for jar in pinned)


def test_the_set_up_fetches_them(monkeypatch, capsys):
    monkeypatch.setattr(server, "resolve_program", lambda wanted: [f"/jars/{jar.file_name}" for jar in wanted])
    server.main()
    assert "/jars/cassandra-all-5.0.9.jar\n" in capsys.readouterr().out

    def refuse(_):
        msg = "no network"
        raise ConfigurationError(msg)

    monkeypatch.setattr(server, "resolve_program", refuse)
    with pytest.raises(SystemExit, match="no network"):
        server.main()


def test_a_nodes_configuration(tmp_path):
    options = ServerOptions(nodes=3, login=True, tls=True, partitioner="RandomPartitioner", settings=(("x", 1),))
    conf = write_node_files(tmp_path / "node2", "127.0.0.2", "127.0.0.1", ServerPorts(12_001, 12_002), options)
    written = yaml.safe_load((conf / "cassandra.yaml").read_text())
    assert (written["rpc_address"], written["native_transport_port"], written["storage_port"]) == (
        "127.0.0.2",
        12_001,
        12_002,
    )
    assert written["partitioner"].endswith(".RandomPartitioner")
    assert written["authenticator"]["class_name"].endswith("PasswordAuthenticator")
    assert written["client_encryption_options"]["keystore"] == str(tmp_path / "node.p12")
    assert written["x"] == 1


def test_ports_are_free_and_do_not_change(tmp_path):
    local = LocalCassandra(tmp_path, ServerOptions(nodes=2))
    assert local.hosts == ("127.0.0.1", "127.0.0.2")
    port = local.port
    assert local.port == port
    assert local.address.settings.port == port
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_java_that_is_too_new_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "require_java", lambda: 25)
    with pytest.raises(ConfigurationError, match="does not run on Java 25"):
        LocalCassandra(tmp_path).start()


def test_a_port_that_is_taken_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "require_java", lambda: 17)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"listens on 127.0.0.1:{port}"):
            LocalCassandra(tmp_path, ports=ServerPorts(port, port)).start()


def test_a_node_that_ends_immediately_is_reported_with_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "require_java", lambda: 17)
    monkeypatch.setattr(server, "_command", lambda *_: ["sh", "-c", "echo out of luck; exit 3"])
    with pytest.raises(RetriableError, match=r"node 1 .* ended with 3; .*\n.*out of luck"), LocalCassandra(tmp_path):
        pass


def test_the_error_output_of_keytool_is_kept(tmp_path, monkeypatch):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "keytool error: no room", "")

    monkeypatch.setattr(server.subprocess, "run", fail)
    with pytest.raises(ConfigurationError, match="keytool failed: keytool error: no room"):
        server.make_certificate(tmp_path, ServerOptions(tls=True))


def test_a_missing_keytool_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "java_program", lambda: str(tmp_path / "java"))
    with pytest.raises(ConfigurationError, match="keytool cannot be started"):
        server.make_certificate(tmp_path, ServerOptions(tls=True))
