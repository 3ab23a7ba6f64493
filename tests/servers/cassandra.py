"""A real Cassandra: one that all tests share, and separate clusters for those that need more of it."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.cassandra.connection import ClusterAddress, connected
from lakeward.config.services import ClusterSettings
from lakeward.demo.cassandra.server import LocalCassandra, ServerOptions
from lakeward.errors import ConfigurationError, LakewardError
from tests.servers.shared import shared_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cassandra.cluster import Session

# A server that is there already: 127.0.0.1:9042. Each test creates its own keyspaces in it and drops them.
RUNNING = "LAKEWARD_TEST_CASSANDRA"
# As all JVMs of tests: see conftest.
_QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# A node that is starved shall answer late. Where there are others, one that is lost shall be missed as soon as usual.
_PATIENT = tuple(
    (f"{kind}request_timeout", "60s") for kind in ("", "read_", "range_", "write_", "counter_write_", "truncate_")
)
_PATIENCE_SECONDS = 120.0


@dataclass
class CassandraServer:
    """The shared server."""

    address: ClusterAddress
    _session: Session
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _keyspaces: list[str] = field(default_factory=list)

    def session(self) -> Session:
        """Return a session that all tests share."""
        return self._session

    def keyspace(self) -> str:
        """Create an empty keyspace and return its name."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        # Durable writes are off: the tests' data need not outlive the server.
        self._session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {replication} AND durable_writes = false", timeout=60
        )
        self._keyspaces.append(name)
        return name

    def drop_keyspaces(self) -> None:
        """Drop all keyspaces that tests made."""
        for name in self._keyspaces:
            self._session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)
        self._keyspaces.clear()


@contextmanager
def cassandra_at(folder: Path, **options: Any) -> Iterator[LocalCassandra]:
    """Run a cluster for the time of a ``with`` block: ``nodes=3``, ``login=True``, ``tls=True``, ``partitioner=…``."""
    try:
        settings = () if options.get("nodes", 1) > 1 else _PATIENT
        server = LocalCassandra(folder, ServerOptions(java=_QUICK_JAVA, settings=settings, **options))
        server.__enter__()
    except ConfigurationError as missing:
        pytest.skip(missing.message)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def served(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the server that all processes of the tests share."""
    with cassandra_at(folder, heap="512m") as local:
        yield {"host": local.hosts[0], "port": local.port}


@pytest.fixture(scope="session")
def cassandra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """The server that all tests share: make keyspaces of your own in it with ``keyspace()``."""
    host, _, port = os.environ.get(RUNNING, "").rpartition(":")
    if not port:
        found = shared_server(__name__, tmp_path_factory)
        host, port = found["host"], found["port"]
    address = ClusterAddress("local", ClusterSettings(hosts=(host,), port=int(port)))
    patient = replace(address, settings=address.settings.model_copy(update={"timeout": _PATIENCE_SECONDS}))
    with connected(patient) as session:
        server = CassandraServer(address, session)
        yield server
        server.drop_keyspaces()


def refusal(address: ClusterAddress, kind: Any, match: str) -> LakewardError:
    """See that no session comes of an address; give the error."""
    with pytest.raises(kind, match=match) as caught, connected(address):
        pass
    error: LakewardError = caught.value
    return error
