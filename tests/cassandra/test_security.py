"""Logins, encryption and permissions against a real cluster that has them, and secrets that stay secret."""

from __future__ import annotations

import logging
import pickle
import socket
from types import SimpleNamespace

import pytest

from lakeward.cassandra.connection import ClusterAddress, connected
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.tables import examine_cluster, require_exportable, require_readable, require_writable
from lakeward.config.services import TlsSettings
from lakeward.errors import ConfigurationError, RefusedInputError, RetriableError
from tests.servers.cassandra import cassandra_at, refusal

PASSWORD = "s3cret/@:pw"
TABLE = TableName("shop", "orders")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A cluster with logins and TLS, whose certificate holds 127.0.0.1 and no other address."""
    names = ("dns:cassandra.example", "ip:127.0.0.1")
    with cassandra_at(tmp_path_factory.mktemp("guarded"), login=True, tls=True, names=names) as server:
        with connected(server.address) as session:
            for statement in (
                "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TABLE shop.orders (shop text, id int, at int, note text, PRIMARY KEY ((shop, id), at))",
                f"CREATE ROLE reader WITH PASSWORD = '{PASSWORD}' AND LOGIN = true",
                f"CREATE ROLE stranger WITH PASSWORD = '{PASSWORD}' AND LOGIN = true",
                "GRANT SELECT ON shop.orders TO reader",
            ):
                session.execute(statement, timeout=60)
        yield server


def with_tls(address, **settings):
    tls = address.settings.tls.model_copy(update=settings)
    return ClusterAddress(address.name, address.settings.model_copy(update={"tls": tls}), address.password)


def test_a_login_over_tls_works_and_is_described(guarded):
    with connected(guarded.address) as session:
        assert examine_cluster(session, guarded.address).endswith(", login cassandra, encrypted")


def test_a_wrong_password_is_refused_and_shown_nowhere(guarded, caplog):
    caplog.set_level(logging.DEBUG)
    address = guarded.address_for("reader", "wr0ng-Pa55word")
    error = refusal(address, ConfigurationError, "local refuses the login of user 'reader'")
    shown = [str(error), repr(error), repr(address), str(address), caplog.text]
    assert not any("wr0ng-Pa55word" in text for text in shown)
    assert pickle.loads(pickle.dumps(address)).password == "wr0ng-Pa55word"


def test_a_login_that_is_required_and_not_configured_is_reported(guarded):
    error = refusal(guarded.address_for(None, None), ConfigurationError, "requires a login")
    assert "CASSANDRA_PASSWORD" in error.hint


def reached_as(address, host):
    settings = address.settings.model_copy(update={"hosts": (host,)})
    return ClusterAddress("local", settings, address.password)


def test_a_certificate_is_held_against_the_name_that_is_configured(guarded, monkeypatch):
    # The node itself answers at this name; its certificate holds its address, but not the name.
    address = reached_as(guarded.address, "localhost")
    error = refusal(address, ConfigurationError, "certificate of local belongs to another host")
    assert "check_host_name" in error.hint
    with connected(with_tls(address, check_host_name=False)) as session:
        assert session.execute("SELECT key FROM system.local").one() == ("local",)
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more: look_up("127.0.0.1" if host.endswith(".example") else host, *more)
    )
    with connected(reached_as(guarded.address, "cassandra.example")) as session:
        assert session.execute("SELECT key FROM system.local").one() == ("local",)
    refusal(reached_as(guarded.address, "other.example"), ConfigurationError, "belongs to another host")


def test_all_nodes_may_share_the_name_of_their_certificate(guarded):
    with connected(with_tls(reached_as(guarded.address, "localhost"), server_name="cassandra.example")) as session:
        assert session.execute("SELECT key FROM system.local").one() == ("local",)
    refusal(with_tls(guarded.address, server_name="other.example"), ConfigurationError, "belongs to another host")


def test_a_certificate_of_an_unknown_authority_is_refused(guarded):
    error = refusal(with_tls(guarded.address, ca=None), ConfigurationError, "is not trusted")
    assert "ca: FILE" in error.hint


def test_missing_certificates_are_reported_by_name(guarded):
    refusal(with_tls(guarded.address, ca="/no/such.pem"), ConfigurationError, r"cannot be loaded \(/no/such\.pem\)")


def test_a_connection_without_tls_to_a_cluster_that_requires_it_names_the_reason(guarded):
    settings = guarded.address.settings.model_copy(update={"tls": None, "timeout": 4})
    address = ClusterAddress("local", settings, guarded.address.password)
    error = refusal(address, RetriableError, "no node of local answers")
    assert "TLS" in error.hint


def test_permissions_are_looked_at_before_work_begins(guarded):
    with connected(guarded.address_for("reader", PASSWORD)) as session:
        require_readable(session, TABLE)
        with pytest.raises(ConfigurationError, match=r"may not write shop\.orders") as caught:
            require_writable(session, read_table_schema(session, TABLE))
        assert 'GRANT MODIFY ON "shop"."orders"' in caught.value.hint
    with (
        connected(guarded.address_for("stranger", PASSWORD)) as session,
        pytest.raises(ConfigurationError, match=r"may not read shop\.orders"),
    ):
        require_exportable(session, SimpleNamespace(name=TABLE, has_counters=False))
    with connected(guarded.address) as session:
        session.execute("INSERT INTO shop.orders (shop, id, at, note) VALUES ('a', 1, 2, 'kept')")
        require_writable(session, read_table_schema(session, TABLE))
        assert session.execute("SELECT shop, id, at, note FROM shop.orders").all() == [("a", 1, 2, "kept")]


def test_a_ledger_that_an_administrator_made_needs_no_permission_to_make_one(guarded):
    with connected(guarded.address) as session:
        Ledger(session, TABLE).create()
        session.execute("GRANT SELECT ON shop.lakeward_applied TO reader", timeout=60)
    with connected(guarded.address_for("reader", PASSWORD)) as session:
        ledger = Ledger(session, TABLE)
        ledger.create()
        assert ledger.last() is None
        with pytest.raises(ConfigurationError, match=r"may not use shop\.lakeward_applied") as caught:
            ledger.record({"id": "x"})
        assert "GRANT MODIFY" in caught.value.hint
        with pytest.raises(ConfigurationError, match=r"cannot create shop\.other") as caught:
            Ledger(session, TABLE, TableName("shop", "other")).create()
        assert 'GRANT CREATE ON KEYSPACE "shop"' in caught.value.hint


def test_counters_are_refused_unless_asked_for(guarded):
    counters = SimpleNamespace(name=TABLE, has_counters=True)
    with connected(guarded.address) as session:
        with pytest.raises(RefusedInputError, match="has counters"):
            require_exportable(session, counters)
        require_exportable(session, counters, counters=True)


def test_settings_of_tls_check_host_names_by_default():
    assert TlsSettings().check_host_name
