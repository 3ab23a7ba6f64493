"""The record of what was written to a table, in a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.ledger import Ledger
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.servers.cassandra import CassandraServer


def test_the_ledger_keeps_states_attempts_and_units_of_each_target_apart(
    cassandra_server: CassandraServer, keyspace: str
) -> None:
    session = cassandra_server.session()
    one, other = (Ledger(session, TableName(keyspace, name)) for name in ("one", "other"))
    one.look()
    assert (one.last(), one.under_way(), one.known("first")) == (None, None, None), "there is no table yet"
    one = Ledger(session, TableName(keyspace, "one"))
    one.create()
    other.create()
    assert one.table == TableName(keyspace, "lakeward_applied")
    assert (one.last(), one.under_way()) == (None, None)

    first = Job("first", "import", 8, 5, {"location": "/a", "checksum": "1"})
    assert one.begin(first) == 0
    assert one.under_way() == one.known("first") == first
    assert (one.under_way("import"), one.under_way("apply"), other.under_way()) == (first, None, None)
    assert [one.claim(first, 3) for _ in range(3)] == [0, 1, 2]
    assert one.done(first) == set(), "a unit that is begun is not done"
    one.finish_unit(first, 3, rows=10, rejected=0)
    one.finish_unit(first, 5, rows=10, rejected=2)
    assert one.begin(first) == 1
    assert (one.done(first), one.rejected(first)) == ({3, 5}, 2)
    assert one.claim(first, 3) == 3
    assert one.last() is None

    # With another number of units, none of the old ones counts.
    recut = Job("first", "import", 16, 5, {"location": "/a", "checksum": "1"})
    assert one.begin(recut) == 2
    assert one.done(recut) == set()
    one.finish_unit(recut, 1, rows=1, rejected=0)
    second = Job("second", "apply", 8, 6, {"location": "/b"}, "set")
    assert one.begin(second) == 0
    one.finish(second, rejected=4, dead_letters="/dead")
    state = one.last()
    assert state is not None
    # Rows of the first job are there as well: the content of the copy is unknown, and no change set counts as applied.
    assert (state.identity, state.change_set) == ({"location": "/b"}, None)
    assert state.unknown is not None
    assert (state.rejected, state.dead_letters) == (4, "/dead")
    # What else was begun counts no more, but that it was begun is still known: lists depend on it.
    assert one.under_way() is None
    assert one.known("first") is None
    assert one.begin(recut) == 3
    assert one.done(recut) == set()

    other.record({"location": "/c", "cassandra": {"schema": "much"}}, "set 2")
    held = other.last()
    assert held is not None
    assert (held.identity, held.change_set, held.rejected) == ({"location": "/c"}, "set 2", 0)
    other.look()
    assert other.last() == held
    other.forget()
    assert other.last() is None
    assert one.last() == state


def test_a_ledger_can_be_elsewhere_and_an_impossible_place_is_refused(
    cassandra_server: CassandraServer, keyspace: str
) -> None:
    session = cassandra_server.session()
    elsewhere = cassandra_server.keyspace()
    ledger = Ledger(session, TableName(keyspace, "one"), TableName(elsewhere, "State"))
    ledger.create()
    ledger.record({"id": "x"})
    state = ledger.last()
    assert state is not None
    assert state.identity == {"id": "x"}
    with pytest.raises(ConfigurationError, match="nowhere") as refused:
        Ledger(session, TableName("nowhere", "one")).create()
    assert "CREATE KEYSPACE" in str(refused.value.hint)
    assert "--ledger" in str(refused.value.hint)
    session.execute(f"CREATE TABLE {keyspace}.orders (k int PRIMARY KEY)")
    orders = TableName(keyspace, "orders")
    with pytest.raises(ConfigurationError, match="cannot keep the record") as refused:
        Ledger(session, orders, orders).last()
    assert "--ledger" in str(refused.value.hint)
