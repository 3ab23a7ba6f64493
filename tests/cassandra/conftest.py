"""What tests with a real Cassandra share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.cassandra import CassandraServer


@pytest.fixture
def keyspace(cassandra_server: CassandraServer) -> str:
    """An empty keyspace of the test's own."""
    return cassandra_server.keyspace()
