"""Sessions with a cluster: one per process, with exact values, and the errors where none can be opened.

The driver keeps one connection to a node, and Amazon Keyspaces accepts 3,000 requests per second on each: a session may
therefore spread its requests over several connections. Nodes are known by the names that their certificates hold: the
driver uses addresses once it has resolved names, and would check a certificate against the address.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import itertools
import logging
import os
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory

from lakeward.cassandra import keyspaces
from lakeward.cassandra.retry import error_text, errors_of, is_refusal, pause_before
from lakeward.cassandra.wire import make_exact
from lakeward.errors import ConfigurationError, LakewardError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cassandra.cluster import Cluster, Session
    from cassandra.connection import EndPoint

    from lakeward.config.services import ClusterSettings


class NamedEndPoint(DefaultEndPoint):  # type: ignore[misc]
    """A node whose certificate must contain a name."""

    def __init__(self, address: str, port: int, name: str) -> None:
        super().__init__(address, port)
        self.ssl_name = name

    @property
    def ssl_options(self) -> dict[str, str]:
        """The options of an encrypted connection."""
        return {"server_hostname": self.ssl_name}


class NamedEndPoints(DefaultEndPointFactory):  # type: ignore[misc]
    """A factory of nodes: those that are configured by a name keep it."""

    def __init__(self, port: int, names: Mapping[str, str]) -> None:
        super().__init__(port)
        self._names = names

    def create(self, row: Mapping[str, object]) -> EndPoint:
        """Return the node of a row of ``system.peers``."""
        found = super().create(row)
        return self.named(found.address, found.port)

    def named(self, address: str, port: int) -> EndPoint:
        """Return the node of an address."""
        return NamedEndPoint(address, port, self._names.get(address, address))


def names_of(hosts: Iterable[str], port: int) -> dict[str, str]:
    """Return the configured name of each address; names that cannot be resolved are left out."""
    found: dict[str, str] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except socket.gaierror:
            continue
        for *_, place in answers:
            found.setdefault(str(place[0]), host)
    return found


_EXTRA = "pip install 'lakeward[cassandra]'"
_LONGEST_CONNECT_SECONDS = 10.0
# Soon use a node again that has returned: the driver's own pauses grow to ten minutes.
_RECONNECT_SECONDS = 2.0
# How long a task tries to connect: as long as it tries to read a page.
_PATIENCE_SECONDS = 60.0
# The newest version that Keyspaces and all Cassandra releases since 2.2 support. Later ones frame messages once more,
# which costs the driver a sixth of the time of writing rows.
_PROTOCOL = 4


@dataclass(frozen=True)
class ClusterAddress:
    """Everything needed to reach a cluster, also from a task. The password is included and not shown.

    ``nodes`` are further nodes, address and port, to try where the configured ones do not answer.
    """

    name: str
    settings: ClusterSettings
    password: str | None = field(default=None, repr=False)
    nodes: tuple[tuple[str, int], ...] = field(default=(), repr=False, compare=False)


def with_nodes(address: ClusterAddress, session: Session) -> ClusterAddress:
    """Return an address with the nodes that a session has found: configured nodes may be down when a task begins."""
    cluster, wanted = session.cluster, address.settings.datacenter
    hosts = cluster.metadata.all_hosts()
    # The driver uses the data centre of the node that it connects to first.
    own = {wanted} if wanted else {host.datacenter for host in hosts if host.endpoint in cluster.endpoints_resolved}
    nodes = {(host.endpoint.address, host.endpoint.port) for host in hosts if host.datacenter in own}
    return replace(address, nodes=tuple(sorted(nodes)))


@contextmanager
def connected(address: ClusterAddress) -> Iterator[Session]:
    """Yield a session and close it afterwards; for the driver process.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured, or refuses the login.
        RetriableError: no node answers.
    """
    session = open_session(address)
    try:
        yield session
    finally:
        session.cluster.shutdown()


# A worker process of Spark runs many tasks; a new connection would cost each of them a second.
_SESSIONS: dict[tuple[int, ClusterAddress], Session] = {}
_OPENING = threading.Lock()


def task_session(address: ClusterAddress) -> Session:
    """Return the session that tasks of this process share; it is created after the fork, and ends with the process."""
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
    """Open a session; where no node answers, try again after growing pauses, since one may be starting."""
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
    """Open a session, whose cluster the caller shuts down.

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
    """Require the driver.

    Raises:
        ConfigurationError: it is not installed; the hint says how to install it.
    """
    try:
        import cassandra.cluster  # noqa: F401
    except ImportError as error:
        msg = "Cassandra tables need the driver, which is not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error


def driver_version() -> str:
    """Return the version of the driver."""
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
        # Retries are decided in one place, where the budget is.
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
    """Return the contact points, and the names by which certificates are checked."""
    from lakeward.cassandra.connection import NamedEndPoints, names_of

    hosts, port = keyspaces.hosts_and_port(settings)
    # All nodes of Keyspaces present the certificate of its endpoint, whatever their own addresses are.
    shared = hosts[0] if settings.keyspaces else settings.tls and settings.tls.server_name
    if shared or settings.tls is None:
        named = {"ssl_options": {"server_hostname": shared}} if shared else {}
        return {"contact_points": [*nodes] or hosts, "port": port, **named}
    names = names_of(hosts, port)
    factory = NamedEndPoints(port, names)
    points = [factory.named(*node) for node in nodes or [(name, port) for name in names]]
    # Where no name can be resolved, the driver raises the error.
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
        # Keyspaces accepts only encrypted connections, with a certificate that every system trusts.
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

    known = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
    wanted = address.settings.datacenter
    if wanted is not None and known and wanted not in known:
        raise no_such_datacenter(address, known)


def _quieten_driver() -> None:
    """Show the driver's own log only with --debug: errors that matter are raised with their own message."""
    is_debugging = logging.getLogger().isEnabledFor(logging.DEBUG)
    logging.getLogger("cassandra").setLevel(logging.NOTSET if is_debugging else logging.CRITICAL)


class SpreadSession:
    """Several sessions used in turn for requests; everything else is done by the first.

    A statement that one of them prepared can be used by all: nodes prepare it, not connections, and each session can
    prepare it again on a node that does not have it yet.
    """

    def __init__(self, sessions: Sequence[Any]) -> None:
        """Take over sessions of one cluster."""
        self.__dict__["_sessions"] = tuple(sessions)
        self.__dict__["_turns"] = itertools.cycle(sessions)

    def prepare(self, query: str) -> Any:
        """Prepare a statement for all sessions: within a batch, a node refers to it only by its id."""
        first, *others = self._sessions
        statement = first.prepare(query)
        for session in others:
            session.cluster.add_prepared(statement.query_id, statement)
        return statement

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """Run a statement on the next session."""
        return next(self._turns).execute(*arguments, **options)

    def execute_async(self, *arguments: Any, **options: Any) -> Any:
        """Start a statement on the next session."""
        return next(self._turns).execute_async(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        for session in self._sessions:
            setattr(session, name, value)


_WRONG_NAME = ("Hostname mismatch", "IP address mismatch")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def explained(error: Exception, address: ClusterAddress, datacenters: Collection[str]) -> LakewardError:
    """Return the error to raise for an error of the driver; ``datacenters`` are those it saw before it failed."""
    from cassandra import UnresolvableContactPoints

    if isinstance(error, LakewardError):
        return error
    causes = [*_causes(error)]
    if refused := next((cause for cause in causes if is_refusal(cause)), None):
        return _refused_login(address, refused)
    if broken := next((cause for cause in causes if "[SSL" in str(cause)), None):
        return _failed_tls(address, broken)
    if isinstance(error, UnresolvableContactPoints):
        msg = f"the hosts of {address.name} cannot be resolved: {_places(address)}"
        return ConfigurationError(msg, hint="correct hosts: of the cluster, or this machine's name resolution")
    wanted = address.settings.datacenter
    if wanted is not None and datacenters and wanted not in datacenters:
        return no_such_datacenter(address, datacenters)
    return _unreachable(error, address)


def no_such_datacenter(address: ClusterAddress, known: Collection[str]) -> ConfigurationError:
    """Return the error for a data centre that the cluster does not have."""
    msg = f"{address.name} has no data centre {address.settings.datacenter!r}; it has {', '.join(sorted(known))}"
    return ConfigurationError(msg, hint="correct datacenter: of the cluster, or leave it out")


def _refused_login(address: ClusterAddress, error: BaseException) -> ConfigurationError:
    if address.settings.username is None and address.settings.keyspaces is None:
        msg = f"{address.name} requires a login, and none is configured"
        hint = "username: and password: env:NAME of the cluster, or ?username=… and CASSANDRA_PASSWORD"
        return ConfigurationError(msg, hint=hint)
    who = f"user {address.settings.username!r}" if address.settings.username else "these AWS credentials"
    msg = f"{address.name} refuses the login of {who}: {_reason(error, address)}"
    return ConfigurationError(msg, hint="check the user's name, and the password that password: refers to")


def _failed_tls(address: ClusterAddress, error: BaseException) -> ConfigurationError:
    # The driver passes on only the text of the OpenSSL error.
    text = _reason(error, address)
    if any(words in text for words in _WRONG_NAME):
        msg = f"the certificate of {address.name} belongs to another host: {text}"
        hint = (
            "use the certificate's names for hosts:, or the name that all nodes share as tls: {server_name: NAME}; "
            "tls: {check_host_name: false} accepts any"
        )
        return ConfigurationError(msg, hint=hint)
    if _UNTRUSTED in text:
        msg = f"the certificate of {address.name} is not trusted: {text}"
        return ConfigurationError(msg, hint="tls: {ca: FILE} with the certificate that signed it")
    msg = f"the TLS connection to {address.name} failed: {text}"
    return ConfigurationError(msg, hint="check that the port uses TLS, and tls: of the cluster")


def _unreachable(error: Exception, address: ClusterAddress) -> RetriableError:
    msg = f"no node of {address.name} answers at {_places(address)}: {_reason(error, address)}"
    encrypted = address.settings.tls is not None or address.settings.keyspaces is not None
    also = "whether it requires TLS (tls: {})" if not encrypted else "the certificates"
    return RetriableError(msg, hint=f"check hosts and port, whether the cluster is up, the firewall, and {also}")


def _places(address: ClusterAddress) -> str:
    hosts, port = keyspaces.hosts_and_port(address.settings)
    return ", ".join(f"{host}:{port}" for host in hosts)


def _reason(error: BaseException, address: ClusterAddress) -> str:
    """Return the driver's reason without the password, which a server could have echoed."""
    each = [*dict.fromkeys(error_text(cause) for cause in errors_of(error))]
    text = "; ".join(each) or error_text(error)
    return text.replace(address.password, "…") if address.password else text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the errors of each node, and their causes."""
    if error is None:
        return
    yield error
    for cause in errors_of(error):
        yield from _causes(cause)
    yield from _causes(error.__cause__ or error.__context__)
