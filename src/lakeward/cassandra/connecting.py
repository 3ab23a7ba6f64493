"""Sessions with a cluster: one per process, with values as Cassandra has them."""

from __future__ import annotations

import atexit
import importlib.metadata
import itertools
import logging
import os
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import keyspaces
from lakeward.cassandra.retrying import pause_before
from lakeward.cassandra.spreading import SpreadSession
from lakeward.cassandra.types.wire import make_exact
from lakeward.errors import ConfigurationError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cassandra.cluster import Cluster, Session

    from lakeward.config.clusters import ClusterSettings

_EXTRA = "pip install 'lakeward[cassandra]'"
_LONGEST_CONNECT_SECONDS = 10.0
# A node that comes back is used again soon: the driver's own pauses grow to ten minutes.
_RECONNECT_SECONDS = 2.0
# How long a task goes on trying to connect: as long as it goes on asking for a page.
_PATIENCE_SECONDS = 60.0
# The newest that Keyspaces speaks, and all Cassandras since 2.2 do. Later ones wrap messages once more, which costs the
# driver a sixth of the time of writing rows.
_PROTOCOL = 4


@dataclass(frozen=True)
class ClusterAddress:
    """All that is needed to reach a cluster, also from within a task. The password travels with it and is not shown.

    ``nodes`` are others of its nodes, address and port, to ask where those that are configured do not answer.
    """

    name: str
    settings: ClusterSettings
    password: str | None = field(default=None, repr=False)
    nodes: tuple[tuple[str, int], ...] = field(default=(), repr=False, compare=False)


def with_nodes(address: ClusterAddress, session: Session) -> ClusterAddress:
    """Add the nodes that a session knows of: a task may begin when the configured ones are lost and others are not."""
    cluster, wanted = session.cluster, address.settings.datacenter
    hosts = cluster.metadata.all_hosts()
    # The driver takes the data centre of a node that it is given for its own.
    own = {wanted} if wanted else {one.datacenter for one in hosts if one.endpoint in cluster.endpoints_resolved}
    nodes = {(one.endpoint.address, one.endpoint.port) for one in hosts if one.datacenter in own}
    return replace(address, nodes=tuple(sorted(nodes)))


@contextmanager
def connected(address: ClusterAddress) -> Iterator[Session]:
    """Hold a session for the time of a ``with`` block; for the driver process.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured, or refuses the login.
        RetriableError: no node answers.
    """
    session = open_session(address)
    try:
        yield session
    finally:
        session.cluster.shutdown()


# A process of Spark's serves one task after the other; connecting anew would cost each of them a second.
_SESSIONS: dict[tuple[int, ClusterAddress], Session] = {}
_OPENING = threading.Lock()


def task_session(address: ClusterAddress) -> Session:
    """Give the session that tasks of this process share; it is made after the fork, and ends with the process."""
    key = (os.getpid(), address)
    with _OPENING:
        if key not in _SESSIONS:
            _SESSIONS[key] = _shared_session(address)
        return _SESSIONS[key]


def _shared_session(address: ClusterAddress) -> Session:
    opened: list[Session] = []
    for _ in range(address.settings.connections):
        opened.append(_patient_session(address))
        atexit.register(opened[-1].cluster.shutdown)
    return opened[0] if len(opened) == 1 else SpreadSession(opened)


def _patient_session(address: ClusterAddress) -> Session:
    """Open a session, and again after a growing pause where no node answers: one may be starting just then."""
    end = time.monotonic() + _PATIENCE_SECONDS
    for attempt in itertools.count(2):
        try:
            return open_session(address)
        except RetriableError:
            if time.monotonic() > end:
                raise
        time.sleep(pause_before(attempt))
    raise AssertionError(address)


def open_session(address: ClusterAddress) -> Session:
    """Open a session that someone else ends, with its cluster.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured, or refuses the login.
        RetriableError: no node answers.
    """
    require_driver()
    try:
        return _opened(address)
    except RetriableError:
        if not address.nodes:
            raise
    return _opened(address, address.nodes)


def _opened(address: ClusterAddress, nodes: Sequence[tuple[str, int]] = ()) -> Session:
    from cassandra import UnresolvableContactPoints

    from lakeward.cassandra.refusals import explained

    _quieten_driver()
    try:
        cluster = _cluster(address, nodes)
    except UnresolvableContactPoints as error:
        raise explained(error, address, ()) from error
    try:
        session = cluster.connect()
        _require_datacenter(cluster, address)
    except Exception as error:
        known = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
        cluster.shutdown()
        raise explained(error, address, known) from error
    session.default_fetch_size = address.settings.page_size
    return make_exact(session)


def require_driver() -> None:
    """Refuse to go on without the driver.

    Raises:
        ConfigurationError: it is not installed; says how to install it.
    """
    try:
        import cassandra.cluster  # noqa: F401
    except ImportError as error:
        msg = "tables of Cassandra need the driver, which is not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error


def driver_version() -> str:
    """Give the version of the driver."""
    return importlib.metadata.version("cassandra-driver")


def _cluster(address: ClusterAddress, nodes: Sequence[tuple[str, int]] = ()) -> Cluster:
    from cassandra import ConsistencyLevel
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import (
        ConstantReconnectionPolicy,
        DCAwareRoundRobinPolicy,
        FallthroughRetryPolicy,
        TokenAwarePolicy,
    )
    from cassandra.query import tuple_factory

    settings = address.settings
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.datacenter or "")),
        # Whether and when to ask again is decided in one place, with the budget in mind.
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[settings.consistency],
        request_timeout=settings.timeout,
        row_factory=tuple_factory,
    )
    patience = min(settings.timeout, _LONGEST_CONNECT_SECONDS)
    return Cluster(
        **_ways_in(settings, nodes),
        protocol_version=_PROTOCOL,
        auth_provider=_login(address),
        ssl_context=_tls(address),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(_RECONNECT_SECONDS, max_attempts=None),
        connect_timeout=patience,
        control_connection_timeout=patience,
        application_name="lakeward",
        monitor_reporting_enabled=False,
    )


def _ways_in(settings: ClusterSettings, nodes: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Give what is connected to, and by which names certificates are checked."""
    from lakeward.cassandra.endpoints import NamedEndPoints, names_of

    hosts, port = keyspaces.hosts_and_port(settings)
    # All nodes of Keyspaces show the certificate of its endpoint, whatever their own addresses are.
    shared = hosts[0] if settings.keyspaces else settings.tls and settings.tls.server_name
    if shared or settings.tls is None:
        named = {"ssl_options": {"server_hostname": shared}} if shared else {}
        return {"contact_points": [*nodes] or hosts, "port": port, **named}
    names = names_of(hosts, port)
    factory = NamedEndPoints(port, names)
    points = [factory.named(*one) for one in nodes or [(one, port) for one in names]]
    # Where no name leads anywhere, the driver says so.
    return {"contact_points": points or hosts, "port": port, "endpoint_factory": factory}


def _login(address: ClusterAddress) -> Any:
    settings = address.settings
    if settings.username is not None:
        from cassandra.auth import PlainTextAuthProvider

        return PlainTextAuthProvider(settings.username, address.password)
    return keyspaces.signing_provider(settings.keyspaces) if settings.keyspaces is not None else None


def _tls(address: ClusterAddress) -> ssl.SSLContext | None:
    settings = address.settings.tls
    if settings is None:
        # Keyspaces takes encrypted connections only, with a certificate that every system knows.
        return ssl.create_default_context() if address.settings.keyspaces else None
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(path for path in (settings.ca, settings.certificate, settings.key) if path)
        msg = f"the certificates of cluster {address.name} cannot be loaded ({named}): {error}"
        raise ConfigurationError(msg, hint="correct tls: of the cluster; the files are in PEM format") from error
    context.check_hostname = settings.check_host_name
    return context


def _require_datacenter(cluster: Cluster, address: ClusterAddress) -> None:
    from lakeward.cassandra.refusals import no_such_datacenter

    known = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
    wanted = address.settings.datacenter
    if wanted is not None and known and wanted not in known:
        raise no_such_datacenter(address, known)


def _quieten_driver() -> None:
    """Let the driver's own log be seen only where everything is: what matters is raised, and told in our words."""
    is_debugging = logging.getLogger().isEnabledFor(logging.DEBUG)
    logging.getLogger("cassandra").setLevel(logging.NOTSET if is_debugging else logging.CRITICAL)
